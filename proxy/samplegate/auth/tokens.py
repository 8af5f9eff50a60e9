"""Bearer tokens: the caller of a token, and the servers that a caller may use. No token is stored."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from samplegate.config.identities import CallerSettings, Token
from samplegate.config.servers import ServerSettings
from samplegate.policy.conditions import globs
from samplegate.protocol import identity
from samplegate.protocol.identity import Identity
from samplegate.request_headers import entry_for_digest

MAX_CACHED: Final = 4_096  # verified callers in the cache; a few KiB each, bounded by MAX_TOKEN
CACHE_SECONDS: Final = 60.0
"""Seconds for which a verified token is accepted again without verification, even if its key is withdrawn meanwhile."""


class Caller(msgspec.Struct, frozen=True):
    """An authenticated caller.

    ``audiences`` are the token's audiences; None if they are already verified.
    """

    identity: Identity
    audiences: frozenset[str] | None = None
    expires: float | None = None
    """Unix seconds."""

    @property
    def name(self) -> str:
        """The name that the policy and the limits use."""
        return self.identity.name


LOCAL: Final = Caller(identity.LOCAL)
"""The caller if no tokens are required; then only this machine can connect."""


class Unauthenticated(Exception):
    """A token was rejected. ``reason`` is from a finite set, for metrics, and contains nothing of the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InsufficientScope(Unauthenticated):
    """A valid token without a required scope."""


Verifier: TypeAlias = Callable[[str], Awaitable[Caller | None]]
"""Returns the caller of a token, or None for another kind of token. Raises Unauthenticated, and Unavailable if
verification is not possible now."""


class StaticTokens:
    """Static tokens from the settings.

    A guess costs the same whether the token exists or not: one hash, one lookup and one comparison.
    """

    def __init__(self, tokens: Iterable[Token], withdrawn: Callable[[], Container[bytes]] = tuple) -> None:
        """``withdrawn``: the SHA-256 of tokens that another gate has withdrawn by now."""
        self._withdrawn = withdrawn
        self._callers = {
            bytes.fromhex(token.sha256): Caller(identity.static(token.name, frozenset(token.groups)))
            for token in tokens
        }

    def caller_of(self, token: str) -> Caller | None:
        """The caller of a token, or None."""
        digest = _digest(token)
        return None if digest in self._withdrawn() else entry_for_digest(self._callers, digest)


class Bearers:
    """Authentication of bearer tokens: static tokens first, then a verifier with a cache of its results.

    ``wall`` is in Unix seconds. ``leeway`` is the seconds by which the clocks may differ.
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
        """The caller of a static or recently verified token, or None."""
        static = self._static.caller_of(token)
        if static is not None:
            return static
        found = self._seen.get(_digest(token)) if self._seen else None
        return found[0] if found is not None and self._wall() < found[1] else None

    async def verified(self, token: str) -> Caller:
        """Verify a token and return its caller. Raises Unauthenticated, and Unavailable if verification is not possible
        now."""
        caller = None if self._other is None else await self._other(token)
        if caller is None:
            raise Unauthenticated("unknown_token")
        now = self._wall()
        until = (
            now + CACHE_SECONDS if caller.expires is None else min(now + CACHE_SECONDS, caller.expires + self._leeway)
        )
        if until <= now:
            raise Unauthenticated("expired")
        self._seen[_digest(token)] = caller, until
        if len(self._seen) > MAX_CACHED:
            self._seen.popitem(last=False)
        return caller


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def allowed(server: ServerSettings, caller: str) -> bool:
    """True if a server accepts a caller: its settings list the name or a matching glob, case-sensitive, or no names at
    all."""
    return server.callers is None or bool(_matcher(server.callers)(caller))


@lru_cache(maxsize=1_024)
def _matcher(names: tuple[str, ...]) -> Callable[[str], object]:
    test, _ = globs(list(names))
    return test


def still_valid(before: CallerSettings, now: CallerSettings, withdrawn: Container[bytes] = ()) -> Callable[[str], bool]:
    """Predicate: whether a caller is still valid after a change of the settings, or of the ``withdrawn`` tokens (their
    SHA-256). If not, its connections end.

    JWT callers stay valid while the issuer's settings are the same: their tokens expire by themselves.
    """
    names = {token.name for token in now.tokens if bytes.fromhex(token.sha256) not in withdrawn}

    def is_valid(caller: str) -> bool:
        if caller == LOCAL.name:
            return not now.required
        if caller.startswith("jwt:"):
            return now.jwt is not None and now.jwt == before.jwt
        return caller in names

    return is_valid
