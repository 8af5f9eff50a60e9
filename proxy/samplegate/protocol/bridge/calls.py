"""Pure. Requests and waiting frames at a bridge, and its interface to the inner session and the relay.

The progress of a request only rises, even if a retry starts again (T33). The queue is bounded, because a peer chooses
how much it sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from samplegate.protocol import frames, results
from samplegate.protocol.frames import Frame, FrameId
from samplegate.protocol.rounds import Conclusion, Effects, Side, ToClient
from samplegate.protocol.session_state import (
    ENTRY,
    LISTEN,
    STEP,
    Inflight,
    OpenCall,
    SessionState,
    notification,
    to_float,
)
from samplegate.protocol.task_state import Found

MAX_CALLS: Final = 10_000  # in flight for one client; real ones have a few


class BridgedCall(msgspec.Struct, eq=False):
    """A client request at a bridge."""

    stream: int
    id: FrameId
    method: str
    token: bytes | None = None
    """Its progressToken, raw JSON."""
    params: bytes | None = None
    """The params as the server sees them, kept if a retry may need them."""
    rounds: int = 0
    """How often the client was asked in this call."""
    progress: float | None = None
    """The last value that the client has seen."""
    size: int = 0
    """Bytes counted in addition to those of the inner session."""
    since: float | None = None
    """When it arrived."""


class Calls(msgspec.Struct, eq=False):
    """The requests in flight. A client's id is unique in the whole session, on all streams (R57)."""

    inflight: Inflight
    """Counts their bytes with those of the inner session."""
    by_id: dict[FrameId, BridgedCall] = msgspec.field(default_factory=dict)
    by_token: dict[FrameId, BridgedCall] = msgspec.field(default_factory=dict)

    def add(self, call: BridgedCall) -> None:
        """Add a request."""
        self.by_id[call.id] = call
        call.size = ENTRY + len(call.params or b"")
        self.inflight.size += call.size
        token = frames.plain_id(call.token)
        if token is not None:
            self.by_token[token] = call

    def remove(self, call: BridgedCall) -> bool:
        """Remove a finished request; False if it was removed before."""
        if self.by_id.get(call.id) is not call:
            return False
        del self.by_id[call.id]
        self.inflight.size -= call.size
        token = frames.plain_id(call.token)
        if token is not None and self.by_token.get(token) is call:
            del self.by_token[token]
        return True

    def clear(self) -> None:
        """Remove all requests."""
        self.inflight.size -= sum(call.size for call in self.by_id.values())
        self.by_id.clear()
        self.by_token.clear()

    def grow(self, call: BridgedCall, size: int) -> None:
        """Change the bytes counted for a request until it is over; ``size`` may be negative."""
        if self.by_id.get(call.id) is call:
            self.inflight.size += size
        call.size += size

    def shown(self, stream: int, f: Frame, *, ours: bool) -> ToClient | None:
        """A progress notification for the client; None if its value does not rise, as after a retry.

        ``ours``: a notification of the gate, which gets the next possible value. ``stream`` is for a token that no call
        gave.
        """
        call = self._of(f.lookup("progressToken"))
        value = to_float(f.lookup("progress"))
        if call is None or value is None:
            return ToClient(stream, f.raw)
        if call.progress is None or value > call.progress:
            call.progress = value
            return ToClient(call.stream, f.raw)
        if ours:
            return beat(call)
        return None if call.rounds else ToClient(call.stream, f.raw)

    def _of(self, token: bytes | None) -> BridgedCall | None:
        key = frames.plain_id(token)
        return None if key is None else self.by_token.get(key)


def beat(call: BridgedCall) -> ToClient | None:
    """Our own progress on a call, one step up; None if the client gave no token, or no higher value exists."""
    before = 0.0 if call.progress is None else call.progress
    value = max(before + STEP, math.nextafter(before, math.inf))
    if call.token is None or not math.isfinite(value):
        return None
    call.progress = value
    return ToClient(call.stream, notification(call.token, value))


MAX_FRAMES: Final = 1000
MAX_BYTES: Final = 32 * 1024 * 1024
FULL: Final = (
    "refused: too many messages are waiting for the server to start"
    f" (limit: {MAX_FRAMES} messages or {MAX_BYTES >> 20} MiB)"
)


