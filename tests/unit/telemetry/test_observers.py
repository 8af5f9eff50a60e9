"""The session's notes: each is counted, and the first of a kind is logged."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from samplegate.protocol.rounds import Note
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.observers import MAX_LOGGED, NoteLog, Tally
from tests.fakes.metrics import value


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_first_of_an_event_are_logged_then_a_count_now_and_then_and_each_is_counted() -> None:
    stream, metrics = io.StringIO(), Metrics()
    notes = NoteLog(EventLog(stream=stream), metrics, "db")
    for _ in range(1234):
        notes.count(Note("frame.refused", {"side": "server", "fault": "no JSON"}))
    notes.count(Note("frame.unasked", {"side": "client"}))
    assert [None] * MAX_LOGGED + [100, 1000, None] == [event.get("count") for event in events(stream)]
    assert 1234 == value(metrics, "samplegate_frames_refused_total", server="db", side="server", reason="refused")
    assert "not every event is in the log: 1234 frame.refused" == notes.summary()


@pytest.mark.parametrize("event", ["frame.unasked", "frame.oversized", "frame.failed"])
def test_frames_that_are_lost_are_counted_by_their_reason(event: str) -> None:
    metrics = Metrics()
    notes = NoteLog(EventLog("error", stream=io.StringIO()), metrics, "db")
    notes.count(Note(event, {"side": "client"}))
    assert 1 == value(metrics, "samplegate_frames_dropped_total", side="client", reason=event.partition(".")[2])
    assert "" == notes.summary()


def test_a_fault_is_an_error_with_its_traceback() -> None:
    stream = io.StringIO()
    try:
        raise LookupError("gone")
    except LookupError:
        NoteLog(EventLog(stream=stream), Metrics(), "db").count(
            Note("request.failed", {"round": "r", "door": "push", "exc_info": True})
        )
    (event,) = events(stream)
    assert ("error", "r", True) == (event["level"], event["round"], "LookupError: gone" in event["exception"])


def test_what_is_only_for_whoever_looks_for_a_fault_is_not_warned_of() -> None:
    stream = io.StringIO()
    NoteLog(EventLog(stream=stream), Metrics(), "db").count(Note("cancel.unmatched", {"side": "client"}, warn=False))
    assert [] == events(stream)


def test_a_round_that_a_fault_ended_is_a_failure_for_strict() -> None:
    tally = Tally(Metrics())
    tally.count_fault("t-1")
    assert (1, "no requests; 1 round ended by an internal error") == (tally.counts.unanswered, tally.summary())
    assert ["round t-1: not answered because of an internal error; see the log"] == tally.failures()
