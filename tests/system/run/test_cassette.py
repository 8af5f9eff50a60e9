"""`samplegate run --record`: the real answers of a model and a client, and a replay that asks neither."""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.cli import main
from tests.fakes.openai_endpoint import Endpoint
from tests.fakes.run_command import FORM, SAMPLE, Client, RunCommand
from tests.fakes.run_process import Running, modern, opening, request, running
from tests.paths import PROGRAMS

NEVER: Final = (sys.executable, "-c", "open('started', 'w')")
REAL: Final = """
version: 1
models: [{name: real, model: openai/normal, api_base: "URL", api_key_env: KEY}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {system_prompt: {prepend: Be kind.}}}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""
TAPED: Final = """
version: 1
models: [{name: taped, model: scripted, cases: tapes/one.yaml}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {system_prompt: {prepend: Be kind.}}}
  - {name: person, match: {kind: elicitation}, effect: answer, cases: tapes/one.yaml}
"""


def question(what: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": {"type": "text", "text": what}}],
        "maxTokens": 50,
        "_meta": {"trace": what},
    }


def form(name: str) -> dict[str, Any]:
    return {"message": f"{name}?", "requestedSchema": {"type": "object", "properties": {name: {"type": "string"}}}}


def ask_person(client: Client, params: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Make the server send a form that is forwarded to the client. Returns the server's answer."""
    client.write(
        id=9,
        method="tools/call",
        params={"name": "t", "arguments": {"ask": {"method": "elicitation/create", "params": params}}},
    )
    asked = client.read()
    assert "elicitation/create" == asked["method"]
    client.write(id=asked["id"], result=result)
    answer: dict[str, Any] = client.read()["result"]["structuredContent"]["result"]
    return answer


def said(client: Client, what: str) -> tuple[str, str, str]:
    result = client.ask("sampling/createMessage", question(what))["result"]
    return result["content"]["text"], result["model"], result["stopReason"]


def test_a_recorded_run_is_repeated_without_the_model_and_without_the_client(run: RunCommand) -> None:
    tape = run.folder / "tapes" / "one.yaml"
    count = iter(range(100))
    with Endpoint(answer=lambda text: f"answer {next(count)} to {text}") as endpoint:
        (run.folder / "policy.yaml").write_text(REAL.replace("URL", endpoint.url))
        client = run("--record", str(tape), environment={"KEY": "sk-secret"})
        client.initialize(elicitation={})
        answers = [said(client, what) for what in ("Who?", "What?", "Who?", "Who?")]
        accepted = ask_person(client, FORM, {"action": "accept", "content": {"confirm": True}})
        ask_person(client, form("password"), {"action": "accept", "content": {"password": "hunter2"}})
        declined = ask_person(client, form("name"), {"action": "decline"})
        code, told = client.end()
    assert 0 == code
    assert f"recorded 6 cases in {tape}, 1 left out; to answer from it, add --record-mode replay" in told
    assert '{name: recorded, model: scripted, cases: "tapes/one.yaml"}' in told
    assert ["answer 0 to Who?", "answer 1 to What?", "answer 2 to Who?", "answer 3 to Who?"] == [
        answer[0] for answer in answers
    ]
    assert "sk-secret" not in tape.read_text()
    assert "hunter2" not in tape.read_text()

    (run.folder / "policy.yaml").write_text(TAPED)
    client = run()
    assert {"form": {}} == client.initialize()["elicitation"]
    assert answers == [said(client, what) for what in ("Who?", "What?", "Who?", "Who?")]
    again = [client.ask("elicitation/create", params)["result"] for params in (FORM, form("name"), form("password"))]
    assert [accepted["action"], declined["action"], "cancel"] == [answer["action"] for answer in again]
    assert accepted["content"] == again[0]["content"]
    assert "policy" == again[0]["_meta"]["samplegate/provenance"]["decided_by"]
    assert -1 == client.ask("sampling/createMessage", question("Never asked"))["error"]["code"]
    assert 0 == client.end()[0]


BOTH: Final[dict[str, Any]] = {"sampling": {"tools": {}}, "elicitation": {"form": {}}}
REPLAY: Final = ("--record", "tape.yaml", "--record-mode", "replay")
TOOLS: Final = [{"name": "rm", "inputSchema": {"type": "object"}}]


