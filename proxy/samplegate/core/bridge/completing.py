"""What a legacy server says, as a modern client may read it: results with what the modern era demands of them (R52, R80), errors by their new codes.

Nothing is made up: where the eras have the same word it stays as it came (R109, R118).
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import jsontext
from samplegate.core.eras import META, MODERN
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import shapes
from samplegate.core.session.declared import without_tasks_extension

META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
CACHED: Final = frozenset({"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
"""The methods whose results say how long they hold (R80)."""
MAX_HELLO: Final = 1024 * 1024  # bytes of the answer to initialize; instructions take some KiB
NOT_FOUND: Final = -32002  # a resource, in the legacy eras; -32602 in the modern one (R56)
_COMPLETE: Final = {"resultType": b'"complete"'}
_UNCACHED: Final = {"ttlMs": b"0", "cacheScope": b'"private"'}  # what a session lists may differ from the next one's (R81)
_QUESTIONS: Final = ("inputRequests", "requestState")
_MODERN: Final = {name.casefold(): name for name in ("resultType", "ttlMs", "cacheScope", *_QUESTIONS)}


class Hello(msgspec.Struct, frozen=True):
    """What a legacy server said of itself when it was opened; raw JSON."""

    capabilities: bytes
    info: bytes | None
    instructions: bytes | None


def hello(result: bytes) -> Hello:
    """The result of ``initialize``. Raises jsontext.Malformed for one that is none, or is too large to remember."""
    if len(result) > MAX_HELLO:
        raise Malformed(f"it is larger than {MAX_HELLO} bytes")
    found = jsontext.fields(result)
    raw = bytes(found["capabilities"]) if "capabilities" in found else b""
    if raw[:1] != b"{":
        raise Malformed("its capabilities are not an object")
    for name in list(jsontext.fields(raw)):
        if name.casefold() == "tasks":  # none of either era is relayed here (R108)
            raw = jsontext.splice(raw, (name,), None)
    info, instructions = (jsontext.lookup(result, name) for name in ("serverInfo", "instructions"))
    return Hello(
        without_tasks_extension(raw),
        info if info is not None and info[:1] == b"{" else None,
        instructions if instructions is not None and instructions[:1] == b'"' else None,
    )


def discovered(said: Hello) -> bytes:
    """The result of ``server/discover`` (R53)."""
    parts = [b'"supportedVersions":' + jsontext.dump(MODERN), b'"capabilities":' + said.capabilities]
    if said.instructions is not None:
        parts.append(b'"instructions":' + said.instructions)
    return completed("server/discover", b"{" + b",".join(parts) + b"}", said.info)


def completed(method: str, result: bytes, info: bytes | None) -> bytes:
    """A result with the members of the modern era. Raises jsontext.Malformed where it is no object, or another parser could find other ones."""
    found = jsontext.fields(result)
    for name in found:
        if name not in _MODERN.values() and name.casefold() in _MODERN:
            raise Malformed(f"its result has {name[:20]!r}, which resembles a member of the protocol")
    more: dict[str, bytes] = {**_COMPLETE, **(_UNCACHED if method in CACHED else {})}
    if info is not None:
        meta = bytes(found[META]) if META in found else b""
        more[META] = jsontext.splice(meta if meta[:1] == b"{" else b"{}", (META_SERVER,), info)
    for name in (*_QUESTIONS, *more):  # questions mean nothing in its era, and must mean nothing here either (T3)
        if name in found:
            result = jsontext.splice(result, (name,), more.pop(name, None))
    left = found.keys() - set(_QUESTIONS)
    head = b",".join(jsontext.dump(name) + b":" + value for name, value in more.items())  # in one copy: results can be large
    at = result.index(b"{") + 1
    return result[:at] + head + (b"," if head and left else b"") + result[at:]


def renumbered(f: Frame) -> bytes:
    """The line of an error with the code that the modern era has for it; all others stay as they are (R56, R118)."""
    return jsontext.splice(f.raw, ("error", "code"), jsontext.dump(shapes.BAD_PARAMS)) if f.code == NOT_FOUND else f.raw
