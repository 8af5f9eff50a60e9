"""Long pure computations in a worker thread, so that the event loop serves everybody else meanwhile. Short ones run in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import anyio.to_thread

IN_PLACE: Final = 64 * 1024
"""Bytes of input up to which a computation takes some milliseconds, less than a busy machine may take to switch threads."""

P = ParamSpec("P")
T = TypeVar("T")


async def offload(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result; ``size`` is how many bytes of a peer's it reads. A cancellation waits for the thread, so nothing is half done."""
    if size <= IN_PLACE:
        return function(*args, **kwargs)
    return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))
