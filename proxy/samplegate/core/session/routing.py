"""Where on the client's side a frame of the server's belongs: the stream of the request that it came on, names or can only mean.

On stdio there is one lane and nothing to choose. What cannot be attributed where several clients share a server is dropped, never guessed (R119).
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.eras import META
from samplegate.core.frames import Frame
from samplegate.core.session.inflight import STANDALONE, Pending
from samplegate.core.session.progress import Progress
from samplegate.core.session.rounds import Effects, Note, ToClient
from samplegate.core.session.state import State

MESSAGE: Final = "notifications/message"
PROGRESS: Final = "notifications/progress"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_subscription: Final = META_SUBSCRIPTION.encode()


class Routes(msgspec.Struct, eq=False):
    """The ways of one session's server frames to its client's lanes."""

    state: State
    progress: Progress

    def request(self, lane: int) -> int:
        """The client's lane for a request of the server's own: that of the call it came on, else of the oldest call, else the standalone one."""
        pending = self.state.inflight.numbered.get(lane) if lane else None
        return self.state.inflight.lane_of(self.state.inflight.calls() if pending is None else [pending])

    def notification(self, lane: int, f: Frame) -> Effects:
        """A notification of the server's goes on."""
        if f.method == PROGRESS:
            return self._progress(lane, f)
        if self.state.maps_ids and f.may_say(_subscription):
            found = self._subscribed(f)
            if found is not None:
                return found
        pending = self.state.inflight.numbered.get(lane) if lane else None
        if pending is not None:
            return [ToClient(pending.lane, f.raw)]
        if f.method == MESSAGE:
            return self._message(f)
        return self._unattributed(f) if self.state.maps_ids else [ToClient(STANDALONE, f.raw)]

    def _progress(self, lane: int, f: Frame) -> Effects:
        """To whoever gave the token, as far as the value rises (R101)."""
        token = f.lookup("progressToken")
        pending = None if token is None else self.progress.of(token)
        if pending is None and lane:
            pending = self.state.inflight.numbered.get(lane)
        if pending is None:
            return self._unattributed(f) if self.state.maps_ids else [ToClient(STANDALONE, f.raw)]
        if self.state.extends_on_progress:
            pending.renewed = True
        if not self.progress.passes(pending, f):
            return []
        if pending.wire_token is None or pending.token is None:
            return [ToClient(pending.lane, f.raw)]
        return [ToClient(pending.lane, jsontext.splice(f.raw, ("params", "progressToken"), pending.token))]

    def _subscribed(self, f: Frame) -> Effects | None:
        """A notification of a listen, under the id that its client gave it (R77); None if it names none."""
        raw = f.meta.raw(META_SUBSCRIPTION)
        id = None if raw is None else frames.plain_id(raw)
        pending = None if id is None else self.state.inflight.wire.get(id)
        if pending is None:
            return None if raw is None else self._unattributed(f)
        return [ToClient(pending.lane, jsontext.splice(f.raw, ("params", META, META_SUBSCRIPTION), jsontext.dump(pending.id)))]

    def _message(self, f: Frame) -> Effects:
        """A log message that names no request: of the oldest that can have caused it, where one client alone has any in flight (R79)."""
        inflight = self.state.inflight
        if not self.state.maps_ids:
            pending = next(iter(inflight.calls()), None)
            return [ToClient(STANDALONE if pending is None else pending.lane, f.raw)]
        wanted = [pending for pending in inflight.wire.values() if pending.level or not pending.modern]
        if not wanted or len({pending.caller for pending in inflight.wire.values()}) > 1:
            return self._unattributed(f)
        return [ToClient(wanted[0].lane, f.raw)]

    def _unattributed(self, f: Frame) -> Effects:
        return [Note("notification.unattributed", {"server": self.state.server, "method": f.method[:100]}, warn=False)]


def unmapped(pending: Pending, f: Frame) -> Frame:
    """The server's answer under the client's own id."""
    return f if pending.wire_id == pending.id else f.changed(id=pending.id)
