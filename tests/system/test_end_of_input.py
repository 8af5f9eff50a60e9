"""The end of a client's input: calls in flight are still answered, the wait is bounded, and what stays without an
answer is counted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.wrapping import SLOW, call, opening, running, serving

PAST = 1.5  # seconds: longer than a server gets to end once nothing is in flight
REQUESTS = {"form": "elicitation/create", "roots": "roots/list"}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals")


@pytest.mark.parametrize(
    ("client", "server"), [("legacy", ""), ("modern", "modern"), ("legacy", "modern"), ("modern", "")]
)
def test_a_call_in_flight_is_answered_after_the_end_of_the_input(tmp_path: Path, client: str, server: str) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, server)) as gate:
        gate.write(*opening(client), call(1, era=client, seconds=PAST), call(2, era=client))
        code, answers, said = gate.end()
    assert (0, [], [0, 1, 2]) == (code, [id for id in answers if "error" in answers[id]], sorted(answers)), said
    assert "no requests" in said


@pytest.mark.parametrize("client", ["legacy", "modern"])
def test_a_call_to_a_server_at_a_url_is_answered_after_the_end_of_the_input(tmp_path: Path, client: str) -> None:
    with (
        serving(tmp_path, command=(*SLOW, client)) as url,
        running(tmp_path, "--strict", "--url", url, command=()) as gate,
    ):
        gate.write(*opening(client), call(1, era=client, seconds=PAST))
        code, answers, said = gate.end()
    assert (0, True) == (code, "result" in answers.get(1, {})), said


def test_what_the_server_asks_after_the_end_of_the_input_is_answered_by_rule(tmp_path: Path) -> None:
    with running(tmp_path, "--strict") as gate:
        gate.write(*opening(), call(1, seconds=0.5, ask="sample", then=PAST))
        code, answers, said = gate.end()
    assert (0, True) == (code, "hi" in answers[1]["result"]["content"][0]["text"]), said
    assert "1 request: 1 answered" in said


@pytest.mark.parametrize(("client", "server"), [("legacy", ""), ("legacy", "modern")])
def test_a_form_for_a_client_that_can_answer_no_more_is_unanswered_and_fails_strict(
    tmp_path: Path, client: str, server: str
) -> None:
    with running(tmp_path, "--strict", command=(*SLOW, server)) as gate:
        gate.write(*opening(client, elicitation={}), call(1, seconds=0.5, ask="form"))
        code, answers, said = gate.end()
    assert (3, True) == (code, '"cancel"' in answers[1]["result"]["content"][0]["text"]), said
    assert "1 request: 1 unanswered" in said


@pytest.mark.parametrize(
    ("what", "answer"), [("form", '"error"'), ("roots", "the client has ended its input and cannot be asked")]
)
def test_what_the_client_was_asked_before_its_input_ended_is_answered(tmp_path: Path, what: str, answer: str) -> None:
    with running(tmp_path) as gate:
        gate.write(*opening(elicitation={}, roots={}), call(1, ask=what))
        assert 0 == gate.read()["id"]
        assert REQUESTS[what] == gate.read()["method"]
        code, answers, said = gate.end()
    assert (0, True) == (code, answer in answers[1]["result"]["content"][0]["text"]), said


def test_a_ping_of_the_server_is_answered_after_the_end_of_the_input(tmp_path: Path) -> None:
    with running(tmp_path) as gate:
        gate.write(*opening(), call(1, seconds=0.5, ask="ping"))
        code, answers, said = gate.end()
    assert (0, True) == (code, '"result": {}' in answers[1]["result"]["content"][0]["text"]), said


def test_a_call_without_an_answer_ends_the_wait_after_its_time_and_fails_strict(tmp_path: Path) -> None:
    with running(tmp_path, "--strict", "--end-of-input-timeout", "1") as gate:
        gate.write(*opening(), call(1, "never"))
        code, answers, said = gate.end()
    assert (3, [0]) == (code, sorted(answers)), said
    assert "samplegate: tools/call never: the server did not answer" in said
    assert "no requests; 1 call without an answer" in said


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    with running(tmp_path, "--strict") as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.read()["id"]
        assert gate.process.stdin is not None
        gate.process.stdin.close()
        gate.process.stdin = None
        with pytest.raises(subprocess.TimeoutExpired):
            gate.process.wait(PAST)
        gate.process.send_signal(signal.SIGTERM)
        code, _, said = gate.end()
    assert (128 + signal.SIGTERM, True) == (code, "1 call without an answer" in said)


def test_a_client_that_reads_no_more_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path) as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.read()["id"]
        assert gate.process.stdin is not None
        assert gate.process.stdout is not None
        gate.process.stdout.close()
        gate.process.stdin.close()
        assert 0 == gate.process.wait(40)  # the wait for an answer would take 60 s


@pytest.mark.parametrize("way", ["variable", "file"])
def test_the_wait_is_a_setting(tmp_path: Path, way: str) -> None:
    options = ["--settings", "settings.yaml"] if way == "file" else []
    (tmp_path / "settings.yaml").write_text("end_of_input_timeout: 0\n")
    environment = {"SAMPLEGATE_END_OF_INPUT_TIMEOUT": "0"} if way == "variable" else {}
    with running(tmp_path, *options, environment=environment) as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.end()[0]
