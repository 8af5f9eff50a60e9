"""A bearer token -> who it is, with what was found out kept for a while. Not the header that it comes in, and no token is kept."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mcp.server.auth.provider import AccessToken, TokenVerifier

from samplegate.callers.knowing import Caller, NotTaken
from samplegate.callers.tokens import StaticTokens

KEPT: Final = 4_096  # callers; some hundred bytes each
SECONDS: Final = 60.0
"""How long a token is taken without being verified again: so much longer is one taken whose key was withdrawn."""


class Bearers:
    """Static tokens, then a verifier of the SDK's kind for all others. ``wall`` is Unix seconds, ``leeway`` seconds that the clocks may differ."""

    def __init__(self, static: StaticTokens, other: TokenVerifier | None, *, wall: Callable[[], float], leeway: float = 0) -> None:
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
        if found is None:
            return None
        return found[0] if self._wall() < found[1] else None

    async def verified(self, token: str) -> Caller:
        """Who it is. Raises NotTaken, and Unavailable where that cannot be told now."""
        access = None if self._other is None else await self._other.verify_token(token)
        if access is None:
            raise NotTaken("unknown_token")
        caller = _caller(access)
        now = self._wall()
        until = now + SECONDS if caller.expires is None else min(now + SECONDS, caller.expires + self._leeway)
        if until <= now:
            raise NotTaken("expired")
        self._seen[_digest(token)] = caller, until
        if len(self._seen) > KEPT:
            self._seen.popitem(last=False)
        return caller


def _caller(access: AccessToken) -> Caller:
    aud = (access.claims or {}).get("aud")
    audiences = None if aud is None else frozenset(str(each).rstrip("/") for each in aud)
    return Caller(access.client_id, audiences, access.expires_at)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
