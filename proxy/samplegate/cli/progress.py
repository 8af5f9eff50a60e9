"""Progress of long work: a line on stderr that counts, if stderr is a terminal. It is removed at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TextIO, TypeVar

T = TypeVar("T")

QUIET: Final = 1.0
"""Seconds without progress at the start: short work shows none."""
PERIOD: Final = 0.2
"""Seconds between two lines."""


def counted(
    items: Iterable[T],
    what: str,
    *,
    total: int | None = None,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The items, while ``12,000 records`` or ``3 of 40 files`` is shown. ``stream``: stderr by default."""
    out = sys.stderr if stream is None else stream
    if out is None or not out.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield from items
        return
    due, shown = clock() + QUIET, False
    try:
        for done, item in enumerate(items):
            if clock() >= due:
                text = f"{done:,} {what}" if total is None else f"{done:,} of {total:,} {what}"
                out.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
                out.flush()
                due, shown = clock() + PERIOD, True
            yield item
    finally:
        if shown:
            out.write("\r\x1b[K")
            out.flush()
