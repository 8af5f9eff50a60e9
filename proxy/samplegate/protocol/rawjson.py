"""Pure. Raw JSON objects: their members with a single reading, and splices that leave all other bytes unchanged.

Values are not decoded. Reading is strict if two parsers could see two objects (duplicate members). It tolerates
deviations that real programs write and most read (T17).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
"""The members of JSON-RPC. Only a program that hides them spells them with escapes."""
MAX_TOLERATED: Final = 8 * 1024 * 1024  # bytes of a text that is read twice because it is not quite JSON
MAX_NUMBERS: Final = 500_000  # each of NaN, Infinity and -Infinity in one text that is read twice
MAX_MEMBERS: Final = 10_000  # of one object; real envelopes and params have a dozen, and each costs half a microsecond
MAX_NAMES: Final = 256 * 1024  # characters of all names of one object
_SHORT: Final = 16 * 1024  # bytes of a text that is too short for too many members, and so is read in one call
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT: Final = msgspec.json.Decoder(str)
_key: Final = re.compile(rb'[ \t\r\n]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_after: Final = re.compile(rb"[ \t\r\n]*([,}])")
_BRACE: Final = ord("{")
_open: Final = re.compile(rb"[ \t\r\n]*\{")

NOT_JSON: Final = "not valid JSON"
"""The fault of a line that cannot be parsed, such as a banner on stdout."""


class Malformed(ValueError):
    """The bytes are not one JSON object with one reading. The message names the problem, never the content."""

    def __init__(self, fault: str, id: str | int | None = None, *, answers: bool = False) -> None:
        super().__init__(fault)
        self.fault = fault
        self.id = id
        """The id, if the envelope still shows one, so that a waiting peer gets an error."""
        self.answers = answers
        """True if the frame has no method, and so was an answer to ``id``."""


class Member(NamedTuple):
    """The position of one member's value in the text of its object: ``text[start:end]``."""

    start: int
    end: int


class Object(msgspec.Struct, eq=False):
    """One JSON object, read once. Later lookups and changes need no second reading."""

    text: bytes | msgspec.Raw
    members: dict[str, msgspec.Raw]
    """Each member as on the wire, in the order of the text."""
    clean: dict[str, msgspec.Raw] | None = None
    """The members as ``_cleaned`` leaves them; None if the text is JSON."""
    is_plain: bool = False
    """Whether the text consists only of its members and the minimal punctuation between them."""
    _at: dict[str, Member] | None = None
    _inner: dict[str, Object] | None = None

    def raw(self, name: str) -> bytes | None:
        """One member's raw JSON; None if it is absent."""
        found = self.members.get(name)
        return None if found is None else bytes(found)

    def inner(self, name: str) -> Object | None:
        """The object in a member; None if the member is absent or not an object. Raises Malformed as ``read``."""
        known = self._inner
        if known is not None and name in known:
            return known[name]
        found = self.members.get(name)
        if found is None or memoryview(found)[0] != _BRACE:
            return None
        inner = read(found, None if self.clean is None else self.clean[name])
        if known is None:
            self._inner = {name: inner}
        else:
            known[name] = inner
        return inner

    def lookup(self, *path: str) -> bytes | None:
        """The raw JSON at ``path``; None if it is absent or a parent is not an object. Raises Malformed as ``read``."""
        here: Object | None = self
        for name in path[:-1]:
            here = None if here is None else here.inner(name)
        return None if here is None else here.raw(path[-1])

    @property
    def at(self) -> dict[str, Member]:
        """The position of each member."""
        if self._at is None:
            self._at = _places(self.members) if self.is_plain else _walk(bytes(self.text), self.members.values())
        return self._at

    def splice(self, path: tuple[str, ...], value: bytes | None) -> bytes:
        """The text with one member replaced, as in the function ``splice``."""
        name, rest = path[0], path[1:]
        if rest:
            if value is None and name not in self.members:
                return bytes(self.text)
            value = (self.inner(name) or Object(b"{}", {})).splice(rest, value)
        return bytes(self.changed({name: value}).text)

    def changed(self, changes: Mapping[str, bytes | None]) -> Object:
        """The object with members set, or removed for None; everything else stays byte for byte."""
        replaced = (
            {name: value for name, value in changes.items() if value is not None and name in self.members}
            if self.is_plain
            else {}
        )
        if len(replaced) == len(changes):
            return self._replaced(replaced)
        text, members, at = bytes(self.text), self.members.copy(), self.at
        clean = None if self.clean is None else self.clean.copy()
        # from the end, so that earlier positions stay valid
        for name in [name for name in reversed(at) if name in changes]:
            value = changes[name]
            if value is None:
                text = _removed(text, name, at)
                del members[name]
                if clean is not None:
                    del clean[name]
            else:
                text = text[: at[name].start] + value + text[at[name].end :]
        for name, value in changes.items():
            if value is None:
                continue
            if name not in members:
                close = text.rindex(b"}")
                text = (
                    text[:close].rstrip(b" \t\r\n")
                    + (b"," if members else b"")
                    + msgspec.json.encode(name)
                    + b":"
                    + value
                    + text[close:]
                )
            members[name] = msgspec.Raw(value)
            if clean is not None:
                clean[name] = msgspec.Raw(_cleaned(value))
        return Object(text, members, clean)

    def _replaced(self, changes: Mapping[str, bytes]) -> Object:
        """As ``changed``, for a plain text in which values only replace others: the lengths give their positions."""
        text, members = bytes(self.text), self.members.copy()
        parts: list[bytes] = []
        done = end = 0
        for name, raw in self.members.items():
            start = end + len(name) + 4
            end = start + len(raw)
            if name in changes:
                value = changes[name]
                parts += text[done:start], value
                members[name] = msgspec.Raw(value)
                done = end
        parts.append(text[done:])
        return Object(b"".join(parts), members, None, True)


