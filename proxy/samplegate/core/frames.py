"""One JSON-RPC frame: the bytes as they stand on the wire, and an envelope read without touching what it carries.

Not a validator of MCP: a payload (``params``, ``result``, ``error``) stays raw JSON until somebody needs it. Reading is strict where two
parsers could see two messages (twin members, ids of a wrong type), because the peer's parser is not ours (T17).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

FrameId: TypeAlias = str | int
Kind: TypeAlias = Literal["request", "notification", "result", "error"]

ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
MAX_TOLERATED: Final = 16 * 1024 * 1024  # bytes of a text that is read twice because it is not quite JSON
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024  # an element can be two bytes long, and each becomes an object here
MAX_MEMBERS: Final = 10_000  # of an object that has to be walked member by member; real envelopes and params have a dozen
MAX_ID_BYTES: Final = 1024  # ids are kept in tables and logs; real ones are a few digits or a UUID

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_key: Final = re.compile(rb'[ \t\r\n]*"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_after: Final = re.compile(rb"[ \t\r\n]*([,}])")
_open: Final = re.compile(rb"[ \t\r\n]*\{")
_head: Final = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?("[^"\\]{0,200}"|-?[0-9]{1,18}), ?"(result|error|method)"')
_number: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")


class Malformed(ValueError):
    """The bytes are not one JSON object with one reading. The message names the fault, never the content."""

    def __init__(self, fault: str, id: FrameId | None = None, *, answers: bool = False) -> None:
        super().__init__(fault)
        self.fault = fault
        self.id = id
        """The id, where the envelope still shows one: whoever waits for it can be told."""
        self.answers = answers
        """True if the frame has no method: it would have been an answer to ``id``."""


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
    def payload(self) -> bytes | None:
        """``params`` of a request or notification, ``result`` of a result, ``error`` of an error, as raw JSON; None if absent."""
        if self._payload is not None and type(self._payload) is not bytes:
            self._payload = bytes(self._payload)
        return self._payload


class Member(NamedTuple):
    """Where one member's value stands in the text of its object: ``text[start:end]``."""

    start: int
    end: int


def read(line: bytes) -> Frame:
    """Read one frame. Raises Malformed where the envelope is not JSON-RPC 2.0 or could be read in two ways."""
    try:
        found = fields(line)
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
        found = _decode(line)
    except Malformed:
        found = None
    if found is None:  # most writers put the id before what may be wrong
        head = _head.match(line)
        return {} if head is None else {"id": plain_id(head[1]), "answers": head[2] != b"method"}
    raw = found.get("id")
    return {"id": None if raw is None else plain_id(bytes(raw)), "answers": "method" not in found}


