"""The legacy eras' ``initialize``: the client's capabilities go on as the gate offers them, and the server's choice of revision is read along."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from samplegate.core import jsontext, names
from samplegate.core.eras import LEGACY, era_of
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session import declared
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import Effects
from samplegate.core.session.state import State

METHOD: Final = "initialize"
_MEMBERS: Final = frozenset({"protocolVersion", "capabilities", "clientInfo", "serverInfo", "instructions", "_meta"})
_date: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Handshake(msgspec.Struct, eq=False):
    """The handshake of a session; a client may begin it again."""

    state: State
    _asked: dict[FrameId, str] = msgspec.field(default_factory=dict)
    """The id under which the server has it, and the revision that the client asked for."""

    @property
    def revision(self) -> str:
        """The negotiated revision; until ``initialize`` is answered, the one that the client asked for."""
        return next(iter(self._asked.values()), self.state.revision)

    def request(self, lane: int, f: Frame, now: float) -> Effects:
        """The client opens."""
        assert f.id is not None
        state = self.state
        _plain(f, "params")
        asked = jsontext.string(f.lookup("protocolVersion"))
        revision = asked if asked is not None and era_of(asked) == "legacy" else LEGACY[-1]
        raw = f.lookup("capabilities")
        state.client = declared.read(raw)
        state.offered = state.offer("legacy", revision, state.client, None)
        wanted = declared.rewrite(raw, state.client, state.offered, revision)
        params = None if wanted == raw else f.object.changed({"capabilities": wanted})
        pending = Pending(lane, f.id, f.id, f.method, now)
        sent = state.send(pending, f, params)
        self._asked = {pending.wire_id: revision}
        withheld = declared.withheld(state.client, state.offered, revision)
        return [state.withheld("legacy", withheld, None), *sent] if withheld else sent

    def answered(self, f: Frame) -> None:
        """The server chose a revision, if this is its answer. Raises Malformed for a word that is none: all that follows would be read by it."""
        asked = self._asked.pop(f.id, None) if f.id is not None else None
        if asked is None:
            return
        _plain(f, "result")
        said = jsontext.string(f.lookup("protocolVersion"))
        if said is not None and not _date.fullmatch(said):
            raise Malformed("its protocolVersion is not a date")
        self.state.revision = said or asked


def _plain(f: Frame, what: str) -> None:
    """Raises Malformed where another parser could find another revision or other capabilities."""
    if (name := names.second_reading(f.object.members, _MEMBERS)) is not None:
        raise Malformed(f"its {what} has {name[:40]!r}, which could be read as another member")
