"""Whole lines on stderr, in order. A slow reader blocks nothing."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from samplegate.telemetry.log import DELAY, FULL, MAX_BUFFERED, MAX_WRITE, EventLog, LineWriter
from samplegate.telemetry.metrics import Metrics
from tests.fakes.metrics import value


class Times:
    """An event loop's clock that only the test moves."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((seconds, call))

    def pass_by(self) -> None:
        due, self.due = self.due, []
        for _, call in due:
            call()


class Counted(io.StringIO):
    """A stream that counts its writes."""

    writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The non-blocking read end of a pipe, and a stream for its write end."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(write, "w") as stream:
        try:
            yield read, stream
        finally:
            os.close(read)


def emptied(end: int) -> str:
    """Everything in the pipe."""
    parts: list[bytes] = []
    try:
        while part := os.read(end, 1 << 20):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts).decode()


def test_what_is_collected_goes_by_one_write_when_its_time_has_come() -> None:
    stream, times = Counted(), Times()
    outlet = LineWriter(stream, times.later)
    for number in range(10):
        outlet.collect(f"line {number}")
    assert ("", [DELAY]) == (stream.getvalue(), [seconds for seconds, _ in times.due])
    times.pass_by()
    assert ("".join(f"line {number}\n" for number in range(10)), 1, []) == (stream.getvalue(), stream.writes, times.due)


def test_a_line_that_is_to_go_now_goes_after_all_that_is_collected() -> None:
    stream, times = Counted(), Times()
    outlet = LineWriter(stream, times.later)
    outlet.collect("a")
    outlet.collect("b")
    outlet.put("c")
    outlet.collect("d")
    outlet.put("e")
    times.pass_by()
    assert "a\nb\nc\nd\ne\n" == stream.getvalue()


@pytest.mark.anyio
async def test_on_a_real_loop_a_batch_goes_without_anything_else_happening() -> None:
    written = asyncio.Event()

    class Told(io.StringIO):
        def flush(self) -> None:
            written.set()

    stream = Told()
    LineWriter(stream).collect("a")
    assert "" == stream.getvalue()
    async with asyncio.timeout(20):
        await written.wait()
    assert "a\n" == stream.getvalue()


def test_without_an_event_loop_nothing_is_collected() -> None:
    stream = io.StringIO()
    LineWriter(stream).collect("a")
    assert "a\n" == stream.getvalue()


def test_much_is_written_before_its_time() -> None:
    stream, times = Counted(), Times()
    outlet = LineWriter(stream, times.later)
    for _ in range(FULL // 100 + 1):
        outlet.collect("x" * 99)
    assert FULL <= len(stream.getvalue())


def test_while_nobody_reads_lines_wait_and_keep_their_order() -> None:
    times = Times()
    with pipe() as (end, stream):
        outlet = LineWriter(stream, times.later)
        lines = [f"{number:099d}" for number in range(1500)]
        for line in lines:
            outlet.collect(line)
        outlet.put("at last")
        said = emptied(end)
        assert len(said) < 100 * len(lines)
        for _ in range(10):
            times.pass_by()
            said += emptied(end)
        assert ([*lines, "at last"], 0) == (said.splitlines(), outlet.dropped)


def test_what_comes_on_top_of_the_bound_is_dropped_and_counted_and_no_line_is_cut() -> None:
    times = Times()
    with pipe() as (end, stream):
        outlet = LineWriter(stream, times.later)
        for number in range(20_000):
            (outlet.put if number % 7 == 0 else outlet.collect)(f"{number:099d}")
        assert 0 < outlet.dropped
        said = ""
        for _ in range(20):
            said += emptied(end)
            times.pass_by()
        got = said.splitlines()
        assert (20_000, {99}) == (len(got) + outlet.dropped, {len(line) for line in got})
        assert sorted(got) == got
        assert len(said) < MAX_BUFFERED + (1 << 20)


def test_a_line_longer_than_a_pipe_takes_at_once_comes_whole() -> None:
    times = Times()
    with pipe() as (end, stream):
        outlet = LineWriter(stream, times.later)
        long = "x" * (MAX_BUFFERED * 2)
        outlet.put(long)
        outlet.collect("too much")
        said = ""
        for _ in range(2 * len(long) // MAX_WRITE):
            said += emptied(end)
            times.pass_by()
        outlet.put("after")
        assert ([long, "after"], 1) == ((said + emptied(end)).splitlines(), outlet.dropped)


def test_a_line_however_long_is_not_dropped_for_what_is_only_collected() -> None:
    stream, times = io.StringIO(), Times()
    outlet = LineWriter(stream, times.later)
    outlet.collect("a")
    outlet.put("x" * MAX_BUFFERED)
    assert (["a", "x" * MAX_BUFFERED], 0) == (stream.getvalue().splitlines(), outlet.dropped)


def test_a_closed_stream_stops_nobody_and_its_lines_are_counted() -> None:
    stream, times = io.StringIO(), Times()
    outlet = LineWriter(stream, times.later)
    stream.close()
    for _ in range(3):
        outlet.collect("a")
    outlet.put("b")
    times.pass_by()
    assert 4 == outlet.dropped


def test_what_is_dropped_is_a_metric_with_what_was_dropped_before() -> None:
    stream, metrics = io.StringIO(), Metrics()
    log = EventLog("info", "text", stream)
    log.info("seen")
    stream.close()
    log.info("before.counted")
    log.count_dropped(metrics)
    assert 1 == value(metrics, "samplegate_log_dropped_total")
    log.info("after")
    log.info("after")
    assert 3 == value(metrics, "samplegate_log_dropped_total")
