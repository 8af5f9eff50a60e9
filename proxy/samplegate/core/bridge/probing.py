"""What an answer to ``server/discover`` or ``initialize`` tells of the eras that a server speaks (R84 to R86, T22). Nothing is asked here."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.bridge.envelope import META_CLIENT, UNSUPPORTED_VERSION
from samplegate.core.eras import META, META_CAPABILITIES, META_VERSION, MODERN, era_of
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed

DISCOVER: Final = "server/discover"
MAX_VERSIONS: Final = 4096  # bytes of a list of versions; five have 70
_MODERN_ERRORS: Final = frozenset({-32020, -32021, UNSUPPORTED_VERSION})
_PLAIN_ERRORS: Final = frozenset({-32700, -32600, -32601, -32602})
"""What servers say to a method or a time that they do not know. Any other error may be a link's or a passing one: it tells nothing for later."""


class Eras(msgspec.Struct, frozen=True):
    """What is known of the eras that a server speaks; None where nobody has asked yet, or the answer was inconclusive."""

    legacy: bool | None = None
    modern: bool | None = None

    def and_(self, found: Eras) -> Eras:
        """The same with what was found since."""
        return Eras(self.legacy if found.legacy is None else found.legacy, self.modern if found.modern is None else found.modern)


class Finding(msgspec.Struct, frozen=True):
    """What one answer tells."""

    modern: bool
    """Whether to speak modern to the server."""
    eras: Eras
    """What of it may be kept (R86)."""


def probe(id: FrameId) -> bytes:
    """A ``server/discover`` of our own."""
    meta = {META_VERSION: MODERN[0], META_CAPABILITIES: {}, META_CLIENT: {"name": "samplegate", "version": "0"}}
    return frames.request(id, DISCOVER, jsontext.dump({META: meta}))


def finding(f: Frame) -> Finding:
    """What the answer to ``server/discover`` tells."""
    try:
        return _of_result(f.payload) if f.kind == "result" else _of_error(f)
    except Malformed:
        return Finding(False, Eras())


def _of_result(result: bytes | None) -> Finding:
    listed = _versions(jsontext.lookup(result, "supportedVersions"))
    modern = any(version in MODERN for version in listed)
    legacy = True if any(era_of(version) == "legacy" for version in listed) else None
    return Finding(modern, Eras(legacy, modern))


def _of_error(f: Frame) -> Finding:
    if f.code not in _MODERN_ERRORS:
        return Finding(False, Eras(modern=False) if f.code in _PLAIN_ERRORS else Eras())
    listed = _versions(jsontext.lookup(f.payload, "data", "supported"))
    if listed and not any(version in MODERN for version in listed):  # it names what it speaks, and we speak none of its modern ones
        return Finding(False, Eras(modern=False))
    return Finding(True, Eras(modern=True))


def says_modern(f: Frame) -> bool:
    """Whether an answer to ``initialize`` is an error that only a server of the modern era makes."""
    try:
        return f.kind == "error" and _of_error(f).modern
    except Malformed:
        return False


def _versions(raw: bytes | None) -> list[str]:
    try:
        return [] if raw is None or len(raw) > MAX_VERSIONS else msgspec.json.decode(raw, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
