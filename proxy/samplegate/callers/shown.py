"""What a request's headers show at the door, read in one pass. Not whether it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

MAX_TOKEN: Final = 16 * 1024  # characters; tokens with many groups in them have 8,000
_bearer: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*) *")
_names: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1000}")
SECRET: Final = frozenset({b"authorization", b"proxy-authorization"})
"""What a caller shows to us alone."""
_single: Final = frozenset({b"host", b"origin", b"authorization"})
"""Two of these, and another reader would see another request."""
_WANTED: Final = b"access-control-request-headers"
_read: Final = _single | SECRET | {_WANTED}


class Shown(msgspec.Struct):
    """``token`` is None where there is none that could be one; ``wanted`` are the headers that a browser asks for, ``twice`` one that is doubled.

    ``secret``: whether one of SECRET is among them, a good one or not.
    """

    host: bytes | None = None
    origin: bytes | None = None
    token: str | None = None
    wanted: bytes | None = None
    twice: str | None = None
    secret: bool = False


def shown(headers: Iterable[tuple[bytes, bytes]]) -> Shown:
    """Read the headers of a scope, whose names are in small letters."""
    found: dict[bytes, bytes] = {}
    seen = Shown()
    for name, value in headers:
        if name in _read:
            if name in found and name in _single:
                seen.twice = name.decode()
            found[name] = value
    seen.host, seen.origin = found.get(b"host"), found.get(b"origin")
    seen.secret = not SECRET.isdisjoint(found)
    if b"authorization" in found:
        seen.token = _token(found[b"authorization"])
    if _WANTED in found and _names.fullmatch(found[_WANTED]):
        seen.wanted = found[_WANTED]
    return seen


def _token(authorization: bytes) -> str | None:
    match = _bearer.fullmatch(authorization) if len(authorization) <= MAX_TOKEN else None
    return None if match is None else match[1].decode()
