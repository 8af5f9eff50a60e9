"""Pure. HTTP headers that mirror a frame of 2026-07-28: names, encoding, and match with the body (R71 to R74).

Headers decide nothing, because the policy reads only the body (R75). The ``Mcp-Param`` headers mirror arguments of a
tool, by its ``x-mcp-header`` annotations. Only these annotations of an ``inputSchema`` are read, and no ``$ref`` is
followed.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.protocol import rawjson
from samplegate.protocol.frames import META_VERSION, Frame
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.server_requests import may_contain

VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
MISMATCH: Final = -32020
"""HeaderMismatch; its HTTP status is 400 (R73, R76)."""
NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods with an ``Mcp-Name``, and the mirrored member of their params (R71)."""
_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_plain: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_field_value: Final = re.compile(r"[\t -~]*")


def encode(value: str) -> str:
    """A string as a header's value: plain, or in base64 if it would not survive otherwise (R72).

    Raises UnicodeEncodeError for a lone surrogate, which no header can contain.
    """
    if _plain.fullmatch(value) and not _looks_encoded(value):
        return value
    return _PREFIX + base64.b64encode(value.encode()).decode("ascii") + _SUFFIX


def decode(value: str) -> str | None:
    """The decoded value of a header; None if R72 does not allow its encoding."""
    if not _field_value.fullmatch(value):
        return None
    if not _looks_encoded(value):
        return value
    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        text = base64.b64decode(inner, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    # one text has one spelling: no unused base64 bits, no question mark that prefix and suffix share
    return text if value == _PREFIX + base64.b64encode(text.encode()).decode("ascii") + _SUFFIX else None


def _looks_encoded(value: str) -> bool:
    return value.startswith(_PREFIX) and value.endswith(_SUFFIX)


def standard_headers(method: str, params: rawjson.Object, version: str) -> dict[str, str]:
    """The headers of a POST of a request or notification (R71).

    There is no ``Mcp-Name`` if its member is absent or not a string.

    A method or version that is not plain ASCII is encoded too, so that it cannot break out of its line; no server
    accepts such a value. Raises rawjson.Malformed for params with two readings.
    """
    out = {VERSION: _written(version), METHOD: _written(method)}
    name = _named(method, params)
    if name is not None:
        out[NAME] = _written(name)
    return out


def _written(value: str) -> str:
    return encode(value.encode("utf-8", "replace").decode())


def _named(method: str, params: rawjson.Object) -> str | None:
    """The mirrored value of ``Mcp-Name``."""
    member = NAMED.get(method)
    return None if member is None else rawjson.string(params.raw(member))


def headers_by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Headers from ASGI, by name in lower case, because names ignore case and values do not (R72)."""
    out: dict[str, list[str]] = {}
    for name, value in headers:
        out.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip(" \t"))
    return out


def check(headers: Iterable[tuple[bytes, bytes]], frame: Frame) -> str | None:
    """Why the headers of a POST do not match its body (R73); None if they do.

    The text is for the message of a MISMATCH error and contains no value of the body. ``headers`` are as in ASGI. A
    request must have those of R71. The specification requires none of a notification, so only the present ones are
    checked.
    """
    found = headers_by_name(headers)
    try:
        version, name = _version(frame), _named(frame.method, frame.object)
    except Malformed as problem:
        return problem.fault
    request = frame.kind == "request"
    lenient = frame.method.startswith("tasks/")  # fastmcp's client leaves it out there
    return (
        _mismatch(found, VERSION, version, needed=request, encoded=False)
        or _mismatch(found, METHOD, frame.method, needed=request, encoded=False)
        or (
            _mismatch(found, NAME, name, needed=request and name is not None and not lenient, encoded=True)
            if frame.method in NAMED
            else None
        )
    )


def _version(frame: Frame) -> str | None:
    return rawjson.string(frame.meta.raw(META_VERSION))


def _mismatch(
    found: Mapping[str, list[str]], header: str, value: str | None, *, needed: bool, encoded: bool
) -> str | None:
    values = found.get(header.lower(), [])
    if len(values) > 1:
        return f"the header {header} appears {len(values)} times"
    if not values:
        return f"the header {header} is missing" if needed else None
    if value is None and not encoded and not needed:
        return None  # a notification names no version
    text = decode(values[0]) if encoded else values[0]
    if text is None or not _field_value.fullmatch(values[0]):
        return f"the header {header} cannot be decoded"
    return None if text == value else f"the header {header} does not match the body"


Annotations: TypeAlias = Mapping[tuple[str, ...], str]
"""The rest of the header's name, by the path of a mirrored property in the arguments."""

PREFIX: Final = "Mcp-Param-"
KEY: Final = "x-mcp-header"
MAX_ANNOTATED: Final = 64  # of one tool; HTTP servers usually accept a hundred headers
MAX_SAFE: Final = 2**53 - 1
_KEY: Final = KEY.encode()
MAX_TOOLS: Final = 10_000  # of one page of a list
MAX_READ: Final = 4 * 1024 * 1024  # bytes of the schemas of one page that may have annotations
ENTRY: Final = 256  # bytes of a name in addition to its characters
MAX_PLACES: Final = 100_000  # in those schemas; a large tool has some hundreds
_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_number: Final = re.compile(rb"-?[0-9]")
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})
"""Keywords whose value maps names to schemas; these names are no keywords."""
_DATA: Final = frozenset({"default", "examples", "example", "const", "enum"})
"""Keywords whose value is data, in which an annotation has no meaning."""


