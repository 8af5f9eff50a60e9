"""A request of the legacy eras: it waits for what went before it, and its stream is taken up again where it broke off (R95)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import aiohttp

from samplegate.core import frames
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session.state import INITIALIZE
from samplegate.links.remote import reading
from samplegate.links.remote.calls import Call
from samplegate.links.remote.faults import Fault, Gone
from samplegate.links.remote.legacy import SESSION
from samplegate.links.remote.streams import MAX_TRIES, Shared, taken_up


class LegacyCall(Call):
    """One legacy request. ``before``: what has to be done before it is posted."""

    modern: ClassVar[bool] = False

    def __init__(self, shared: Shared, lane: int, frame: Frame, before: Sequence[asyncio.Future[Any]]) -> None:
        super().__init__(shared, lane, frame)
        self._before = before
        self._begins = frame.method == INITIALIZE
        self._sessions: list[str] = []

    async def _exchange(self) -> None:
        if self._before:
            await asyncio.wait(self._before)
        if self.shared.legacy.gone:
            raise Fault("its session is over", transport="session")
        refusal = await self._post({} if self._begins else self.shared.legacy.headers())
        if refusal is not None:
            self._answer(refusal)
        await self._take_up()

    async def _take_up(self) -> None:
        """Take the stream up where it broke off, as long as it can say where that is."""
        tries = 0
        while not self.answered and self.cursor.id is not None:
            if tries >= MAX_TRIES:
                raise Fault("its stream broke off and could not be taken up again", transport="broken")
            await asyncio.sleep(self.cursor.pause(tries))
            self.cursor.moved = False
            response = await taken_up(self.shared, self.cursor)
            if response is not None:
                try:
                    await self._stream(response)
                finally:
                    response.close()
            tries = 0 if self.cursor.moved else tries + 1

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        try:
            await super()._stream(response)
        except (aiohttp.ClientError, OSError):
            if self.cursor.id is None:
                raise

    def _head_came(self, response: aiohttp.ClientResponse) -> None:
        """``initialize`` counts only when it is answered: what follows it needs the session."""
        if self._begins:
            self._sessions = response.headers.getall(SESSION, [])
        else:
            self.accept()

    async def _refused(self, response: aiohttp.ClientResponse, kind: str) -> Frame:
        if response.status == 404 and self.shared.legacy.id is not None and not self._begins:
            raise Gone
        return await super()._refused(response, kind)

    def _final(self, found: Frame) -> Frame:
        if self._begins:
            if found.kind == "result":
                self.shared.legacy.began(self._sessions, found)
            self.accept()
        return found

    def _single(self, text: bytes) -> None:
        """In 2025-03-26 a body may be a batch (R92)."""
        if frames.is_batch(text):
            self._batch(text)
        else:
            super()._single(text)

    def _unread(self, text: bytes, problem: Malformed) -> None:
        if frames.is_batch(text):
            self._batch(text)
        else:
            super()._unread(text, problem)

    def _batch(self, text: bytes) -> None:
        """The session takes a batch apart; here it only counts whether the answer is in it."""
        line = reading.one_line(text)
        for element in frames.batch(line):
            who = frames.whose(element)
            if who.get("answers") and who.get("id") == self.id:
                self.answered = True
        self._deliver(line)
