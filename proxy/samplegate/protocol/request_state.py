"""Pure. Sealed ``requestState``: a round that the client carries, bound to this gate and its call (R68, T8).

The state is encrypted (``seals.py``). The server, caller, method and params digest are the associated data, so a state
does not open for any other call. The process keeps nothing, so any gate with the key can continue the round. The
exception is the requestState of a stdio server: that server is a child of one gate process, and another process would
give the state to a server that did not write it.

A round leaves with questions for the client, or is put off while reviewers decide. In the second case, the client gets
only a state and retries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from samplegate.protocol import rawjson, server_requests
from samplegate.protocol.outcomes import CallDrawn, SealedDecision
from samplegate.protocol.requests import ROOTS
from samplegate.protocol.rounds import ForwardRound, Returned, Round
from samplegate.protocol.seals import SealKeys
from samplegate.protocol.session_state import Pending, SessionState

LIFETIME: Final = 900.0  # seconds that a user at the client has to answer; the server's own state rarely lives longer
UNBOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Members of params that differ between tries."""


class SealedKey(msgspec.Struct, frozen=True, array_like=True):
    """One request of the sealed round, with its decision."""

    method: str
    params: str | None
    """The params as the server sent them: JSON text, because not all of it survives being parsed and written again."""
    decision_id: str
    effect: str
    rule: str | None
    forwarded: bool
    verify: bool = False
    deadline: float | None = None
    """End of the rule's timeout for the client, in Unix seconds."""
    late: bool = False
    """Whether the client returned after ``deadline``."""
    reviews: dict[str, str] = {}
    """The reviews opened or joined for the request, by stage and rule.

    A review of an answer implies that the rule's model has answered.
    """


class SealedRound(msgspec.Struct, frozen=True, array_like=True):
    """The content of a seal: all that the return needs."""

    expires: float
    policy_hash: str
    round: str
    rounds: int
    state: str | None
    """The server's own requestState as received, with its quotes."""
    keys: dict[str, SealedKey]
    started: float = 0.0
    call: str = ""
    """The call's name for limits per call."""
    shown: int = 0
    """``input_required`` results that the client has got in this call, including this one."""
    replies: dict[str, str] | None = None
    """The client's earlier answers, raw JSON by key, if the round is only put off and asks nothing now."""
    local: bool = False
    """Whether only the gate process that sealed it can continue it, because ``state`` is of a stdio server."""
    drawn: tuple[CallDrawn, ...] = ()
    """What the call has drawn on limits per call. Another gate counts on from there."""


class Binding(msgspec.Struct, frozen=True):
    """The call to which a sealed round belongs."""

    server: str
    caller: str
    method: str
    digest: str

    def data(self) -> bytes:
        """The associated data."""
        return msgspec.json.encode([self.server, self.caller, self.method, self.digest])


def params_digest(params: bytes | None) -> str:
    """SHA-256 of the params as canonical JSON (sorted keys, no spaces), without the members that differ between tries.

    Raises ValueError or RecursionError for JSON that Python does not read: numbers of thousands of digits, a thousand
    levels.
    """
    decoded: Any = {} if params is None else json.loads(params, object_pairs_hook=_single)
    if isinstance(decoded, dict):
        decoded = {name: value for name, value in decoded.items() if name not in UNBOUND}
    text = json.dumps(decoded, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):  # another parser may read the other one, so one digest would match both
        raise ValueError("duplicate member")
    return found


UNKNOWN: Final = "requestState does not belong to this call or has expired"
FOREIGN: Final = (
    "requestState belongs to another gate, or to one that has ended; retry the call from the start, without"
    " requestState and inputResponses"
)


def seal(round: SealedRound, binding: Binding, *, keys: SealKeys, nonce: bytes) -> str:
    """The round as opaque text."""
    return keys.seal(msgspec.json.encode(round), data=binding.data(), nonce=nonce)


def unseal(text: str, binding: Binding, *, keys: SealKeys, now: float) -> SealedRound | str:
    """The round; the reason if the text is not ours, was changed, belongs to another call or gate, or is too old."""
    opened = keys.open(text, data=binding.data())
    try:
        round = None if opened is None else msgspec.json.decode(opened.content, type=SealedRound)
    except ValueError:
        return UNKNOWN
    if opened is None or round is None or now >= round.expires:
        return UNKNOWN
    return FOREIGN if round.local and opened.foreign else round


MAX_PARKED: Final = 512 * 1024
"""Bytes, with their escapes, of everything that a client must carry for a round that is put off.

Sealing adds a third. With the call's own arguments, the retry stays below the 1 MiB that reverse proxies accept by
default. A larger round is not put off, but ends with its client's timeout.
"""


