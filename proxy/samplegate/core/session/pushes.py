"""The first door: requests that a legacy server pushes. Each is a round of one; a forwarded one goes to the client under an id of ours.

Not the modern era: there a server that writes a request is refused (``session.py``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.decisions import Withdrawn
from samplegate.core.frames import Frame, FrameId
from samplegate.core.requests import Origin
from samplegate.core.session import bounds, doors, shapes
from samplegate.core.session.inflight import STANDALONE, Pending, own_token, token_of
from samplegate.core.session.progress import notification
from samplegate.core.session.rounds import SAMPLING, Effects, Note, Open, Reply, Round, Settled, ToClient, ToServer, Withdraw
from samplegate.core.session.state import SERVER_LANE, State

KEY: Final = ""  # the one key of a pushed round
MAX_OPEN: Final = 1000  # each open round is a task, and a server chooses how many it asks for


class Push(msgspec.Struct, eq=False):
    """A pushed request that is being answered."""

    id: FrameId
    """The server's id."""
    round: Round
    params: bytes | None
    kind: str
    calls: list[Pending]
    """The calls it may belong to."""
    sent: FrameId | None = None
    """Our id at the client, while it is forwarded."""
    lane: int = STANDALONE
    """The stream on which it was forwarded."""
    size: int = 0
    """Bytes that it counts for."""
    beats: int = 0