def fields(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of one JSON object, each as raw JSON. Raises Malformed for a twin, an escaped envelope name, or no object."""
    found = _decode(text)
    if found is None:
        return {name: msgspec.Raw(text[m.start : m.end]) for name, m in _scan(text).items()}
    if not _plain(text, found):
        _walk(text, found)
    return found


def _decode(text: bytes) -> dict[str, msgspec.Raw] | None:
    """The members as msgspec reads them, of twins the last; None if it will not have the text but a tolerant reader may (a lone surrogate)."""
    try:
        return _members.decode(text)
    except msgspec.ValidationError:
        raise Malformed("it is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise Malformed("it nests too deep") from None


def _plain(text: bytes, found: Mapping[str, msgspec.Raw]) -> bool:
    """True if the members and the least punctuation make up the whole text: then no member stands twice and no name has an escape.

    Each twin, space or escape would make the text longer than that (an escape is longer than what it stands for).
    """
    return 1 + 4 * len(found) + sum(map(len, found)) + sum(map(len, found.values())) == len(text) and bool(found)


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
        name = _text.decode(method)
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
            return _text.decode(raw)
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


def members(text: bytes) -> dict[str, Member]:
    """Where each member of one JSON object stands. Raises Malformed as ``fields``."""
    found = _decode(text)
    if found is None:
        return _scan(text)
    if not _plain(text, found):
        return _walk(text, found)
    out: dict[str, Member] = {}
    at = 1
    for name, value in found.items():
        start = at + len(name) + 3
        at = start + len(value) + 1
        out[name] = Member(start, at - 1)
    return out


def _walk(text: bytes, found: Mapping[str, msgspec.Raw]) -> dict[str, Member]:
    """msgspec says how long the last value of each name is: walking the text and comparing finds every earlier twin, with no second parser."""
    if len(found) > MAX_MEMBERS:
        raise Malformed(f"an object of it has more than {MAX_MEMBERS} members and spaces between them")
    at = _skip_open(text)
    out: dict[str, Member] = {}
    for _ in found:
        name, start = _name(text, at, out)
        end = start + len(found[name])
        after = _after.match(text, end) if text[start:end] == bytes(found[name]) else None
        if after is None:
            raise Malformed(f"member {name[:40]!r} stands twice")
        out[name] = Member(start, end)
        at = after.end()
        if after[1] == b"}":
            break
    else:
        if found:  # every name has been seen once, yet a comma follows the last
            raise Malformed("a member stands twice")
    return out


def _skip_open(text: bytes) -> int:
    opened = _open.match(text)
    if opened is None:
        raise Malformed("it is not a JSON object")
    return opened.end()


def _name(text: bytes, at: int, seen: Mapping[str, Member]) -> tuple[str, int]:
    key = _key.match(text, at)
    if key is None:
        raise Malformed("it is not a JSON object")
    name = key[1].decode() if b"\\" not in key[1] else _unescaped(key[1])
    if name in seen:
        raise Malformed(f"member {name[:40]!r} stands twice")
    if b"\\" in key[1] and name.casefold() in ENVELOPE:
        raise Malformed(f"its member {name!r} is spelled with escapes")
    return name, key.end()


def _unescaped(name: bytes) -> str:
    try:
        return str(json.loads(b'"' + name + b'"'))
    except ValueError:
        raise Malformed("it is not JSON") from None


def _scan(text: bytes) -> dict[str, Member]:
    """As members, for text that msgspec refuses and many writers and readers do not: halves of characters in strings (truncated
    emoji are common), NaN and Infinity (Python writes them).

    Each is read as something that takes as many bytes, so that all places stay what they are. What passes passes as it came;
    a request that is decided is read strictly (``parse.py``).
    """
    if len(text) > MAX_TOLERATED:
        raise Malformed("it is not JSON")
    whole = _surrogate.sub(_replaced, text)
    found = _decode(whole) if whole != text else None
    if found is None:
        whole = _constant.sub(_numbered, whole)
        found = _decode(whole)
    if found is None:
        raise Malformed("it is not JSON")
    if any("\ufffd" in name for name in found):
        raise Malformed("a member's name is not Unicode text")
    return _walk(whole, found)


_surrogate: Final = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_constant: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|(NaN|Infinity)', re.DOTALL)


def _replaced(found: re.Match[bytes]) -> bytes:
    return found[0] if found[1] is None else b"\\ufffd"


def _numbered(found: re.Match[bytes]) -> bytes:
    return found[0] if found[1] is None else b"1.".ljust(len(found[1]), b"0")


def splice(text: bytes, path: tuple[str, ...], value: bytes | None) -> bytes:
    """``text`` with the member at ``path`` set to ``value``, or removed for None; everything else stays byte for byte.

    Missing objects on the way are made; a value on the way that is no object is replaced. Raises Malformed for a twin on the way.
    """
    name, rest = path[0], path[1:]
    at = members(text)
    here = at.get(name)
    if rest:
        inner = text[here.start : here.end] if here is not None else b"{}"
        if inner[:1] != b"{":
            inner = b"{}"
        if value is None and here is None:
            return text
        value = splice(inner, rest, value)
    if here is not None and value is not None:
        return text[: here.start] + value + text[here.end :]
    if here is not None:
        return _removed(text, name, at)
    if value is None:
        return text
    close = text.rindex(b"}")
    return text[:close].rstrip(b" \t\r\n") + (b"," if at else b"") + msgspec.json.encode(name) + b":" + value + text[close:]


def _removed(text: bytes, name: str, at: Mapping[str, Member]) -> bytes:
    names = list(at)
    index = names.index(name)
    end = at[name].end
    if index:
        return text[: at[names[index - 1]].end] + text[end:]
    start = _skip_open(text)
    after = _after.match(text, end)
    if after is not None and after[1] == b",":
        end = after.end()
    return text[:start] + text[end:]


def lookup(text: bytes | None, *path: str) -> bytes | None:
    """The raw JSON at ``path`` in an object, None where it is absent or something on the way is no object. Raises Malformed for a twin."""
    for name in path:
        if text is None or text[:1] != b"{":
            return None
        here = fields(text).get(name)
        text = None if here is None else bytes(here)
    return text


def string(raw: bytes | None) -> str | None:
    """The text of a raw JSON string, None if it is none."""
    if raw is None or raw[:1] != b'"':
        return None
    try:
        return _text.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


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


def dump(value: object) -> bytes:
    """Any plain value as compact JSON."""
    return msgspec.json.encode(value)
