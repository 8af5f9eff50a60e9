"""`samplegate run` as a process, with a client on its pipes and a real server."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from watchfiles import watch

from tests.fakes.github_runner import commands
from tests.fakes.run_command import FORM, POLICY, SAMPLE, RunCommand
from tests.paths import PROXY


def test_a_client_without_either_capability_gets_its_servers_requests_answered(run: RunCommand) -> None:
    client = run()
    assert {"sampling": {"tools": {}}, "elicitation": {"form": {}}} == client.initialize()
    answer = client.ask("sampling/createMessage", SAMPLE)["result"]
    assert ("hi there", "policy") == (answer["content"]["text"], answer["_meta"]["samplegate/provenance"]["decided_by"])
    answer = client.ask("elicitation/create", FORM)["result"]
    assert {"action": "accept", "content": {"confirm": True}} == {name: answer[name] for name in ("action", "content")}
    code, said = client.end()
    assert 0 == code
    assert f"2 requests: 2 answered; decision log: {run.log}" in said
    assert ["models", "forms"] == [record["rule"] for record in run.records()]
    assert "hi there" not in run.log.read_text() + said


def test_the_servers_stderr_is_passed_through_and_its_banner_is_not_and_neither_is_its_code_at_our_end(
    run: RunCommand,
) -> None:
    client = run(environment={"EXIT_AT_EOF": "9"})
    client.initialize()
    code, said = client.end()
    assert (0, True, True) == (code, "server: started" in said, "frame.refused" in said)


def test_a_request_that_no_rule_covers_is_refused_and_strict_says_so(run: RunCommand) -> None:
    client = run("--strict")
    client.initialize()
    other = {**SAMPLE, "messages": [{"role": "user", "content": {"type": "text", "text": "anything else"}}]}
    assert -1 == client.ask("sampling/createMessage", other)["error"]["code"]
    code, said = client.end()
    assert 3 == code
    assert "sampling during t: unanswered (no_rule, no rule)" in said


def test_the_exit_code_is_the_servers_where_it_ends_by_itself_and_strict_lists_what_was_refused(
    run: RunCommand,
) -> None:
    client = run("--strict")
    client.initialize()
    client.ask(
        "sampling/createMessage",
        {**SAMPLE, "messages": [{"role": "user", "content": {"type": "text", "text": "anything else"}}]},
    )
    client.write(id=2, method="tools/call", params={"name": "t", "arguments": {"exit": 7}})
    assert b"" == client.process.stdout.read()  # type: ignore[union-attr]
    code, said = client.end()
    assert (7, True) == (code, "sampling during t: unanswered (no_rule, no rule)" in said)


def test_a_slow_client_gets_all_that_an_ended_server_wrote(run: RunCommand) -> None:
    client = run()
    client.initialize()
    client.write(id=1, method="tools/call", params={"name": "t", "arguments": {"flood": 40}})
    assert client.process.stderr is not None
    while b"server: gone" not in client.process.stderr.readline():
        pass
    with pytest.raises(subprocess.TimeoutExpired):
        client.process.wait(1.0)
    assert [f"{number}:" for number in range(40)] == [client.read()["params"]["data"][:-10_000] for _ in range(40)]
    assert 0 == client.end()[0]


def test_a_server_that_outlives_everything_is_ended_by_force(run: RunCommand) -> None:
    client = run(environment={"OUTLIVE": "1"})
    client.initialize()
    assert 0 == client.end()[0]  # tests/system/transport/test_child.py adds up what is waited for until then


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(run: RunCommand, number: signal.Signals) -> None:
    client = run()
    client.initialize()
    client.process.send_signal(number)
    assert b"" == client.process.stdout.read()  # type: ignore[union-attr]
    code, said = client.end()
    assert 128 + number == code
    assert "no requests" in said


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_signals_until_its_very_end_do_not_change_its_exit_code(run: RunCommand) -> None:
    client = run()
    client.initialize()
    client.process.send_signal(signal.SIGINT)
    assert b"" == client.process.stdout.read()  # type: ignore[union-attr]
    for _ in range(10_000):  # 20 s; it ends within 1.8 s
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.process.wait(0.002)
            break
        client.process.send_signal(signal.SIGTERM)
    code, said = client.end()
    assert 128 + signal.SIGINT == code
    assert "no requests" in said


def test_ten_megabytes_pass_each_way(run: RunCommand) -> None:
    client = run()
    client.initialize()
    assert 10 * 1024 * 1024 == len(client.call(repeat=10 * 1024 * 1024)["content"][0]["text"])
    assert [{"type": "text", "text": "x"}] == client.call(padding="y" * 10 * 1024 * 1024)["content"]


def test_keys_of_the_models_do_not_reach_the_server(run: RunCommand) -> None:
    (run.folder / "policy.yaml").write_text(
        "version: 1\nmodels: [{name: m, model: openai/gpt-5-mini, api_key_env: OUR_KEY}]\n"
        "rules: [{name: r, match: {kind: sampling}, effect: allow, with: {models: [m]}}]\n"
    )
    (run.folder / "env").write_text("FROM_FILE=also-secret\n")
    client = run("--env-file", "env", environment={"OUR_KEY": "secret", "OTHER": "kept"})
    client.initialize()
    seen = client.call(environment=True)["structuredContent"]
    assert ("kept", False, False) == (seen["OTHER"], "OUR_KEY" in seen, "FROM_FILE" in seen)


def test_the_metrics_file_is_written_at_the_end(run: RunCommand) -> None:
    client = run("--metrics-file", str(run.folder / "{server}-{pid}.prom"), "--server", "users")
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.end()
    text = (run.folder / f"users-{client.process.pid}.prom").read_text()
    labels = 'decided_by="policy",effect="allow",kind="sampling",outcome="answered",reason="rule",rule="models",server="users"'  # noqa: E501
    assert f"samplegate_requests_total{{{labels}}} 1.0" in text


def test_a_model_whose_time_ran_out_is_counted_as_that_and_not_as_taken_back(run: RunCommand) -> None:
    (run.folder / "policy.yaml").write_text(POLICY.replace("{models: [trial]}", "{models: [trial], timeout: 50ms}"))
    (run.folder / "cases.yaml").write_text("cases: [{answer: late, delay: 10s}]\n")
    client = run("--metrics-file", "m.prom")
    client.initialize()
    assert "timeout" == client.ask("sampling/createMessage", SAMPLE)["error"]["data"]["reason"]
    assert 0 == client.end()[0]
    assert ['samplegate_model_calls_total{model="trial",result="timeout"} 1.0'] == [
        line
        for line in (run.folder / "m.prom").read_text().splitlines()
        if line.startswith("samplegate_model_calls_total{")
    ]


def test_prometheus_can_ask_for_the_metrics_while_it_runs(run: RunCommand) -> None:
    client = run(environment={"SAMPLEGATE_METRICS_PORT": "0"})
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    assert client.process.stderr is not None
    said = next(line for line in iter(client.process.stderr.readline, b"") if b"metrics on" in line).decode()
    with urllib.request.urlopen(said.split("metrics on ")[1].strip(), timeout=20) as page:
        assert b"samplegate_requests_total{" in page.read()
    client.end()


def test_a_port_that_is_none_and_a_url_that_is_none_are_said_before_anything_is_started(run: RunCommand) -> None:
    for options, said in ((("--metrics-port", "70000"), "70000"), (("--url", "notaurl"), "--url: ")):
        words = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            *options,
            *(["--", "true"] if "--url" not in options else []),
        ]
        environment = {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"], "HOME": str(run.folder), "CONFIRM": "true"}
        done = subprocess.run(
            words, env=environment, cwd=run.folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert (2, True) == (done.returncode, said in done.stderr), done.stderr


def test_the_metrics_file_is_there_while_it_runs(run: RunCommand) -> None:
    path = run.folder / "gate.prom"
    client = run("--metrics-file", str(path), environment={"SAMPLEGATE_METRICS_INTERVAL": "1"})
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    # it is written anew each second
    for changed in watch(run.folder, watch_filter=None, rust_timeout=20_000, yield_on_timeout=True):
        assert changed
        if path.exists() and "samplegate_requests_total{" in path.read_text():
            break
    client.end()


def test_without_a_record_nothing_is_kept_and_without_refusals_strict_leaves_0(run: RunCommand) -> None:
    client = run("--strict", "--decision-log", "none")
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    assert not run.log.exists()


FORWARDING = "version: 1\nrules: [{name: person, match: {kind: sampling}, effect: forward}]\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes that can be polled")
def test_a_client_that_goes_while_the_server_takes_nothing_ends_it(run: RunCommand) -> None:
    client = run(command=(sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    assert client.process.stdin is not None
    to_gate = client.process.stdin.fileno()
    line = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"' + b"a" * 60_000 + b'"}}\n'
    os.set_blocking(to_gate, False)
    sent, idle = 0, 0
    while sent < 1_000_000 or idle < 10:  # what the pipes and the gate's own queue hold, then nothing is taken any more
        try:
            sent, idle = sent + os.write(to_gate, line), 0
        except BlockingIOError:
            idle += 1
            select.select([], [to_gate], [], 0.05)
    assert 0 == client.end()[0]


@pytest.mark.skipif(sys.platform == "win32", reason="flock")
def test_a_decision_log_that_another_process_holds_delays_no_end(run: RunCommand) -> None:
    import fcntl

    (run.folder / "policy.yaml").write_text(FORWARDING)
    client = run("--end-of-input-timeout", "0")
    client.initialize(sampling={})
    client.write(
        id=1,
        method="tools/call",
        params={"name": "t", "arguments": {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}},
    )
    assert "sampling/createMessage" == client.read()["method"]
    run.log.touch()
    with run.log.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert 0 == client.end()[0]  # which is waited for, but not for ever; the lock is never given back


def test_a_server_whose_answer_is_over_the_bound_fails_only_that_call(run: RunCommand) -> None:
    client = run(environment={"SAMPLEGATE_MAX_FRAME_BYTES": "2000000"})
    client.initialize()
    client.write(id=1, method="tools/call", params={"name": "t", "arguments": {"repeat": 3_000_000}})
    assert (1, -32603) == ((answer := client.read())["id"], answer["error"]["code"])
    assert [{"type": "text", "text": "x"}] == client.call(2)["content"]


def test_what_a_peer_chose_drives_neither_a_terminal_nor_a_ci_system(run: RunCommand) -> None:
    client = run("--strict")
    client.initialize()
    other = {**SAMPLE, "messages": [{"role": "user", "content": {"type": "text", "text": "anything else"}}]}
    ask = {"method": "sampling/createMessage", "params": other}
    client.write(
        id=1, method="tools/call", params={"name": "t\n::error::\x1b[2J\u202e##vso[x]", "arguments": {"ask": ask}}
    )
    client.read()
    code, said = client.end()
    assert 3 == code
    (line,) = [line for line in said.splitlines() if "sampling during" in line]
    assert line.startswith("samplegate: ")
    assert r"t\n::error::\x1b[2J\u202e#\x23vso[x]: unanswered" in line


FORGED: Final = "::error::forged\n  ::stop-commands::x\n##[add-mask]masked\nlast words"


@pytest.mark.parametrize("runner", ["", "GITHUB_ACTIONS"])
def test_a_servers_stderr_has_no_command_where_a_ci_runner_reads_it(run: RunCommand, runner: str) -> None:
    server = f"import sys; sys.stdin.readline(); sys.stderr.write({FORGED!r})"
    client = run(command=(sys.executable, "-S", "-c", server), environment={runner: "true"} if runner else {})
    client.write(id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}})
    _, said = client.end()
    assert (True, True) == ("forged" in said, "last words" in said)
    assert ([] if runner else ["error", "stop-commands", "add-mask"]) == [found.name for found in commands(said)]


def test_a_flood_of_refused_frames_does_not_flood_the_log(run: RunCommand) -> None:
    flood = "import sys; [print('no frame') for _ in range(500)]; sys.stdout.flush(); sys.stdin.read()"
    client = run("--metrics-file", str(run.folder / "m.prom"), command=(sys.executable, "-S", "-c", flood))
    client.write(method="notifications/initialized")
    code, said = client.end()
    assert (0, 21) == (code, said.count('"event": "frame.refused"'))
    assert "no requests; not every event is in the log: 500 frame.refused" in said
    text = (run.folder / "m.prom").read_text()
    assert 'samplegate_frames_refused_total{reason="refused",server="default",side="server"} 500.0' in text


class TestStart:
    """Problems are found before the server is started."""

    NEVER = (sys.executable, "-c", "open('started', 'w')")

    def test_a_wrong_policy_ends_it_with_2_and_the_place(self, run: RunCommand) -> None:
        (run.folder / "policy.yaml").write_text("version: 1\nrules: [{name: a, effect: alow}]\n")
        code, said = run(command=self.NEVER).end()
        assert (2, True) == (
            code,
            "policy.yaml:2:27: rules.0.effect: 'alow' is not one of allow, answer, forward, escalate, deny" in said,
        )
        assert not (run.folder / "started").exists()

    def test_a_variable_that_is_not_set_ends_it_with_2(self, run: RunCommand) -> None:
        (run.folder / "policy.yaml").write_text(POLICY.replace("${CONFIRM}", "${NOT_SET_ANYWHERE}"))
        code, said = run(command=self.NEVER).end()
        assert (2, True) == (code, "NOT_SET_ANYWHERE" in said)
        assert not (run.folder / "started").exists()

    def test_a_policy_that_is_not_there(self, run: RunCommand) -> None:
        (run.folder / "policy.yaml").unlink()
        code, said = run().end()
        assert (2, True) == (code, "policy.yaml: cannot be read: no such file or directory" in said)

    def test_a_command_that_is_not_there(self, run: RunCommand) -> None:
        code, said = run(command=("no-such-server",)).end()
        assert (2, True) == (code, "no-such-server" in said)

    def test_a_decision_log_that_cannot_be_written(self, run: RunCommand) -> None:
        code, said = run("--decision-log", str(run.folder)).end()
        assert (2, True) == (code, "is a folder" in said)

    def test_a_name_that_no_rule_can_match_is_warned_of(self, run: RunCommand) -> None:
        (run.folder / "policy.yaml").write_text(
            "version: 1\nrules: [{name: a, match: {server: other}, effect: deny}]\n"
        )
        client = run()
        client.initialize()
        assert "no rule can match a server named 'default'" in client.end()[1]


def test_a_warm_model_is_started_by_the_first_call_and_not_before(run: RunCommand) -> None:
    models = 'models: [{name: m, model: openai/none, api_base: "http://127.0.0.1:1/v1", warm: true}]'
    (run.folder / "policy.yaml").write_text(
        f"version: 1\n{models}\nrules: [{{name: a, match: {{kind: sampling}}, effect: allow}}]\n"
    )
    client = run()
    client.initialize()
    assert not _workers(client.process.pid)
    client.call(repeat=1)
    for _ in range(200):
        if _workers(client.process.pid):
            break
        client.call(repeat=1)
    assert _workers(client.process.pid)
    assert 0 == client.end()[0]


def _workers(gate: int) -> list[str]:
    """The command lines of the gate's workers."""
    children = Path(f"/proc/{gate}/task/{gate}/children")
    if not children.exists():
        pytest.skip("no /proc here")
    lines = []
    for child in children.read_text().split():
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{child}/cmdline").read_text())
    return [line for line in lines if "samplegate.sampler.worker" in line]
