"""Pure. JSON-RPC frames: the bytes on the wire, and an envelope that is read without parsing its payload.

A payload (``params``, ``result``, ``error``) stays raw JSON until it is needed; MCP itself is not validated here.
Reading is strict if two parsers could see two messages (duplicate members, ids of a wrong type), because the peer's
parser is not ours (T17).

The module also lists the protocol revisions and their features. The peers negotiate the revision; the gate only
observes.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, TypedDict

import msgspec

from samplegate.protocol import rawjson, strictjson
from samplegate.protocol.rawjson import ENVELOPE, Malformed, dump

Era: TypeAlias = Literal["legacy", "modern"]
Protocol: TypeAlias = Literal["auto", "legacy", "modern"]
"""The protocol version that the gate uses with a server, as in the settings; ``auto`` detects it."""

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = ("2026-07-28",)

CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The client requests during which a server may ask (R59; R26 for the legacy era)."""

META: Final = "_meta"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
UI_EXTENSION: Final = "io.modelcontextprotocol/ui"


def era_of(revision: str) -> Era:
    """The era of a revision. An unknown revision is classified by its date: from 2026-07-28 on, it is modern."""
    return "legacy" if revision < MODERN[0] else "modern"


def has_batches(revision: str) -> bool:
    """Whether a revision has batches: required in 2025-03-26 (R92), allowed in 2024-11-05 through JSON-RPC itself."""
    return revision <= "2025-03-26"


def has_elicitation(revision: str) -> bool:
    """Whether a revision has elicitation: from 2025-06-18 on (R29)."""
    return revision >= "2025-06-18"


def has_modes(revision: str) -> bool:
    """Whether a revision has modes: from 2025-11-25 on (R6, R114).

    That covers sub-capabilities (``sampling.tools``, ``elicitation.url``), tool blocks and arrays of content.
    """
    return revision >= "2025-11-25"


FrameId: TypeAlias = str | int
Kind: TypeAlias = Literal["request", "notification", "result", "error"]

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_ELEMENTS: Final = 20_000  # of a batch; if a batch is too long to be served, its first elements are answered
MAX_META: Final = 1024 * 1024  # bytes; the members that the protocol defines are a few hundred
MAX_METHOD_BYTES: Final = 1024
MAX_ID_BYTES: Final = 1024  # ids are kept in tables and logs; real ones are a few digits or a UUID
_head: Final = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?("[^"\\]{0,200}"|-?[0-9]{1,18}), ?"(result|error|method)"')
_first: Final = re.compile(rb'\{"(result|error|method)"')
_last: Final = re.compile(rb',"jsonrpc": ?"2\.0", ?"id": ?("[^"\\]{0,200}"|-?[0-9]{1,18})\}[ \t\r]*\Z')
_TAIL: Final = 300  # bytes: the longest match of ``_last``
_VERSION: Final = msgspec.Raw(b'"2.0"')
_number: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")
_code: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
MAX_CODE: Final = 1 << 53  # beyond it, parsers disagree on a number
MAX_DIGITS: Final = 400  # bytes of a code, which may have any number of digits
_OF_ERRORS: Final = frozenset({"code", "message", "data"})