class Budget:
    """The remaining reading budget of one page of a list."""

    def __init__(self) -> None:
        self.bytes, self.places = MAX_READ, MAX_PLACES


def annotations_of(tool: bytes, budget: Budget | None = None) -> Annotations | str:
    """The mirrored arguments of a tool in a tools/list result, or why its annotations are invalid.

    A tool with invalid annotations must not be used over HTTP (R74).
    """
    if not may_contain(tool, _KEY):
        return {}
    budget = Budget() if budget is None else budget
    try:
        raw = rawjson.lookup(tool, "inputSchema")
        if raw is None or not may_contain(raw, _KEY):
            return {}
        budget.bytes -= len(raw)
        if budget.bytes < 0:
            return f"the tool schemas that may have an {KEY} are larger than {MAX_READ} bytes"
        schema = _schema(raw)
        return _collected(schema, budget) if _KEY in raw or _contains_key(schema) else {}
    except (ValueError, RecursionError):
        return "inputSchema cannot be parsed"


def _contains_key(schema: Any) -> bool:
    """Whether the key occurs in a schema that contains escapes, which real ones have for other letters."""
    try:
        return _KEY in msgspec.json.encode(schema)
    except UnicodeEncodeError:
        return True


def _schema(raw: bytes) -> Any:
    """The schema as plain values, even if a truncated emoji or a NaN makes it not quite JSON, as in real ones."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return json.loads(raw)


def _collected(schema: Any, budget: Budget) -> Annotations | str:
    out: dict[tuple[str, ...], str] = {}
    seen: set[str] = set()
    for path, node in _positions(schema, budget):
        if budget.places < 0:
            return f"the tool list has more than {MAX_PLACES} places for an {KEY}"
        if KEY not in node:
            continue
        fault = _fault(path, node, seen)
        if fault is not None:
            return fault
        assert path is not None
        out[path] = node[KEY]
        seen.add(node[KEY].lower())
        if len(out) > MAX_ANNOTATED:
            return f"more than {MAX_ANNOTATED} properties have an {KEY}"
    return out


def _fault(path: tuple[str, ...] | None, node: Mapping[str, Any], seen: set[str]) -> str | None:
    """Why one annotation is invalid; None if it is valid."""
    name = node[KEY]
    if not path:
        return f"an {KEY} is not on a property, or cannot be reached through properties alone"
    if not isinstance(name, str) or not _token.fullmatch(name):
        return f"an {KEY} is not a valid header name"
    if not isinstance(node.get("type"), str) or node["type"] not in _TYPES:
        return f"the {KEY} {name!r} is on a property that is not a string, integer or boolean"
    return f"the {KEY} {name!r} is used twice" if name.lower() in seen else None


def _positions(root: Any, budget: Budget) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every position of a schema inside a schema, with its path if only ``properties`` lead there, else None.

    The last position is the one at which the budget is exhausted.
    """
    todo: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while todo:
        path, node = todo.pop()
        budget.places -= 1 + (len(node) if isinstance(node, (list, dict)) else 0)
        if budget.places < 0:
            yield None, {}
            return
        if isinstance(node, list):
            todo += ((None, inner) for inner in node)
        if not isinstance(node, dict):
            continue
        yield path, node
        for word, value in node.items():
            if word == "properties" and isinstance(value, dict):
                todo += ((None if path is None else (*path, name), inner) for name, inner in value.items())
            elif word in _MAPS and isinstance(value, dict):
                todo += ((None, inner) for inner in value.values())
            elif word not in _DATA:
                todo.append((None, value))


