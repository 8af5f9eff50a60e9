"""Standard Webhooks: the signature of one message, and whether one holds (standardwebhooks.com, version 1 of the specification). Pure.

Symmetric signatures only (``v1``). Time is an argument; whether a message was seen before is for the receiver to know, by its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

PREFIX: Final = "whsec_"
TOLERANCE: Final = 300.0
"""Seconds that a message's time may be off: what the reference libraries take."""
MAX_SIGNATURES: Final = 4_096  # characters of that header: some eighty signatures, where two are usual

_id: Final = re.compile(r"[\x21-\x7e]{1,256}\Z")
_seconds: Final = re.compile(r"[0-9]{1,12}\Z")


def key_of(secret: str) -> bytes | None:
    """The key in a secret: base64, behind ``whsec_`` or without it, as the reference libraries read it. None: there is none in it."""
    coded = secret.strip().removeprefix(PREFIX).rstrip("=")
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def headers(keys: Sequence[bytes], *, id: str, at: float, body: bytes) -> dict[str, str]:
    """The three headers of a message. ``keys``: the newest first, one signature each, so that a receiver may know either. ``at``: unix seconds."""
    seconds = str(int(at))
    signatures = " ".join(f"v1,{base64.b64encode(_signature(key, id, seconds, body)).decode()}" for key in keys)
    return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": signatures}


def fault(keys: Sequence[bytes], given: Mapping[str, str], body: bytes, *, now: float) -> str | None:
    """Why a message is not taken for one that the holder of one of the keys has just sent; None if it is."""
    found = {name.lower(): value for name, value in given.items()}
    id, seconds, signatures = (found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id and seconds and signatures):
        return "webhook-id, webhook-timestamp or webhook-signature is missing"
    if not _id.match(id) or not _seconds.match(seconds):
        return "webhook-id or webhook-timestamp is malformed"
    if abs(now - int(seconds)) > TOLERANCE:
        return "webhook-timestamp is too old" if int(seconds) < now else "webhook-timestamp lies in the future"
    shown = [signature for text in signatures[:MAX_SIGNATURES].split(" ") if (signature := _shown(text)) is not None]
    if not shown:
        return "webhook-signature holds no signature of version v1"
    return None if _any_fits([_signature(key, id, seconds, body) for key in keys], shown) else "webhook-signature fits none of the keys"


def _signature(key: bytes, id: str, seconds: str, body: bytes) -> bytes:
    return hmac.new(key, f"{id}.{seconds}.".encode() + body, hashlib.sha256).digest()


def _shown(text: str) -> bytes | None:
    version, _, coded = text.partition(",")
    if version != "v1":
        return None
    try:
        return base64.b64decode(coded, validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _any_fits(ours: Sequence[bytes], theirs: Sequence[bytes]) -> bool:
    """Each is compared with each, in constant time, so that the time tells nothing of where one fits."""
    return any([hmac.compare_digest(one, other) for one in ours for other in theirs])  # noqa: C419 - all of them, whichever fits