class Frame(msgspec.Struct, eq=False):
    """A frame with its envelope. ``raw`` is the line without its end; the payload is copied and read on demand."""

    raw: bytes
    kind: Kind
    id: FrameId | None
    method: str
    envelope: rawjson.Object
    code: int | None = None
    """The error code; None for every other frame."""
    _payload: bytes | None = None
    _object: rawjson.Object | None = None
    _meta: rawjson.Object | None = None
    _escapes: tuple[bool, bool] | None = None

    @property
    def _name(self) -> str:
        return self.kind if self.kind in ("result", "error") else "params"

    @property
    def object(self) -> rawjson.Object:
        """The payload as an object; empty if the payload is absent or not an object.

        Raises Malformed if it has two readings.
        """
        found = self._object
        if found is None:
            found = self._object = self.envelope.inner(self._name) or _EMPTY
        return found

    @property
    def members(self) -> dict[str, msgspec.Raw] | None:
        """The members of the payload; None if it is absent or not an object.

        Raises Malformed if it has two readings.
        """
        found = self.object
        return None if found is _EMPTY else found.members

    @property
    def meta(self) -> rawjson.Object:
        """``_meta`` of the payload; empty if it is absent or not an object.

        Raises Malformed if it has two readings, or if it is too large.
        """
        found = self._meta
        if found is None:
            raw = self.object.members.get(META, b"")
            if len(raw) > MAX_META:
                raise Malformed(f"_meta is larger than {MAX_META} bytes")
            found = self._meta = (self.object.inner(META) if raw else None) or _EMPTY
        return found

    def lookup(self, *path: str) -> bytes | None:
        """The raw JSON at ``path`` in the payload; None if it is absent or a parent is not an object.

        Raises Malformed as ``members``.
        """
        return self.object.lookup(*path)

    def changed(self, *, id: FrameId | None = None, payload: rawjson.Object | None = None) -> Frame:
        """The frame with another id or payload. All else stays byte for byte, and nothing is read again."""
        changes = {} if id is None else {"id": dump(id)}
        if payload is not None:
            changes[self._name] = bytes(payload.text)
        envelope = self.envelope.changed(changes)
        out = Frame(bytes(envelope.text), self.kind, self.id if id is None else id, self.method, envelope, self.code)
        out._object = self._object if payload is None else payload
        out._meta = self._meta if payload is None else None
        return out

    def may_contain(self, word: bytes) -> bool:
        """Whether a JSON spelling of ``word`` (plain ASCII) may occur in the frame.

        The check is cheap, and False is certain.
        """
        # `in` would first try to convert the word to a number, which doubles the time for a short text
        if self.raw.find(word) >= 0:
            return True
        escapes = self._escapes
        if escapes is None:  # one byte is searched for ten times faster than two, and most large texts have no escape
            if _BACKSLASH not in self.raw:
                escapes = _NO_ESCAPES
            elif len(self.raw) > _SEARCHED:
                escapes = (True, True)
            else:
                escapes = b"\\u" in self.raw, b"\\/" in self.raw
            self._escapes = escapes
        return escapes is not _NO_ESCAPES and (escapes[0] or (escapes[1] and b"/" in word))

    @property
    def payload(self) -> bytes | None:
        """``params`` of a request or notification, ``result`` or ``error`` of an answer, raw; None if absent."""
        if self._payload is None:
            self._payload = self.envelope.raw(self._name)
        return self._payload


_EMPTY: Final = rawjson.Object(b"{}", {})
_NO_ESCAPES: Final = (False, False)
_BACKSLASH: Final = ord("\\")
_ZERO: Final = ord("0")
# bytes of a frame; in a longer one, searching for each kind of escape costs more than parsing
_SEARCHED: Final = 1024 * 1024


def read(line: bytes) -> Frame:
    """Read one frame. Raises Malformed if the envelope is not JSON-RPC 2.0 or has two readings."""
    try:
        envelope = rawjson.read(line)
    except Malformed as problem:
        raise Malformed(problem.fault, **owner_of(line)) from None
    found = envelope.members.keys()
    if not found <= ENVELOPE:
        for name in found - ENVELOPE:
            if strictjson.resembles(name, ENVELOPE):
                raise Malformed(f"{name[:20]!r} in the envelope resembles a JSON-RPC member", **owner_of(line))
    return _frame(line, envelope)


def of(line: bytes | Frame) -> Frame:
    """The frame of a line, read if necessary. Raises Malformed as ``read``."""
    return line if isinstance(line, Frame) else read(line)


class StreamOwner(TypedDict, total=False):
    id: FrameId | None
    answers: bool


def owner_of(line: bytes) -> StreamOwner:
    """The id in a refused line, and whether the line answers it, as far as can be seen. ``line`` may be cut short."""
    try:
        found = rawjson.decode(line)
    except Malformed:
        found = None
    if found is None:  # the id is first with most writers, last with some (the TypeScript SDK)
        head = _head.match(line)
        if head is not None:
            return {"id": plain_id(head[1]), "answers": head[2] != b"method"}
        first, last = _first.match(line), _last.search(line, max(0, len(line) - _TAIL))
        return {} if first is None or last is None else {"id": plain_id(last[1]), "answers": first[1] != b"method"}
    raw = found.get("id")
    return {"id": None if raw is None else plain_id(bytes(raw)), "answers": "method" not in found}


