"""Events on stderr."""

from __future__ import annotations

import io
import json
import os

from samplegate.telemetry.log import MAX_VALUE, EventLog, Format


def test_an_event_is_one_line_of_json_with_the_fields_given() -> None:
    stream = io.StringIO()
    EventLog(stream=stream).info("round.opened", server="db", n=2, none=None, names=("a", "b"))
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert {
        "level": "info",
        "event": "round.opened",
        "server": "db",
        "n": 2,
        "none": None,
        "names": ["a", "b"],
    } == event


def test_text_is_for_a_terminal_and_nothing_in_it_drives_one() -> None:
    stream = io.StringIO()
    EventLog(format="text", stream=stream).warning("request.refused", rule="no \x1b[31m secrets\n", kind="sampling")
    assert 'warning request.refused rule="no \\u001b[31m secrets\\n" kind=sampling\n' == stream.getvalue()[9:]


def test_nothing_in_it_commands_a_ci_system() -> None:
    stream = io.StringIO()
    formats: tuple[Format, ...] = ("json", "text")
    for format in formats:
        log = EventLog(format=format, stream=stream)
        try:
            raise LookupError("##vso[x]")
        except LookupError:
            log.error("a.b", tool="##[set-env]", exc_info=True)  # noqa: G201 # no logger of the standard library
    assert "##" not in stream.getvalue()
    assert "##[set-env]" == json.loads(stream.getvalue().splitlines()[0])["tool"]


def test_below_the_level_nothing_is_said() -> None:
    stream = io.StringIO()
    log = EventLog("warning", stream=stream)
    log.info("a.b")
    log.debug("a.b")
    log.error("a.c")
    assert ["a.c"] == [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


def test_a_traceback_comes_only_where_it_is_asked_for() -> None:
    stream = io.StringIO()
    formats: tuple[Format, ...] = ("json", "text")
    for format in formats:
        log = EventLog(format=format, stream=stream)
        try:
            raise LookupError("gone")
        except LookupError:
            log.error("request.failed", exc_info=True)  # noqa: G201 # no logger of the standard library
            log.error("request.failed")
    assert (2, 2) == (stream.getvalue().count("Traceback"), stream.getvalue().count("LookupError: gone"))


def test_long_values_are_cut() -> None:
    stream = io.StringIO()
    EventLog(stream=stream).info("a.b", x="x" * 100_000, many=list(range(1000)))
    event = json.loads(stream.getvalue())
    assert (MAX_VALUE, 50) == (len(event["x"]), len(event["many"]))


def test_a_pipe_that_nobody_reads_stops_nobody() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as end, os.fdopen(write, "w") as stream:
        log = EventLog(stream=stream)
        for number in range(3000):
            log.info("a.b", number=number)
        first = os.read(end.fileno(), 100)
    assert first.startswith(b'{"time"')


def test_a_closed_stream_stops_nobody() -> None:
    stream = io.StringIO()
    log = EventLog(format="json", stream=stream)
    stream.close()
    log.info("a.b")
