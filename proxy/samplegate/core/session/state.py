"""What the parts of a session share: who the server is, what was negotiated, what is in flight, and ids nobody else has. No rules."""

from __future__ import annotations

import msgspec

from samplegate.core import jsontext
from samplegate.core.capabilities import Offer, offer
from samplegate.core.decide import Rulebook
from samplegate.core.eras import Era
from samplegate.core.frames import FrameId
from samplegate.core.requests import Call, ClientCapabilities
from samplegate.core.session.inflight import Inflight, Pending
from samplegate.core.session.rounds import Effect, ToServer

SERVER_LANE = 0


class State(msgspec.Struct, eq=False):
    """Shared by ``session.py`` and its parts. ``token`` is random; ``key`` seals forwarded rounds; ``epoch`` + now is wall time."""

    book: Rulebook
    server: str
    token: str
    key: bytes
    epoch: float = 0.0
    caller: str = "local"
    revision: str = ""
    """The negotiated legacy revision; empty until ``initialize`` was answered."""
    client: ClientCapabilities = ClientCapabilities()
    offered: Offer = Offer()
    inflight: Inflight = msgspec.field(default_factory=Inflight)
    numbers: int = 0

    def new_id(self) -> FrameId:
        """An id of our own: a string with a random part, so that it meets nobody else's."""
        self.numbers += 1
        return f"sg:{self.token}:{self.numbers}"

    def is_ours(self, id: FrameId) -> bool:
        """Whether an id has the form of ours: a peer that uses it could be taken for us."""
        return isinstance(id, str) and id.startswith(f"sg:{self.token}:")

    def new_round(self) -> str:
        """The name of a round."""
        self.numbers += 1
        return f"{self.token}-{self.numbers}"

    def call_ids(self, calls: list[Pending]) -> tuple[str, ...]:
        """The names of the calls that a request may belong to; with none in flight the session's."""
        for pending in calls:
            pending.key = pending.key or self.new_round()
        return tuple(pending.key for pending in calls) or (self.token,)

    def offer(self, era: Era, revision: str, client: ClientCapabilities, call: Call | None) -> Offer:
        """What is declared to the server (R113)."""
        return offer(self.book, server=self.server, caller=self.caller, era=era, revision=revision, client=client, call=call)

    def send(self, pending: Pending, raw: bytes) -> list[Effect]:
        """Put a client's request in flight; under another id only where two clients chose the same (R111)."""
        if pending.wire_id in self.inflight.wire:
            pending.wire_id = self.new_id()
            raw = jsontext.splice(raw, ("id",), jsontext.dump(pending.wire_id))
        self.inflight.add(pending)
        return [ToServer(SERVER_LANE, raw)]
