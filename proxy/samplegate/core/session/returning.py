"""A client's retry with a state of ours: the round that left with it, as it was, and what the client has answered (R68). Nothing is decided here."""

from __future__ import annotations

import msgspec

from samplegate.core.session import doors, seal, sealing
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import ROOTS, Returned
from samplegate.core.session.state import State


class Back(msgspec.Struct, frozen=True):
    """A round that is there again."""

    asked: doors.InputRequired
    state: bytes | None
    """The server's requestState, raw JSON."""
    returned: Returned


def reopened(state: State, pending: Pending, text: str | None, answers: bytes | None, now: float) -> Back | None:
    """The round behind a state, with the raw ``inputResponses`` that came along; None if it is not ours for this call. The call's counts go on."""
    opened = sealing.opened(state, pending, text, now)
    if opened is None:
        return None
    pending.rounds, pending.shown, pending.key = opened.rounds, opened.shown, opened.call
    if opened.replies is None:  # where it was only put off, this try's own time counts: the one before has had its answer
        pending.started = min(now, opened.started - state.epoch)
    server_state = None if opened.state is None else opened.state.encode()
    return Back(_asked(state, pending, opened), server_state, sealing.returned(state, opened, answers, now))


def _asked(state: State, pending: Pending, opened: seal.SealedRound) -> doors.InputRequired:
    """What the server asked, read again: the policy may offer less by now."""
    origin = state.origin(pending)
    items = {
        key: doors.item(sealed.method, None if sealed.params is None else sealed.params.encode(), origin, pending.offer)
        for key, sealed in opened.keys.items()
        if sealed.method != ROOTS
    }
    return doors.InputRequired(items, {key: b"" for key, sealed in opened.keys.items() if sealed.method == ROOTS}, {}, None)
