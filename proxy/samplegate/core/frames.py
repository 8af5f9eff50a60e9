"""One JSON-RPC frame: the bytes as they stand on the wire, and an envelope read without touching what it carries.

Not a validator of MCP: a payload (``params``, ``result``, ``error``) stays raw JSON until somebody needs it. Reading is strict where two
parsers could see two messages (twin members, ids of a wrong type), because the peer's parser is not ours (T17).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, TypedDict

import msgspec

from samplegate.core import jsontext
from samplegate.core.jsontext import ENVELOPE, Malformed, dump

FrameId: TypeAlias = str | int
Kind: TypeAlias = Literal["request", "notification", "result", "error"]

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024  # an element can be two bytes long, and each becomes an object here
MAX_ID_BYTES: Final = 1024  # ids are kept in tables and logs; real ones are a few digits or a UUID
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_head: Final = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?("[^"\\]{0,200}"|-?[0-9]{1,18}), ?"(result|error|method)"')
_first: Final = re.compile(rb'\{"(result|error|method)"')
_last: Final = re.compile(rb',"jsonrpc": ?"2\.0", ?"id": ?("[^"\\]{0,200}"|-?[0-9]{1,18})\}[ \t\r]*\Z')
_TAIL: Final = 300  # bytes: the longest of these
_number: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")


class Frame:
    """A frame with its envelope. ``raw`` is what came, without the line end; a payload is copied out of it only when asked for."""

    __slots__ = ("_payload", "id", "kind", "method", "raw")

    def __init__(self, raw: bytes, kind: Kind, id: FrameId | None, method: str, payload: msgspec.Raw | bytes | None) -> None:
        self.raw = raw
        self.kind = kind
        self.id = id
        self.method = method
        self._payload = payload

    @property
    def members(self) -> dict[str, msgspec.Raw] | None:
        """The members of the payload, read without a copy of it; None if it is absent or no object. Raises Malformed for two readings."""
        raw = self._payload
        return None if raw is None or bytes(memoryview(raw)[:1]) != b"{" else jsontext.fields(raw)

    @property
    def payload(self) -> bytes | None:
        """``params`` of a request or notification, ``result`` of a result, ``error`` of an error, as raw JSON; None if absent."""
        if self._payload is not None and type(self._payload) is not bytes:
            self._payload = bytes(self._payload)
        return self._payload


def read(line: bytes) -> Frame:
    """Read one frame. Raises Malformed where the envelope is not JSON-RPC 2.0 or could be read in two ways."""
    try:
        found = jsontext.fields(line)
    except Malformed as problem:
        raise Malformed(problem.fault, **whose(line)) from None
    if not found.keys() <= ENVELOPE:
        for name in found.keys() - ENVELOPE:
            if name.casefold() in ENVELOPE:
                raise Malformed(f"its envelope has {name[:20]!r}, which resembles a member of JSON-RPC", **whose(line))
    return _frame(line, found)


class Whose(TypedDict, total=False):
    id: FrameId | None
    answers: bool


def whose(line: bytes) -> Whose:
    """Whom a line that is not taken may leave waiting, as far as it tells. ``line`` may be cut short."""
    try:
        found = jsontext.decode(line)
    except Malformed:
        found = None
    if found is None:  # the id stands first with most writers, last with some (the TypeScript SDK)
        head = _head.match(line)
        if head is not None:
            return {"id": plain_id(head[1]), "answers": head[2] != b"method"}
        first, last = _first.match(line), _last.search(line, max(0, len(line) - _TAIL))
        return {} if first is None or last is None else {"id": plain_id(last[1]), "answers": first[1] != b"method"}
    raw = found.get("id")
    return {"id": None if raw is None else plain_id(bytes(raw)), "answers": "method" not in found}


def _frame(line: bytes, found: Mapping[str, msgspec.Raw]) -> Frame:
    method = found.get("method")
    raw_id = found.get("id")
    id = None if raw_id is None else _id(bytes(raw_id), answers=method is None)
    version = found.get("jsonrpc")
    if version is None or bytes(version) != b'"2.0"':
        raise Malformed("its jsonrpc member is not '2.0'", id, answers=method is None)
    if method is None:
        return _answer(line, found, id)
    if "result" in found or "error" in found:
        raise Malformed("it is both a request and an answer", id)
    try:
        name = jsontext.TEXT.decode(method)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Malformed("its method is not a string", id) from None
    return Frame(line, "notification" if raw_id is None else "request", id, name, found.get("params"))


def _answer(line: bytes, found: Mapping[str, msgspec.Raw], id: FrameId | None) -> Frame:
    if ("result" in found) == ("error" in found):
        raise Malformed("it is neither a request nor one answer", id, answers=True)
    kind: Kind = "result" if "result" in found else "error"
    if id is None and kind == "result":
        raise Malformed("it is a result without an id", answers=True)
    return Frame(line, kind, id, "", found[kind])


def _id(raw: bytes, *, answers: bool) -> FrameId | None:
    """The id as a string or whole number (R57). An answer may say ``null``, or 1.0 for 1: some servers do."""
    if len(raw) > MAX_ID_BYTES:
        raise Malformed(f"its id is longer than {MAX_ID_BYTES} bytes", answers=answers)
    if raw[:1] == b'"':
        try:
            return jsontext.TEXT.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Malformed("its id is not UTF-8 text", answers=answers) from None
    if _number.match(raw):
        return int(raw)
    if answers and raw == b"null":
        return None
    if answers and re.fullmatch(rb"-?[0-9]{1,15}\.0+", raw):
        return int(raw.partition(b".")[0])
    raise Malformed("its id is neither a string nor a whole number", answers=answers)


def plain_id(raw: bytes) -> FrameId | None:
    """A raw JSON id as a string or whole number, None for anything else (R57)."""
    try:
        return _id(raw, answers=False)
    except Malformed:
        return None


def is_batch(line: bytes) -> bool:
    """Whether the line begins as an array."""
    return line[:64].lstrip(b" \t\r\n")[:1] == b"["


def batch(line: bytes) -> list[bytes]:
    """The elements of a 2025-03-26 batch (R92). Raises Malformed."""
    if len(line) > MAX_BATCH_BYTES:
        raise Malformed(f"it is a batch of more than {MAX_BATCH_BYTES} bytes")
    try:
        return [bytes(raw) for raw in _elements.decode(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Malformed("it is not a JSON array") from None


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
    return b'{"jsonrpc":"2.0","id":' + dump(id) + b',"error":{"code":' + dump(code) + b',"message":' + dump(message) + tail + b"}}"
