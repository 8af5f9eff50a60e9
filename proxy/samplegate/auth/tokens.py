"""Bearer tokens: the caller of a token, and the servers open to it. No token is stored."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from samplegate.config.identities import CallerSettings, Token
from samplegate.config.servers import ServerSettings
from samplegate.policy.conditions import globs
from samplegate.request_headers import found_by_digest

KEPT: Final = 4_096  # callers; some hundred bytes each
SECONDS: Final = 60.0
"""How long a token is taken without being verified again: so much longer is one taken whose key was withdrawn."""


class Caller(msgspec.Struct, frozen=True):
    """Who calls, as the policy and the limits name it. ``audiences``: what its token is for, None where that is already
    settled."""

    name: str
    audiences: frozenset[str] | None = None
    expires: float | None = None
    """Unix seconds."""


LOCAL: Final = Caller("local")
"""Who calls where nobody needs a token: only this machine reaches the daemon then."""


class Unauthenticated(Exception):
    """A token that is not taken. ``reason`` is of a finite set and is what the metrics count; nothing of the token is
    in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InsufficientScope(Unauthenticated):
    """A good token without a scope that is needed."""


Verifier: TypeAlias = Callable[[str], Awaitable[Caller | None]]
"""The caller of the token, None for a token of another kind. Raises NotTaken, and Unavailable where that cannot be told
now."""


class StaticTokens:
    """The tokens of the settings. A guess costs the same whether there is such a token or not: one hash, one look-up,
    one comparison."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._names = {bytes.fromhex(token.sha256): token.name for token in tokens}

    def name_of(self, token: str) -> str | None:
        """Whose token it is."""
        return found_by_digest(self._names, _digest(token))


class Bearers:
    """Static tokens, then a verifier for all others, with a cache of its answers.

    ``wall`` is Unix seconds, ``leeway`` seconds that the clocks may differ.
    """

    def __init__(
        self, static: StaticTokens, other: Verifier | None, *, wall: Callable[[], float], leeway: float = 0
    ) -> None:
        self._static = static
        self._other = other
        self._wall = wall
        self._leeway = leeway
        self._seen: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    def known(self, token: str) -> Caller | None:
        """Who it is, if that needs no verifying: a static token, or one that was verified a moment ago."""
        name = self._static.name_of(token)
        if name is not None:
            return Caller(name)
        found = self._seen.get(_digest(token)) if self._seen else None
        return found[0] if found is not None and self._wall() < found[1] else None

    async def verified(self, token: str) -> Caller:
        """Who it is. Raises NotTaken, and Unavailable where that cannot be told now."""
        caller = None if self._other is None else await self._other(token)
        if caller is None:
            raise Unauthenticated("unknown_token")
        now = self._wall()
        until = now + SECONDS if caller.expires is None else min(now + SECONDS, caller.expires + self._leeway)
        if until <= now:
            raise Unauthenticated("expired")
        self._seen[_digest(token)] = caller, until
        if len(self._seen) > KEPT:
            self._seen.popitem(last=False)
        return caller


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def allowed(server: ServerSettings, caller: str) -> bool:
    """Whether a server takes a caller: its settings name it, by name or glob, case-sensitive, or name nobody."""
    return server.callers is None or bool(_test(server.callers)(caller))


@lru_cache(maxsize=1_024)
def _test(names: tuple[str, ...]) -> Callable[[str], object]:
    test, _ = globs(list(names))
    return test


def still_taken(before: CallerSettings, now: CallerSettings) -> Callable[[str], bool]:
    """Whether a caller that was known by one version of the settings is known by another: what it has open ends if not.

    A JWT's caller is, while the issuer's settings are the same: its tokens end by themselves.
    """
    names = {token.name for token in now.tokens}

    def taken(caller: str) -> bool:
        if caller == LOCAL.name:
            return not now.required
        if caller.startswith("jwt:"):
            return now.jwt is not None and now.jwt == before.jwt
        return caller in names

    return taken