GONE: Final = "http://127.0.0.1:1/v1"
"""The URL of an endpoint that does not listen."""
WITH_TOOLS: Final = """
version: 1
models:
  - {name: real, model: openai/normal, api_base: "URL", api_key_env: KEY, warm: true, price: {input: 1, output: 2}}
  - {name: tooled, model: openai/call, api_base: "URL", api_key_env: KEY, accepts: [tools]}
rules:
  - {name: tools, match: {kind: sampling, tools: true}, effect: allow, with: {models: [tooled]}}
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [real], system_prompt: {prepend: Be kind.}}}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""


def imported(log: str) -> set[str]:
    """The modules that a process imported, from the output of ``python -X importtime``."""
    return {line.rpartition("|")[2].strip() for line in log.splitlines() if line.startswith("import time:")}


@pytest.mark.timeout(180)  # two gates and a model worker: more than a minute at a load of ten
def test_a_replay_gives_the_server_the_same_bytes_without_endpoint_key_and_client(run: RunCommand) -> None:
    count = iter(range(100))
    asked = [("sampling/createMessage", question(what)) for what in ("Who?", "What?", "Who?", "Who?")]
    asked.append(("sampling/createMessage", {**question("Use it"), "tools": TOOLS}))
    with Endpoint(answer=lambda text: f"answer {next(count)} to {text}") as endpoint:
        (run.folder / "policy.yaml").write_text(WITH_TOOLS.replace("URL", endpoint.url))
        client = run("--record", "tape.yaml", environment={"KEY": "sk-secret"})
        client.initialize(**BOTH)
        answers = [served(client.ask(*one)) for one in asked]
        accepted = ask_person(client, FORM, {"action": "accept", "content": {"confirm": True}})
        assert 0 == client.end()[0]
    before, bill = (run.folder / "tape.yaml").read_bytes(), [*map(billed, run.records())]
    run.log.unlink()

    (run.folder / "policy.yaml").write_text(WITH_TOOLS.replace("URL", GONE))
    client = run(*REPLAY, environment={"PYTHONPROFILEIMPORTTIME": "1"})
    client.initialize(**BOTH)
    assert "toolUse" in answers[-1]
    assert answers == [served(client.ask(*one)) for one in asked]
    again = client.ask("elicitation/create", FORM)["result"]
    assert accepted == {name: value for name, value in again.items() if name != "_meta"}
    assert "policy" == again["_meta"]["samplegate/provenance"]["decided_by"]
    assert "samplegate.sampler.worker" not in children(client)
    code, told = client.end()
    assert (0, True) == (code, "replayed 6 answers from tape.yaml" in told)
    assert "samplegate: warning" not in told
    assert not any("litellm" in module.partition(".")[0] for module in imported(told))
    assert before == (run.folder / "tape.yaml").read_bytes()
    assert {("answered", "policy")} == {(record["outcome"], record["decided_by"]) for record in run.records()}
    assert bill == [*map(billed, run.records())]
    assert 7 == bill[0]["input_tokens"]
    assert bill[0]["cost_usd"] > 0


def billed(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says about its rule, model, tokens and cost."""
    names = ("effect", "rule", "model", "input_tokens", "output_tokens", "cost_usd", "reserved_usd")
    return {name: record.get(name) for name in names}


def served(answer: Mapping[str, Any]) -> str:
    """The result that the server got, without the ID of the decision."""
    return json.dumps({name: value for name, value in answer["result"].items() if name != "_meta"})


def children(client: Client) -> str:
    """The command lines of the gate's children; empty on systems without /proc."""
    gate = client.process.pid
    listed = Path(f"/proc/{gate}/task/{gate}/children")
    names = listed.read_text().split() if listed.exists() else []
    return " ".join(Path(f"/proc/{name}/cmdline").read_text() for name in names)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_replay_answers_in_both_protocol_versions(tmp_path: Path, era: str) -> None:
    """The client is asked when it records, and not when it replays."""
    (tmp_path / "policy.yaml").write_text("version: 1\nrules: [{name: all, effect: forward}]\n")
    results = {
        "sample": {"role": "assistant", "content": {"type": "text", "text": "mine"}, "model": "m", "stopReason": "x"},
        "form": {"action": "accept", "content": {"confirm": True}},
    }
    wrapped = (sys.executable, "-S", str(PROGRAMS / "slow.py"), *([era] if era == "modern" else []))
    with running(tmp_path, "--record", "tape.yaml", command=wrapped) as gate:
        opened(gate, era)
        recorded = [asked(gate, era, what, results[what]) for what in results]
        assert "recorded 2 cases in tape.yaml" in gate.end()[2]
    with running(tmp_path, *REPLAY, "--unused", "fail", command=wrapped) as gate:
        opened(gate, era)
        replayed = [asked(gate, era, what, None) for what in results]
        code, _, told = gate.end()
    assert recorded == replayed
    assert (0, True) == (code, "replayed 2 answers from tape.yaml" in told)


