"""Pure. Subscriptions, list changes and log messages between the eras (R77 to R79, R105).

For modern clients of a legacy server: the notifications that each client wants, and one subscription at the server for
each resource. The server has one log level for the session, the most verbose that a request in flight names. It is not
reset, because messages that no request asked for are dropped here anyway.

For a legacy client of a modern server: its subscriptions and list changes, as one ``subscriptions/listen``. A change
opens a new listen before the old one ends, but only after the server has acknowledged the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from samplegate.protocol import frames, rawjson, results
from samplegate.protocol.bridge.calls import BridgedCall, BridgeIO
from samplegate.protocol.bridge.translation import LEVELS, Refusal, ServerHello
from samplegate.protocol.frames import META, Frame, FrameId
from samplegate.protocol.rounds import Effects, Note, ToClient
from samplegate.protocol.session_state import INTERNAL, LISTEN, MESSAGE, META_SUBSCRIPTION, Pending, SessionState

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
CHANGES: Final = {
    f"notifications/{kind}/list_changed": (f"{kind}ListChanged", kind) for kind in ("tools", "prompts", "resources")
}
"""The member of the filter for a notification, and the capability that promises the notification."""
MAX_OPEN: Final = 1000  # of one server; real clients have one or two each
MAX_ON_A_STREAM: Final = 32
MAX_URIS: Final = 256  # of one listen
MAX_ALL_URIS: Final = 10_000
MAX_SIZE: Final = 256 * 1024  # bytes of the URIs of one listen
MAX_ALL_SIZE: Final = 4 * 1024 * 1024  # characters of the URIs of all listens
MAX_URI: Final = 8192  # characters
MAX_PARTS: Final = 64  # of a URI that are checked, from its beginning

Key: TypeAlias = tuple[int, FrameId]
"""A stream and the id of the request that opened it."""


class Listen(msgspec.Struct, frozen=True):
    """One open listen, with the part of its filter that the server can serve."""

    stream: int
    id: FrameId
    changes: frozenset[str]
    uris: tuple[str, ...]

    def acknowledged(self) -> bytes:
        """The first notification on it (R77)."""
        honoured: dict[str, object] = {CHANGES[method][0]: True for method in sorted(self.changes)}
        if self.uris:
            honoured["resourceSubscriptions"] = self.uris
        return frames.notification(
            ACKNOWLEDGED, rawjson.dump({META: {META_SUBSCRIPTION: self.id}, "notifications": honoured})
        )

    def tagged(self, raw: bytes) -> bytes:
        """A server's notification with the id of this listen, in the id's own type (R77)."""
        return rawjson.splice(raw, ("params", META, META_SUBSCRIPTION), rawjson.dump(self.id))

    def ended(self) -> bytes:
        """The result that ends it (R78)."""
        return rawjson.dump({"resultType": "complete", META: {META_SUBSCRIPTION: self.id}})


class Subscriptions(msgspec.Struct, eq=False):
    """The open listens of one server."""

    open: dict[Key, Listen] = msgspec.field(default_factory=dict)
    _watched: dict[str, dict[Key, Listen]] = msgspec.field(default_factory=dict)
    _uris: int = 0
    _size: int = 0
    """Characters of all URIs."""

    def begin(
        self, stream: int, id: FrameId, params: bytes | None, capabilities: bytes
    ) -> tuple[Listen, list[str]] | Refusal:
        """Open a listen, and return it with the resources that had no listen before.

        Raises rawjson.Malformed for a filter with two readings.
        """
        wanted = rawjson.lookup(params, "notifications")
        if wanted is None or wanted[:1] != b"{":
            return Refusal(
                results.BAD_PARAMS, "params: notifications must be an object that lists the notifications to listen for"
            )
        uris = _uris(rawjson.lookup(wanted, "resourceSubscriptions"))
        if isinstance(uris, Refusal):
            return uris
        if (
            len(self.open) >= MAX_OPEN
            or sum(key[0] == stream for key in self.open) >= MAX_ON_A_STREAM
            or self._uris + len(uris) > MAX_ALL_URIS
        ):
            return Refusal(
                results.INTERNAL, f"refused: {len(self.open)} subscriptions to {self._uris} resources are already open"
            )
        if self._size + _characters(uris) > MAX_ALL_SIZE:
            return Refusal(
                results.INTERNAL, f"refused: the URIs of all subscriptions would exceed {MAX_ALL_SIZE} characters"
            )
        offered = rawjson.lookup(capabilities, "resources", "subscribe") == b"true"
        changes = frozenset(
            method
            for method, (member, kind) in CHANGES.items()
            if rawjson.lookup(wanted, member) == b"true"
            and rawjson.lookup(capabilities, kind, "listChanged") == b"true"
        )
        return self._entered(Listen(stream, id, changes, uris if offered else ()))

    def _entered(self, listen: Listen) -> tuple[Listen, list[str]]:
        key = (listen.stream, listen.id)
        self.open[key] = listen
        self._uris += len(listen.uris)
        self._size += _characters(listen.uris)
        new = [uri for uri in listen.uris if uri not in self._watched]
        for uri in listen.uris:
            self._watched.setdefault(uri, {})[key] = listen
        return listen, new

    def end(self, key: Key) -> list[str] | None:
        """Remove a listen and return the resources that now have none; None if there is no such listen."""
        listen = self.open.pop(key, None)
        if listen is None:
            return None
        self._uris -= len(listen.uris)
        self._size -= _characters(listen.uris)
        for uri in listen.uris:
            self._watched[uri].pop(key, None)
        alone = [uri for uri in listen.uris if not self._watched[uri]]
        for uri in alone:
            del self._watched[uri]
        return alone

    def interested(self, method: str, uri: str | None) -> list[Listen]:
        """The listens that asked for a notification; ``uri`` is the resource, if the notification names one."""
        if method in CHANGES:
            return [listen for listen in self.open.values() if method in listen.changes]
        if method != UPDATED or uri is None:
            return []
        found: dict[Key, Listen] = {}
        for one in _with_parents(uri[:MAX_URI]):
            found.update(self._watched.get(one, {}))
        return list(found.values())


def _characters(uris: tuple[str, ...]) -> int:
    return sum(map(len, uris))


def _with_parents(uri: str) -> Iterator[str]:
    """A resource and its possible parents, because an update may name a part of the subscribed resource."""
    yield uri
    for at in [at for at, letter in enumerate(uri) if letter in "/?#"][:MAX_PARTS]:
        yield uri[:at]
        if at + 1 < len(uri):
            yield uri[: at + 1]


def _uris(raw: bytes | None) -> tuple[str, ...] | Refusal:
    if raw is None:
        return ()
    if len(raw) > MAX_SIZE:
        return Refusal(results.BAD_PARAMS, f"resourceSubscriptions is larger than {MAX_SIZE} bytes")
    try:
        uris = tuple(dict.fromkeys(msgspec.json.decode(raw, type=list[str])))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(results.BAD_PARAMS, "resourceSubscriptions is not a list of URIs")
    if len(uris) > MAX_URIS or any(len(uri) > MAX_URI for uri in uris):
        return Refusal(
            results.BAD_PARAMS,
            f"resourceSubscriptions has more than {MAX_URIS} URIs, or one longer than {MAX_URI} characters",
        )
    return uris


class Levels(msgspec.Struct, eq=False):
    """Log levels that requests in flight asked for."""

    _wanted: dict[Key, int] = msgspec.field(default_factory=dict)
    _set: int | None = None

    def enter(self, key: Key, level: str | None) -> str | None:
        """Add a request before it goes to the server; the level to set first, None if it stays."""
        if level is None:
            return None
        self._wanted[key] = LEVELS.index(level)
        most = min(self._wanted.values())
        if most == self._set:
            return None
        self._set = most
        return LEVELS[most]

    def leave(self, key: Key) -> None:
        """Remove a finished request."""
        self._wanted.pop(key, None)

    def streams_at_level(self, level: str | None, only: Key | None) -> list[int]:
        """The streams that asked for messages of this level; ``only`` is the message's request, if known."""
        if level not in LEVELS:
            return []
        said = LEVELS.index(level)
        return list(
            dict.fromkeys(
                key[0] for key, wanted in self._wanted.items() if wanted <= said and (only is None or key == only)
            )
        )


