"""Pure. Era detection: the eras of a server, by its answers to probes and ``initialize`` (R84 to R86, T22).

The probe is a ``server/discover``. A modern client that asks a legacy server may get the answer "legacy eras only". It
does if that gives the server more: the client has roots, or the policy would forward what the client declares. Through
the bridge, such a client could not be asked (``modern_client.py``). Most clients then start again in the legacy era.
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.protocol import capabilities, frames, rawjson, results
from samplegate.protocol.bridge.calls import HeldFrame, HeldFrames, SessionProtocol
from samplegate.protocol.bridge.translation import META_CLIENT, UNSUPPORTED_VERSION, versions
from samplegate.protocol.frames import LEGACY, META, META_CAPABILITIES, META_VERSION, MODERN, Frame, FrameId, era_of
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import ClientCapabilities
from samplegate.protocol.rounds import Effects, Later, ToClient
from samplegate.protocol.session_state import DISCOVER, INTERNAL, PROBE, SessionState

_MODERN_ERRORS: Final = frozenset({-32020, -32021, UNSUPPORTED_VERSION})
_PLAIN_ERRORS: Final = frozenset({-32700, -32600, -32601, -32602})
"""Errors of servers that do not know a method, or get it too early.

Any other error may come from a link or be temporary, and so is no evidence for later.
"""


class Eras(msgspec.Struct, frozen=True):
    """The known eras of a server; None if they were not probed or the answer was inconclusive."""

    legacy: bool | None = None
    modern: bool | None = None

    def updated_by(self, found: Eras) -> Eras:
        """These eras, updated with later findings."""
        return Eras(
            self.legacy if found.legacy is None else found.legacy, self.modern if found.modern is None else found.modern
        )


class Finding(msgspec.Struct, frozen=True):
    """Conclusion from one answer."""

    modern: bool
    """Whether to use the modern era with the server."""
    eras: Eras
    """The part that may be cached (R86)."""


def probe(id: FrameId) -> bytes:
    """A ``server/discover`` of our own."""
    meta = {META_VERSION: MODERN[0], META_CAPABILITIES: {}, META_CLIENT: {"name": "samplegate", "version": "0"}}
    return frames.request(id, DISCOVER, rawjson.dump({META: meta}))


def finding(f: Frame) -> Finding:
    """The conclusion from the answer to ``server/discover``."""
    try:
        return _of_result(f.payload) if f.kind == "result" else _of_error(f)
    except Malformed:
        return Finding(False, Eras())


def _of_result(result: bytes | None) -> Finding:
    listed = versions(rawjson.lookup(result, "supportedVersions"))
    modern = any(version in MODERN for version in listed)
    legacy = True if any(era_of(version) == "legacy" for version in listed) else None
    return Finding(modern, Eras(legacy, modern))


def _of_error(f: Frame) -> Finding:
    if f.code not in _MODERN_ERRORS:
        return Finding(False, Eras(modern=False) if f.code in _PLAIN_ERRORS else Eras())
    listed = versions(rawjson.lookup(f.payload, "data", "supported"))
    # the server lists its versions, and no modern one is ours
    if listed and not any(version in MODERN for version in listed):
        return Finding(False, Eras(modern=False))
    return Finding(True, Eras(modern=True))


def is_modern_error(f: Frame) -> bool:
    """Whether an answer to ``initialize`` is an error that only a server of the modern era sends."""
    try:
        return f.kind == "error" and _of_error(f).modern
    except Malformed:
        return False


class Probe:
    """A ``server/discover`` to one server."""

    def __init__(self, state: SessionState, patience: float) -> None:
        self._state = state
        self._patience = patience
        self._timer: str | None = None
        self._of: HeldFrame | None = None
        self._late: FrameId | None = None

    def ask(self, session: SessionProtocol, now: float, of: HeldFrame | None = None) -> Effects:
        """Send the probe, or the client's own discover ``of``, whose answer then also goes to the client."""
        self._timer, self._of = self._state.new_round(), of
        line = probe(PROBE) if of is None else rawjson.splice(of.frame.raw, ("id",), rawjson.dump(PROBE))
        return [*session.frame("client", INTERNAL, line, now), Later(self._patience, self._timer)]

    def send_beside(self, session: SessionProtocol, now: float) -> Effects:
        """Send a probe whose answer nothing waits for; it only shows that the server is alive."""
        return session.frame("client", INTERNAL, probe(PROBE), now)

    def is_due(self, token: str) -> bool:
        """Whether the token is that of the probe's timeout."""
        return token == self._timer

    def answered(self) -> None:
        """Stop the timeout of an answered probe."""
        self._timer = None

    def give_up(self) -> None:
        """Give up the probe, although its answer may still come."""
        self._timer = self._of = None
        pending = self._state.inflight.asked.get((INTERNAL, PROBE))
        if pending is not None:
            self._late = pending.wire_id
            self._state.inflight.remove(pending)

    def is_late_answer(self, f: Frame) -> bool:
        """Whether a frame is the answer to a probe that was given up; true only once."""
        late = f.id is not None and f.id == self._late
        self._late = None if late else self._late
        return late

    def clients(self, f: Frame, waiting: HeldFrames) -> Effects:
        """The answer under the id of the client's own discover, which is removed from the waiting frames."""
        of, self._of = self._of, None
        if of is None or of.frame.id is None or not waiting.remove(of.stream, of.frame.id):
            return []
        return [ToClient(of.stream, rawjson.splice(f.raw, ("id",), rawjson.dump(of.frame.id)), True)]


FAULT: Final = (
    "method not found: server/discover; this server supports only 2025-11-25 and older; start with initialize"
)


def needs_legacy_era(state: SessionState, stream: int, f: Frame) -> bool:
    """Whether the client declares capabilities that only it can serve: roots, or any offered because of it.

    Raises rawjson.Malformed if it has two readings.
    """
    client = capabilities.declared_by(f.meta.raw(META_CAPABILITIES))
    caller = state.caller_on(stream)
    bridged = state.offer("legacy", LEGACY[-1], ClientCapabilities(), None, caller)
    return client.roots or state.offer("legacy", LEGACY[-1], client, None, caller) != bridged


def is_sent_back(state: SessionState, stream: int, f: Frame) -> bool:
    """Whether to answer a client's ``server/discover`` with "legacy eras only". Raises as ``needs_legacy_era``."""
    return f.kind == "request" and f.method == DISCOVER and needs_legacy_era(state, stream, f)


def refusal(stream: int, f: Frame) -> ToClient:
    """The answer of a legacy server to ``server/discover`` (R84, R85)."""
    return ToClient(stream, frames.error(f.id, results.METHOD_NOT_FOUND, FAULT), True)
