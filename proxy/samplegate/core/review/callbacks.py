"""One-time tokens with which whoever was told of a review may give its verdict. Derived from the store's key, so that nothing is kept.

One-time, since a review is decided once: whoever shows a token again is told what came of it. Not people's tokens, and no session: a token is good
for this review, for exactly what was asked (its digest), until it expires (T13).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from typing import Final

PREFIX: Final = "cb1."
"""What every token begins with, so that it is told from a person's token."""

_PURPOSE: Final = b"samplegate review callback 1"
_token: Final = re.compile(r"cb1\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})\Z")


def make(key: bytes, review_id: str, digest: str, expires: float) -> str:
    """The token. ``key``: the store's 32 bytes. ``expires``: unix seconds, cut to whole ones, so never later."""
    seconds = int(expires)
    return f"{PREFIX}{seconds}.{_code(key, review_id, digest, seconds)}"


def fault(key: bytes, token: str, review_id: str, digest: str, now: float) -> str | None:
    """Why a token does not open this review, None if it does. Whether the review still waits is the store's to say."""
    found = _token.match(token)
    if found is None:
        return "is no callback token"
    seconds = int(found[1])
    if not hmac.compare_digest(_code(key, review_id, digest, seconds), found[2]):
        return "is not the callback token of this review"
    return "has expired" if now >= seconds else None


def _code(key: bytes, review_id: str, digest: str, seconds: int) -> str:
    """A key of its own for this purpose: what is signed here fits nothing else that the store's key signs."""
    own = hmac.digest(key, _PURPOSE, hashlib.sha256)
    bound = json.dumps([review_id, digest, seconds], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hmac.digest(own, bound, hashlib.sha256)).rstrip(b"=").decode()
