"""Reading lines of the decision log: the gate's own lines are read; anything else in a file is reported and does no
harm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.audit.record import Attempt, ContentMode, RecordLine, read_line
from tests.fakes import logged
from tests.fakes.requests import compiled, sampling

RECORD = logged.record(
    compiled(), sampling("half \ud83d"), attempts=(Attempt("smart", "ok", 1, 2, None),), duration_ms=1.5
)


@pytest.mark.parametrize("content", ["none", "hash", "full"])
def test_every_line_that_the_gate_writes_is_read(content: ContentMode) -> None:
    line = logged.line(RECORD, content)
    assert ("docs", "none", "no_rule", "unanswered", 1.5) == (
        line.server,
        line.effect,
        line.reason,
        line.outcome,
        line.duration_ms,
    )
    assert ["smart"] == [tried.model for tried in line.attempts]
    assert bool(bytes(line.request)) is (content == "full")


def test_a_line_that_revokes_another_says_so() -> None:
    assert [False, True] == [logged.line(replace(RECORD, revokes=revokes)).revokes for revokes in (False, True)]


def test_members_of_a_later_version_are_left_aside() -> None:
    assert "x" == logged.line(RECORD, brand_new={"a": [1]}, rule="x").rule


def changed(**more: Any) -> bytes:
    return json.dumps({**json.loads(logged.text(RECORD)), **more}).encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is not JSON"),
        (b'{"decision_id": "1", "tim', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is not a decision log record: Expected `object`, got `array`"),
        (b'{"request": ' + b"[" * 100_000, "is not JSON"),
        (b"[]", "is not a decision log record: Expected `object`, got `array`"),
        (b"{}", "is not a decision log record: Object missing required field `decision_id`"),
        (changed(server=5), "is not a decision log record: Expected `str`, got `int` - at `$.server`"),
        (changed(time="yesterday"), "is not a decision log record: the time is not in UTC"),
        (changed(time="2026-01-01T00:00:00+02:00"), "is not a decision log record: the time is not in UTC"),
    ],
)
def test_what_is_no_record_says_why(text: bytes, why: str) -> None:
    assert why == read_line(text)


@given(
    st.binary()
    | st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner)).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_nothing_that_stands_in_a_file_raises(text: bytes) -> None:
    assert isinstance(read_line(text), RecordLine | str)
