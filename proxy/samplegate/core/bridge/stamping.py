"""What a legacy client said once, in ``initialize`` and ``logging/setLevel``, put into the ``_meta`` of each of its requests (R49, R105)."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.bridge.cutting import cut, inserted
from samplegate.core.eras import META, META_CAPABILITIES, META_LOG_LEVEL, META_VERSION, MODERN, has_elicitation, has_modes
from samplegate.core.jsontext import Malformed, Object, dump, lookup, splice

META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LEVELS: Final = frozenset("debug info notice warning error critical alert emergency".split())
MAX_STAMP: Final = 256 * 1024  # bytes of both, which are remembered and sent with each request
_STAMPED: Final = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL})


class Stamp(msgspec.Struct, frozen=True):
    """What is put into a request. ``level`` is one of LEVELS, or None."""

    capabilities: bytes = b"{}"
    info: bytes | None = None
    level: str | None = None
    members: bytes = b""
    """The members of ``_meta``, raw; made of the others."""

    def __post_init__(self) -> None:
        parts = [_member(META_VERSION, dump(MODERN[-1])), _member(META_CAPABILITIES, self.capabilities)]
        if self.info is not None:
            parts.append(_member(META_CLIENT_INFO, self.info))
        if self.level is not None:
            parts.append(_member(META_LOG_LEVEL, dump(self.level)))
        msgspec.structs.force_setattr(self, "members", b",".join(parts))

    def put(self, params: Object) -> Object:
        """The params of a request with the stamp in ``_meta``, over whatever the client wrote there. Raises Malformed for params of two readings."""
        raw = params.raw(META)
        if raw is None:
            return params.changed({META: b"{" + self.members + b"}"})
        if raw[:1] != b"{":
            raise Malformed("its _meta is not an object")
        return params.changed({META: inserted(cut(raw, _STAMPED), self.members)})


def _member(name: str, value: bytes) -> bytes:
    return dump(name) + b":" + value


def stamp_of(initialize: bytes | None, revision: str) -> Stamp:
    """The stamp that the params of an ``initialize`` make, for the revision that the client was given. Raises Malformed."""
    info, declared = lookup(initialize, "clientInfo"), lookup(initialize, "capabilities")
    if len(info or b"") + len(declared or b"") > MAX_STAMP:
        raise Malformed(f"its clientInfo and capabilities are larger than {MAX_STAMP} bytes")
    return Stamp(capabilities(declared, revision), info if info is not None and info[:1] == b"{" else None)


def capabilities(raw: bytes | None, revision: str) -> bytes:
    """Declared capabilities in their modern shape: no more than the client's revision has (R114), nothing that the modern era has not (R58, R108)."""
    text = cut(raw if raw is not None and raw[:1] == b"{" else b"{}", {"tasks"})
    if not has_elicitation(revision):
        text = cut(text, {"elicitation"})
    if not has_modes(revision):
        for name in ("sampling", "elicitation"):
            text = _plain(text, name)
    if lookup(text, "roots", "listChanged") is not None:
        text = splice(text, ("roots", "listChanged"), None)
    return text


def _plain(text: bytes, name: str) -> bytes:
    """Without sub-capabilities that the client's revision does not know: it would not understand what they let in."""
    value = lookup(text, name)
    return text if value is None or value[:1] != b"{" else splice(text, (name,), b"{}")
