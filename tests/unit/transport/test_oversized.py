"""Callbacks for a line that is too long: its beginning at once and its end when it is over, however the bytes are
chunked."""

from __future__ import annotations

import asyncio

import pytest

from samplegate.transport.lines import HEAD, TAIL, Lines

LINE = b"a" * HEAD + b"x" * 5000 + b"z" * TAIL


class Recorder:
    """A receiver that keeps its callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, ...]] = []

    def received(self, line: bytes) -> None:
        self.calls.append((line,))

    def oversized(self, size: int, head: bytes) -> None:
        assert size > 2000
        self.calls.append((b"begin", head))

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        self.calls.append((b"end", head, tail))

    def ended(self) -> None:
        """Ignored here."""


@pytest.mark.parametrize("chunk", [1, 7, 500, 4096, 1 << 20])
def test_begin_and_end_are_told_and_the_next_line_is_taken(chunk: int) -> None:
    async def feed() -> list[tuple[bytes, ...]]:
        ends = Recorder()
        lines = Lines(ends, 2000)
        text = LINE + b"\nnext\n"
        for start in range(0, len(text), chunk):
            lines.feed(text[start : start + chunk])
        return ends.calls

    assert [(b"begin", LINE[:HEAD]), (b"end", LINE[:HEAD], LINE[-TAIL:]), (b"next",)] == asyncio.run(feed())
