"""The client's and the operator's view of a `run` that does not start, and of one with a nearly empty environment."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.run_process import BOUND, Running, call, lines, opening, running
from tests.fakes.shell import samplegate
from tests.paths import ROOT

WRONG = "version: 1\nrules:\n  - {name: a, effect: alow}\n  - {name: b, effect: deny, colour: red}\n"
PLACES = ("policy.yaml:3:23: rules.0.effect: 'alow' is not one of", "policy.yaml:4:29: rules.1.colour: ")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes")


def test_a_wrong_policy_is_the_answer_to_the_clients_first_request(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(WRONG)
    with running(tmp_path) as gate:
        gate.write(*opening())
        answer = gate.read()
        assert (0, -32603) == (answer["id"], answer["error"]["code"])
        assert [True, True] == [place in answer["error"]["message"] for place in PLACES], answer
        assert 2 == gate.process.wait(BOUND)
        assert [True, True] == [f"samplegate: {place}" in said for said in [gate.end()[2]] for place in PLACES]


def test_a_client_that_falls_back_from_discover_is_told_as_well(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(WRONG)
    with running(tmp_path) as gate:
        gate.write(*opening("modern"))
        assert "policy.yaml:3:23" in gate.read()["error"]["message"]
        gate.write({**opening()[0], "id": 1})
        assert [(1, True)] == [
            (answer["id"], "policy.yaml:3:23" in answer["error"]["message"]) for answer in [gate.read()]
        ]
        assert 2 == gate.process.wait(BOUND)


def test_a_command_that_does_not_exist_is_the_answer_too(tmp_path: Path) -> None:
    with running(tmp_path, command=("no-such-server",)) as gate:
        gate.write(*opening())
        assert "no-such-server" in gate.read()["error"]["message"]
        assert 2 == gate.process.wait(BOUND)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--policy", "p.yaml", "--nope", "--", "cat"), "unrecognized arguments: --nope"),
        (("--policy", "p.yaml"), "no command to wrap"),
    ],
)
def test_a_wrong_command_line_is_the_answer_too(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    given, pipe = {"PYTHONPATH": str(ROOT / "proxy"), "HOME": str(tmp_path)}, subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", "samplegate", "run", *words],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=tmp_path,
        env=given,
    )
    with process:
        try:
            gate = Running(process)
            gate.write(*opening())
            answer = gate.read()
            assert (0, -32603, True) == (
                answer["id"],
                answer["error"]["code"],
                what in answer["error"]["message"],
            ), answer
            code, _, said = gate.end()
        finally:
            process.kill()
    assert (2, 1, True) == (code, said.count(what), said.startswith("usage: samplegate"))


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_wrong_command_line_of_another_command_waits_for_no_client(tmp_path: Path, command: str) -> None:
    given, pipe = {"PYTHONPATH": str(ROOT / "proxy"), "HOME": str(tmp_path)}, subprocess.PIPE
    words = [sys.executable, "-m", "samplegate", command, "--nope"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env=given) as process:
        assert process.stdin is not None
        process.stdin.write(lines(*opening()))
        process.stdin.flush()
        assert (2, b"") == (process.wait(BOUND), process.communicate()[0])


def test_a_gate_that_does_not_start_waits_for_no_client_that_has_gone(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(WRONG)
    with running(tmp_path) as gate:
        code, answers, said = gate.end()
    assert (2, {}, True) == (code, answers, PLACES[0] in said)


def test_without_an_environment_it_starts_and_says_that_there_is_no_decision_log(tmp_path: Path) -> None:
    with running(tmp_path, environment={"HOME": ""}) as gate:
        gate.write(*opening(), call(1, ask="sample"))
        code, answers, said = gate.end()
    assert (0, True) == (code, "hi" in answers[1]["result"]["content"][0]["text"]), said
    assert "warning: no decision log is written, because the home folder is unknown" in said
    assert [] == [path for path in tmp_path.rglob("*") if path.name.endswith(".jsonl")]


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (
            (
                "limits: {a: {requests: 1, per: day, tz: UTC}}\nrules: [{name: a, match: {kind: sampling}, effect:"
                " forward, limits: [a]}]\n"
            ),
            "limits need a state folder",
        ),
        (
            "reviewers: {ops: {timeout: 1h}}\nrules: [{name: a, effect: escalate, reviewer: ops}]\n",
            "reviewers need a state folder",
        ),
    ],
)
def test_without_a_home_folder_it_does_not_start_where_the_policy_needs_one(
    tmp_path: Path, policy: str, what: str
) -> None:
    (tmp_path / "policy.yaml").write_text(f"version: 1\n{policy}")
    with running(tmp_path, environment={"HOME": ""}) as gate:
        code, _, said = gate.end()
    assert (2, True) == (code, what in said), said


@pytest.mark.parametrize(
    ("option", "expected"),
    [((), "no pending reviews\n"), (("--json",), "[]\n"), (("--store", "sqlite:r.db"), "no pending reviews\n")],
)
def test_before_the_first_review_nothing_is_pending(tmp_path: Path, option: tuple[str, ...], expected: str) -> None:
    ended = samplegate(tmp_path, "reviews", "list", *option, HOME=str(tmp_path))
    assert (0, expected, "") == (ended.code, ended.out, ended.err)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_at_a_terminal_it_says_that_it_waits_for_a_client(tmp_path: Path, *, at_a_terminal: bool) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("version: 1\nrules: [{name: none, effect: deny}]\n", "utf-8")
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "samplegate", "run", "--policy", str(policy), "--", "cat"],
            stdin=theirs if at_a_terminal else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "proxy"), "SAMPLEGATE_STATE": str(tmp_path / "state")},
            start_new_session=True,
        )
        os.write(ours, b"\x04")  # control-d
        said = process.communicate(timeout=BOUND)[1]
    finally:
        os.close(ours)
        os.close(theirs)
    assert at_a_terminal == ("samplegate: waiting for an MCP client on stdin. " in said)


def test_at_debug_the_start_has_the_clients_capabilities_and_the_webhooks_that_get_no_review(tmp_path: Path) -> None:
    webhook = "{url: 'https://10.0.0.5/x', secret_env: HOOK}"
    (tmp_path / "policy.yaml").write_text(
        f"version: 1\nreviewers: {{ops: {{webhook: {webhook}}}}}\n"
        "rules: [{name: x, match: {kind: sampling}, effect: escalate, reviewer: ops}]\n"
    )
    with running(tmp_path, "--log-level", "debug") as gate:
        gate.write(*opening(sampling={}, elicitation={"url": {}}))
        assert 0 == gate.read()["id"]
        _, _, said = gate.end()
    opened = next(json.loads(line) for line in said.splitlines() if '"session.opened"' in line)
    assert ("c", "2025-11-25", ["sampling", "elicitation.url"], ["sampling"]) == (
        opened["client"],
        opened["protocol"],
        opened["capabilities"],
        opened["advertised"],
    )
    assert "reviewers.ops.webhook.url: '10.0.0.5' is not a public address, and webhook_networks does not permit" in said
    assert "add `webhook_networks: [10.0.0.5/32]` to the settings" in said
