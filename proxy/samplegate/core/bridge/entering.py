"""A legacy client's handshake with a server that has none: ``initialize`` answered from ``server/discover``, and what was agreed by it."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge.calls import Call
from samplegate.core.bridge.stamping import LEVELS, Stamp, stamp_of
from samplegate.core.bridge.ways import Effects, Ways
from samplegate.core.bridge.welcome import revision_for, welcome
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Note
from samplegate.core.session.state import State

MAX_OPENINGS: Final = 8  # a client sends one


class Opening(msgspec.Struct, frozen=True):
    """An ``initialize`` whose server has not said yet what it is."""

    call: Call
    revision: str
    client: bytes
    """The capabilities that the client declared, raw, as a modern client's."""


class Entering(msgspec.Struct, eq=False):
    """What holds for the requests of one client. It may open again: the last opening counts."""

    state: State
    ways: Ways
    revision: str = ""
    """The legacy revision that the client was given, empty before it opened."""
    stamp: Stamp = Stamp()
    logs: bool = True
    """Whether the server logs, as far as is known."""
    _asked: dict[FrameId, Opening] = msgspec.field(default_factory=dict)

    def initialize(self, call: Call, f: Frame) -> Effects:
        """The client opens. Answered when the server has said what it is. Raises Malformed."""
        revision = revision_for(jsontext.string(f.lookup("protocolVersion")))
        self.stamp = stamp_of(f.payload, revision)
        self.revision = revision
        if len(self._asked) >= MAX_OPENINGS:
            line = frames.error(call.id, shapes.INVALID_REQUEST, f"refused: {MAX_OPENINGS} initialize requests are in flight already")
            return self.ways.answer(call, line)
        id = self.state.new_round()
        self._asked[id] = Opening(call, revision, self.stamp.capabilities)
        return self.ways.ask(id, "server/discover", b"{}")

    def discovered(self, f: Frame) -> tuple[Effects, bytes | None] | None:
        """The server says what it is; with its capabilities as the client was told them. None if the frame answers something else."""
        opening = None if f.id is None else self._asked.pop(f.id, None)
        if opening is None:
            return None
        call = opening.call
        if f.kind == "error":
            return self.ways.answer(call, frames.error(call.id, shapes.INTERNAL, "the server does not say what it is", f.payload)), None
        try:
            result = welcome(f.payload or b"", revision=opening.revision, server=self.state.server, client=opening.client)
            capabilities = jsontext.lookup(result, "capabilities")
            self.logs = jsontext.lookup(capabilities, "logging") is not None
        except Malformed as problem:
            fault = f"the server's answer was refused: {problem.fault}"
            note = Note("frame.refused", {"side": "server", "fault": problem.fault})
            return [note, *self.ways.answer(call, frames.error(call.id, shapes.INTERNAL, fault))], None
        return self.ways.answer(call, frames.result(call.id, result)), capabilities

    def set_level(self, call: Call, f: Frame) -> Effects:
        """For the whole session here, for one request at the server: kept, and stamped on each (R105)."""
        level = jsontext.string(f.lookup("level"))
        if not self.logs:
            line = frames.error(call.id, shapes.METHOD_NOT_FOUND, "method not found: the server does not offer logging")
        elif level not in LEVELS:
            line = frames.error(call.id, shapes.BAD_PARAMS, "refused: its level is none of the protocol's")
        else:
            self.stamp = msgspec.structs.replace(self.stamp, level=level)
            line = frames.result(call.id, b"{}")
        return self.ways.answer(call, line)