def binding(state: SessionState, pending: Pending) -> Binding | None:
    """The binding of a state to this call; None if its params have no canonical form."""
    try:
        digest = params_digest(pending.params)
    except (ValueError, RecursionError):
        return None
    return Binding(state.server, pending.caller, pending.method, digest)


def is_put_off(round: Round, conclusion: ForwardRound) -> bool:
    """Whether the client is asked nothing.

    This is so if no key is forwarded and there are no roots to ask, or if the client was asked everything before.
    """
    return round.returned is not None or not (conclusion.keys or round.roots)


def seal_round(
    state: SessionState,
    pending: Pending,
    round: Round,
    conclusion: ForwardRound,
    *,
    server_state: bytes | None,
    now: float,
    lifetime: float = LIFETIME,
) -> str | None:
    """The round as the requestState for the client, or for a task of the gate; None if its call cannot be bound."""
    bound = binding(state, pending)
    if bound is None:
        return None
    wall = state.epoch + now
    body = SealedRound(
        expires=wall + lifetime,
        policy_hash=conclusion.policy_hash,
        round=round.id,
        rounds=pending.rounds,
        state=None if server_state is None else server_state.decode(),
        keys={key: _key(round, key, conclusion, wall) for key in [*round.items, *round.roots]},
        started=state.epoch + pending.started,
        call=pending.key,
        shown=pending.shown + 1,
        replies=_replies(round) if is_put_off(round, conclusion) else None,
        local=server_state is not None and not state.streams,
        drawn=conclusion.drawn,
    )
    return seal(body, bound, keys=state.keys, nonce=conclusion.nonce)


def _key(round: Round, key: str, conclusion: ForwardRound, wall: float) -> SealedKey:
    if key in round.roots:
        return SealedKey(ROOTS, None, "", "forward", None, True)
    item, before = round.items[key], None if round.returned is None else round.returned.seen.get(key)
    params = None if item.params is None else item.params.decode()
    if before is not None:  # the client was asked, so the decision stands, and so does whether the answer was in time
        return SealedKey(
            item.method, params, before.decision_id, before.effect, before.rule, True, before.verify, None, before.late
        )
    seen = conclusion.seen[key]
    forwarded = round.returned is None and key in conclusion.keys
    deadline = None if seen.timeout is None else wall + seen.timeout
    reviews = dict(seen.reviews)
    return SealedKey(
        item.method, params, seen.decision_id, seen.effect, seen.rule, forwarded, seen.verify, deadline, reviews=reviews
    )


def _replies(round: Round) -> dict[str, str]:
    return {} if round.returned is None else {key: raw.decode() for key, raw in round.returned.replies.items()}


def unseal_round(state: SessionState, pending: Pending, text: str | None, now: float) -> SealedRound | str:
    """The round of a state that the client returns; the reason if it does not open here for this very call (R68)."""
    bound = binding(state, pending)
    if text is None or bound is None:
        return UNKNOWN
    return unseal(text, bound, keys=state.keys, now=state.epoch + now)


def read_returned(state: SessionState, round: SealedRound, answers: bytes | None, now: float) -> Returned:
    """The client's answers: from the raw ``inputResponses`` now, or from earlier if it was asked nothing this time."""
    seen = {key: _seen(state, sealed, now) for key, sealed in round.keys.items() if sealed.forwarded}
    if round.replies is not None:
        replies = {key: raw.encode() for key, raw in round.replies.items()}
    else:
        given = {} if answers is None or answers[:1] != b"{" else rawjson.fields(answers)
        replies = {key: bytes(raw) for key, raw in given.items() if key in seen}
    ids = {key: sealed.decision_id for key, sealed in round.keys.items() if sealed.method != ROOTS}
    reviews = {key: sealed.reviews for key, sealed in round.keys.items() if sealed.reviews}
    return Returned(replies, seen, ids, reviews)


def _seen(state: SessionState, key: SealedKey, now: float) -> SealedDecision:
    """The decision for a forwarded key, and whether the client exceeded the rule's timeout."""
    late = key.late or (key.deadline is not None and state.epoch + now > key.deadline)
    return SealedDecision(key.decision_id, key.effect, key.rule, key.verify, late=late)


def is_portable(
    pending: Pending, asked: server_requests.InputRequired, server_state: bytes | None, replies: Mapping[str, bytes]
) -> bool:
    """Whether a client can carry the round: it is UTF-8 text and not too large."""
    carried = [pending.params, server_state, *(item.params for item in asked.items.values()), *replies.values()]
    parts = [part for part in carried if part is not None] + [key.encode() for key in (*asked.items, *asked.roots)]
    if sum(map(len, parts)) > MAX_PARKED:
        return False
    try:
        return sum(len(msgspec.json.encode(part.decode())) for part in parts) <= MAX_PARKED
    except UnicodeDecodeError:
        return False
