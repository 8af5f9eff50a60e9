"""What a legacy server tells of its own accord, given out to the modern clients that asked for it (R77, R79); the rest is dropped and counted.

Not progress: that goes to whoever gave the token, which the inner session knows.
"""

from __future__ import annotations

from typing import Final

from samplegate.core import jsontext
from samplegate.core.bridge.completing import Hello
from samplegate.core.bridge.levels import Levels
from samplegate.core.bridge.listens import CHANGES, UPDATED, Key, Listens
from samplegate.core.frames import Frame
from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import Effect, Note, ToClient
from samplegate.core.session.routing import MESSAGE
from samplegate.core.session.state import INTERNAL, State

Effects = list[Effect]
_REMOVED: Final = ("notifications/elicitation/complete", "notifications/tasks")
"""The modern era has no such thing, or none that was offered (R43, R108)."""


class News:
    """Who of the clients wants to hear what."""

    def __init__(self, state: State) -> None:
        self.listens = Listens()
        self._levels = Levels()
        self._state = state

    def enter(self, key: Key, level: str | None, hello: Hello) -> str | None:
        """A request goes to the server; the level of its log to set before it, None where that stays."""
        wanted = self._levels.enter(key, level)
        return wanted if jsontext.lookup(hello.capabilities, "logging") is not None else None

    def leave(self, key: Key) -> None:
        """A request is over."""
        self._levels.leave(key)

    def told(self, lane: int, f: Frame) -> Effects:
        """A notification of the server's, which came on the stream of the request with number ``lane``. Raises jsontext.Malformed."""
        out: Effects
        if f.method == MESSAGE:
            out = self._message(lane, f)
        elif f.method in CHANGES or f.method == UPDATED:
            uri = jsontext.string(f.lookup("uri"))
            out = [ToClient(listen.lane, listen.tagged(f.raw)) for listen in self.listens.wanting(f.method, uri)]
        else:
            pending = None if f.method.startswith(_REMOVED) else self._asked_on(lane)
            out = [] if pending is None else [ToClient(pending.lane, f.raw)]
        return out or [Note("notification.unattributed", {"server": self._state.server, "method": f.method[:100]}, warn=False)]

    def _message(self, lane: int, f: Frame) -> Effects:
        pending = self._asked_on(lane)
        level = jsontext.string(f.lookup("level"))
        if pending is not None:
            return [ToClient(to, f.raw) for to in self._levels.takers(level, (pending.lane, pending.id))]
        callers = {one.caller for one in self._state.inflight.asked.values() if one.lane != INTERNAL}
        return [ToClient(to, f.raw) for to in self._levels.takers(level, None)] if len(callers) == 1 else []  # never another caller's (R119)

    def _asked_on(self, lane: int) -> Pending | None:
        """The client's request on whose stream the server spoke; None where it has but one stream for all."""
        pending = self._state.inflight.numbered.get(lane) if lane else None
        return None if pending is None or pending.lane == INTERNAL else pending
