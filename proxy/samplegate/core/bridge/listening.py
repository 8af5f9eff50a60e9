"""A legacy client's subscriptions, and the list changes that it hears of unasked, as one ``subscriptions/listen`` to a modern server (R77, R78).

Opened anew when what is wanted changes, the new one before the old ends; never twice before the server said yes to the first. Not the
notifications themselves: they only pass by.
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge.calls import Call
from samplegate.core.bridge.ways import Effects, Ways
from samplegate.core.frames import FrameId
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Note
from samplegate.core.session.state import State

METHOD: Final = "subscriptions/listen"
MAX_URIS: Final = 1000  # resources that one client subscribes to
MAX_SIZE: Final = 256 * 1024  # bytes of their URIs together: each change sends them all again
PATIENCE: Final = 10.0  # seconds for the server's first word, which it must send at once
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
_KINDS: Final = (("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged"))


class Listen(msgspec.Struct, eq=False):
    """One listen at the server."""

    id: FrameId
    since: float
    waiters: dict[FrameId, tuple[Call, str]]
    """Requests of the client's that are answered when the server says yes, and their URIs."""
    settled: bool = False
    """The server has said yes, or has had its time."""


class Listening:
    """What one client hears of without asking again."""

    def __init__(self, state: State, ways: Ways) -> None:
        self.state = state
        self._ways = ways
        self._kinds: tuple[str, ...] = ()
        self._subscribes = False
        self._uris: dict[str, int] = {}
        self._waiters: dict[FrameId, tuple[Call, str]] = {}
        self._current: Listen | None = None
        self._ready = False
        self._changed = False
        self._failures = 0
        self._watched = False
        self._paused = False

    def begin(self, capabilities: bytes | None) -> Effects:
        """The server has told what it can (raw): begin anew with that, and without URIs."""
        out = self._fail(self._waiters, "the session began anew")
        if self._current is not None:
            out += self._fail(self._current.waiters, "the session began anew")
        flags = [(kind, name) for kind, name in _KINDS if jsontext.lookup(capabilities, kind, "listChanged") == b"true"]
        self._kinds = tuple(name for _, name in flags)
        self._subscribes = jsontext.lookup(capabilities, "resources", "subscribe") == b"true"
        self._uris.clear()
        return [*out, *self._change()] if self._ready else out

    def ready(self) -> Effects:
        """The client is ready to hear of things."""
        first, self._ready = not self._ready, True
        return self._change() if first and self._kinds else []

    # -- the client's requests -------------------------------------------------------------------------------------------------------------

    def subscribe(self, call: Call, uri: str) -> Effects:
        """Answered as soon as the server listens for it."""
        if not self._subscribes:
            return self._refuse(call, shapes.METHOD_NOT_FOUND, "method not found: the server does not offer subscriptions")
        size = len(uri.encode(errors="replace"))
        if uri not in self._uris and (len(self._uris) >= MAX_URIS or sum(self._uris.values()) + size > MAX_SIZE):
            return self._refuse(call, shapes.BAD_PARAMS, f"refused: more than {MAX_URIS} resources, or {MAX_SIZE} bytes of their URIs")
        if uri in self._uris and self._current is not None and self._current.settled and not self._changed:
            return self._accept(call)
        self._uris[uri] = size
        self._waiters[call.id] = (call, uri)
        return self._change()

    def unsubscribe(self, call: Call, uri: str) -> Effects:
        """Answered at once: what still comes of it is harmless."""
        return [*self._accept(call), *(self._change() if self._uris.pop(uri, None) is not None else [])]

    def forget(self, call: Call) -> None:
        """The client waits no more for an answer."""
        for waiters in (self._waiters, {} if self._current is None else self._current.waiters):
            if call.id in waiters and waiters[call.id][0] is call:
                del waiters[call.id]

    def _accept(self, call: Call) -> Effects:
        return self._ways.answer(call, frames.result(call.id, b"{}"))

    def _refuse(self, call: Call, code: int, message: str) -> Effects:
        return self._ways.answer(call, frames.error(call.id, code, message))

    # -- the listen ------------------------------------------------------------------------------------------------------------------------

    def _change(self) -> Effects:
        """What is wanted has changed: ask for it, but for one thing at a time."""
        self._ready = True
        if self._current is not None and not self._current.settled:
            self._changed = True
            return []
        return self._open()

    def _open(self) -> Effects:
        self._changed = False
        before, self._current = self._current, None
        out: Effects = []
        if self._kinds or self._uris:
            self._current = listen = Listen(self.state.new_round(), self._ways.now(), self._waiters)
            self._waiters = {}
            out += self._ways.ask(listen.id, METHOD, self._wanted())
            out += self._watch()
        return out if before is None else [*out, *self._ways.cancel(before.id)]

    def _wanted(self) -> bytes:
        wanted: dict[str, object] = dict.fromkeys(self._kinds, True)
        if self._uris:
            wanted["resourceSubscriptions"] = list(self._uris)
        return jsontext.dump({"notifications": wanted})

    def _watch(self) -> Effects:
        """One watch at a time, however often it is opened."""
        if self._watched or self._current is None or self._current.settled:
            return []
        self._watched = True
        listen = self._current
        return self._ways.after(PATIENCE, lambda: self._overdue(listen))

    def _overdue(self, listen: Listen) -> Effects:
        self._watched = False
        if listen is not self._current or listen.settled:
            return self._watch()
        return [
            self._note("it did not say that it listens"),
            *self._fail(listen.waiters, "the server did not say that it listens"),
            *self._settle(listen),
        ]

    def acknowledged(self, id: FrameId | None) -> Effects:
        """The server listens. ``id`` is None where it does not say for whom."""
        listen = self._current
        if listen is None or listen.settled or id not in (None, listen.id):
            return []
        out = [effect for call, _ in listen.waiters.values() for effect in self._accept(call)]
        listen.waiters.clear()
        return [*out, *self._settle(listen)]

    def _settle(self, listen: Listen) -> Effects:
        listen.settled = True
        return self._open() if self._changed else []

    def ended(self, id: FrameId, fault: str | None) -> Effects:
        """The server listens no more; ``fault`` says that it never will. Opened again after a pause that grows."""
        listen = self._current
        if listen is None or id != listen.id:
            return []
        self._current = None
        if self._ways.now() - listen.since >= LONGEST_PAUSE:
            self._failures = 0
        out = [self._note(fault or "it ended it"), *self._fail(listen.waiters, "the server does not listen")]
        if self._changed:
            return [*out, *self._open()]
        return out if fault is not None or not (self._kinds or self._uris) else [*out, *self._again()]

    def _again(self) -> Effects:
        if self._paused:
            return []
        self._paused = True
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
        self._failures += 1
        return self._ways.after(pause, self._resume)

    def _resume(self) -> Effects:
        self._paused = False
        return [] if self._current is not None else self._open()

    def _fail(self, waiters: dict[FrameId, tuple[Call, str]], fault: str) -> Effects:
        out: Effects = []
        for call, uri in waiters.values():
            self._uris.pop(uri, None)
            out += self._refuse(call, shapes.INTERNAL, fault)
        waiters.clear()
        return out

    def _note(self, fault: str) -> Note:
        return Note("listen.ended", {"server": self.state.server, "fault": fault})
