"""Pure. Evidence of how a server asks its client: a modern call that fails because the server tried to push, an input
round, a task. No frame changes.

Signs of a push in the modern era, as real SDKs give them: an error that names the request (Python: -32600, "Cannot send
'sampling/createMessage': this transport context has no back-channel"), a result with ``isError`` whose text names it
(TypeScript), or the request itself on the wire (a server that writes frames by itself; R89). A request that was not
declared to the server is no sign: the handshake would not have declared it either.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from samplegate.protocol import rawjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.rounds import ELICITATION, ROOTS, SAMPLING, Effect, Note
from samplegate.protocol.session_state import Pending, SessionState

PUSHED: Final = "server.pushed"
ASKED: Final = "server.asked"
REFUSED: Final = "server.handshake_refused"
MAX_FAILURE: Final = 64 * 1024  # bytes of a frame that is looked at; a failure is a sentence or a traceback
MAX_CALLS: Final = 64  # calls in flight that are looked at for one frame
_METHODS: Final = (SAMPLING, ELICITATION, ROOTS)
_CAPABILITY_MISSING: Final = -32021  # the server says itself that the client lacks something
_CREATED: Final = b'"taskId"'


class Evidence(msgspec.Struct, frozen=True):
    """What was seen of one server, in any of its connections."""

    pushed: bool = False
    """A modern call failed because the server tried to send a request to the client, which only the legacy eras have
    (R89)."""
    asked: bool = False
    """It returned ``input_required`` or a task: it knows how to ask, and needs no older version."""
    refused: bool = False
    """It refused the handshake of the legacy eras."""

    @property
    def prefers_legacy(self) -> bool:
        """Whether the next connection of a server set to ``auto`` treats it as one that speaks only the legacy eras."""
        return self.pushed and not self.asked and not self.refused

    def or_(self, other: Evidence) -> Evidence:
        """Both together. Nothing that was seen is ever unseen."""
        return Evidence(self.pushed or other.pushed, self.asked or other.asked, self.refused or other.refused)


OF_EVENTS: Final = {PUSHED: Evidence(pushed=True), ASKED: Evidence(asked=True), REFUSED: Evidence(refused=True)}
"""What a session's note of each event is evidence of."""


class EvidenceObserver(msgspec.Struct, eq=False):
    """What one session has noticed. Each kind is noted once."""

    state: SessionState
    _noted: set[str] = msgspec.field(default_factory=set)

    def answered(self, pending: Pending, f: Frame) -> list[Effect]:
        """An answer of the server's to a call. Never raises."""
        if pending.call is None or len(f.raw) > MAX_FAILURE:
            return []
        try:
            if pending.modern:
                method = None if PUSHED in self._noted else _failed_push(pending, f)
                return [] if method is None else self._note(PUSHED, method)
            created = (
                ASKED not in self._noted
                and f.raw.find(_CREATED) >= 0
                and f.kind == "result"
                and f.lookup("task", "taskId")
            )
            return self._note(ASKED, pending.method) if created else []
        except rawjson.Malformed:
            return []

    def asked(self, pending: Pending) -> list[Effect]:
        """The server returned ``input_required`` or a task."""
        return self._note(ASKED, pending.method)

    def wrote(self, f: Frame) -> list[Effect]:
        """The server wrote a request in the modern era, where it is dropped: the call that it belongs to waits for
        nothing (R89)."""
        if PUSHED in self._noted or f.method not in _METHODS:
            return []
        calls = (
            pending
            for pending in islice(self.state.inflight.wire.values(), MAX_CALLS)
            if pending.call is not None and pending.modern
        )
        return self._note(PUSHED, f.method) if any(_is_declared(pending, f.method) for pending in calls) else []

    def _note(self, event: str, method: str) -> list[Effect]:
        if event in self._noted:
            return []
        self._noted.add(event)
        return [Note(event, {"server": self.state.server, "method": method}, warn=False)]


def _failed_push(pending: Pending, f: Frame) -> str | None:
    """The request that the server tried to send, where that is what made a modern call fail. Raises
    jsontext.Malformed."""
    raw = f.raw
    if raw.find(b"createMessage") < 0 and raw.find(b"elicitation") < 0 and raw.find(b"roots") < 0:
        return None
    said = _said(f)
    return next((method for method in _METHODS if method in said and _is_declared(pending, method)), None)


def _said(f: Frame) -> str:
    """The text of a failure; empty for what is none."""
    if f.kind == "error":
        code = f.lookup("code")
        ours = code is not None and code.strip() == str(_CAPABILITY_MISSING).encode()
        return "" if ours else rawjson.string(f.lookup("message")) or ""
    if f.lookup("isError") != b"true":
        return ""
    content = f.lookup("content") or b"[]"
    try:
        blocks = msgspec.json.decode(content, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return "\n".join(
        rawjson.string(rawjson.lookup(bytes(block), "text")) or "" for block in blocks if bytes(block)[:1] == b"{"
    )


def _is_declared(pending: Pending, method: str) -> bool:
    """Whether the server was told in this call that it may ask for that."""
    match method:
        case "sampling/createMessage":
            return pending.offer.sampling
        case "elicitation/create":
            return pending.offer.form or pending.offer.url
        case "roots/list":
            return pending.client.roots
        case _:
            return False