def param_headers(wanted: Annotations, arguments: bytes | None) -> dict[str, str]:
    """The headers that mirror a call's arguments. Raises Malformed if it has two readings.

    Absent and null arguments, objects and lists have no header.
    """
    out = {}
    for path, name in wanted.items():
        text = _rendered(rawjson.lookup(arguments, *path))
        if text is not None:
            out[PREFIX + name] = encode(text)
    return out


def _rendered(raw: bytes | None) -> str | None:
    """An argument as text: strings unchanged, numbers in decimal, booleans in lower case (R72)."""
    if raw is None:
        return None
    if raw[:1] == b'"':
        return rawjson.string(raw)
    if raw in {b"true", b"false"}:
        return raw.decode()
    return _decimal(raw.decode()) if _number.match(raw) else None


def _decimal(text: str) -> str:
    """A whole number as digits, whatever its spelling; any other number unchanged, for the server to judge."""
    value = float(text)
    return str(int(value)) if math.isfinite(value) and value.is_integer() and abs(value) <= MAX_SAFE else text


def check_params(given: Iterable[tuple[bytes, bytes]], wanted: Annotations, arguments: bytes | None) -> str | None:
    """Why the ``Mcp-Param`` headers of a tools/call do not match its arguments (R73, R74); None if they do.

    Headers are as in ASGI. Those that the tool does not name are ignored. Numbers are compared as numbers.
    """
    found = headers_by_name(given)
    for path, name in wanted.items():
        values = found.get((PREFIX + name).lower(), [])
        try:
            raw = rawjson.lookup(arguments, *path)
        except Malformed as problem:
            return problem.fault
        expected = _rendered(raw)
        if len(values) > 1:
            return f"the header {PREFIX}{name} appears {len(values)} times"
        if expected is None or not values:
            if values or expected is not None:
                missing = "present, but its argument is missing" if values else "missing"
                return f"the header {PREFIX}{name} is {missing}"
            continue
        text = decode(values[0])
        if text is None:
            return f"the header {PREFIX}{name} cannot be decoded"
        if text != expected and not (raw is not None and _number.match(raw) and _as_number(text) == expected):
            return f"the header {PREFIX}{name} does not match the body"
    return None


def _as_number(text: str) -> str | None:
    return _decimal(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text) else None


class ToolList(msgspec.Struct, frozen=True):
    """A tools/list result without the tools whose annotations are invalid."""

    result: bytes
    tools: Mapping[str, Annotations]
    """The annotations of each remaining tool, by name; empty for most."""
    dropped: Mapping[str, str]
    """Why a tool was dropped, by name."""
    cursor: bytes | None
    """``nextCursor`` as raw JSON; None on the last page."""


def size(name: str, wanted: Annotations) -> int:
    """Bytes counted for a tool's annotations while they are cached."""
    return ENTRY + 4 * len(name) + sum(ENTRY + len(header) + 4 * sum(map(len, path)) for path, header in wanted.items())


def read_tool_list(result: bytes) -> ToolList:
    """Parse the raw ``result`` of a tools/list. All that remains is byte for byte the same.

    Raises Malformed if it has two readings.
    """
    found = rawjson.fields(result) if result[:1] == b"{" else {}
    cursor = bytes(found["nextCursor"]) if "nextCursor" in found else None
    tools: dict[str, Annotations] = {}
    dropped: dict[str, str] = {}
    kept: list[bytes] = []
    budget = Budget()
    listing = found.get("tools")
    for tool in (
        () if listing is None or bytes(memoryview(listing)[:1]) != b"[" else rawjson.elements(listing, MAX_TOOLS)
    ):
        name = rawjson.string(rawjson.lookup(tool, "name"))
        wanted = annotations_of(tool, budget)
        if isinstance(wanted, str):
            dropped[name or ""] = wanted
            continue
        kept.append(tool)
        if name is not None:
            tools[name] = wanted
    if dropped:
        result = rawjson.splice(result, ("tools",), b"[" + b",".join(kept) + b"]")
    return ToolList(result, tools, dropped, cursor if cursor != b"null" else None)
