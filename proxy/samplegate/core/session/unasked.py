"""Answers that a modern client sends before anybody asked it (the fourth door of T3). Only the client could have been asked for them where all
rules that can match are `forward`: there they go on, once they are on record. Elsewhere they are refused or taken out.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from samplegate.core import frames, jsontext, names
from samplegate.core.capabilities import unsolicited
from samplegate.core.decisions import Answered, Withdrawn
from samplegate.core.frames import Frame
from samplegate.core.parsing import strictjson
from samplegate.core.policy import Kind
from samplegate.core.replies import second_reading
from samplegate.core.requests import BadRequest
from samplegate.core.session import doors, shapes
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import ELICITATION, SAMPLING, Effects, Item, Note, Open, Over, Round, Settled, ToClient, Withdraw
from samplegate.core.session.state import State


class Unasked(msgspec.Struct, eq=False):
    """The calls of a session that wait for the record of such answers."""

    state: State
    open: dict[str, tuple[Pending, Frame]] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, answers: bytes, f: Frame, bare: jsontext.Object) -> Effects:
        """A call with answers: ``f`` is the call as it came, ``bare`` its params without them."""
        given = read(answers)
        if isinstance(given, str):  # nobody's consent, as where it answers what was asked
            return [self._note(pending), _refused(pending, given)]
        if not given:
            return self.state.send(pending, f)
        methods = {key: ELICITATION if _says_action(raw) else SAMPLING for key, raw in given.items()}
        match self._fate(pending, frozenset(methods.values())):
            case "pass":
                return self._open(pending, {key: _item(method, given[key]) for key, method in methods.items()}, f)
            case "refuse":
                return [self._note(pending), _refused(pending, "inputResponses that nobody asked for are not taken here")]
            case "strip":
                return [self._note(pending), *self.state.send(pending, f, bare)]

    def _fate(self, pending: Pending, methods: frozenset[str]) -> Literal["pass", "refuse", "strip"]:
        assert pending.call is not None
        state = self.state
        kinds: frozenset[Kind] = frozenset("elicitation" if method == ELICITATION else "sampling" for method in methods)
        return unsolicited(
            state.book, server=state.server, caller=pending.caller, call=pending.call, revision=pending.revision, client=pending.client, kinds=kinds
        )

    def _open(self, pending: Pending, items: dict[str, Item], f: Frame) -> Effects:
        extra = 2 * len(f.raw)  # the call as it came, and the answers by themselves
        if (full := self.state.call_fault(pending.size + extra)) is not None:
            return self.state.refusal(pending, full)
        self.state.inflight.resize(pending, extra)
        origin = self.state.origin(pending)
        round = Round(self.state.new_round(), "unasked", origin, pending.client, items, None, pending.started, arguments=pending.arguments)
        pending.wire_id = self.state.new_id()  # the server has not seen it yet
        self.state.enter(pending)
        pending.round = round.id
        self.open[round.id] = (pending, f)
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """The answers are on record, and the call goes on; or they are not, and it ends."""
        pending, f = self.open.pop(round)
        pending.round = None
        self.state.inflight.remove(pending)
        self.state.inflight.resize(pending, 0)
        refused = next((release for release in settled.releases.values() if not isinstance(release.outcome, Answered)), None)
        if refused is None:
            pending.wire_id = pending.id
            return self.state.send(pending, f)
        if isinstance(refused.outcome, Withdrawn):
            return [Over(pending.lane, pending.id)]
        return [ToClient(pending.lane, shapes.ended_call(pending.id, pending.method, "modern", "input", refused), True)]

    def cancelled(self, round: str) -> Effects | None:
        """The client takes the call back; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """A side has gone for good: the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds

    def _note(self, pending: Pending) -> Note:
        return Note("answers.unsolicited", {"server": self.state.server, "method": pending.method})


def _item(method: str, answer: bytes) -> Item:
    return Item(method, None, BadRequest(shapes.BAD_PARAMS, "nobody asked"), offered=True, answer=answer)


def _refused(pending: Pending, fault: str) -> ToClient:
    return ToClient(pending.lane, frames.error(pending.id, shapes.BAD_PARAMS, fault), True)


def _says_action(answer: bytes) -> bool:
    """Whether an answer is one to an elicitation: of the two results only that has an ``action``."""
    return answer[:1] == b"{" and "action" in jsontext.fields(answer)


_ANSWERS: Final = frozenset({"requestState", "inputResponses"})
_NOT_PLAIN: Final = "inputResponses has an answer that is not an object of one reading"


def read(answers: bytes) -> dict[str, bytes] | str:
    """Each answer of ``inputResponses``, raw; or why none of them is taken."""
    try:
        given = {key: bytes(raw) for key, raw in jsontext.fields(answers).items()}
        if len(given) > doors.MAX_KEYS:
            return f"inputResponses has more than {doors.MAX_KEYS} answers"
        plain = all(isinstance(one, dict) and second_reading(one) is None for one in strictjson.decode(answers).values())
        return given if plain else _NOT_PLAIN
    except (jsontext.Malformed, strictjson.Fault):
        return _NOT_PLAIN


def brings_answers(params: jsontext.Object) -> bool:
    """Whether a call brings answers or a state along. Raises jsontext.Malformed for a spelling that another parser may fold to them."""
    if (name := names.resembling(params.members, _ANSWERS)) is not None:
        raise jsontext.Malformed(f"its params have {name[:20]!r}, which resembles a member of the protocol")
    return not _ANSWERS.isdisjoint(params.members)
