"""A session at the page, as a cookie that nobody else can make: who signed in, by which token, until when. Pure but for
its randomness.

Nothing is kept of it here but which sessions were signed out before their time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

MAX_COOKIE: Final = 1024  # characters; ours have some 300
MAX_ENDED: Final = 10_000  # sessions that were signed out and would still hold


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cookie says. ``token`` is the SHA-256 of the token in hex: enough of what cannot be guessed, and too
    little to sign in with."""

    id: str
    name: str
    token: str
    until: int
    """Unix seconds."""


def made(claims: Claims, key: bytes) -> str:
    """The cookie of the claims, signed with the store's key."""
    text = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
    return f"{text.decode()}.{_signature(text, key)}"


def read(cookie: str, key: bytes, now: float) -> Claims | None:
    """The claims of a cookie that we signed and whose time is not over; the signature is held against it before
    anything else is read."""
    text, _, signature = cookie.rpartition(".")
    if (
        len(cookie) > MAX_COOKIE
        or not cookie.isascii()
        or not hmac.compare_digest(_signature(text.encode(), key), signature)
    ):
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Claims)
    except (ValueError, msgspec.DecodeError):
        return None
    return claims if now < claims.until else None


def form_token(id: str, key: bytes) -> str:
    """What the forms of a session carry, and no other page knows."""
    return hmac.new(_derived(key, b"form"), id.encode(), hashlib.sha256).hexdigest()


class Ended:
    """Sessions that were signed out, until their cookies are worth nothing anyway. In this process: a restart forgets
    them.

    Over MAX_ENDED, the token with the most of them has all its sessions ended instead: no sign-out is lost, and no
    other person's session ends.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, int]] = {}
        """By token, then by session."""
        self._all_until: dict[str, int] = {}
        """By token: sessions up to this time are over."""

    def add(self, claims: Claims) -> bool:
        """End a session. True if there were too many, so that all sessions of one token ended."""
        now = self._clock()
        self._until.setdefault(claims.token, {})[claims.id] = claims.until
        if sum(map(len, self._until.values())) <= MAX_ENDED:
            return False
        self._until = {
            token: {id: until for id, until in ids.items() if now < until} for token, ids in self._until.items()
        }
        self._all_until = {token: until for token, until in self._all_until.items() if now < until}
        if sum(map(len, self._until.values())) <= MAX_ENDED:
            return False
        busiest = max(self._until, key=lambda token: len(self._until[token]))
        self._all_until[busiest] = max(self._all_until.get(busiest, 0), *self._until.pop(busiest).values())
        return True

    def __contains__(self, claims: object) -> bool:
        if not isinstance(claims, Claims):
            return False
        return claims.id in self._until.get(claims.token, ()) or claims.until <= self._all_until.get(claims.token, 0)


def _signature(text: bytes, key: bytes) -> str:
    return (
        base64.urlsafe_b64encode(hmac.new(_derived(key, b"session"), text, hashlib.sha256).digest())
        .rstrip(b"=")
        .decode()
    )


def _derived(key: bytes, use: bytes) -> bytes:
    """A key for one use of the store's: what is signed for one is worth nothing for another."""
    return hmac.new(key, b"samplegate reviews page " + use, hashlib.sha256).digest()