def read(text: bytes | msgspec.Raw, clean: msgspec.Raw | None = None) -> Object:
    """The members of one JSON object.

    Raises Malformed for a duplicate, an escaped envelope name, too many members, or a text that is not an object.
    ``clean`` is the replacement of this text if the surrounding text was not quite JSON.
    """
    found = decode(text) if clean is None else None
    # Is there nothing but the members and the minimal punctuation? Then there are no duplicates and no escaped names:
    # each duplicate, space or escape makes the text longer (an escape is longer than its character).
    if found is not None and 1 + 4 * len(found) + sum(map(len, found)) + sum(map(len, found.values())) == len(text):
        return Object(text, found, None, True)
    text = bytes(text)
    values = _values(text if found is not None else _cleaned(text) if clean is None else clean)
    at = _walk(text, values)
    own = Object(text, {name: msgspec.Raw(text[m.start : m.end]) for name, m in at.items()})
    own._at = at  # noqa: SLF001 # ours
    if found is None:
        own.clean = dict(zip(at, values, strict=True))
    return own


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of one JSON object, each as raw JSON. Raises Malformed as ``read``."""
    return read(text).members


def decode(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """The members as msgspec reads them (the last of duplicates).

    None if msgspec refuses the text but a tolerant reader may accept it (a lone surrogate).
    """
    try:
        return dict(_each(text)) if len(text) > _SHORT else _members.decode(text)
    except _TooMany:
        raise Malformed(_TOO_MANY) from None
    except msgspec.ValidationError:
        raise Malformed("not a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    except RecursionError:
        raise Malformed("nested too deeply") from None


class _TooMany(Exception):
    """Ends the reading of an object. It is no ValueError, which msgspec would report as an invalid value."""


_TOO_MANY: Final = f"an object has more than {MAX_MEMBERS} members, or names of more than {MAX_NAMES} characters"


class _Name:
    """Key for one member's name. Each instance is a distinct key, so that no duplicate replaces an earlier member."""


def _each(text: bytes | msgspec.Raw) -> list[tuple[str, msgspec.Raw]]:
    """Every member in order, with duplicates. Raises _TooMany once there are too many, or an error of msgspec."""
    names: list[str] = []
    room = MAX_NAMES

    def named(_: type, name: Any) -> _Name:
        nonlocal room
        room -= len(name)
        if len(names) >= MAX_MEMBERS or room < 0:
            raise _TooMany
        names.append(name)
        return _Name()

    found = msgspec.json.decode(text, type=dict[_Name, msgspec.Raw], dec_hook=named)
    return list(zip(names, found.values(), strict=True))


def members(text: bytes) -> dict[str, Member]:
    """The position of each member of one JSON object. Raises Malformed as ``read``."""
    return read(text).at


def _places(found: Mapping[str, msgspec.Raw]) -> dict[str, Member]:
    """The positions in a plain text."""
    out: dict[str, Member] = {}
    at = 1
    for name, value in found.items():
        start = at + len(name) + 3
        at = start + len(value) + 1
        out[name] = Member(start, at - 1)
    return out


def _walk(text: bytes, values: Iterable[msgspec.Raw]) -> dict[str, Member]:
    """The positions in any text, from one walk and without a second parser.

    msgspec gives the length of each value, in the text itself or in the cleaned one.
    """
    at = _open_end(text)
    out: dict[str, Member] = {}
    last = b"{"
    for value in values:
        key = _key.match(text, at)
        if key is None or last == b"}":
            _no_object()
        name = _named(key[1])
        if name in out:
            raise Malformed(f"duplicate member {name[:40]!r}")
        end = key.end() + len(value)
        after = _after.match(text, end)
        if after is None:
            _no_object()
        out[name] = Member(key.end(), end)
        at, last = after.end(), after[1]
    if out and last != b"}":
        _no_object()
    return out


