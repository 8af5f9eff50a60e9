"""An issuer's keys over time: when they are fetched again, and how long old ones hold while the issuer is silent. Not what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from samplegate.callers.fetching import Source
from samplegate.callers.jwks import Key, KeySet
from samplegate.ports import Unavailable

FRESH: Final = 600.0
"""Seconds after which keys are fetched again, beside the calls: a key that the issuer withdraws is taken at most so much longer."""
GRACE: Final = 3_600.0
"""Seconds that keys hold from their last fetch while the issuer does not answer. As long as tokens commonly live, so longer would help few."""
UNKNOWN: Final = 60.0
"""Seconds between two fetches for the sake of a key that nobody knows: anybody can name one."""
RETRY: Final = 10.0
"""Seconds between two attempts at an issuer that failed."""

PATIENCE: Final = 20.0
"""Seconds that a call waits for keys after ``outdate``: what the longest fetch takes, and one that was under way before it."""

MISSING: Final = "the issuer's keys are not to be had"


class Keys:
    """The keys of one issuer. ``source`` gets them, ``clock`` is monotonic seconds, ``told`` hears how each fetch went: None, or what was wrong."""

    def __init__(self, source: Source, *, clock: Callable[[], float], told: Callable[[str | None], None]) -> None:
        self._source = source
        self._clock = clock
        self._told = told
        self._set: KeySet | None = None
        self._fetched = float("-inf")
        self._asked = float("-inf")
        self._asked_for_unknown = float("-inf")
        self._version = self._tried = self._seen = 0
        """How often somebody said that they may have changed, and which of those the latest fetch, and the latest that went well, came after."""
        self._failed = True
        self._task: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether there are keys that still hold."""
        return self._set is not None and self._clock() - self._fetched < GRACE

    def problem(self) -> str | None:
        """What keeps tokens from being verified, None if nothing does. To ask keeps the keys fresh as a call does: calls may wait for the answer."""
        self._refresh()
        return MISSING if self._failed and not self.usable else None

    async def fitting(self, kid: str | None, algorithm: str) -> list[Key]:
        """The keys that a token with this header may be signed with. Raises Unavailable where no keys are to be had."""
        await self._ready()
        found = self._look(kid, algorithm)
        if not found and self._clock() - self._asked_for_unknown >= UNKNOWN:
            self._asked_for_unknown = self._clock()
            self._begin()
        if not found and self._task is not None:  # others may be waiting for the same fetch
            await self.fetched()
            found = self._look(kid, algorithm)
        return found

    async def fetched(self) -> None:
        """Wait for the fetch under way, if there is one; who stops waiting does not stop it for the others."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def warm(self) -> None:
        """Fetch now, where there are none yet; that it fails is told and keeps nothing from starting."""
        if not self.usable:
            self._begin()
            await self.fetched()

    def outdate(self) -> None:
        """Have them fetched again before the next answer: somebody says that they may have changed."""
        self._version += 1

    def stop(self) -> None:
        """End what is under way; who waits for it goes without."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """The same, and wait until it has ended."""
        self.stop()
        await self.fetched()

    async def _ready(self) -> None:
        """Usable keys, or Unavailable. Keys that are only old are fetched beside the call; those that may have changed, before it, once."""
        self._refresh()
        if self._tried < self._version:
            await self._renewed()
        if not self.usable:
            await self.fetched()
        if not self.usable:
            raise Unavailable(MISSING)

    async def _renewed(self) -> None:
        """Wait for a fetch that began after the keys may have changed; one under way may have begun before. Raises Unavailable."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self._tried < self._version:
                    self._begin()
                    await self.fetched()
        except TimeoutError:
            raise Unavailable(MISSING) from None

    def _refresh(self) -> None:
        """Begin to fetch, if it is time."""
        now = self._clock()
        old = self._seen < self._version or now - self._fetched >= FRESH
        if self._tried < self._version or (old and now - self._asked >= RETRY):
            self._begin()

    def _look(self, kid: str | None, algorithm: str) -> list[Key]:
        return [] if self._set is None else self._set.fitting(kid, algorithm)

    def _begin(self) -> None:
        """Fetch, unless that is under way."""
        if self._task is None:
            self._asked = self._clock()
            self._task = asyncio.get_running_loop().create_task(self._fetch(self._version), name="issuer keys")

    async def _fetch(self, version: int) -> None:
        try:
            self._set = await self._source()
        except Unavailable as problem:
            self._failed = True
            self._told(str(problem))
        except Exception as problem:  # keys are a stranger's text: whatever is wrong with them, the old ones stay
            self._failed = True
            self._told(f"the issuer's keys cannot be read: {type(problem).__name__}")
        else:
            self._fetched, self._failed, self._seen = self._clock(), False, version
            self._told(None)
        finally:
            self._task, self._tried = None, version
