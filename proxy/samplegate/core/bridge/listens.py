"""The ``subscriptions/listen`` of modern clients over a legacy server: who wants which notifications, and what the server is subscribed to for them.

Tables only. The server knows one subscription to a resource, whoever asked for it: it is counted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge.envelope import Refusal
from samplegate.core.eras import META
from samplegate.core.frames import FrameId
from samplegate.core.session import shapes
from samplegate.core.session.routing import META_SUBSCRIPTION

METHOD: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
CHANGES: Final = {f"notifications/{kind}/list_changed": (f"{kind}ListChanged", kind) for kind in ("tools", "prompts", "resources")}
"""A notification -> the member of the filter that asks for it, and the capability that promises it."""
MAX_OPEN: Final = 1000  # of one server; real clients have one or two each
MAX_ON_A_LANE: Final = 32
MAX_URIS: Final = 256  # of one listen
MAX_ALL_URIS: Final = 10_000
MAX_SIZE: Final = 256 * 1024  # bytes of the URIs of one listen
MAX_ALL_SIZE: Final = 4 * 1024 * 1024  # characters of those of all listens
MAX_URI: Final = 8192  # characters
MAX_PARTS: Final = 64  # of a URI that are looked at, from its begin

Key: TypeAlias = tuple[int, FrameId]
"""A lane and the id of the request that opened it."""


class Listen(msgspec.Struct, frozen=True):
    """One open listen: what the server can honour of what it asked for."""

    lane: int
    id: FrameId
    changes: frozenset[str]
    uris: tuple[str, ...]

    def acknowledged(self) -> bytes:
        """The first notification on it (R77)."""
        honoured: dict[str, object] = {CHANGES[method][0]: True for method in sorted(self.changes)}
        if self.uris:
            honoured["resourceSubscriptions"] = self.uris
        return frames.notification(ACKNOWLEDGED, jsontext.dump({META: {META_SUBSCRIPTION: self.id}, "notifications": honoured}))

    def tagged(self, raw: bytes) -> bytes:
        """A notification of the server's as one of this listen's: its id, of its own type (R77)."""
        return jsontext.splice(raw, ("params", META, META_SUBSCRIPTION), jsontext.dump(self.id))

    def ended(self) -> bytes:
        """The result that ends it (R78)."""
        return jsontext.dump({"resultType": "complete", META: {META_SUBSCRIPTION: self.id}})


class Listens(msgspec.Struct, eq=False):
    """The open listens of one server."""

    open: dict[Key, Listen] = msgspec.field(default_factory=dict)
    _watched: dict[str, dict[Key, Listen]] = msgspec.field(default_factory=dict)
    _uris: int = 0
    _size: int = 0
    """Characters of them."""

    def begin(self, lane: int, id: FrameId, params: bytes | None, capabilities: bytes) -> tuple[Listen, list[str]] | Refusal:
        """Open one; also the resources that nobody watched before. Raises jsontext.Malformed where the filter has two readings."""
        wanted = jsontext.lookup(params, "notifications")
        if wanted is None or wanted[:1] != b"{":
            return Refusal(shapes.BAD_PARAMS, "params: notifications is missing or not an object; it says what to listen for")
        uris = _uris(jsontext.lookup(wanted, "resourceSubscriptions"))
        if isinstance(uris, Refusal):
            return uris
        if len(self.open) >= MAX_OPEN or sum(key[0] == lane for key in self.open) >= MAX_ON_A_LANE or self._uris + len(uris) > MAX_ALL_URIS:
            return Refusal(shapes.INTERNAL, f"refused: {len(self.open)} listens for {self._uris} resources are open already")
        if self._size + _characters(uris) > MAX_ALL_SIZE:
            return Refusal(shapes.INTERNAL, f"refused: the URIs of all listens would have more than {MAX_ALL_SIZE} characters")
        offered = jsontext.lookup(capabilities, "resources", "subscribe") == b"true"
        changes = frozenset(
            method
            for method, (member, kind) in CHANGES.items()
            if jsontext.lookup(wanted, member) == b"true" and jsontext.lookup(capabilities, kind, "listChanged") == b"true"
        )
        return self._entered(Listen(lane, id, changes, uris if offered else ()))

    def _entered(self, listen: Listen) -> tuple[Listen, list[str]]:
        key = (listen.lane, listen.id)
        self.open[key] = listen
        self._uris += len(listen.uris)
        self._size += _characters(listen.uris)
        new = [uri for uri in listen.uris if uri not in self._watched]
        for uri in listen.uris:
            self._watched.setdefault(uri, {})[key] = listen
        return listen, new

    def end(self, key: Key) -> list[str] | None:
        """It is over: the resources that nobody watches any more; None if there is none."""
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

    def wanting(self, method: str, uri: str | None) -> list[Listen]:
        """The listens that asked for a notification; ``uri`` where it tells of a resource."""
        if method in CHANGES:
            return [listen for listen in self.open.values() if method in listen.changes]
        if method != UPDATED or uri is None:
            return []
        found: dict[Key, Listen] = {}
        for one in _and_above(uri[:MAX_URI]):
            found.update(self._watched.get(one, {}))
        return list(found.values())


def _characters(uris: tuple[str, ...]) -> int:
    return sum(map(len, uris))


def _and_above(uri: str) -> Iterator[str]:
    """A resource and those that it may be a part of: an update may name a part of what was subscribed to."""
    yield uri
    for at in [at for at, letter in enumerate(uri) if letter in "/?#"][:MAX_PARTS]:
        yield uri[:at]
        if at + 1 < len(uri):
            yield uri[: at + 1]


def _uris(raw: bytes | None) -> tuple[str, ...] | Refusal:
    if raw is None:
        return ()
    if len(raw) > MAX_SIZE:
        return Refusal(shapes.BAD_PARAMS, f"resourceSubscriptions is larger than {MAX_SIZE} bytes")
    try:
        uris = tuple(dict.fromkeys(msgspec.json.decode(raw, type=list[str])))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(shapes.BAD_PARAMS, "resourceSubscriptions is not a list of URIs")
    if len(uris) > MAX_URIS or any(len(uri) > MAX_URI for uri in uris):
        return Refusal(shapes.BAD_PARAMS, f"resourceSubscriptions has more than {MAX_URIS} URIs, or one longer than {MAX_URI} characters")
    return uris
