"""What is sealed of a round that is handed on to the client, and what of it is known again at the return. Not the cipher: ``seal.py``."""

from __future__ import annotations

from samplegate.core.session import seal
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import ROOTS, ForwardRound, Round, Seen
from samplegate.core.session.state import State


def binding(state: State, pending: Pending) -> seal.Binding | None:
    """What a state for this call belongs to; None if its params cannot be brought into one form."""
    try:
        digest = seal.params_digest(pending.params)
    except (ValueError, RecursionError):
        return None
    return seal.Binding(state.server, pending.caller, pending.method, digest)


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
    )
    return seal.seal(body, bound, key=state.key, nonce=conclusion.nonce)


def _key(round: Round, key: str, conclusion: ForwardRound, wall: float) -> seal.SealedKey:
    if key in round.roots:
        return seal.SealedKey(ROOTS, None, "", "forward", None, True)
    item, seen = round.items[key], conclusion.seen[key]
    params = None if item.params is None else item.params.decode()
    deadline = None if seen.timeout is None else wall + seen.timeout
    return seal.SealedKey(item.method, params, seen.decision_id, seen.effect, seen.rule, key in conclusion.keys, seen.verify, deadline)


def opened(state: State, pending: Pending, text: str | None, now: float) -> seal.SealedRound | None:
    """The round that a client shows again, None if our key does not open it for this very call (R68)."""
    bound = binding(state, pending)
    return None if text is None or bound is None else seal.unseal(text, bound, key=state.key, now=state.epoch + now)


def seen(state: State, key: seal.SealedKey, now: float) -> Seen:
    """What was decided about a forwarded key, and whether the client took longer than its rule gives."""
    late = key.deadline is not None and state.epoch + now > key.deadline
    return Seen(key.decision_id, key.effect, key.rule, key.verify, late=late)
