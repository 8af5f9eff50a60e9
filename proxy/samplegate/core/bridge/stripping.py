"""What a modern server answers, as a legacy client knows it: without the members of the modern era, the rest as it came (R80, R118).

Strict clients refuse members they do not know, and the TypeScript SDK a whole list for one schema that is not an object's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import jsontext
from samplegate.core.bridge.cutting import cut
from samplegate.core.bridge.welcome import META_SERVER_INFO
from samplegate.core.eras import META
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import doors, shapes
from samplegate.core.toolheaders import MAX_TOOLS

_MODERN_ONLY: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
OF_MODERN: Final = frozenset({-32020, -32021, -32022})
"""HeaderMismatch, MissingRequiredClientCapability, UnsupportedProtocolVersion: codes that no legacy revision has (R56)."""
COMPLETE: Final = "complete"


def result(f: Frame, method: str) -> bytes:
    """The line of a result, for the client. Raises Malformed where it has two readings, or a type that is neither complete nor absent (R52)."""
    found = f.members
    if found is None:
        return f.raw
    if doors.result_type(f.object) not in (None, COMPLETE):
        raise Malformed("its result has a resultType that the client's era does not have")
    gone = {name for name in _MODERN_ONLY if name in found}
    if method == "tools/call" and not _is_object(found.get("structuredContent", _NOTHING)):
        gone.add("structuredContent")  # the text beside it says the same
    changed = {META: _meta(bytes(found[META]))} if META in found else {}
    if method == "tools/list" and "tools" in found:
        changed["tools"] = _tools(bytes(found["tools"]))
    changes: dict[str, bytes | None] = dict.fromkeys(gone)
    changes |= {name: value for name, value in changed.items() if value != found[name]}
    return f.changed(payload=f.object.changed(changes)).raw if changes else f.raw


_NOTHING: Final = msgspec.Raw(b"{}")


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _meta(meta: bytes) -> bytes | None:
    """``_meta`` without what the server says of itself in each of its answers, None if that was all."""
    if meta[:1] != b"{" or META_SERVER_INFO not in jsontext.fields(meta):
        return meta
    left = cut(meta, {META_SERVER_INFO})
    return left if jsontext.fields(left) else None


def _tools(listed: bytes) -> bytes:
    """Output schemas may be any schema in the modern era, and only an object's before (R13)."""
    if not doors.may_say(listed, b"outputSchema"):
        return listed
    if listed[:1] != b"[":
        return listed
    tools = jsontext.elements(listed, MAX_TOOLS)
    fitted = [tool if _fits(tool) else cut(tool, {"outputSchema"}) for tool in tools]
    return listed if fitted == tools else b"[" + b",".join(fitted) + b"]"


def _fits(tool: bytes) -> bool:
    schema = jsontext.lookup(tool, "outputSchema")
    return schema is None or jsontext.string(jsontext.lookup(schema, "type")) == "object"


def error(f: Frame) -> bytes:
    """The line of an error, for the client: as it came, but for the codes that its era does not have (R118)."""
    return jsontext.splice(f.raw, ("error", "code"), jsontext.dump(shapes.INTERNAL)) if f.code in OF_MODERN else f.raw