def opened(gate: Running, era: str) -> None:
    gate.write(*opening(era, **BOTH))
    gate.read()


def asked(gate: Running, era: str, what: str, answer: Mapping[str, Any] | None) -> Any:
    """Call a tool that asks. Returns the answer that the server got. Without ``answer``, the client must not be
    asked."""
    id = 10 * len(what)  # the server names its requests by call
    calling = request(id, "tools/call", name="work", arguments={"ask": what})
    gate.write(modern(calling, **BOTH) if era == "modern" else calling)
    if answer is not None:
        frame = gate.read()
        if era == "modern":
            state = frame["result"]["requestState"]
            calling["params"] |= {"requestState": state, "inputResponses": {"k": answer}}
            gate.write(modern({**calling, "id": id + 1}, **BOTH))
        else:
            gate.write({"jsonrpc": "2.0", "id": frame["id"], "result": answer})
    frame = gate.read()
    assert "result" in frame, frame
    got = json.loads(frame["result"]["content"][0]["text"])
    (result,) = got.values() if era == "modern" else [got["result"]]
    return {name: value for name, value in result.items() if name != "_meta"}


def test_an_unknown_request_is_not_answered_and_the_reason_is_in_the_log(run: RunCommand) -> None:
    (run.folder / "policy.yaml").write_text(REAL.replace("URL", GONE))
    client = run("--record", "tape.yaml", environment={"KEY": "x"})
    client.initialize(**BOTH)
    ask_person(client, FORM, {"action": "accept", "content": {"confirm": True}})
    client.end()
    run.log.unlink()

    client = run(*REPLAY, "--strict")
    client.initialize(**BOTH)
    assert -1 == client.ask("sampling/createMessage", question("Who?"))["error"]["code"]
    assert "cancel" == client.ask("elicitation/create", form("name"))["result"]["action"]
    code, told = client.end()
    assert 3 == code
    assert "replayed 0 answers from tape.yaml; 2 requests without a case; 1 of 1 case not used" in told
    assert [("model", "policy"), ("cannot", "policy")] == [
        (record["reason"], record["decided_by"]) for record in run.records()
    ]
    assert all("--record-mode replay" in record["detail"] for record in run.records())


@pytest.mark.parametrize(("unused", "code"), [((), 0), (("--unused", "ignore"), 0), (("--unused", "fail"), 3)])
def test_cases_that_were_not_used_fail_the_run_if_asked_for(
    run: RunCommand, unused: tuple[str, ...], code: int
) -> None:
    (run.folder / "tape.yaml").write_text("cases:\n- {text: hello, answer: hi}\n- {text: never, answer: lost}\n")
    client = run(*REPLAY, *unused)
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    left, told = client.end()
    assert (code, True) == (left, "replayed 1 answer from tape.yaml; 1 of 2 cases not used" in told)
    assert (code == 3) == ("tape.yaml:3: not used: case 2" in told)


def test_unused_cases_do_not_hide_the_exit_code_of_the_server(run: RunCommand) -> None:
    (run.folder / "tape.yaml").write_text("cases:\n- {text: never, answer: lost}\n")
    client = run(*REPLAY, "--unused", "fail")
    client.initialize()
    client.write(id=1, method="tools/call", params={"name": "t", "arguments": {"exit": 7}})
    assert 7 == client.end()[0]


def test_all_is_recorded_anew_and_a_killed_run_loses_nothing(run: RunCommand) -> None:
    tape = run.folder / "tape.yaml"
    all_anew = ("--record", "tape.yaml", "--record-mode", "all")
    tape.write_text(before := "cases:\n- {text: hello, answer: old}\n- {text: other, answer: old}\n")
    client = run(*all_anew)
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.process.kill()
    client.process.communicate(timeout=20)
    assert before == tape.read_text()

    client = run(*all_anew)
    client.initialize()
    code, told = client.end()
    assert (0, True, before) == (code, "recorded no cases; tape.yaml is unchanged" in told, tape.read_text())

    client = run(*all_anew)
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    code, told = client.end()
    assert (0, True) == (code, "recorded 1 case in tape.yaml, in place of 2; to answer from it" in told)
    assert ("hi there" in tape.read_text(), "old" in tape.read_text()) == (True, False)
    assert {"tape.yaml"} == {path.name for path in run.folder.iterdir() if "tape" in path.name}


def test_a_signal_ends_a_recording_as_the_end_of_input_does(run: RunCommand) -> None:
    client = run("--record", "tape.yaml", "--record-mode", "all")
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.process.send_signal(signal.SIGTERM)
    assert 128 + signal.SIGTERM == client.end()[0]
    assert "hi there" in (run.folder / "tape.yaml").read_text()


