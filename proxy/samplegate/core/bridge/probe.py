"""The one question of ours that finds out whether a server is modern: asked, waited for, given up. Not what its answer means: ``probing.py``."""

from __future__ import annotations

from samplegate.core import jsontext
from samplegate.core.bridge import probing
from samplegate.core.bridge.conversing import Converses
from samplegate.core.bridge.waiting import Held, Waiting
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session.inflight import PROBE
from samplegate.core.session.rounds import Effect, Later, ToClient
from samplegate.core.session.state import INTERNAL, State

Effects = list[Effect]


class Probe:
    """A ``server/discover`` to one server."""

    def __init__(self, state: State, patience: float) -> None:
        self._state = state
        self._patience = patience
        self._timer: str | None = None
        self._of: Held | None = None
        self._late: FrameId | None = None

    def ask(self, session: Converses, now: float, of: Held | None = None) -> Effects:
        """Ask; ``of``: the client's own discover, which serves as well and whose answer is then the client's."""
        self._timer, self._of = self._state.new_round(), of
        line = probing.probe(PROBE) if of is None else jsontext.splice(of.frame.raw, ("id",), jsontext.dump(PROBE))
        return [*session.frame("client", INTERNAL, line, now), Later(self._patience, self._timer)]

    def beside(self, session: Converses, now: float) -> Effects:
        """Ask, though nothing waits for the answer: it shows that the server lives."""
        return session.frame("client", INTERNAL, probing.probe(PROBE), now)

    def is_due(self, token: str) -> bool:
        """Whether it was waited for long enough."""
        return token == self._timer

    def answered(self) -> None:
        """Nobody waits for it any more: it is answered."""
        self._timer = None

    def give_up(self) -> None:
        """Nobody waits for it any more, though it may be answered yet."""
        self._timer = self._of = None
        pending = self._state.inflight.asked.get((INTERNAL, PROBE))
        if pending is not None:
            self._late = pending.wire_id
            self._state.inflight.remove(pending)

    def comes_late(self, f: Frame) -> bool:
        """Whether a frame is the answer to one that was given up; asked once."""
        late = f.id is not None and f.id == self._late
        self._late = None if late else self._late
        return late

    def clients(self, f: Frame, waiting: Waiting) -> Effects:
        """The answer under the id of the client's own discover, which then waits no more."""
        of, self._of = self._of, None
        if of is None or of.frame.id is None or not waiting.remove(of.lane, of.frame.id):
            return []
        return [ToClient(of.lane, jsontext.splice(f.raw, ("id",), jsontext.dump(of.frame.id)), True)]
