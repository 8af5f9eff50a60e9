"""Pure. TOML files of clients: their servers with positions.

tomllib says what the file means, and tomlkit where each value is: it writes every byte as it read it, so a value is
where a marker stands that replaces it. Positions that do not fit the text are not used.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Item, Table

from samplegate.clients.document import MAX_SERVERS, Edit, Entry, Key, Member, Span, pointer
from samplegate.clients.faults import FileFault, quoted
from samplegate.clients.jsonc import place

MAX_BYTES: Final = 1024 * 1024
"""tomlkit reads 100 kB of tables in 0.5 s, and a file is read up to four times."""
MAX_PARTS: Final = 100
"""Of a dotted key."""
_MARK: Final = "samplegate-position-"
_STRING: Final = (
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*+'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*+"'
    r"|'[^'\n]*+'"
)
_string: Final = re.compile(_STRING, re.DOTALL)
_between: Final = re.compile(r"(?:[ \t\r\n,]+|#[^\n]*)*")
_KEY: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_key_before: Final = re.compile(rf"({_KEY})[ \t]*=[ \t]*\Z")
_line_key: Final = re.compile(rf"([ \t]*(?:{_KEY}[ \t]*\.[ \t]*)*){_KEY}([ \t]*=[ \t]*)\Z")
_header: Final = re.compile(
    rf"^[ \t]*\[[ \t]*((?:{_KEY}[ \t]*\.[ \t]*)*)({_KEY})[ \t]*\][ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE
)
_place: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_dotted: Final = re.compile(rf"(?:{_KEY}[ \t]*\.[ \t]*){{{MAX_PARTS}}}")
_declared_twice: Final = re.compile(r"Cannot (?:declare|(?:redefine|mutate immutable) namespace) (\(.*\))(?: twice)?\Z")
_bare: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_CONTROL: Final = {0x7F: "\\u007f"}


@dataclass(frozen=True)
class _Float:
    """A number as it is written, because NaN does not equal itself."""

    text: str


class TomlDocument:
    """A TOML file."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MAX_BYTES:
            raise FileFault(f"the file has {len(text)} characters; the most for TOML is {MAX_BYTES}")
        if (deep := _dotted.search(text)) is not None:  # the readers would need seconds and gigabytes
            raise FileFault(f"a key has more than {MAX_PARTS} parts", place(text, deep.start()))
        try:
            self.plain: dict[str, Any] = tomllib.loads(text, parse_float=_Float)
        except tomllib.TOMLDecodeError as problem:
            raise _fault(str(problem)) from None
        except RecursionError:
            raise FileFault("it is nested too deeply") from None
        except ValueError:  # of int() and of dates
            raise FileFault("it has a number or a date that is out of range") from None

    def entries(self, key: Key) -> Sequence[Entry] | None:
        """As in ``Document``."""
        found = list(_mappings(self.plain, key, ()))
        if not found:
            return None
        names = [(*place, name) for place, mapping in found for name in mapping]
        if len(names) > MAX_SERVERS:
            raise FileFault(f"the file has {len(names)} servers; the most is {MAX_SERVERS}")
        marked = _marked(self.text, tuple(name for name in names if isinstance(_at(self.plain, name), dict)))
        return [self._entry(name, marked) for name in names]

    def _entry(self, name: Key, marked: Mapping[Key, Span]) -> Entry:
        plain = _at(self.plain, name)
        members: dict[str, Member] = {}
        for key in plain if isinstance(plain, dict) else ():
            if (member := self._member((*name, key), marked)) is not None:
                members[key] = member
        spans = [span for member in members.values() for span in (member.key, member.value)]
        spans += [one.value for member in members.values() for one in member.members.values()]
        start, end = min((span.start for span in spans), default=0), max((span.end for span in spans), default=0)
        return Entry(name[:-1], name[-1], plain, members, Span(start, end))

    def _member(self, path: Key, marked: Mapping[Key, Span]) -> Member | None:
        """A member of an entry; None if it has no position of its own, as an array of tables."""
        plain = _at(self.plain, path)
        if isinstance(plain, dict):
            inner = {key: self._member((*path, key), marked) for key in plain}
            members = {key: member for key, member in inner.items() if member is not None}
            if path in marked:  # an inline table
                span = marked[path]
                key = self._key(span)
            else:
                key = self._table_key(path)
                ends = [member.value.end for member in members.values()]
                span = Span(key.end, max([key.end, *ends])) if key is not None else Span(0, 0)
            return None if key is None else Member(path[-1], key, span, plain, (), members)
        if path not in marked:
            return None
        span = marked[path]
        key = self._key(span)
        items = _elements(self.text, span, plain) if isinstance(plain, list) else ()
        return None if key is None else Member(path[-1], key, span, plain, items)

    def _key(self, value: Span) -> Span | None:
        """The key before a value; None if there is none on its line."""
        line = self.text.rfind("\n", 0, value.start) + 1
        found = _key_before.search(self.text, line, value.start)
        return None if found is None else Span(found.start(1), found.end(1))

    def _table_key(self, path: Key) -> Span | None:
        """The last key in the head of a table; None if the table has no head, or several places look like it."""
        found = self._heads.get(path, [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _heads(self) -> dict[Key, list[Span]]:
        """The last key in what looks like the head of a table, by the table's keys."""
        heads: dict[Key, list[Span]] = {}
        for match in _header.finditer(self.text):
            if (keys := _keys(match[1] + match[2])) is not None:
                heads.setdefault(keys, []).append(Span(match.start(2), match.end(2)))
        return heads

    def others(self, entries: Sequence[Entry]) -> Any:
        """As in ``Document``: the values of the file."""
        plain = copy.deepcopy(self.plain)
        for entry in entries:
            del _at(plain, entry.key)[entry.name]
        return plain

    def quote(self, text: str) -> str:
        """As in ``Document``: a basic string."""
        return json.dumps(text, ensure_ascii=False).translate(_CONTROL)

    def key(self, name: str) -> str:
        """As in ``Document``."""
        return name if _bare.match(name) else self.quote(name)

    def pair(self, like: Member, name: str, value: str) -> Edit:
        """As in ``Document``: on the next line, or in an inline table, behind a comma."""
        line = self.text.rfind("\n", 0, like.value.start) + 1
        before = _line_key.match(self.text[line : like.value.start])
        if before is None:
            return Edit(like.value.end, like.value.end, f", {name} = {value}")
        end = self.text.find("\n", like.value.end)
        end = len(self.text) if end < 0 else end
        line_end = "\r\n" if self.text[:end].endswith("\r") else "\n"
        end -= len(line_end) - 1
        return Edit(end, end, f"{line_end}{before[1]}{name}{before[2]}{value}")

    def without(self, entry: Entry, member: Member) -> Edit:
        """As in ``Document``."""
        line = self.text.rfind("\n", 0, member.key.start) + 1
        if _line_key.match(self.text[line : member.value.start]) is not None:
            end = self.text.find("\n", member.value.end)
            if not self.text[member.value.end : end if end >= 0 else None].strip():
                return Edit(line, end + 1, "") if end >= 0 else Edit(max(0, line - 1), len(self.text), "")
            return Edit(member.key.start, member.value.end, "")
        start = len(self.text[: member.key.start].rstrip(" \t"))
        if self.text[start - 1] == ",":
            return Edit(start - 1, member.value.end, "")
        after = re.compile(r"[ \t]*,[ \t]*").match(self.text, member.value.end)
        return Edit(member.key.start, member.value.end if after is None else after.end(), "")


def _fault(message: str) -> FileFault:
    found = _place.search(message)
    at = f"{found[1]}:{found[2]}" if found is not None and found[1] else ""
    what = _declared_twice.sub(_twice, _place.sub("", message))
    told = {"Cannot overwrite a value": "a key is there twice; remove one"}.get(what, what[:1].lower() + what[1:])
    return FileFault(f"not valid TOML: {told}", at)


def _twice(match: re.Match[str]) -> str:
    """The problem with a key that tomllib shows as a tuple."""
    keys: Key = ast.literal_eval(match[1])
    return f"key {quoted('.'.join(keys))} is there twice; remove one"


def _mappings(plain: Any, key: Key, place: Key) -> Iterator[tuple[Key, dict[str, Any]]]:
    if not isinstance(plain, dict):
        raise FileFault(f"key {quoted(pointer(place)[1:])} is not a table")
    if not key:
        yield place, plain
        return
    for name in plain if key[0] == "*" else key[:1]:
        if name in plain:
            yield from _mappings(plain[name], key[1:], (*place, name))


def _at(plain: Any, path: Key) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def _keys(head: str) -> Key | None:
    """The keys of a dotted key."""
    try:
        found = tomllib.loads(f"[{head}]")
    except tomllib.TOMLDecodeError:
        return None
    keys: list[str] = []
    while found:
        (key,) = found
        keys.append(key)
        found = found[key]
    return tuple(keys)


@lru_cache(maxsize=4)  # tomlkit takes most of the time, and a file is read before and under the lock
def _marked(text: str, names: tuple[Key, ...]) -> Mapping[Key, Span]:
    """The positions of the values of entries. Raises FileFault if they cannot be told."""
    mark = _MARK
    while mark in text:
        mark += "-"
    found: dict[Key, Span] = {}
    try:
        for within in (False, True):  # inline tables as a whole, then the values within
            document = tomlkit.parse(text)
            originals: dict[Key, str] = {}
            has_inline = [_put_marks(document, name, originals, mark, within) for name in names]
            found |= _positions(text, tomlkit.dumps(document), originals, mark)
            if not any(has_inline):
                break
    except (TOMLKitError, RecursionError, ValueError, TypeError, AttributeError, LookupError) as problem:
        raise FileFault("it is written in a way that cannot be edited; edit it by hand") from problem
    return found


def _put_marks(document: Any, name: Key, originals: dict[Key, str], mark: str, within: bool) -> bool:
    """Replace each value of an entry by a marker with its number. A table within the entry keeps its head.

    Returns whether the entry has an inline table.
    """
    has_inline = False
    table = _at(document, name)
    for key in list(table):
        value = table[key]
        path = (*name, key)
        if isinstance(value, Table | OutOfOrderTableProxy) or (within and isinstance(value, InlineTable)):
            has_inline |= _put_marks(document, path, originals, mark, within) or isinstance(value, InlineTable)
        elif isinstance(value, Item) and not isinstance(value, AoT):
            table[key] = f"{mark}{len(originals)}"
            originals[path] = value.as_string()
            has_inline |= isinstance(value, InlineTable)
    return has_inline


def _positions(text: str, marked: str, originals: Mapping[Key, str], mark: str) -> dict[Key, Span]:
    """The positions of the values that markers replaced. Raises ValueError if the rest is not the text."""
    paths = list(originals)
    found: dict[Key, Span] = {}
    at = done = 0
    for match in re.finditer(rf'"{mark}([0-9]+)"', marked):
        before = marked[done : match.start()]
        path = paths[int(match[1])]
        start = at + len(before)
        end = start + len(originals[path])
        if text[at:start] != before or text[start:end] != originals[path] or path in found:
            raise ValueError("the text was written in another way than it was read")
        found[path] = Span(start, end)
        at, done = end, match.end()
    if text[at:] != marked[done:] or len(found) != len(paths):
        raise ValueError("the text was written in another way than it was read")
    return found


def _elements(text: str, span: Span, plain: Sequence[Any]) -> tuple[Span, ...]:
    """The elements of a list of strings. Empty if it has others."""
    if not all(isinstance(one, str) for one in plain):
        return ()
    found: list[Span] = []
    at = span.start + 1
    while (gap := _between.match(text, at, span.end)) and (one := _string.match(text, gap.end(), span.end)):
        found.append(Span(one.start(), one.end()))
        at = one.end()
    return tuple(found) if len(found) == len(plain) else ()
