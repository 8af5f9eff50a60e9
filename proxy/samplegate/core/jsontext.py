"""The text of one JSON object, read and changed where it stands: its members, with no second reading; one of them replaced, the rest untouched.

Not a decoder: values stay the bytes they are. Strict where two parsers could see two objects (twin members), tolerant of what real programs
write and most read (T17).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
"""The members of JSON-RPC: nobody spells these with escapes but to hide them."""
MAX_TOLERATED: Final = 16 * 1024 * 1024  # bytes of a text that is read twice because it is not quite JSON
MAX_MEMBERS: Final = 10_000  # of an object that has to be walked member by member; real envelopes and params have a dozen
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT: Final = msgspec.json.Decoder(str)
_key: Final = re.compile(rb'[ \t\r\n]*"((?:[^"\\]++|\\.)*+)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_after: Final = re.compile(rb"[ \t\r\n]*([,}])")
_open: Final = re.compile(rb"[ \t\r\n]*\{")


class Malformed(ValueError):
    """The bytes are not one JSON object with one reading. The message names the fault, never the content."""

    def __init__(self, fault: str, id: str | int | None = None, *, answers: bool = False) -> None:
        super().__init__(fault)
        self.fault = fault
        self.id = id
        """The id, where the envelope still shows one: whoever waits for it can be told."""
        self.answers = answers
        """True if the frame has no method: it would have been an answer to ``id``."""


class Member(NamedTuple):
    """Where one member's value stands in the text of its object: ``text[start:end]``."""

    start: int
    end: int


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of one JSON object, each as raw JSON. Raises Malformed for a twin, an escaped envelope name, or no object."""
    found = decode(text)
    if found is not None and _plain(text, found):
        return found
    text = bytes(text)
    if found is None:
        return {name: msgspec.Raw(text[m.start : m.end]) for name, m in _scan(text).items()}
    _walk(text, found)
    return found


def decode(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """The members as msgspec reads them, of twins the last; None if it will not have the text but a tolerant reader may (a lone surrogate)."""
    try:
        return _members.decode(text)
    except msgspec.ValidationError:
        raise Malformed("it is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise Malformed("it nests too deep") from None


def _plain(text: bytes | msgspec.Raw, found: Mapping[str, msgspec.Raw]) -> bool:
    """True if the members and the least punctuation make up the whole text: then no member stands twice and no name has an escape.

    Each twin, space or escape would make the text longer than that (an escape is longer than what it stands for).
    """
    return 1 + 4 * len(found) + sum(map(len, found)) + sum(map(len, found.values())) == len(text) and bool(found)


def members(text: bytes) -> dict[str, Member]:
    """Where each member of one JSON object stands. Raises Malformed as ``fields``."""
    found = decode(text)
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
    found = decode(whole) if whole != text else None
    if found is None:
        whole = _constant.sub(_numbered, whole)
        found = decode(whole)
    if found is None:
        raise Malformed("it is not JSON")
    if any("\ufffd" in name for name in found):
        raise Malformed("a member's name is not Unicode text")
    return _walk(whole, found)


_surrogate: Final = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_constant: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|(?<![\w.+])(NaN|Infinity)(?![\w.+-])', re.DOTALL)


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
        return TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def dump(value: object) -> bytes:
    """Any plain value as compact JSON."""
    return msgspec.json.encode(value)
