"""How a bridge opens a legacy server and asks it things of its own, on a lane that is no client's; meanwhile the clients' frames wait.

Not what becomes of those frames: the bridge takes them when the server is open, or fails them.
"""

from __future__ import annotations

from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.bridge import completing
from samplegate.core.bridge.completing import Hello
from samplegate.core.bridge.waiting import Held, Waiting
from samplegate.core.eras import LEGACY
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session.rounds import Effect, Later, Note
from samplegate.core.session.session import Session
from samplegate.core.session.state import INTERNAL, State

Effects = list[Effect]
INITIALIZE: Final = "initialize"
MAX_OWN: Final = 10_000  # requests of ours that the server has not answered
_OWN_INFO: Final = b'{"name":"samplegate","version":"0"}'  # where no client says who it is


class Greeting:
    """The gate as the client of one legacy server."""

    def __init__(self, state: State, inner: Session, patience: float) -> None:
        self.hello: Hello | None = None
        """What the server said of itself, once it is open."""
        self.under_way = False
        self.waiting = Waiting()
        self._state = state
        self._inner = inner
        self._patience = patience
        self._timer: str | None = None
        self._own: dict[FrameId, str] = {}
        self._numbers = 0

    def open(self, client: bytes | None, now: float) -> Effects:
        """Somebody waits for the server: open it, unless that is under way. ``client``: who asks, raw JSON (R116)."""
        out: Effects = []
        if not self.under_way:
            self.under_way = True
            params = b'{"protocolVersion":' + jsontext.dump(LEGACY[-1]) + b',"capabilities":{},"clientInfo":' + (client or _OWN_INFO) + b"}"
            out = self.ask(INITIALIZE, params, now)
        if self._timer is None:
            self._timer = self._state.new_round()
            out.append(Later(self._patience, self._timer))
        return out

    def ask(self, method: str, params: bytes, now: float) -> Effects:
        """A request of our own."""
        if len(self._own) >= MAX_OWN:
            return [Note("bridge.refused", {"server": self._state.server, "method": method})]
        self._numbers += 1
        self._own[self._numbers] = method
        return self._inner.frame("client", INTERNAL, frames.request(self._numbers, method, params), now)

    def answered(self, f: Frame) -> str:
        """The server answers one of those: ``opened``, ``refused``, or the method that it was."""
        method = self._own.pop(f.id, "") if f.id is not None else ""
        if method != INITIALIZE:
            return method
        self.under_way, self._timer = False, None
        try:
            self.hello = completing.hello(f.payload or b"") if f.kind == "result" else None
        except Malformed:
            self.hello = None
        return "refused" if self.hello is None else "opened"

    def is_due(self, token: str) -> bool:
        """Whether those who wait have waited for long enough. An answer that comes later still opens the server."""
        if token != self._timer:
            return False
        self._timer = None
        return True

    def end(self) -> list[Held]:
        """Nothing is opened any more; what still waits."""
        self.under_way, self._timer = False, None
        self._own.clear()
        return self.waiting.take()
