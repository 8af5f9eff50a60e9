"""The end of a client's input in a running gate: calls in flight are still answered, the wait is bounded, and calls
without an answer are counted. tests/unit/runtime/test_relay_waits.py has each kind of request."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.fakes.run_process import SLOW, call, opening, running

PAST = 1.5  # seconds: longer than the time that a server gets to end once nothing is in flight
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals")


@pytest.mark.parametrize(("server", "pings"), [("", True), ("modern", False)])
def test_calls_in_flight_are_answered_after_the_end_of_the_input_until_a_signal_ends_the_wait(
    tmp_path: Path, server: str, pings: bool
) -> None:
    """``server``: one of 2026-07-28 pings nobody."""
    with running(tmp_path, "--strict", command=(*SLOW, server)) as gate:
        gate.write(*opening(elicitation={}))
        assert 0 == gate.read()["id"]
        gate.write(call(1, seconds=PAST), call(2), call(3, "never"), call(4, seconds=0.5, ask="sample"))
        gate.write(call(5, seconds=0.5, ask="form"), *([call(6, seconds=0.5, ask="ping")] if pings else []))
        assert gate.process.stdin is not None
        gate.process.stdin.close()
        gate.process.stdin = None
        answers = {frame["id"]: frame for frame in (gate.read() for _ in range(5 if pings else 4))}
        gate.process.send_signal(signal.SIGTERM)
        code, rest, said = gate.end()
    assert (128 + signal.SIGTERM, {}) == (code, rest), said
    got = {id: frame["result"]["content"][0]["text"] for id, frame in answers.items()}
    assert ("null", "null") == (got[1], got[2])
    assert ("hi" in got[4], '"cancel"' in got[5], True) == (True, True, not pings or '"result": {}' in got[6])
    assert "2 requests: 1 answered, 1 unanswered; 1 call without an answer" in said


def test_a_call_without_an_answer_ends_the_wait_after_its_time_and_fails_strict(tmp_path: Path) -> None:
    with running(tmp_path, "--strict", "--end-of-input-timeout", "1") as gate:
        gate.write(*opening(), call(1, "never"))
        code, answers, said = gate.end()
    assert (3, [0]) == (code, sorted(answers)), said
    assert "samplegate: tools/call never: the server did not answer" in said
    assert "no requests; 1 call without an answer" in said


def test_a_client_that_reads_no_more_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path) as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.read()["id"]
        assert gate.process.stdin is not None
        assert gate.process.stdout is not None
        gate.process.stdout.close()
        gate.process.stdin.close()
        assert 0 == gate.process.wait(40)  # the wait for an answer would take 60 s


def test_the_wait_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("end_of_input_timeout: 0\n")
    with running(tmp_path, "--settings", "settings.yaml") as gate:
        gate.write(*opening(), call(1, "never"))
        assert 0 == gate.end()[0]
