"""Lines that are not taken: it is logged that one came, and whoever would otherwise wait for ever is told. Nothing they say is carried out."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.frames import FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session import batches, shapes
from samplegate.core.session.passed import Passed
from samplegate.core.session.pushes import Pushes
from samplegate.core.session.rounds import Effects, Note, Side, ToClient, ToServer
from samplegate.core.session.state import SERVER_LANE, State

UNREADABLE: Final = "the client's answer could not be read"


class Refusing(msgspec.Struct, eq=False):
    """What one session does not take."""

    state: State
    pushes: Pushes
    passed: Passed

    def refused(self, side: Side, lane: int, problem: Malformed, code: int = shapes.INVALID_REQUEST) -> Effects:
        """A line is not taken for what is wrong with it."""
        note = Note("frame.refused", {"side": side, "fault": problem.fault})
        if problem.id is None:
            return [note]
        if problem.answers:
            return [note, *(self.no_answer(problem.id, UNREADABLE) if side == "client" else self._servers_answer(problem.id, problem.fault))]
        line = frames.error(problem.id, code, f"refused: {problem.fault}")
        return [note, ToClient(lane, line, True) if side == "client" else ToServer(SERVER_LANE, line)]

    def unreadable(self, side: Side, lane: int, line: bytes, problem: Malformed) -> Effects:
        """No frame could be read from a line, which may be a batch."""
        return batches.refused(side, line, problem, partial(self.refused, side, lane))

    def lost(self, side: Side, lane: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all; ``head`` is its begin, which mostly tells who would wait for an answer. The shell has logged it."""
        effects = self.refused(side, lane, Malformed(fault, **frames.whose(head)), shapes.INTERNAL)
        return [effect for effect in effects if not isinstance(effect, Note)]

    def no_answer(self, id: FrameId, why: str, *, delivered: bool = True) -> Effects:
        """There is no answer of the client's to a request: the gate or the server, whichever waits for it, gets an error."""
        out = self.pushes.replied(id, False, jsontext.dump({"code": shapes.INTERNAL, "message": why}), delivered)
        if out is not None or self.passed.over(id) is None:
            return out or []
        return [ToServer(SERVER_LANE, frames.error(id, shapes.INTERNAL, why))]

    def _servers_answer(self, id: FrameId, fault: str) -> Effects:
        pending = self.state.inflight.wire.get(id)
        if pending is None or pending.round is not None:  # answered already: its round is what counts
            return []
        self.state.inflight.remove(pending)
        return [ToClient(pending.lane, frames.error(pending.id, shapes.INTERNAL, f"the server's answer was refused: {fault}"), True)]


def undelivered(server: str) -> Note:
    """For the log: a request reached no stream of the client."""
    return Note("request.undelivered", {"server": server})
