"""What is sealed of a round that leaves with the client, and what of it is known again at its return. Not the cipher: ``seal.py``.

It leaves with questions that the client is to answer, or is only put off while people decide: then the client has a state alone and comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import jsontext
from samplegate.core.session import doors, seal
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import ROOTS, ForwardRound, Returned, Round, Seen
from samplegate.core.session.state import State

MAX_PARKED: Final = 512 * 1024
"""Bytes, with their escapes, of all that a client must carry for a round that is put off. Sealed they grow by a third, and with the call's own
arguments the retry stays under the 1 MiB that reverse proxies take by default. What is larger is not put off, but ends with its client's patience."""


def binding(state: State, pending: Pending) -> seal.Binding | None:
    """What a state for this call belongs to; None if its params cannot be brought into one form."""
    try:
        digest = seal.params_digest(pending.params)
    except (ValueError, RecursionError):
        return None
    return seal.Binding(state.server, pending.caller, pending.method, digest)


def only_put_off(round: Round, conclusion: ForwardRound) -> bool:
    """Whether the client is asked nothing: no key is forwarded and there are no roots to ask, or it was asked all of it before."""
    return round.returned is not None or not (conclusion.keys or round.roots)


def sealed(state: State, pending: Pending, round: Round, conclusion: ForwardRound, *, server_state: bytes | None, now: float) -> str | None:
    """The round as the requestState that the client is shown; None if its call cannot be bound."""
    bound = binding(state, pending)
    if bound is None:
        return None
    wall = state.epoch + now
    body = seal.SealedRound(
        expires=wall + seal.LIFETIME,
        policy_hash=conclusion.policy_hash,
        round=round.id,
        rounds=pending.rounds,
        state=None if server_state is None else server_state.decode(),
        keys={key: _key(round, key, conclusion, wall) for key in [*round.items, *round.roots]},
        started=state.epoch + pending.started,
        call=pending.key,
        shown=pending.shown + 1,
        replies=_replies(round) if only_put_off(round, conclusion) else None,
    )
    return seal.seal(body, bound, key=state.key, nonce=conclusion.nonce)


def _key(round: Round, key: str, conclusion: ForwardRound, wall: float) -> seal.SealedKey:
    if key in round.roots:
        return seal.SealedKey(ROOTS, None, "", "forward", None, True)
    item, before = round.items[key], None if round.returned is None else round.returned.seen.get(key)
    params = None if item.params is None else item.params.decode()
    if before is not None:  # the client was asked: that stands, and so does whether it was in time
        return seal.SealedKey(item.method, params, before.decision_id, before.effect, before.rule, True, before.verify, None, before.late)
    seen = conclusion.seen[key]
    forwarded = round.returned is None and key in conclusion.keys
    deadline = None if seen.timeout is None else wall + seen.timeout
    reviews = dict(seen.reviews)
    return seal.SealedKey(item.method, params, seen.decision_id, seen.effect, seen.rule, forwarded, seen.verify, deadline, reviews=reviews)


def _replies(round: Round) -> dict[str, str]:
    return {} if round.returned is None else {key: raw.decode() for key, raw in round.returned.replies.items()}


def opened(state: State, pending: Pending, text: str | None, now: float) -> seal.SealedRound | None:
    """The round that a client shows again, None if our key does not open it for this very call (R68)."""
    bound = binding(state, pending)
    return None if text is None or bound is None else seal.unseal(text, bound, key=state.key, now=state.epoch + now)


def returned(state: State, round: seal.SealedRound, answers: bytes | None, now: float) -> Returned:
    """What the client has answered: now, with the raw ``inputResponses``, or before, where it was asked nothing this time."""
    seen = {key: _seen(state, sealed, now) for key, sealed in round.keys.items() if sealed.forwarded}
    if round.replies is not None:
        replies = {key: raw.encode() for key, raw in round.replies.items()}
    else:
        given = {} if answers is None or answers[:1] != b"{" else jsontext.fields(answers)
        replies = {key: bytes(raw) for key, raw in given.items() if key in seen}
    ids = {key: sealed.decision_id for key, sealed in round.keys.items() if sealed.method != ROOTS}
    return Returned(replies, seen, ids, {key: sealed.reviews for key, sealed in round.keys.items() if sealed.reviews})


def _seen(state: State, key: seal.SealedKey, now: float) -> Seen:
    """What was decided about a forwarded key, and whether the client took longer than its rule gives."""
    late = key.late or (key.deadline is not None and state.epoch + now > key.deadline)
    return Seen(key.decision_id, key.effect, key.rule, key.verify, late=late)


def is_portable(pending: Pending, asked: doors.InputRequired, server_state: bytes | None, replies: Mapping[str, bytes]) -> bool:
    """Whether a client can carry the round: it is text, and not too much of it."""
    carried = [pending.params, server_state, *(item.params for item in asked.items.values()), *replies.values()]
    parts = [part for part in carried if part is not None] + [key.encode() for key in (*asked.items, *asked.roots)]
    if sum(map(len, parts)) > MAX_PARKED:
        return False
    try:
        return sum(len(msgspec.json.encode(part.decode())) for part in parts) <= MAX_PARKED
    except UnicodeDecodeError:
        return False
