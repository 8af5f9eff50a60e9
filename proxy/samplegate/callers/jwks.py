"""A JSON Web Key Set (RFC 7517) -> the public keys that can be used, bounded. Pure: not where it comes from, and not what is signed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MAX_BYTES: Final = 256 * 1024  # issuers have some KiB
MAX_KEYS: Final = 100
MAX_KID: Final = 256
_RSA_BITS: Final = range(2_048, 8_193)  # below it can be broken, above one signature takes milliseconds

_EC: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_OKP: Final = {"Ed25519": ("EdDSA",), "Ed448": ("EdDSA",)}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


class Key(msgspec.Struct, frozen=True):
    """One public key for one algorithm."""

    kid: str | None
    algorithm: str
    key: jwt.PyJWK


class KeySet(msgspec.Struct, frozen=True):
    """The keys of an issuer."""

    keys: tuple[Key, ...]

    def fitting(self, kid: str | None, algorithm: str) -> list[Key]:
        """The keys that a token with this header may be signed with; one that names none has to have the only one of its kind."""
        fit = [key for key in self.keys if key.algorithm == algorithm]
        return [key for key in fit if key.kid == kid] if kid is not None else fit[:1] if len(fit) == 1 else []


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse(text: bytes) -> KeySet:
    """The usable keys of a set; what is for something else, too weak or not understood is left out. Raises ValueError where there is none."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"the key set is larger than {MAX_BYTES} bytes")
    try:
        found = msgspec.json.decode(text, type=_Set).keys
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("it is no JSON Web Key Set; it must be an object with a list of keys") from None
    if len(found) > MAX_KEYS:
        raise ValueError(f"the key set has more than {MAX_KEYS} keys")
    keys = tuple(key for each in found for key in _keys(each))
    if not keys:
        raise ValueError("the key set has no public key that signs; RSA of 2048 bits and more, P-256, P-384, P-521 and Ed25519 are taken")
    return KeySet(keys)


def _keys(written: Mapping[str, Any]) -> list[Key]:
    """A key once for each algorithm that it may be used with."""
    kid = written.get("kid")
    if "d" in written or "k" in written or not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID)):
        return []  # a private or shared key: whoever published it has published it to everybody
    if written.get("use", "sig") != "sig" or "verify" not in _operations(written):
        return []
    own = written.get("alg")
    made = [(name, _made(written, name)) for name in _algorithms(written) if own in (None, name)]
    return [Key(kid, name, key) for name, key in made if key is not None]


def _operations(written: Mapping[str, Any]) -> list[Any]:
    operations = written.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else []


def _algorithms(written: Mapping[str, Any]) -> tuple[str, ...]:
    curve = written.get("crv")
    match written.get("kty"):
        case "RSA":
            return _RSA
        case "EC" if isinstance(curve, str):
            return _EC.get(curve, ())
        case "OKP" if isinstance(curve, str):
            return _OKP.get(curve, ())
        case _:
            return ()


def _made(written: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK(dict(written), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return None if isinstance(key.key, RSAPublicKey) and key.key.key_size not in _RSA_BITS else key
