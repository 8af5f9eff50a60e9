"""The key that seals what modern clients take along, from a file that a restart and other gates share. Not the seal itself."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from samplegate.ports import Unavailable

LEAST: Final = 32
"""Bytes of a file that can be a key."""
MOST: Final = 64 * 1024
"""Bytes of one: it is no key's file that is larger."""

_PURPOSE: Final = b"samplegate seal 1"
_remedy: Final = "such as `openssl rand -hex 32` prints"


def seal_key(file: Path | None) -> bytes | None:
    """32 bytes made of what the file holds, by HMAC-SHA-256 under a name of ours, so that the same file may serve others; a line end behind it is
    not a part of it. None without a file. Raises Unavailable.
    """
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            found = opened.read(MOST + 1)
    except OSError as problem:
        raise Unavailable(f"seal_key_file: {file} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(found) > MOST:
        raise Unavailable(f"seal_key_file: {file} is larger than {MOST} bytes; write a key into it, {_remedy}")
    line = found.removesuffix(b"\n").removesuffix(b"\r")
    if found.endswith(b"\n") and (len(line) >= LEAST or len(found) < LEAST):  # else it is a key of random bytes that happens to end so
        found = line
    if len(found) < LEAST:
        raise Unavailable(f"seal_key_file: {file} holds {len(found)} bytes, and a key has {LEAST} or more; write one, {_remedy}")
    return hmac.digest(_PURPOSE, found, hashlib.sha256)
