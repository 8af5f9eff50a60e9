"""Pure. Evidence of how a server asks its client: a failed push in a modern call, an input round, or a task.

No frame changes. Real SDKs show a push in the modern era in three ways:

- an error that names the request (Python: -32600, "Cannot send 'sampling/createMessage': this transport context has no
  back-channel");
- a result with ``isError`` whose text names it (TypeScript);
- the request itself on the wire, from a server that writes its own frames (R89).

A request that was not declared to the server is no evidence, because the handshake would not have declared it either.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from samplegate.protocol import rawjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.requests import ELICITATION, ROOTS, SAMPLING
from samplegate.protocol.rounds import Effect, Note
from samplegate.protocol.session_state import Pending, SessionState

PUSHED: Final = "server.pushed"
ASKED: Final = "server.asked"
REFUSED: Final = "server.handshake_refused"
MAX_FAILURE: Final = 64 * 1024  # bytes of a frame that is checked; a failure is a sentence or a traceback
MAX_CALLS: Final = 64  # calls in flight that are checked for one frame
_METHODS: Final = (SAMPLING, ELICITATION, ROOTS)
_CAPABILITY_MISSING: Final = -32021  # the server itself reports that the client lacks a capability
_CREATED: Final = b'"taskId"'


class Evidence(msgspec.Struct, frozen=True):
    """Evidence about one server, from all of its connections."""

    pushed: bool = False
    """A modern call failed because the server tried to send a request, which only the legacy era allows (R89)."""
    asked: bool = False
    """The server returned ``input_required`` or a task: it knows how to ask, and needs no older version."""
    refused: bool = False
    """The server refused the legacy handshake."""

    @property
    def prefers_legacy(self) -> bool:
        """Whether the next connection to a server set to ``auto`` treats the server as legacy only."""
        return self.pushed and not self.asked and not self.refused

    def union(self, other: Evidence) -> Evidence:
        """The union of both; evidence is never lost."""
        return Evidence(self.pushed or other.pushed, self.asked or other.asked, self.refused or other.refused)


OF_EVENTS: Final = {PUSHED: Evidence(pushed=True), ASKED: Evidence(asked=True), REFUSED: Evidence(refused=True)}
"""The evidence in a session's note, by event."""


class EvidenceObserver(msgspec.Struct, eq=False):
    """Evidence that one session has noted, each kind once."""

    state: SessionState
    _noted: set[str] = msgspec.field(default_factory=set)

    def answered(self, pending: Pending, f: Frame) -> list[Effect]:
        """Note evidence in the server's answer to a call. Never raises."""
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
        """Note that the server returned ``input_required`` or a task."""
        return self._note(ASKED, pending.method)

    def wrote(self, f: Frame) -> list[Effect]:
        """Note a request that the server wrote in the modern era.

        It is dropped, so the server waits in vain and its call may not end (R89).
        """
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
    """The request whose sending made a modern call fail; None if there was none. Raises rawjson.Malformed."""
    raw = f.raw
    if raw.find(b"createMessage") < 0 and raw.find(b"elicitation") < 0 and raw.find(b"roots") < 0:
        return None
    text = _failure_text(f)
    return next((method for method in _METHODS if method in text and _is_declared(pending, method)), None)


def _failure_text(f: Frame) -> str:
    """The text of a failure; empty for anything else."""
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
    """Whether this call declared to the server that it may send such a request."""
    match method:
        case "sampling/createMessage":
            return pending.offer.sampling
        case "elicitation/create":
            return pending.offer.form or pending.offer.url
        case "roots/list":
            return pending.client.roots
        case _:
            return False