_REMOVED: Final = ("notifications/elicitation/complete", "notifications/tasks")
"""Notifications that the modern era does not have, or whose extension was not offered (R43, R108)."""


class NotificationFanout:
    """Distribution of a server's notifications to the clients that want them."""

    def __init__(self, state: SessionState) -> None:
        self.listens = Subscriptions()
        self._levels = Levels()
        self._state = state

    def enter(self, key: Key, level: str | None, hello: ServerHello) -> str | None:
        """Add a request before it goes to the server; the log level to set first, None if it stays."""
        wanted = self._levels.enter(key, level)
        return wanted if rawjson.lookup(hello.capabilities, "logging") is not None else None

    def leave(self, key: Key) -> None:
        """Remove a finished request."""
        self._levels.leave(key)

    def distribute(self, stream: int, f: Frame) -> Effects:
        """Distribute a server's notification from the stream of the request with number ``stream``.

        Raises rawjson.Malformed.
        """
        out: Effects
        if f.method == MESSAGE:
            out = self._message(stream, f)
        elif f.method in CHANGES or f.method == UPDATED:
            uri = rawjson.string(f.lookup("uri"))
            out = [ToClient(listen.stream, listen.tagged(f.raw)) for listen in self.listens.interested(f.method, uri)]
        else:
            pending = None if f.method.startswith(_REMOVED) else self._asked_on(stream)
            out = [] if pending is None else [ToClient(pending.stream, f.raw)]
        return out or [
            Note("notification.unattributed", {"server": self._state.server, "method": f.method[:100]}, warn=False)
        ]

    def _message(self, stream: int, f: Frame) -> Effects:
        pending = self._asked_on(stream)
        level = rawjson.string(f.lookup("level"))
        if pending is not None:
            return [ToClient(to, f.raw) for to in self._levels.streams_at_level(level, (pending.stream, pending.id))]
        callers = {one.caller for one in self._state.inflight.asked.values() if one.stream != INTERNAL}
        # never to another caller (R119)
        return [ToClient(to, f.raw) for to in self._levels.streams_at_level(level, None)] if len(callers) == 1 else []

    def _asked_on(self, stream: int) -> Pending | None:
        """The client's request on whose stream the server's frame came; None if the server has one stream for all."""
        pending = self._state.inflight.numbered.get(stream) if stream else None
        return None if pending is None or pending.stream == INTERNAL else pending


