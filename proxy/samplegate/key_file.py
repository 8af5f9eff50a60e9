"""Keys in files of the operator: those that seal rounds, and the one that protects the keys in a shared database."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import Final

from samplegate.errors import Unavailable

MIN_KEY_BYTES: Final = 32
"""Minimum size of a key file in bytes."""
MAX_KEY_BYTES: Final = 64 * 1024
"""Maximum size of a key file in bytes: a larger file is not a key."""

_remedy: Final = "create a key with `openssl rand -hex 32`"


def seal_keys(file: Path | None) -> tuple[bytes, ...]:
    """Read the keys of ``seal_key_file``, 32 bytes each: the first seals, and all open. Empty without a file. Raises
    Unavailable.

    A file is one key. Two keys are a first line of 64 hex digits, which is the new key, and the old key below it, which
    may be of any form. No key of random bytes and no key in base64 begins with such a line.
    """
    if file is None:
        return ()
    place = f"seal_key_file: {file}"
    first, second = _split(_content(file, place))
    if second is None:
        return (_key(first, place, b"samplegate seal 1"),)
    if _split(second)[1] is not None:
        raise Unavailable(f"{place} has more than two keys; keep the new one and the one before it")
    return (
        _key(first, place, b"samplegate seal 1"),
        _key(second, place, b"samplegate seal 1", " as its second key"),
    )


def database_key(file: Path | None) -> bytes | None:
    """Read the key of ``database_key_file``, 32 bytes. None without a file. Raises Unavailable."""
    if file is None:
        return None
    place = f"database_key_file: {file}"
    return _key(_content(file, place), place, b"samplegate database 1")


def combined_key(stored: bytes, key: bytes | None) -> bytes:
    """The key to use in place of one that is stored in a database, so that the database alone does not give it away.
    ``key`` is that of ``database_key``; without one, it is the stored key."""
    return stored if key is None else hmac.digest(key, stored, hashlib.sha256)


def _content(file: Path, place: str) -> bytes:
    try:
        with file.open("rb") as opened:
            found = opened.read(MAX_KEY_BYTES + 1)
    except OSError as problem:
        raise Unavailable(f"{place} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(found) > MAX_KEY_BYTES:
        raise Unavailable(f"{place} is larger than {MAX_KEY_BYTES} bytes, so it is not a key; {_remedy}")
    return found


_hex_line: Final = re.compile(rb"([0-9a-fA-F]{64})\r?\n(?=\s*\S)")
"""A first line that is a key, before more lines."""


def _split(text: bytes) -> tuple[bytes, bytes | None]:
    """The first key and the text below it, if there is any."""
    first = _hex_line.match(text)
    return (text, None) if first is None else (first[1], text[first.end() :])


def _key(found: bytes, place: str, purpose: bytes, which: str = "") -> bytes:
    """Derive a key (32 bytes) from its text. A line end after the text is not part of it. Raises Unavailable.

    HMAC-SHA-256 with a fixed purpose lets other programs use the same file.
    """
    line = found.removesuffix(b"\n").removesuffix(b"\r")
    # otherwise the line end belongs to a key of random bytes
    if found.endswith(b"\n") and (len(line) >= MIN_KEY_BYTES or len(found) < MIN_KEY_BYTES):
        found = line
    if len(found) < MIN_KEY_BYTES:
        raise Unavailable(f"{place} has {len(found)} bytes{which}, but a key needs at least {MIN_KEY_BYTES}; {_remedy}")
    return hmac.digest(purpose, found, hashlib.sha256)
