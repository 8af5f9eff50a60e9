"""What the parts of a session share: who the server is, what was negotiated, what is in flight, and ids nobody else has. No rules."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.capabilities import Asker, Offer, offer, remedies
from samplegate.core.decide import Rulebook
from samplegate.core.eras import Era
from samplegate.core.frames import Frame, FrameId
from samplegate.core.requests import Call, ClientCapabilities, Origin
from samplegate.core.session import bounds
from samplegate.core.session.inflight import Inflight, Pending
from samplegate.core.session.rounds import Effect, Note, ToClient, ToServer
from samplegate.core.session.shapes import INTERNAL as INTERNAL_ERROR

SERVER_LANE = 0
INTERNAL = -1  # the lane of what the gate itself asks of a server


def _alone() -> int:
    return 0


class State(msgspec.Struct, eq=False):
    """Shared by ``session.py`` and its parts. ``token`` is random; ``key`` seals forwarded rounds; ``epoch`` + now is wall time."""

    book: Rulebook
    server: str
    token: str
    key: bytes
    epoch: float = 0.0
    caller: str = "local"
    maps_ids: bool = False
    """Whether several clients, or several streams of one, choose ids and tokens for themselves: the server is then shown ours (R111)."""
    streams: bool = False
    """Whether the server answers each request on a stream of its own (HTTP): in the modern era its end is how a call is taken back (R99)."""
    outlived: bool = False
    """Whether the client's lanes outlive the server's side: then whoever waits for it is told that it has ended."""
    callers: dict[int, str] = msgspec.field(default_factory=dict)
    """Who speaks on a client's lane, where that is not ``caller``."""
    traces: dict[int, str] = msgspec.field(default_factory=dict)
    """The trace context of what comes on a client's lane, where its transport gave one."""
    revision: str = ""
    """The negotiated legacy revision; empty until ``initialize`` was answered."""
    client: ClientCapabilities = ClientCapabilities()
    offered: Offer = Offer()
    answered: bool = False
    """Whether the server has answered any request."""
    silent: bool = False
    """Whether the client has ended its input, so that it answers no request any more."""
    ended_because: str = "the server has ended before it answered"
    """The error of the requests that are still open when the server's side ends."""
    inflight: Inflight = msgspec.field(default_factory=Inflight)
    numbers: int = 0
    pushed: int = 0
    """Bytes of the server's pushed requests that are open."""
    of_all: Callable[[], int] = _alone
    """Bytes that all sessions of the process remember of requests, this one's too."""

    @property
    def extends_on_progress(self) -> bool:
        """Whether the server's progress on a request begins the wait for its answer anew, by the policy's word (R102)."""
        peer = self.book.policy.servers.get(self.server)
        return peer is not None and peer.extends_on_progress

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

    def origin(self, pending: Pending) -> Origin:
        """Where what is asked in a modern call comes from."""
        calls = () if pending.call is None else (pending.call,)
        return Origin(self.server, pending.caller, "modern", pending.revision, calls, pending.trace)

    def caller_on(self, lane: int) -> str:
        """Who speaks on a client's lane."""
        return self.callers.get(lane, self.caller) if self.callers else self.caller

    def offer(self, era: Era, revision: str, client: ClientCapabilities, call: Call | None, caller: str | None = None) -> Offer:
        """What is declared to the server (R113)."""
        who = self.caller if caller is None else caller
        return offer(self.book, server=self.server, caller=who, era=era, revision=revision, client=client, call=call)

    def withheld(self, era: Era, names: list[str], call: Call | None, caller: str | None = None) -> Note:
        """The warning that the client declared what the server is not offered, with the rules that would change that."""
        who = Asker(self.server, self.caller if caller is None else caller, era, call)
        return Note("capability.withheld", {"server": self.server, "capabilities": names, **remedies(self.book, who, names)})

    @property
    def held(self) -> int:
        """Bytes that this session remembers of requests that are open."""
        return self.inflight.size + self.pushed

    def call_fault(self, size: int) -> str | None:
        """Why calls in flight may not take so many bytes more; None if they may."""
        if self.inflight.size + size > bounds.MOST_CALLS:
            return bounds.CALLS_FULL
        return self._fault_of_all(size)

    def push_fault(self, size: int) -> str | None:
        """The same of the server's requests."""
        if self.pushed + size > bounds.MOST_PUSHES:
            return bounds.PUSHES_FULL
        return self._fault_of_all(size)

    def _fault_of_all(self, size: int) -> str | None:
        if self.held + size <= bounds.SMALL or self.of_all() + size <= bounds.MOST_OF_ALL:
            return None
        return bounds.ALL_FULL

    def refusal(self, pending: Pending, fault: str) -> list[Effect]:
        """A client's request for which there is no room ends with an error."""
        fields = {"server": self.server, "method": pending.method[:100], "fault": fault}
        return [Note("call.failed", fields), ToClient(pending.lane, frames.error(pending.id, INTERNAL_ERROR, fault), True)]

    def enter(self, pending: Pending) -> None:
        """Put a request in flight that the server has not seen."""
        self.numbers += 1
        pending.number = self.numbers
        self.inflight.add(pending)

    def send(self, pending: Pending, f: Frame, payload: jsontext.Object | None = None) -> list[Effect]:
        """Put a client's request in flight, with ``payload`` where that is another now; under another id where ids are mapped, or where two
        requests have the same (R111). One for which there is no room is refused."""
        if self.streams:  # the link keeps the frame until it is answered
            pending.size += len(f.raw)
        if self.inflight.size + pending.size > bounds.SMALL and (fault := self.call_fault(pending.size)) is not None:
            return self.refusal(pending, fault)
        if self.maps_ids or pending.wire_id in self.inflight.wire:
            pending.wire_id = self.new_id()
            f = f.changed(id=pending.wire_id, payload=payload)
        elif payload is not None:
            f = f.changed(payload=payload)
        self.enter(pending)
        return [self.to_server(pending, f.raw, f)]

    def to_server(self, pending: Pending, line: bytes, f: Frame | None = None) -> ToServer:
        """A line of a client's request, on the lane that is its own where the server has more than one."""
        return ToServer(pending.number if self.streams else SERVER_LANE, line, f)

    def own_token(self, pending: Pending) -> bytes | None:
        """The progressToken that the server is to see in place of the client's, raw; None where it stays (R111)."""
        if not self.maps_ids or pending.token is None:
            return None
        pending.wire_token = f"sg:{self.token}:p{self.numbers}"
        self.numbers += 1
        return jsontext.dump(pending.wire_token)
