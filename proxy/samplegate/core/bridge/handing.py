"""A round that policy forwards, in a legacy client's hands: asked in its own era, awaited for a time, and the call made again with what came (R120).

Nothing is decided of what the client left out: the gate finds it unanswered at the return, records it, and ends the call or cancels the form.
"""

from __future__ import annotations

from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.bridge.asking import Asked, Asking, responses
from samplegate.core.bridge.calls import Call, Calls, beat
from samplegate.core.bridge.ways import Effects, Ways
from samplegate.core.decisions import Reason, Unanswered
from samplegate.core.frames import FrameId
from samplegate.core.session import seal, shapes
from samplegate.core.session.rounds import ForwardRound, Note, Over, Release
from samplegate.core.session.state import State

MAX_ROUNDS: Final = 8  # times that the client is asked in one call, as the SDKs' own bridges count (R120)
BEAT: Final = 5.0  # seconds between two signs of life on a call whose client is being asked
MARGIN: Final = 5.0  # seconds before a seal is too old in which the call can still be made again


class Handing:
    """The rounds that are with one client."""

    def __init__(self, state: State, calls: Calls, ways: Ways) -> None:
        self.state = state
        self._ways = ways
        self._calls = calls
        self._asking = Asking(state)

    def hand(self, call: Call, handed: bytes, forwarded: ForwardRound, revision: str) -> Effects:
        """The inner session's ``input_required`` result for a call, as requests of the client's revision on the lane of the call."""
        call.rounds += 1
        if call.rounds > MAX_ROUNDS:
            return self._too_many(call, forwarded)
        requests, state = jsontext.lookup(handed, "inputRequests"), jsontext.lookup(handed, "requestState")
        now, limit = self._ways.now(), min([*_limits(forwarded), seal.LIFETIME - MARGIN])
        asked = Asked(call, state or b'""', now, now + limit, bool(forwarded.keys))
        entries = {key: bytes(raw) for key, raw in jsontext.fields(requests or b"{}").items()}
        self._grow(asked, len(asked.state))
        out = self._asking.ask(asked, entries, revision)
        return [*out, *(self._go_on(asked) if asked.failed else self._wait(asked))]

    def _grow(self, asked: Asked, size: int) -> None:
        """A round takes so many bytes more until its call goes on."""
        asked.size += size
        self._calls.grow(asked.call, size)

    def _too_many(self, call: Call, forwarded: ForwardRound) -> Effects:
        fault = f"the server asked the client more than {MAX_ROUNDS} times in one call"
        decided = next((seen.decision_id for seen in forwarded.seen.values()), "")
        line = shapes.ended_call(call.id, call.method, "legacy", "input", Release(Unanswered(Reason.ROUNDS), decided))
        return [Note("call.failed", {"server": self.state.server, "method": call.method, "fault": fault}), *self._ways.answer(call, line)]

    def replied(self, id: FrameId, result: bytes | None) -> Effects | None:
        """The client answers something, with None for an error or what cannot be read; None if it was not asked that."""
        asked = self._asking.asked_by(id)
        if asked is None:
            return None
        out: Effects = []
        if result is not None and (full := self.state.call_fault(len(result))) is not None:
            out, result = [Note("question.refused", {"server": self.state.server, "fault": full})], None
        self._grow(asked, len(result or b""))
        found = self._asking.answered(id, result)
        out += [] if found is None else found[1]
        return out if self._asking.asks(asked) else [*out, *self._go_on(asked)]

    def cancelled(self, call: Call) -> Effects | None:
        """The client takes a call back; None if the call is not with the client."""
        asked = self._asking.of(call)
        return None if asked is None else [*self._asking.withdraw(asked, "the call it belongs to was taken back"), Over(call.lane)]

    def questions(self) -> list[FrameId]:
        """The ids of what the client is asked."""
        return self._asking.questions()

    def withdraw_all(self, reason: str) -> Effects:
        """Nobody waits for anything any more."""
        return self._asking.withdraw_all(reason)

    def _wait(self, asked: Asked) -> Effects:
        """Look again in a while: is the time over, and does the client hear that its call is alive (R101)."""
        pause = max(min(BEAT, asked.deadline - asked.at), 0.0)
        return self._ways.after(pause, lambda: self._waited(asked, pause))

    def _waited(self, asked: Asked, pause: float) -> Effects:
        if not self._asking.asks(asked):
            return []
        asked.at = max(asked.at + pause, self._ways.now())
        if asked.at >= asked.deadline:
            return [*self._asking.withdraw(asked, "its time is over"), *self._go_on(asked)]
        sign = beat(asked.call)
        return [*([] if sign is None else [sign]), *self._wait(asked)]

    def _go_on(self, asked: Asked) -> Effects:
        """The client comes back with what it has."""
        call = asked.call
        assert call.params is not None
        self._grow(asked, -asked.size)
        if asked.failed and not asked.forwarded:  # roots alone: without them nothing else is worth an answer (T7)
            line = shapes.ended_call(call.id, call.method, "legacy", "roots", Release(Unanswered(Reason.CLIENT), ""))
            return self._ways.answer(call, line)
        params = jsontext.splice(call.params, ("inputResponses",), responses(asked.replies))
        params = jsontext.splice(params, ("requestState",), asked.state)
        return self._ways.say(call.lane, frames.request(call.id, call.method, params))


def _limits(forwarded: ForwardRound) -> list[float]:
    """Seconds that the rules of the forwarded keys give the client."""
    return [seen.timeout for key, seen in forwarded.seen.items() if key in forwarded.keys and seen.timeout is not None]
