"""Pure. Seals: encrypted text that a client carries, and that only gates with the same key can open.

The text is ``sg2.`` and the base64url of instance, nonce and ciphertext (AES-256-GCM). The instance is 16 random bytes
that a gate process makes at its start. Each process encrypts with its own key: HKDF-SHA-256 of the shared key, with the
instance as salt. So the random nonces of several processes with one shared key cannot collide.

0.1.0 wrote ``sg1.`` and the base64url of nonce and ciphertext, encrypted with the shared key itself. Such seals are
opened until 0.3.0, and never written.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

PREFIX: Final = "sg2."
OLD_PREFIX: Final = "sg1."
KEY_BYTES: Final = 32
INSTANCE_BYTES: Final = 16
NONCE_BYTES: Final = 12  # for AES-GCM; random, so one process may seal 2**32 times
_PURPOSE: Final = b"samplegate seal 2"


class Opened(msgspec.Struct, frozen=True):
    """The content of a seal."""

    content: bytes
    foreign: bool
    """Whether another gate process sealed it. A seal of 0.1.0 does not tell."""


class SealKeys:
    """The keys of a gate process: the first seals, and all open. The representation does not show them."""

    def __init__(self, keys: Sequence[bytes], instance: bytes) -> None:
        """``keys``: 32 bytes each, at least one. ``instance``: random bytes of this process."""
        self._keys = tuple(keys)
        self._instance = instance

    def seal(self, content: bytes, *, data: bytes, nonce: bytes) -> str:
        """The sealed text. It opens only with the same associated ``data``."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        sealed = AESGCM(_derived(self._keys[0], self._instance)).encrypt(nonce, content, data)
        return PREFIX + base64.urlsafe_b64encode(self._instance + nonce + sealed).decode()

    def open(self, text: str, *, data: bytes) -> Opened | None:
        """The content; None if no key opens the text with this associated data."""
        if text.startswith(OLD_PREFIX):
            sealed = _decoded(text.removeprefix(OLD_PREFIX))
            content = None if sealed is None else self._decrypted(sealed, None, data)
            return None if content is None else Opened(content, foreign=False)
        sealed = _decoded(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None
        if sealed is None:
            return None
        instance = sealed[:INSTANCE_BYTES]
        content = self._decrypted(sealed[INSTANCE_BYTES:], instance, data)
        return None if content is None else Opened(content, foreign=instance != self._instance)

    def _decrypted(self, sealed: bytes, instance: bytes | None, data: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        for key in self._keys:
            cipher = AESGCM(key if instance is None else _derived(key, instance))
            try:
                return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], data)
            except (InvalidTag, ValueError):  # ValueError: too short for a nonce
                continue
        return None


def _derived(key: bytes, instance: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=instance, info=_PURPOSE).derive(key)


def _decoded(text: str) -> bytes | None:
    """Decode base64url; None for any other text, also for one with other unused bits than we write (R63)."""
    try:
        data = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.urlsafe_b64encode(data).decode() == text else None
