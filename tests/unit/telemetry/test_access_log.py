"""The access log: the same lines as the event log, at a fraction of the cost."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from samplegate.telemetry.log import EVENT, FORMS, AccessLog, EventLog, Format, Value

NOW = 1_793_620_801.25
REQUEST: dict[str, Value] = {
    "server": "db",
    "caller": "ci",
    "http": "POST",
    "method": "tools/call",
    "status": 200,
    "seconds": 0.000412,
}
HOSTILE: list[Value] = [
    'ci"}\n{"time": "2026-11-01T12:00:00.000Z", "level": "error", "event": "forged"}',
    "ci\r\nforged",
    "ci\u2028forged\u0085forged",
    "\x1b]0;title\x07\x1b[2J",
    "\x7f",
    "\x9b31m",
    "##vso[task.complete]",
    "###",
    "half \ud800 a character",
    "\U0001f600 ü",
    "nul \x00",
    '"\\',
    "c" * 100_000,
    "\u202e" * 100_000,
    "",
    2**70,
    True,
    0.0,
    1e-06,
]


@pytest.mark.parametrize("format", ["json", "text"])
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value)[:20])
def test_a_line_is_the_one_that_the_log_itself_would_write(format: Format, value: Value) -> None:
    stream = io.StringIO()
    fields = {**REQUEST, "caller": value, "method": value}
    AccessLog(EventLog(format=format, stream=stream), wall=lambda: NOW).write(fields)
    expected = FORMS[format]({"time": "2026-11-02T12:00:01.250Z", "level": "info", "event": EVENT, **fields})
    assert expected.replace("1e-06", "1e-6") + "\n" == stream.getvalue().replace("1e-06", "1e-6")


@pytest.mark.parametrize("format", ["json", "text"])
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value)[:20])
def test_nothing_that_a_stranger_chose_forges_a_line_or_drives_a_terminal(format: Format, value: Value) -> None:
    stream = io.StringIO()
    log = AccessLog(EventLog(format=format, stream=stream))
    log.write({**REQUEST, "caller": value, "session": value})
    log.write(REQUEST)
    said = stream.getvalue()
    assert (2, True, True) == (len(said.splitlines()), said.isascii(), said.replace("\n", "").isprintable())
    assert "##" not in said
    assert len(said) < 15_000
    if format == "json":
        first, second = [json.loads(line) for line in said.splitlines()]
        assert {"level": "info", "event": EVENT, **REQUEST} == {
            name: value for name, value in second.items() if name != "time"
        }
        assert (EVENT, "db", 200) == (first["event"], first["server"], first["status"])


def test_an_ordinary_line_reads_as_all_lines_do() -> None:
    stream = io.StringIO()
    log = EventLog(format="json", stream=stream)
    AccessLog(log).write(REQUEST)
    log.info(EVENT, **REQUEST)
    ours, theirs = [line.split(", ", 1)[1] for line in stream.getvalue().splitlines()]
    assert theirs == ours


@pytest.mark.anyio
@pytest.mark.parametrize("format", ["json", "text"])
async def test_lines_stand_in_the_order_in_which_things_happened(format: Format) -> None:
    stream = io.StringIO()
    log = EventLog(format=format, stream=stream)
    access = AccessLog(log)
    access.write({"server": "first"})
    access.write({"server": "second"})
    assert "" == stream.getvalue()
    log.warning("caller.refused", server="third")
    access.write({"server": "fourth"})
    log.debug("frame.unasked", server="not told")
    log.info("drain.ended", server="fifth")
    words = stream.getvalue().replace('"', " ").replace("=", " ").split()
    assert ["first", "second", "third", "fourth", "fifth"] == [
        word for word in words if word in {"first", "second", "third", "fourth", "fifth"}
    ]


@pytest.mark.parametrize(("level", "lines"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_below_the_level_nothing_is_written(level: Any, lines: int) -> None:
    stream = io.StringIO()
    access = AccessLog(EventLog(level, stream=stream))
    access.write(REQUEST)
    assert (bool(lines), lines) == (access.wanted, len(stream.getvalue().splitlines()))


def test_times_are_in_utc_and_their_milliseconds_have_passed() -> None:
    stream, now = io.StringIO(), [0.0]
    access = AccessLog(EventLog(format="json", stream=stream), wall=lambda: now[0])
    for now[0] in (1_793_620_800.9999, 1_793_620_801.0, 1_793_620_801.001, 1_793_620_799.5, 0.0):
        access.write({})
    expected = [
        "2026-11-02T12:00:00.999Z",
        "2026-11-02T12:00:01.000Z",
        "2026-11-02T12:00:01.000Z",
        "2026-11-02T11:59:59.500Z",
        "1970-01-01T00:00:00.000Z",
    ]
    assert expected == [json.loads(line)["time"] for line in stream.getvalue().splitlines()]