def test_a_server_that_cannot_start_leaves_no_file_behind(run: RunCommand) -> None:
    client = run("--record", "tape.yaml", "--record-mode", "all", command=("./missing",))
    assert 2 == client.end()[0]
    assert [] == [path.name for path in run.folder.iterdir() if "tape" in path.name]


def test_two_gates_replay_one_file_at_once(run: RunCommand) -> None:
    (run.folder / "tape.yaml").write_text("cases:\n- {text: hello, answer: hi}\n")
    (run.folder / "tape.yaml").chmod(0o400)
    clients = [run(*REPLAY) for _ in range(2)]
    for client in clients:
        client.initialize()
    assert ["hi", "hi"] == [
        client.ask("sampling/createMessage", SAMPLE)["result"]["content"]["text"] for client in clients
    ]
    assert [0, 0] == [client.end()[0] for client in clients]


@pytest.mark.parametrize("there", [None, "", "cases: []\n"])
def test_a_replay_of_nothing_does_not_start(run: RunCommand, there: str | None) -> None:
    if there is not None:
        (run.folder / "tape.yaml").write_text(there)
    code, told = run(*REPLAY, command=NEVER).end()
    assert (2, True) == (code, "record: " in told)
    assert not (run.folder / "started").exists()
    assert (there is not None) == (run.folder / "tape.yaml").exists()


@pytest.mark.parametrize(("ci", "replays"), [("true", True), ("1", True), ("False", False), ("0", False), ("", False)])
def test_a_gate_in_ci_replays_by_default_and_says_so(run: RunCommand, ci: str, replays: bool) -> None:
    (run.folder / "tape.yaml").write_text(before := "cases:\n- {text: nothing, answer: hi}\n")
    client = run("--record", "tape.yaml", environment={"CI": ci})
    client.initialize()
    answer = client.ask("sampling/createMessage", SAMPLE)
    code, told = client.end()
    line = "replaying tape.yaml, because CI is set; to record, add --record-mode once"
    assert (0, replays, replays) == (code, "error" in answer, line in told)
    assert replays == (before == (run.folder / "tape.yaml").read_text())


def test_the_record_mode_of_the_command_line_counts_in_ci_too(run: RunCommand) -> None:
    client = run("--record", "tape.yaml", "--record-mode", "once", environment={"CI": "true"})
    client.initialize()
    assert "result" in client.ask("sampling/createMessage", SAMPLE)
    assert "recorded 1 case in tape.yaml" in client.end()[1]


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_the_tape_is_its_owners_alone(run: RunCommand) -> None:
    client = run("--record", "tape.yaml")
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.end()
    assert 0o600 == stat.S_IMODE((run.folder / "tape.yaml").stat().st_mode)
    assert "hi there" in (run.folder / "tape.yaml").read_text()


def test_a_file_that_is_no_tape_keeps_it_from_starting_and_is_left_alone(run: RunCommand) -> None:
    before = (run.folder / "policy.yaml").read_text()
    code, told = run("--record", "policy.yaml", command=NEVER).end()
    assert (2, True) == (code, "record: policy.yaml is not a case file" in told)
    assert before == (run.folder / "policy.yaml").read_text()
    assert not (run.folder / "started").exists()


def test_what_a_run_decided_is_summed_up_and_decided_again(run: RunCommand, capsys: pytest.CaptureFixture[str]) -> None:
    client = run(environment={"SAMPLEGATE_RECORD_CONTENT": "full"})
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.ask("elicitation/create", FORM)
    client.ask("sampling/createMessage", question("no rule has this"))
    client.end()
    (run.folder / "new.yaml").write_text((run.folder / "policy.yaml").read_text().replace("text: hello", "text: rule"))
    (run.folder / "env").write_text("CONFIRM=true\n")
    new = ["--policy", str(run.folder / "new.yaml"), "--env-file", str(run.folder / "env")]

    assert 0 == main.main(["report", "--log", str(run.log), "--json"])
    summed = json.loads(capsys.readouterr().out)["servers"]["default"]
    assert {"allow: models": 1, "answer: forms": 1, "none: no rule": 1} == summed["rules"]
    assert {"t": 3} == summed["tools"]
    assert 1 == main.main(["replay", "--log", str(run.log), *new, "--client", "", "--fail-on-change", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (3, 2, 0) == (told["requests"], told["changed"], told["untold"])
    flips = {(change["was"]["rule"], *(now["rule"] for now in change["now"])) for change in told["changes"]}
    assert {("models", None), (None, "models")} == flips
