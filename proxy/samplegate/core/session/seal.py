"""A forwarded round as a ``requestState`` that only this gate can read, and that fits only the call it was made for (R68, T8).

AES-256-GCM. The text is ``sg1.`` and base64url of nonce and ciphertext; what binds it (server, caller, method, params digest) is the associated
data, so a state that is shown for anything else does not open. Not a store: nothing is kept in the process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any, Final

import msgspec

PREFIX: Final = "sg1."
NONCE_BYTES: Final = 12  # what AES-GCM takes; random, so one key is good for 2**32 states
KEY_BYTES: Final = 32
LIFETIME: Final = 900.0  # seconds that a person at the client has to answer; the server's own state rarely lives longer
UNBOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Members of params that differ from try to try."""


class SealedKey(msgspec.Struct, frozen=True, array_like=True):
    """One request of the sealed round: what was asked, and what was decided."""

    method: str
    params: str | None
    """Its params as the server wrote them: JSON as text, since not all that a server writes can be read and written again."""
    decision_id: str
    effect: str
    rule: str | None
    forwarded: bool
    verify: bool = False
    deadline: float | None = None
    """In Unix seconds: when the rule's time for the client is over."""
    late: bool = False
    """The client came back after that."""
    reviews: dict[str, str] = {}
    """The reviews that were opened or joined for it, by stage and rule. One of an answer says that the rule's model has answered."""


class SealedRound(msgspec.Struct, frozen=True, array_like=True):
    """All that the return needs."""

    expires: float
    policy_hash: str
    round: str
    rounds: int
    state: str | None
    """The server's own requestState as it wrote it, the quotes too."""
    keys: dict[str, SealedKey]
    started: float = 0.0
    call: str = ""
    """The call's name for limits that count by call."""
    shown: int = 0
    """``input_required`` results that the client was shown in this call, this one too."""
    replies: dict[str, str] | None = None
    """What the client has answered before, raw JSON by key, where it is asked nothing now: the round is only put off."""


class Binding(msgspec.Struct, frozen=True):
    """What a sealed round belongs to."""

    server: str
    caller: str
    method: str
    digest: str

    def data(self) -> bytes:
        """The associated data."""
        return msgspec.json.encode([self.server, self.caller, self.method, self.digest])


def params_digest(params: bytes | None) -> str:
    """SHA-256 of the params as canonical JSON (sorted keys, no space) without what differs from try to try.

    Raises ValueError or RecursionError for what Python does not read: numbers of thousands of digits, a thousand levels.
    """
    decoded: Any = {} if params is None else json.loads(params, object_pairs_hook=_single)
    if isinstance(decoded, dict):
        decoded = {name: value for name, value in decoded.items() if name not in UNBOUND}
    text = json.dumps(decoded, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # another parser takes the other one: a digest of one would stand for both
        raise ValueError("a member stands twice")
    return found


def seal(round: SealedRound, binding: Binding, *, key: bytes, nonce: bytes) -> str:
    """The round as opaque text."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed = AESGCM(key).encrypt(nonce, msgspec.json.encode(round), binding.data())
    return PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()


def unseal(text: str, binding: Binding, *, key: bytes, now: float) -> SealedRound | None:
    """The round, or None: not ours, changed, made for another call, or too old."""
    if not text.startswith(PREFIX):
        return None
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = base64.b64decode(text.removeprefix(PREFIX), altchars=b"-_", validate=True)
        if base64.urlsafe_b64encode(data).decode() != text.removeprefix(PREFIX):  # bits that no byte takes: not the text that we wrote (R63)
            return None
        opened = AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], binding.data())
        round = msgspec.json.decode(opened, type=SealedRound)
    except (InvalidTag, binascii.Error, ValueError):
        return None
    return round if now < round.expires else None