def _values(clean: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return [value for _, value in _each(clean)]
    except _TooMany:
        raise Malformed(_TOO_MANY) from None
    except msgspec.ValidationError:
        _no_object()
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Malformed(NOT_JSON) from None
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _no_object() -> NoReturn:
    raise Malformed("not a JSON object")


def _open_end(text: bytes) -> int:
    opened = _open.match(text)
    if opened is None:
        _no_object()
    return opened.end()


def _named(raw: bytes) -> str:
    """A member's name. A name of JSON-RPC with escapes is refused.

    In a text that is not quite JSON, a name may not be Unicode text.
    """
    if b"\\" not in raw:
        return raw.decode()
    try:
        name = TEXT.decode(b'"' + raw + b'"')
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Malformed("a member name is not valid Unicode") from None
    if name.casefold() in ENVELOPE:
        raise Malformed(f"member {name!r} is written with escapes")
    return name


_WHOLE: Final = bytes.maketrans(b"dD", b"cC")  # every surrogate half, and each pair, becomes another character
_NUMBERS: Final = ((b"-Infinity", b"[-1.0000]"), (b"Infinity", b"[1.0000]"), (b"NaN", b"[0]"))
"""Numbers that Python writes, with replacements of the same length.

The replacements are lists, because a list fits only where a whole value does.
"""


def _cleaned(text: bytes) -> bytes:
    """The text with replacements for common deviations from JSON that msgspec refuses.

    These are surrogate halves in strings (truncated emoji are common) and NaN and Infinity (Python writes them). The
    result gives only the positions: each value keeps its place but changes. Frames that pass keep their bytes, and a
    request that is decided is read strictly (``requests.py``).

    No Python code runs for each deviation, because a peer chooses how many there are.
    """
    if len(text) > MAX_TOLERATED:
        raise Malformed(NOT_JSON)
    text = text.translate(_WHOLE)
    for found, other in _NUMBERS:
        text = text.replace(found, other, MAX_NUMBERS)
        if found in text:
            raise Malformed(f"contains more than {MAX_NUMBERS} NaN or Infinity values")
    return text


def splice(text: bytes, path: tuple[str, ...], value: bytes | None) -> bytes:
    """``text`` with the member at ``path`` set to ``value``, or removed for None; everything else stays byte for byte.

    Missing parents are created, and a parent that is not an object is replaced. Raises Malformed for a duplicate on the
    way.
    """
    return read(text).splice(path, value)


def _removed(text: bytes, name: str, at: Mapping[str, Member]) -> bytes:
    """The text without one member; all text before it is as ``at`` describes."""
    names = list(at)
    index, end = names.index(name), at[name].end
    if index:
        return text[: at[names[index - 1]].end] + text[end:]
    start = _open_end(text)
    after = _after.match(text, end)
    if after is not None and after[1] == b",":
        end = after.end()
    return text[:start] + text[end:]


def lookup(text: bytes | None, *path: str) -> bytes | None:
    """The raw JSON at ``path`` in an object; None if it is absent or a parent is not an object.

    Raises Malformed for a duplicate.
    """
    for name in path:
        if text is None or text[:1] != b"{":
            return None
        here = fields(text).get(name)
        text = None if here is None else bytes(here)
    return text


def elements(raw: bytes | msgspec.Raw, most: int) -> list[bytes]:
    """The elements of a raw JSON list.

    Raises Malformed for more than ``most`` elements, or for a large list of anything but objects. The time is bounded
    by that of ``most`` elements.
    """
    text = bytes(raw)
    try:
        if text.count(b",") >= most:
            _count(text, most)
        return [bytes(one) for one in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except _TooMany:
        raise Malformed(f"a list has more than {most} elements") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Malformed("a list cannot be parsed") from None


def _count(text: bytes, most: int) -> None:
    """Raises _TooMany for more than ``most`` objects, or an error of msgspec. Builds none of the objects."""
    left = most

    class Element(msgspec.Struct):
        def __post_init__(self) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _TooMany

    msgspec.json.decode(text, type=list[Element])


def string(raw: bytes | None) -> str | None:
    """The text of a raw JSON string; None for anything else."""
    if raw is None or raw[:1] != b'"':
        return None
    try:
        return TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def dump(value: object) -> bytes:
    """Any plain value as compact JSON."""
    return msgspec.json.encode(value)


def object_of(members: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """The text of an object with these members, each value raw."""
    return b"{" + b",".join(dump(name) + b":" + bytes(value) for name, value in members.items()) + b"}"


def cut(text: bytes, names: Set[str]) -> bytes:
    """``text`` without the members of these names. Raises Malformed if it is not an object or has two readings."""
    at = members(text)
    if names.isdisjoint(at):
        return text
    start = end = text.index(b"{") + 1
    view, kept = memoryview(text), list[bytes | memoryview]()  # a large result is copied once
    for name, member in at.items():
        begin = end if end == start else text.index(b",", end) + 1
        end = member.end
        if name not in names:
            kept += (view[begin:end], b",")
    return b"".join((view[:start], *kept[:-1], view[end:]))


def inserted(text: bytes, more: bytes) -> bytes:
    """An object with more members (raw, at least one, without braces) after its own; their names must be new."""
    close = text.rindex(b"}")
    head = text[:close].rstrip(b" \t\r\n")
    return head + (b"" if head.endswith(b"{") else b",") + more + text[close:]
