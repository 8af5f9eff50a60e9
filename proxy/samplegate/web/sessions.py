"""A session at the page, as a cookie that nobody else can make: who signed in, by which token, until when. Pure but for its randomness.

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
    """What a cookie says. ``token`` is the SHA-256 of the token in hex: enough of what cannot be guessed, and too little to sign in with."""

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
    """The claims of a cookie that we signed and whose time is not over; the signature is held against it before anything else is read."""
    text, _, signature = cookie.rpartition(".")
    if len(cookie) > MAX_COOKIE or not cookie.isascii() or not hmac.compare_digest(_signature(text.encode(), key), signature):
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
    """Sessions that were signed out, until their cookies are worth nothing anyway. In this process: a restart forgets them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, int] = {}

    def add(self, claims: Claims) -> None:
        now = self._clock()
        if len(self._until) >= MAX_ENDED:
            self._until = {id: until for id, until in self._until.items() if now < until}
        if len(self._until) < MAX_ENDED:
            self._until[claims.id] = claims.until

    def __contains__(self, id: object) -> bool:
        return id in self._until


def _signature(text: bytes, key: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.new(_derived(key, b"session"), text, hashlib.sha256).digest()).rstrip(b"=").decode()


def _derived(key: bytes, use: bytes) -> bytes:
    """A key for one use of the store's: what is signed for one is worth nothing for another."""
    return hmac.new(key, b"samplegate reviews page " + use, hashlib.sha256).digest()
