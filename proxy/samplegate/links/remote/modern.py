"""A request of the modern era: it stands alone, its headers mirror it, and a stream that breaks is its end (R71, R95)."""

from __future__ import annotations

from typing import ClassVar

from samplegate.core import http_headers, jsontext
from samplegate.core.frames import Frame
from samplegate.links.remote.calls import Call
from samplegate.links.remote.mirror import CALL, LIST, Mirror
from samplegate.links.remote.streams import Shared


class ModernCall(Call):
    """One modern request."""

    modern: ClassVar[bool] = True

    def __init__(self, shared: Shared, lane: int, frame: Frame, meta: jsontext.Object, mirror: Mirror) -> None:
        super().__init__(shared, lane, frame)
        self._meta = meta
        self._mirror = mirror

    async def _exchange(self) -> None:
        """Post it; if the server misses headers, look at its tools again and post it once more (R74)."""
        own = await self._mirror.headers(self.frame, self._meta)
        refusal = await self._post(own)
        if refusal is not None and self.frame.method == CALL and refusal.code == http_headers.MISMATCH:
            fresh = await self._mirror.headers(self.frame, self._meta, afresh=True)
            if fresh != own:
                refusal = await self._post(fresh)
        if refusal is not None:
            self._answer(refusal)

    def _final(self, found: Frame) -> Frame:
        """A list of tools goes on without those that must not be used over HTTP."""
        return self._mirror.learn(found) if self.frame.method == LIST and found.kind == "result" else found
