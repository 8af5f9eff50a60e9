"""Requests that are taken back, by either side (R99, R100): their rounds are withdrawn, and whoever has them is told under the id that it knows."""

from __future__ import annotations

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session import handshake
from samplegate.core.session.exchange import Exchange
from samplegate.core.session.inflight import Pending
from samplegate.core.session.passed import Passed
from samplegate.core.session.pushes import Pushes
from samplegate.core.session.rounds import Close, Effects, Note, Over, Side, ToClient, ToServer
from samplegate.core.session.routing import Routes
from samplegate.core.session.shapes import INTERNAL as INTERNAL_ERROR
from samplegate.core.session.state import INTERNAL, SERVER_LANE, State
from samplegate.core.session.urlerrors import UrlErrors

METHOD = "notifications/cancelled"


class Cancelling(msgspec.Struct, eq=False):
    """What the two sides of one session take back."""

    state: State
    routes: Routes
    pushes: Pushes
    exchange: Exchange
    url_errors: UrlErrors
    passed: Passed

    # -- the client ------------------------------------------------------------------------------------------------------------------------

    def by_client(self, lane: int, f: Frame) -> Effects:
        """The client names one of its requests."""
        id = _request_id(f)
        pending = None if id is None else self._meant(lane, id)
        if pending is None:
            return _unmatched("client")
        return [] if pending.method == handshake.METHOD else self.call(pending, f)  # R99: initialize is never cancelled

    def _meant(self, lane: int, id: FrameId) -> Pending | None:
        """The request that a client names: of its lane; where it has but one session of ids, of any (over HTTP a cancel comes by itself)."""
        inflight = self.state.inflight
        pending = inflight.asked.get((lane, id))
        if pending is not None or self.state.maps_ids or not self.state.revision:
            return pending
        return next((one for one in inflight.asked.values() if one.id == id and not one.modern and one.lane != INTERNAL), None)

    def call(self, pending: Pending, f: Frame | None) -> Effects:
        """The client takes a call back: its rounds are withdrawn, and the server is told under the id that it knows (R100)."""
        return [*self._taken_back(pending, f), Over(pending.lane)]

    def _taken_back(self, pending: Pending, f: Frame | None) -> Effects:
        out = self.pushes.call_gone(pending)
        held = self.exchange.cancelled(pending) if pending.modern else None
        if held is None and pending.round is not None:
            held = self.url_errors.cancelled(pending.round) or self.exchange.unasked.cancelled(pending.round)
        self.state.inflight.remove(pending)
        if held is not None:
            return out + held  # the server has answered already: nothing of it is in flight there
        if pending.modern and self.state.streams:
            return [*out, Close(pending.number)]
        if f is not None and pending.wire_id == pending.id:
            return [*out, ToServer(SERVER_LANE, f.raw, f)]
        params = jsontext.splice(b"{}" if f is None or f.payload is None else f.payload, ("requestId",), jsontext.dump(pending.wire_id))
        return [*out, ToServer(SERVER_LANE, frames.notification(METHOD, params))]

    def overdue(self, now: float, seconds: float) -> Effects:
        """What the server has not answered in so many seconds is taken back from it, and its client has an error (R102)."""
        out: Effects = []
        for pending in self.state.inflight.overdue(now, seconds, self.pushes.held()):
            tool = None if pending.call is None else pending.call.tool
            fault = f"the server did not answer within {seconds:g} s (setting call_timeout)"
            fields = {"server": self.state.server, "method": pending.method[:100], "tool": tool and tool[:100], "seconds": seconds}
            out += [*self._taken_back(pending, None), Note("call.timed_out", fields)]
            out.append(ToClient(pending.lane, frames.error(pending.id, INTERNAL_ERROR, fault), True))
        return out

    # -- the server ------------------------------------------------------------------------------------------------------------------------

    def by_server(self, lane: int, f: Frame) -> Effects:
        """The server takes back its own request, or ends a listen of the client's (R99)."""
        id = _request_id(f)
        if id is None:
            return _unmatched("server")
        out = self.pushes.cancelled_by_server(id)
        if out is not None:
            return out
        on = self.passed.over(id)
        if on is not None:
            return [ToClient(on if on in self.state.inflight.lanes else self.routes.request(lane), f.raw, takes_back=id)]
        pending = self.state.inflight.wire.get(id)
        return _unmatched("server") if pending is None else self._clients_own(pending, f)

    def _clients_own(self, pending: Pending, f: Frame) -> Effects:
        ends = pending.method == "subscriptions/listen"
        if ends:
            self.state.inflight.remove(pending)  # its end: the only request of the client's that a server takes back
        line = f.raw if pending.id == pending.wire_id else jsontext.splice(f.raw, ("params", "requestId"), jsontext.dump(pending.id))
        return [ToClient(pending.lane, line, ends)]


def _request_id(f: Frame) -> FrameId | None:
    raw = f.lookup("requestId")
    return None if raw is None else frames.plain_id(raw)


def _unmatched(side: Side) -> Effects:
    return [Note("cancel.unmatched", {"side": side}, warn=False)]
