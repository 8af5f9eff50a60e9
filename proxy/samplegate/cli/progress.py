"""Progress of long work: a line on stderr that counts, if stderr is a terminal. It is removed at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self, TextIO, TypeVar

T = TypeVar("T")

QUIET: Final = 1.0
"""Seconds without progress at the start: short work shows none."""
PERIOD: Final = 0.2
"""Seconds between two lines."""


class Progress:
    """A counter of finished steps. ``stream``: stderr by default."""

    def __init__(
        self,
        what: str,
        *,
        total: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        out = sys.stderr if stream is None else stream
        self._what = what
        self._total = total
        self._out = out if out is not None and out.isatty() and os.environ.get("TERM", "dumb") != "dumb" else None
        self._clock = clock
        self._due = clock() + QUIET
        self._shown = False
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None and self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def step(self) -> None:
        """Count one step, and show the number from time to time."""
        self._done += 1
        self.show(self._done)

    def show(self, done: int) -> None:
        """Show the number of finished steps, if it is time to."""
        if self._out is None or (now := self._clock()) < self._due:
            return
        total = "" if self._total is None else f"of {self._total:,} "
        text = f"{done:,} {total}{self._what}"
        self._out.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
        self._out.flush()
        self._due, self._shown = now + PERIOD, True


def counted(
    items: Iterable[T],
    what: str,
    *,
    total: int | None = None,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The items, while ``12,000 records`` or ``3 of 40 files`` is shown."""
    with Progress(what, total=total, stream=stream, clock=clock) as progress:
        for done, item in enumerate(items):
            progress.show(done)
            yield item
