"""The assertions of an identity-aware proxy in the daemon: the issuer's keys, and what a reload changes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from samplegate.auth.guard import AuthObserver
from samplegate.auth.tokens import Unauthenticated
from samplegate.config.assertions import AssertionSettings
from samplegate.errors import Log

if TYPE_CHECKING:
    from samplegate.auth.assertions import Assertions
    from samplegate.auth.jwt import Keys
    from samplegate.reviews.web.context import Asserted, AssertionHeader

_CLOCK: Final = time.monotonic


class ProxyAssertions:
    """The assertions in force. ``count`` takes a metric's name and labels, and ``clock`` is in monotonic seconds."""

    def __init__(self, log: Log, count: Callable[..., None], *, clock: Callable[[], float] = _CLOCK) -> None:
        self._observer = AuthObserver(log, count, clock=clock)
        self._clock = clock
        self._settings: AssertionSettings | None = None
        self._keys: Keys | None = None
        self.header: AssertionHeader | None = None
        """The header for the reviewers' listener; None if no proxy is configured."""

    def put(self, settings: AssertionSettings | None) -> None:
        """Replace the settings. The keys are fetched again before the next assertion is accepted. Those of an
        unchanged issuer stay valid meanwhile."""
        before, keys_before = self._settings, self._keys
        self._settings = settings
        if settings is None:
            self.header = self._keys = None
        else:
            from samplegate.auth.assertions import Assertions, jwt_settings
            from samplegate.auth.jwt import Keys, source_of
            from samplegate.reviews.web.context import AssertionHeader

            issuer = jwt_settings(settings)
            same = before is not None and jwt_settings(before) == issuer
            self._keys = Keys(
                source_of(issuer),
                clock=self._clock,
                on_fetch=self._observer.keys,
                before=keys_before if same else None,
            )
            self.header = AssertionHeader(settings.header, _verifier(Assertions(settings, self._keys)))
        if keys_before is not None:
            keys_before.stop()

    async def warm(self) -> None:
        """Fetch the keys, if there is an issuer. A failure is reported but does not prevent the start."""
        if self._keys is not None:
            await self._keys.warm()

    def stop(self) -> None:
        """Cancel a running fetch of keys."""
        if self._keys is not None:
            self._keys.stop()


def _verifier(assertions: Assertions) -> Callable[[str], Awaitable[Asserted | str]]:
    """The verification of an assertion, in the terms of the reviewers' listener."""
    from samplegate.reviews.web.context import Asserted, Person

    async def person_of(text: str) -> Asserted | str:
        try:
            found = await assertions.person_of(text)
        except Unauthenticated as problem:
            return problem.reason
        person = Person(found.name, found.role, found.reviewers, found.groups, found.callers, found.subject)
        return Asserted(person, found.until)

    return person_of
