"""What the session of the modern era says, in the words of the legacy client in front of it. Sends nothing, and decides nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge import stripping
from samplegate.core.bridge.calls import PROGRESS, Call, Calls
from samplegate.core.bridge.entering import Entering
from samplegate.core.bridge.handing import Handing
from samplegate.core.bridge.listening import Listening
from samplegate.core.bridge.ways import Effects, Ways
from samplegate.core.bridge.welcome import without_meta
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import doors, shapes
from samplegate.core.session.inflight import STANDALONE
from samplegate.core.session.rounds import ForwardRound, Note, Over, ToClient
from samplegate.core.session.routing import META_SUBSCRIPTION
from samplegate.core.session.state import INTERNAL

_NOT_FOR_CLIENTS: Final = frozenset({"notifications/elicitation/complete", "notifications/tasks"})
"""What no modern server may send (R43, R108): the ids in it are nobody's."""
_NEVER: Final = frozenset({shapes.METHOD_NOT_FOUND, shapes.BAD_PARAMS})
_subscription: Final = META_SUBSCRIPTION.encode()


class Telling(msgspec.Struct, eq=False):
    """The way back to one client."""

    calls: Calls
    entering: Entering
    handing: Handing
    listening: Listening
    ways: Ways

    def told(self, effects: Effects, *, forwarded: ForwardRound | None = None, beat: bool = False) -> Effects:
        """The inner session's effects, in the client's words. ``forwarded``: they hand this round on; ``beat``: they are progress of the gate's."""
        out: Effects = []
        for effect in effects:
            match effect:
                case ToClient():
                    out += self._translated(effect, forwarded, beat)
                case Over(lane) if lane == INTERNAL:
                    pass
                case Over(_, id) if id is not None and id in self.calls.by_id:
                    call = self.calls.by_id[id]
                    self.calls.remove(call)
                    self.listening.forget(call)
                    out.append(effect)
                case _:
                    out.append(effect)
        return out

    def _translated(self, effect: ToClient, forwarded: ForwardRound | None, beat: bool) -> Effects:
        f = effect.frame or frames.read(effect.line)
        if f.kind == "notification":
            try:
                return self._notification(effect.lane, f, beat)
            except Malformed as problem:
                return [_refusal(problem)]
        if f.kind == "request" or f.id is None:  # an era without requests of the server's (R89); an error for nobody
            return [Note("frame.unasked", {"side": "server"})]
        if effect.lane == INTERNAL:
            return self._own_answer(f)
        call = self.calls.by_id.get(f.id)
        return [Note("frame.unasked", {"side": "server"})] if call is None else self._answered(call, f, forwarded)

    def _own_answer(self, f: Frame) -> Effects:
        """To what the gate itself asked."""
        assert f.id is not None
        found = self.entering.discovered(f)
        if found is not None:
            out, capabilities = found
            return out if capabilities is None else [*out, *self.listening.begin(capabilities)]
        return self.listening.ended(f.id, "it has no subscriptions/listen, or not this one" if _is_final(f) else None)

    def _notification(self, lane: int, f: Frame, beat: bool) -> Effects:
        if f.method == PROGRESS:
            shown = self.calls.shown(lane, f, ours=beat)
            return [] if shown is None else [shown]
        if f.method == "notifications/cancelled":
            return self._server_cancels(lane, f)
        if f.method in _NOT_FOR_CLIENTS:
            return [Note("frame.refused", {"side": "server", "fault": "a notification that its era does not have"})]
        raw = f.meta.raw(META_SUBSCRIPTION) if f.may_say(_subscription) else None
        if f.method == "notifications/subscriptions/acknowledged":
            id = None if raw is None else frames.plain_id(raw)
            return [] if id is None and raw is not None else self.listening.acknowledged(id)
        if raw is None:
            return [ToClient(STANDALONE if lane == INTERNAL else lane, f.raw)]
        assert f.payload is not None
        return [ToClient(STANDALONE, jsontext.splice(f.raw, ("params",), without_meta(f.payload, META_SUBSCRIPTION)))]

    def _server_cancels(self, lane: int, f: Frame) -> Effects:
        """It ends our listen. Requests of the client's are not a server's to take back (R99)."""
        raw = f.lookup("requestId")
        id = None if raw is None else frames.plain_id(raw)
        if lane != INTERNAL or id is None:
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        return self.listening.ended(id, None)

    def _answered(self, call: Call, f: Frame, forwarded: ForwardRound | None) -> Effects:
        try:
            if f.kind == "error":
                return self.ways.answer(call, stripping.error(f))
            if forwarded is not None and doors.result_type(f.object) == doors.INPUT_REQUIRED:
                return self.handing.hand(call, f.payload or b"", forwarded, self.entering.revision)
            return self.ways.answer(call, stripping.result(f, call.method))
        except Malformed as problem:
            fault = f"the server's answer was refused: {problem.fault}"
            return [_refusal(problem), *self.ways.answer(call, frames.error(call.id, shapes.INTERNAL, fault))]


def _refusal(problem: Malformed) -> Note:
    return Note("frame.refused", {"side": "server", "fault": problem.fault})


def _is_final(f: Frame) -> bool:
    """Whether an answer says that asking again is of no use."""
    return f.code in _NEVER
