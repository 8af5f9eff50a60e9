"""The answer to a client whose gate does not start: its first request gets an error that says why, so that the client
can show it.

Nothing is started and nothing decided here. A client that asks ``server/discover`` first may fall back to
``initialize``, which is answered too.
"""

from __future__ import annotations

import sys
from typing import Final

import anyio

from samplegate.protocol import frames, results
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.session_state import INITIALIZE
from samplegate.transport.stdio import CannotStart, LineLink, check_own, open_own

FIRST: Final = 5.0  # seconds for the client's first request; clients write it as soon as they have started us
FALLBACK: Final = 1.0  # seconds for the ``initialize`` of a client that asked ``server/discover`` first
TAKEN: Final = 0.5  # seconds for the client to take its answer
MAX_LINE: Final = 1024 * 1024


def answer_first_request(why: str) -> None:
    """Wait a short time for a client's first request and answer it with this error. Nobody at a terminal is waited
    for."""
    try:
        if sys.stdin is not None and sys.stdin.isatty():
            return
        check_own()
        anyio.run(_answer, why)
    except (CannotStart, OSError, ValueError):  # no client can be there
        return


class _Refusal:
    """Takes the client's lines and answers requests."""

    def __init__(self, why: str) -> None:
        self.link: LineLink | None = None
        self.asked = anyio.Event()
        self.over = anyio.Event()
        self._why = why

    def received(self, line: bytes) -> None:
        try:
            f = frames.read(line)
        except Malformed:
            return
        if f.kind != "request" or self.link is None or self.over.is_set():
            return
        self.link.send(frames.error(f.id, results.INTERNAL, self._why))
        self.asked.set()
        if f.method == INITIALIZE:
            self.over.set()

    def oversized(self, size: int, head: bytes) -> None:
        """No first request is that long."""

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Nor is its end of interest."""

    def ended(self) -> None:
        self.asked.set()
        self.over.set()


async def _answer(why: str) -> None:
    refusal = _Refusal(why)
    refusal.link = link = await open_own(refusal, max_line=MAX_LINE)
    with anyio.move_on_after(FIRST):
        await refusal.asked.wait()
    if refusal.asked.is_set():
        with anyio.move_on_after(FALLBACK):
            await refusal.over.wait()
    await link.drained(TAKEN)
    link.abort()
