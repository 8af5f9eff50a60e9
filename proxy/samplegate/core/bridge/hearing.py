"""What a legacy server says, on its way to modern clients: answers in the words of their era, the rest to whoever wants it or to nobody.

Not what the server asks: that the inner session holds, or it is answered here because no modern client can be asked by a request (R89).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.bridge import completing
from samplegate.core.bridge.greeting import Greeting
from samplegate.core.bridge.listens import Key
from samplegate.core.bridge.news import News
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import doors, shapes
from samplegate.core.session.rounds import Effect, Note, Over, ToClient, ToServer
from samplegate.core.session.routing import PROGRESS
from samplegate.core.session.session import Session
from samplegate.core.session.state import INTERNAL, SERVER_LANE, State

Effects = list[Effect]
CANCELLED: Final = "notifications/cancelled"
_INNER: Final = doors.KINDS | {CANCELLED, PROGRESS}
"""The notifications that the inner session attributes or refuses."""


class Hearing:
    """One server's side of a bridge. ``own`` takes what the server answers to the bridge itself."""

    def __init__(self, state: State, inner: Session, greeting: Greeting, own: Callable[[Frame], Effects]) -> None:
        self.news = News(state)
        self.asked: dict[Key, str] = {}
        """The clients' requests that are with the server, and their methods."""
        self._state = state
        self._inner = inner
        self._greeting = greeting
        self._own = own

    def over(self, key: Key) -> str | None:
        """A client's request is over; its method."""
        self.news.leave(key)
        return self.asked.pop(key, None)

    def end(self) -> None:
        """Nobody waits for anything any more."""
        self.asked.clear()
        self.news = News(self._state)

    def frame(self, lane: int, line: bytes | Frame, now: float) -> Effects:
        """One line of the server's: what the inner session would pass on to a legacy client is answered or given out here."""
        f = _with_method(line)
        if f is not None and f.kind == "request" and f.method not in doors.KINDS:
            return [ToServer(SERVER_LANE, _answer(f))]
        if f is not None and f.kind == "notification" and f.method not in _INNER:
            return self._told(lane, f)
        return self.carry(self._inner.frame("server", lane, line, now))

    def carry(self, effects: Effects) -> Effects:
        """What the inner session says to its legacy client, as the modern ones are to hear it."""
        out: Effects = []
        for effect in effects:
            if isinstance(effect, ToClient):
                out += self._to_client(effect)
            elif not isinstance(effect, Over) or effect.lane != INTERNAL:
                out.append(effect)
        return out

    def _to_client(self, effect: ToClient) -> Effects:
        f = effect.frame or frames.read(effect.line)
        if f.kind == "request":  # out of a batch
            return self._inner.frame("client", INTERNAL, _answer(f), 0.0)
        if f.kind == "notification":
            return self._passed(effect, f)
        return self._own(f) if effect.lane == INTERNAL else self._answered(effect, f)

    def _passed(self, effect: ToClient, f: Frame) -> Effects:
        if f.method == PROGRESS and effect.lane != INTERNAL:
            return [effect]
        if f.method == CANCELLED:  # a server takes back nothing of a client's but a listen, and has none here
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        return self._told(SERVER_LANE, f)

    def _told(self, lane: int, f: Frame) -> Effects:
        """A notification that is no progress and no cancel; none passes that has two readings."""
        try:
            return self.news.told(lane, f)
        except Malformed as problem:
            return [Note("frame.refused", {"side": "server", "fault": problem.fault})]

    def _answered(self, effect: ToClient, f: Frame) -> Effects:
        lane, hello = effect.lane, self._greeting.hello
        method = None if f.id is None else self.over((lane, f.id))
        if f.id is None or method is None:  # asked before anybody knew that this would be a bridge
            return [effect]
        try:
            return [ToClient(lane, _modern(method, f, None if hello is None else hello.info), True)]
        except Malformed as problem:
            line = frames.error(f.id, shapes.INTERNAL, f"the server's answer was refused: {problem.fault}")
            return [Note("frame.refused", {"side": "server", "fault": problem.fault}), ToClient(lane, line, True)]


def _with_method(line: bytes | Frame) -> Frame | None:
    """A request or notification; None for every other line, and for what cannot be read: the inner session says what becomes of that."""
    if b'"method"' not in (line.raw if isinstance(line, Frame) else line):  # an envelope cannot spell it otherwise, and answers can be large
        return None
    try:
        return frames.of(line)
    except Malformed:
        return None


def _modern(method: str, f: Frame, info: bytes | None) -> bytes:
    if f.kind == "error":
        return completing.renumbered(f)
    return jsontext.splice(f.raw, ("result",), completing.completed(method, f.payload or b"", info))


def _answer(f: Frame) -> bytes:
    """Our answer to a request of the server's that is not for the gate: a ping (R104), or what a client may have and this one has not (R105)."""
    assert f.id is not None
    if f.method == "ping":
        return frames.result(f.id, b"{}")
    return frames.error(f.id, shapes.METHOD_NOT_FOUND, f"method not found: {f.method[:100]}")