def full(stream: int, f: Frame) -> ToClient:
    """Refusal of a request for which there is no room."""
    return ToClient(stream, frames.error(f.id, results.INTERNAL, FULL), True)


class HeldFrame(msgspec.Struct, frozen=True):
    """A waiting frame with its stream and time of arrival."""

    stream: int
    frame: Frame
    now: float


class HeldFrames(msgspec.Struct, eq=False):
    """Frames that wait until the server has opened."""

    held: list[HeldFrame] = msgspec.field(default_factory=list)
    size: int = 0

    def add(self, stream: int, f: Frame, now: float) -> bool:
        """Add a frame; False if there is no room for it."""
        if len(self.held) >= MAX_FRAMES or self.size + len(f.raw) > MAX_BYTES:
            return False
        self.held.append(HeldFrame(stream, f, now))
        self.size += len(f.raw)
        return True

    def has(self, stream: int, id: FrameId) -> bool:
        """Whether a request waits."""
        return any(held.stream == stream and held.frame.kind == "request" and held.frame.id == id for held in self.held)

    def open_calls(self) -> list[OpenCall]:
        """The waiting requests, except listens, which stay open by design."""
        some = (held for held in self.held if held.frame.kind == "request" and held.frame.method != LISTEN)
        return [
            OpenCall(held.stream, held.frame.id, held.frame.method, since=held.now)
            for held in some
            if held.frame.id is not None
        ]

    def remove(self, stream: int, id: FrameId) -> bool:
        """Remove a cancelled request; False if none with that id waits."""
        return self._keep([h for h in self.held if h.stream != stream or h.frame.kind != "request" or h.frame.id != id])

    def stream_closed(self, stream: int) -> bool:
        """Remove the frames of a closed stream; False if there were none."""
        return bool(self.held) and self._keep([held for held in self.held if held.stream != stream])

    def take(self) -> list[HeldFrame]:
        """Remove and return all waiting frames."""
        taken, self.held, self.size = self.held, [], 0
        return taken

    def _keep(self, kept: list[HeldFrame]) -> bool:
        changed = len(kept) != len(self.held)
        self.held, self.size = kept, sum(len(held.frame.raw) for held in kept)
        return changed


class FrameReceiver(Protocol):
    """Processes one line of a side, or the frame that was read from it; never raises because of a peer's input."""

    def __call__(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects: ...


class SessionProtocol(Protocol):
    """The methods of ``session.Session``, which documents them."""

    @property
    def state(self) -> SessionState: ...
    @property
    def frame(self) -> FrameReceiver: ...
    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects: ...
    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects: ...
    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects: ...
    def forward(self, round: str) -> Effects: ...
    def unforward(self, round: str, reason: str) -> Effects: ...
    def round_progress(self, round: str, tokens: int = 0) -> Effects: ...
    def due(self, token: str) -> Effects: ...
    def wait_long(self, round: str, nonce: bytes) -> Effects: ...
    def task_stepped(self, token: str, found: Found) -> Effects: ...
    def read_resource(self, token: str, round: str, uri: str, now: float) -> Effects: ...
    def stop_reading(self, token: str) -> Effects: ...
    def open_calls(self) -> list[OpenCall]: ...
    def questions(self) -> list[FrameId]: ...
    def overdue(self, now: float, seconds: float) -> Effects: ...
    def stream_closed(self, side: Side, stream: int) -> Effects: ...
    def undelivered(self, id: FrameId) -> Effects: ...
    def eof(self, side: Side) -> Effects: ...


Action = Callable[[], Effects]


class BridgeIO(msgspec.Struct, frozen=True):
    """Callbacks of a bridge to its inner session, its server and its client."""

    send: Callable[[int, bytes], Effects]
    """Write a line to the inner session, on a stream of the client."""
    ask: Callable[[FrameId, str, bytes], Effects]
    """Send the server a request of ours, with its id, method and params, to which the stamp is added."""
    cancel: Callable[[FrameId], Effects]
    """Cancel a request of ours."""
    answer: Callable[[BridgedCall, bytes], Effects]
    """Answer a client's request with a line, unless it is over."""
    after: Callable[[float, Action], Effects]
    """Run an action after so many seconds."""
    now: Callable[[], float]
    """The last known time of the session."""
