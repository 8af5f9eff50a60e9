"""The words of this package: who a caller is, and why one is not taken. No behaviour."""

from __future__ import annotations

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """Who calls, as the policy and the limits name it. ``audiences``: what its token is for, None where that is already settled."""

    name: str
    audiences: frozenset[str] | None = None
    expires: float | None = None
    """Unix seconds."""


LOCAL = Caller("local")
"""Who calls where nobody needs a token: only this machine reaches the daemon then."""


class NotTaken(Exception):
    """A token that is not taken. ``reason`` is of a finite set and is what the metrics count; nothing of the token is in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotEnough(NotTaken):
    """A good token without a scope that is needed."""