def _frame(line: bytes, envelope: rawjson.Object) -> Frame:
    found = envelope.members
    method = found.get("method")
    raw_id = found.get("id")
    id = None if raw_id is None else _id(bytes(raw_id), answers=method is None)
    version = found.get("jsonrpc")
    if version != _VERSION:
        raise Malformed("jsonrpc is not '2.0'", id, answers=method is None)
    if method is None:
        return _answer(line, envelope, id)
    if "result" in found or "error" in found:
        raise Malformed("both a request and a response", id)
    if len(method) > MAX_METHOD_BYTES:
        raise Malformed(f"method is longer than {MAX_METHOD_BYTES} bytes", id)
    try:
        name = rawjson.TEXT.decode(method)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Malformed("method is not a string", id) from None
    if "\0" in name:  # where parsers in C end the string
        raise Malformed("method contains a NUL character", id)
    return Frame(line, "notification" if raw_id is None else "request", id, name, envelope)


def _answer(line: bytes, envelope: rawjson.Object, id: FrameId | None) -> Frame:
    found = envelope.members
    if ("result" in found) == ("error" in found):
        raise Malformed("neither a request nor a valid response", id, answers=True)
    kind: Kind = "result" if "result" in found else "error"
    if id is None and kind == "result":
        raise Malformed("result without an id", answers=True)
    out = Frame(line, kind, id, "", envelope)
    if kind == "error":
        out.code = _code_of(out)
    return out


def _code_of(f: Frame) -> int:
    """The code of an error: a JSON number without a fraction, in any spelling.

    Others are refused, because parsers that convert them disagree on the code.
    """
    try:
        found = f.object.members
        twin = strictjson.second_reading(found, _OF_ERRORS)
    except Malformed as problem:
        raise Malformed(f"error: {problem.fault}", f.id, answers=True) from None
    if twin is not None:
        raise Malformed(f"{twin[:20]!r} in error resembles a JSON-RPC member", f.id, answers=True)
    code = bytes(found.get("code", b""))
    number = float(code) if len(code) <= MAX_DIGITS and _code.fullmatch(code) else 0.5
    if not number.is_integer() or abs(number) > MAX_CODE:
        raise Malformed("error code is not an integer", f.id, answers=True)
    return int(number)


def _id(raw: bytes, *, answers: bool) -> FrameId | None:
    """The id as a string or whole number (R57). An answer may contain ``null``, or 1.0 for 1, as some servers write."""
    if len(raw) > MAX_ID_BYTES:
        raise Malformed(f"id is longer than {MAX_ID_BYTES} bytes", answers=answers)
    if (raw.isdigit() and raw[0] != _ZERO) or _number.match(raw):
        return int(raw)
    if raw[:1] == b'"':
        try:
            return rawjson.TEXT.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Malformed("id is not valid UTF-8", answers=answers) from None
    if answers and raw == b"null":
        return None
    if answers and re.fullmatch(rb"-?[0-9]{1,15}\.0+", raw):
        return int(raw.partition(b".")[0])
    raise Malformed("id is neither a string nor an integer", answers=answers)


def plain_id(raw: bytes | None) -> FrameId | None:
    """A raw JSON id as a string or whole number; None for anything else or if absent (R57)."""
    try:
        return None if raw is None else _id(raw, answers=False)
    except Malformed:
        return None


def is_batch(line: bytes) -> bool:
    """Whether the line begins as an array."""
    return line[:64].lstrip(b" \t\r\n")[:1] == b"["


def batch(line: bytes) -> list[bytes]:
    """The elements of a 2025-03-26 batch (R92), at most ``MAX_ELEMENTS``. Raises Malformed."""
    if len(line) > MAX_BATCH_BYTES:
        raise Malformed(f"the batch is larger than {MAX_BATCH_BYTES} bytes")
    return rawjson.elements(line, MAX_ELEMENTS)


def request(id: FrameId, method: str, params: bytes | None) -> bytes:
    """A request of our own."""
    tail = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":' + dump(id) + b',"method":' + dump(method) + tail + b"}"


def notification(method: str, params: bytes) -> bytes:
    """A notification of our own."""
    return b'{"jsonrpc":"2.0","method":' + dump(method) + b',"params":' + params + b"}"


def result(id: FrameId, payload: bytes) -> bytes:
    """A result of our own."""
    return b'{"jsonrpc":"2.0","id":' + dump(id) + b',"result":' + payload + b"}"


def error(id: FrameId | None, code: int, message: str, data: bytes | None = None) -> bytes:
    """An error of our own (R56: codes below -32000 only as the specification names them)."""
    tail = b"" if data is None else b',"data":' + data
    return (
        b'{"jsonrpc":"2.0","id":'
        + dump(id)
        + b',"error":{"code":'
        + dump(code)
        + b',"message":'
        + dump(message)
        + tail
        + b"}}"
    )
