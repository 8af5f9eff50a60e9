"""How the C library gives memory back after large frames. It knows nothing of frames.

By default glibc raises its limits with each large block that is freed: then blocks up to 32 MiB come from the heap, and up to 64 MiB of free memory
stay at the heap's end. Fixed limits keep blocks of frames apart, and such a block goes back to the system once it is freed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

APART: Final = 4 << 20
"""Bytes from which a block is mapped by itself. Smaller ones stay cheap: a mapping costs a fault for each of its pages."""
KEPT: Final = 8 << 20
"""Bytes that may stay free at the heap's end."""
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