MAX_SUBSCRIBED: Final = 1000  # resources to which one client subscribes
MAX_SUBSCRIBED_SIZE: Final = 256 * 1024  # bytes of their URIs together, because each change sends them all again
PATIENCE: Final = 10.0  # seconds for the server's acknowledgement, which it must send at once
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


class ServerListen(msgspec.Struct, eq=False):
    """One listen at the server."""

    id: FrameId
    since: float
    waiters: dict[FrameId, tuple[BridgedCall, str]]
    """Client requests that are answered at the server's acknowledgement, with their URIs."""
    settled: bool = False
    """Whether the server has acknowledged the listen, or its timeout has elapsed."""


class LegacySubscriptions:
    """Subscriptions and list changes of one legacy client."""

    def __init__(self, state: SessionState, io: BridgeIO) -> None:
        self.state = state
        self._io = io
        self._kinds: tuple[str, ...] = ()
        self._subscribes = False
        self._uris: dict[str, int] = {}
        self._waiters: dict[FrameId, tuple[BridgedCall, str]] = {}
        self._current: ServerListen | None = None
        self._ready = False
        self._changed = False
        self._failures = 0
        self._watched = False
        self._paused = False

    def begin(self, capabilities: bytes | None) -> Effects:
        """Start with the server's capabilities (raw) and without URIs."""
        out = self._fail(self._waiters, "the session was restarted")
        if self._current is not None:
            out += self._fail(self._current.waiters, "the session was restarted")
        self._kinds = tuple(
            member for member, kind in CHANGES.values() if rawjson.lookup(capabilities, kind, "listChanged") == b"true"
        )
        self._subscribes = rawjson.lookup(capabilities, "resources", "subscribe") == b"true"
        self._uris.clear()
        return [*out, *self._change()] if self._ready else out

    def ready(self) -> Effects:
        """Start listening, because the client is ready for notifications."""
        first, self._ready = not self._ready, True
        return self._change() if first and self._kinds else []

    # -- the client's requests
    # -------------------------------------------------------------------------------------------------------------

    def subscribe(self, call: BridgedCall, uri: str) -> Effects:
        """Subscribe to a resource; answered as soon as the server listens for it."""
        if not self._subscribes:
            return self._refuse(
                call, results.METHOD_NOT_FOUND, "method not found: the server does not offer subscriptions"
            )
        size = len(uri.encode(errors="replace"))
        if uri not in self._uris and (
            len(self._uris) >= MAX_SUBSCRIBED or sum(self._uris.values()) + size > MAX_SUBSCRIBED_SIZE
        ):
            return self._refuse(
                call,
                results.BAD_PARAMS,
                f"refused: more than {MAX_SUBSCRIBED} resources, or {MAX_SUBSCRIBED_SIZE} bytes of their URIs",
            )
        if uri in self._uris and self._current is not None and self._current.settled and not self._changed:
            return self._accept(call)
        self._uris[uri] = size
        self._waiters[call.id] = (call, uri)
        return self._change()

    def unsubscribe(self, call: BridgedCall, uri: str) -> Effects:
        """Unsubscribe from a resource; answered at once, because late updates are harmless."""
        return [*self._accept(call), *(self._change() if self._uris.pop(uri, None) is not None else [])]

    def forget(self, call: BridgedCall) -> None:
        """Remove a request of the client that no longer waits for an answer."""
        for waiters in (self._waiters, {} if self._current is None else self._current.waiters):
            if call.id in waiters and waiters[call.id][0] is call:
                del waiters[call.id]

    def _accept(self, call: BridgedCall) -> Effects:
        return self._io.answer(call, frames.result(call.id, b"{}"))

    def _refuse(self, call: BridgedCall, code: int, message: str) -> Effects:
        return self._io.answer(call, frames.error(call.id, code, message))

    # -- the listen
    # ------------------------------------------------------------------------------------------------------------------

    def _change(self) -> Effects:
        """Open a listen for the changed filter, unless the current one is not acknowledged yet."""
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
            self._current = listen = ServerListen(self.state.new_round(), self._io.now(), self._waiters)
            self._waiters = {}
            out += self._io.ask(listen.id, LISTEN, self._wanted())
            out += self._watch()
        return out if before is None else [*out, *self._io.cancel(before.id)]

    def _wanted(self) -> bytes:
        wanted: dict[str, object] = dict.fromkeys(self._kinds, True)
        if self._uris:
            wanted["resourceSubscriptions"] = list(self._uris)
        return rawjson.dump({"notifications": wanted})

    def _watch(self) -> Effects:
        """Start the timeout of an unacknowledged listen; at most one runs at a time."""
        if self._watched or self._current is None or self._current.settled:
            return []
        self._watched = True
        listen = self._current
        return self._io.after(PATIENCE, lambda: self._overdue(listen))

    def _overdue(self, listen: ServerListen) -> Effects:
        self._watched = False
        if listen is not self._current or listen.settled:
            return self._watch()
        return [
            self._note("the server did not acknowledge it"),
            *self._fail(listen.waiters, "the server did not acknowledge the subscription"),
            *self._settle(listen),
        ]

    def acknowledged(self, id: FrameId | None) -> Effects:
        """Process the server's acknowledgement; ``id`` is None if it names no listen."""
        listen = self._current
        if listen is None or listen.settled or id not in (None, listen.id):
            return []
        out = [effect for call, _ in listen.waiters.values() for effect in self._accept(call)]
        listen.waiters.clear()
        return [*out, *self._settle(listen)]

    def _settle(self, listen: ServerListen) -> Effects:
        listen.settled = True
        return self._open() if self._changed else []

    def ended(self, id: FrameId, fault: str | None) -> Effects:
        """Process the end of a listen, and open it again after a growing pause.

        ``fault`` is the reason why the server will never listen; then it is not opened again.
        """
        listen = self._current
        if listen is None or id != listen.id:
            return []
        self._current = None
        if self._io.now() - listen.since >= LONGEST_PAUSE:
            self._failures = 0
        out = [
            self._note(fault or "the server ended it"),
            *self._fail(listen.waiters, "the server did not accept the subscription"),
        ]
        if self._changed:
            return [*out, *self._open()]
        return out if fault is not None or not (self._kinds or self._uris) else [*out, *self._again()]

    def _again(self) -> Effects:
        if self._paused:
            return []
        self._paused = True
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
        self._failures += 1
        return self._io.after(pause, self._resume)

    def _resume(self) -> Effects:
        self._paused = False
        return [] if self._current is not None else self._open()

    def _fail(self, waiters: dict[FrameId, tuple[BridgedCall, str]], fault: str) -> Effects:
        out: Effects = []
        for call, uri in waiters.values():
            self._uris.pop(uri, None)
            out += self._refuse(call, results.INTERNAL, fault)
        waiters.clear()
        return out

    def _note(self, fault: str) -> Note:
        return Note("listen.ended", {"server": self.state.server, "fault": fault})
