"""How the C library gives memory back after large frames, and how often Python looks for cycles of objects.

By default glibc raises its limits with each large block that is freed: then blocks up to 32 MiB come from the heap, and
up to 64 MiB of free memory stay at the heap's end. Two ways to get it back: fixed limits keep blocks of frames apart,
each of which goes back to the system once it is freed; or the whole heap is trimmed once no large frame has come for a
while. The first makes a call with large frames take about 1.5 times as long.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

import anyio

APART: Final = 4 << 20
"""Bytes from which a block is mapped by itself. Smaller ones stay cheap: a mapping costs a fault for each of its pages.
"""
CALM: Final = 1.0
"""Seconds without a large frame before the heap is trimmed."""
KEPT: Final = 8 << 20
"""Bytes that may stay free at the heap's end."""
NEW_OBJECTS: Final = 10_000
"""Between two collections: some megabytes at most."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's parameters (malloc.h)."""


def bound() -> None:
    """Fix the limits of this process; does nothing where the C library has no such function."""
    if sys.platform != "linux":
        return
    import ctypes  # 3 ms

    with suppress(OSError, AttributeError):  # musl has no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, APART)
        mallopt(_TRIM_THRESHOLD, KEPT)


def settle() -> None:
    """What exists now stays: Python's collector leaves it out, and looks at the rest after more new objects than its
    default of 700. With 32 requests over HTTP at a time it took 11 us of each, and takes none."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


class Trimmer:
    """Trims this process's heap after large frames, and again after the requests that they opened. ``held``: bytes of
    open requests in the session.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        self._held = held
        self._came = anyio.Event()

    def came(self) -> None:
        """A large frame came."""
        self._came.set()

    async def watch(self) -> NoReturn:
        """Trim the heap whenever large frames stop, and again when less is held than then."""
        while True:
            await self._came.wait()
            held = sys.maxsize
            while self._came.is_set() or held > KEPT:
                self._came = anyio.Event()
                await anyio.sleep(CALM)
                if not self._came.is_set() and (now := self._held()) < held:
                    held = now
                    _trim()


def _trim() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with suppress(OSError, AttributeError):  # musl has no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