class Pushes(msgspec.Struct, eq=False):
    """The pushed requests of a session that are not answered yet."""

    state: State
    open: dict[str, Push] = msgspec.field(default_factory=dict)
    _by_id: dict[FrameId, Push] = msgspec.field(default_factory=dict)
    _sent: dict[FrameId, Push] = msgspec.field(default_factory=dict)

    def asks(self, id: FrameId) -> bool:
        """Whether the server has a request with this id open."""
        return id in self._by_id

    def arrive(self, f: Frame, now: float, lane: int = SERVER_LANE) -> Effects:
        """The server asks. On the stream of a call it asks during that call; elsewhere it may be any that is in flight."""
        assert f.id is not None
        if len(self.open) >= MAX_OPEN:
            return _refused(f, f"refused: {MAX_OPEN} requests of this server are open already")
        state = self.state
        size = bounds.ENTRY + bounds.parsed([f.payload])
        if (full := state.push_fault(size)) is not None:
            return _refused(f, full)
        on = state.inflight.numbered.get(lane) if lane else None
        calls = state.inflight.calls() if on is None or on.call is None else [on]
        distinct = dict.fromkeys(p.call for p in calls if p.call is not None)
        origin = Origin(state.server, state.caller, "legacy", state.revision, tuple(distinct), calls[0].trace if len(calls) == 1 else "")
        item = doors.item(f.method, f.payload, origin, state.offered)
        called = min((p.started for p in calls), default=None)
        round = Round(
            state.new_round(),
            "push",
            origin,
            state.client,
            {KEY: item},
            asked=now,
            called=called,
            server_told=own_token(f) is not None,
            client_told=all(p.token is not None for p in calls),
            call_ids=state.call_ids(calls),
            session=state.token,
            arguments=calls[0].arguments if len(calls) == 1 else None,
        )
        push = Push(f.id, round, f.payload, "sampling" if f.method == SAMPLING else "elicitation", calls)
        push.size = size + len(round.arguments or b"")
        state.pushed += push.size
        self.open[round.id] = self._by_id[f.id] = push
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """The round is done: the server gets its answer."""
        push = self._close(round)
        if push is None:
            return []
        for pending in push.calls:
            pending.renewed = True
        release = settled.releases[KEY]
        if isinstance(release.outcome, Withdrawn):
            return []
        return [ToServer(SERVER_LANE, shapes.pushed(push.id, push.kind, release, push.params))]

    def forward(self, round: str) -> Effects:
        """Send the request on to the client; its reply comes as ``Reply``."""
        push = self.open.get(round)
        if push is None:
            return []
        push.sent, push.lane = self.state.new_id(), self.state.inflight.lane_of(push.calls)  # not before: its calls may be over by now
        self._sent[push.sent] = push
        method = push.round.items[KEY].method
        return [ToClient(push.lane, frames.request(push.sent, method, _without_task(push.params)), asks=push.sent)]

    def unforward(self, round: str, reason: str) -> Effects:
        """Nobody waits for the client's reply any more: tell it so."""
        push = self.open.get(round)
        return [] if push is None else self._unsend(push, reason)

    def _unsend(self, push: Push, reason: str) -> Effects:
        if push.sent is None:
            return []
        sent, push.sent = push.sent, None
        self._sent.pop(sent, None)
        lane = push.lane if push.lane in self.state.inflight.lanes else self.state.inflight.lane_of(push.calls)
        line = frames.notification("notifications/cancelled", jsontext.dump({"requestId": sent, "reason": reason}))
        return [ToClient(lane, line, takes_back=sent)]

    def sent(self) -> list[FrameId]:
        """Our ids of those that are with the client."""
        return list(self._sent)

    def held(self) -> set[int]:
        """The numbers of the calls in which the server waits for an answer."""
        return {pending.number for push in self.open.values() for pending in push.calls}

    def replied(self, id: FrameId, ok: bool, payload: bytes, delivered: bool = True) -> Effects | None:
        """The client answers with a result or an error, or was not reached; None if it answers nothing of ours."""
        push = self._sent.pop(id, None)
        if push is None:
            return None
        push.sent = None
        return [Reply(push.round.id, KEY, ok, payload, delivered)]

    def cancelled_by_server(self, id: FrameId) -> Effects | None:
        """The server takes its request back; None if it has none with this id."""
        push = self._by_id.get(id)
        return None if push is None else self._withdraw(push, "the server took its request back")

    def call_gone(self, pending: Pending) -> Effects:
        """The client takes a call back: what can belong to no other call is withdrawn with it."""
        out: Effects = []
        for push in list(self.open.values()):
            if pending in push.calls and self.state.inflight.still(push.calls) in ([], [pending]):
                out += self._withdraw(push, "the call it belongs to was taken back")
        return out

    def _withdraw(self, push: Push, reason: str) -> Effects:
        out = self._unsend(push, reason)
        self._close(push.round.id)
        return [Withdraw(push.round.id), *out]

    def end(self) -> list[str]:
        """A side has gone for good: the rounds that were open."""
        rounds = list(self.open)
        for table in (self.open, self._by_id, self._sent):
            table.clear()
        self.state.pushed = 0
        return rounds

    def _close(self, round: str) -> Push | None:
        push = self.open.pop(round, None)
        if push is not None:
            self.state.pushed -= push.size
            self._by_id.pop(push.id, None)
            if push.sent is not None:
                self._sent.pop(push.sent, None)
        return push

    def beat(self, round: str, tokens: int = 0) -> tuple[Push, Effects] | None:
        """Progress for the server, if it gave a token: how many tokens have come, or one more than before. None if the round is not one of these."""
        push = self.open.get(round)
        if push is None:
            return None
        token = token_of(push.params)
        push.beats = max(push.beats + 1, tokens)
        return push, [] if token is None else [ToServer(SERVER_LANE, notification(token, push.beats))]


def _refused(f: Frame, fault: str) -> Effects:
    assert f.id is not None
    note = Note("frame.refused", {"side": "server", "fault": fault})
    return [note, ToServer(SERVER_LANE, frames.error(f.id, shapes.REJECTED, fault))]


def _without_task(params: bytes | None) -> bytes | None:
    """We declared no tasks for these kinds, so a client that knows them must not make one of it (R106)."""
    if params is None or jsontext.lookup(params, "task") is None:
        return params
    return jsontext.splice(params, ("task",), None)
