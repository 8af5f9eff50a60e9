"""Pure. JSON with comments and trailing commas (JSONC) as a tree with positions.

A reader for files that people edit: it accepts what VS Code accepts, and refuses what two parsers could read
differently. Positions are offsets in the text, so an edit can replace exactly one value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from samplegate.clients.faults import FileFault, quoted

MAX_DEPTH: Final = 100
MAX_VALUES: Final = 2_000_000
MAX_NUMBER: Final = 600
"""Characters of a number. Python reads at least 640 digits, whatever its settings are."""

# Without possessive quantifiers: Python 3.11.2 (Debian 12) ends nested ones too early. No match can fail, because
# the token is optional, so nothing is tried again.
_SKIP: Final = r"(?:[ \t\r\n]+|//[^\r\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*"
_STRING: Final = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
_TOKEN: Final = re.compile(_SKIP + rf"(?:([{{}}\[\]:,])|({_STRING})|([-+.\w]+))?")
_PLAIN: Final = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\Z")
_BOM: Final = "\ufeff"


@dataclass(slots=True, eq=False)
class Scalar:
    """A string, a number, true, false or null: ``text[start:end]``."""

    start: int
    end: int


@dataclass(slots=True, eq=False)
class Array:
    """A list."""

    start: int
    end: int = 0
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Member:
    """One member of an object; the key's span includes its quotes."""

    key_start: int
    key_end: int
    value: Node


@dataclass(slots=True, eq=False)
class Object:
    """An object with unique keys."""

    start: int
    end: int = 0
    members: dict[str, Member] = field(default_factory=dict)


Node: TypeAlias = Scalar | Array | Object


def parse(text: str) -> Node:
    """The tree of a text. Raises FileFault with the first problem and its line and column."""
    return _Reader(text).read()


def plain(text: str, node: Node) -> Any:
    """The value of a node, as from ``json.loads``."""
    match node:
        case Scalar():
            return json.loads(text[node.start : node.end])
        case Array():
            return [plain(text, item) for item in node.items]
        case Object():
            return {name: plain(text, member.value) for name, member in node.members.items()}


class _Reader:
    """Reads one text, with a stack instead of recursion."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith(_BOM) else 0
        self.values = 0

    def read(self) -> Node:
        stack: list[Array | Object] = []
        root: Node | None = None
        start, kind = self._next()
        if not kind:
            self._fail(start, "the file is empty" if start == len(self.text) else "expected an object")
        while True:
            # here a value is expected, of which the first token is known
            self.values += 1
            if self.values > MAX_VALUES:
                self._fail(start, f"the file has more than {MAX_VALUES} values")
            node: Node
            if kind == "{":
                node = Object(start)
            elif kind == "[":
                node = Array(start)
            elif kind == "w" and self.at - start > MAX_NUMBER:
                self._fail(start, f"a number has more than {MAX_NUMBER} characters")
            elif kind == '"' or (kind == "w" and _PLAIN.match(self.text[start : self.at])):
                node = Scalar(start, self.at)
            else:
                self._fail(start, "expected a value")
            if root is None:
                root = node
            else:
                self._put(stack[-1], node)
            if not isinstance(node, Scalar):
                if len(stack) == MAX_DEPTH:
                    self._fail(start, f"nested deeper than {MAX_DEPTH} levels")
                stack.append(node)
            found = self._after(stack, fresh=not isinstance(node, Scalar))
            if found is None:
                return root
            start, kind = found

    def _put(self, parent: Array | Object, node: Node) -> None:
        if isinstance(parent, Array):
            parent.items.append(node)
        else:
            key, member = self.key
            member.value = node
            parent.members[key] = member

    def _after(self, stack: list[Array | Object], *, fresh: bool) -> tuple[int, str] | None:
        """Reads up to the next value, and returns its first token; None at the end of the text."""
        comma = fresh  # a value may follow: at the start of a container, or after a comma
        while stack:
            parent = stack[-1]
            start, kind = self._next()
            if kind == ("]" if isinstance(parent, Array) else "}"):
                parent.end = self.at
                stack.pop()
                comma = False
            elif not comma:
                if kind != ",":
                    self._fail(start, f"expected a comma or {']' if isinstance(parent, Array) else '}'}")
                comma = True
            elif isinstance(parent, Array):
                return start, kind
            else:
                self._key(parent, start, kind)
                return self._next()
        start, kind = self._next()
        if kind or start != len(self.text):
            self._fail(start, "expected the end of the file")
        return None

    def _key(self, parent: Object, start: int, kind: str) -> None:
        if kind != '"':
            self._fail(start, "expected a key in double quotes")
        end = self.at
        key = json.loads(self.text[start:end])
        if key in parent.members:
            first = self.place(parent.members[key].key_start)
            self._fail(start, f"key {quoted(key)} is already at {first}; remove one of them")
        self.key = key, Member(start, end, Scalar(start, end))
        colon, kind = self._next()
        if kind != ":":
            self._fail(colon, "expected a colon")

    def _next(self) -> tuple[int, str]:
        """Start and kind of the next token: its character for punctuation, ``"`` for a string, ``w`` for a word, empty
        for anything else or the end."""
        found = _TOKEN.match(self.text, self.at)
        assert found is not None, "every part of the pattern is optional"
        group = found.lastindex
        if group is None:
            return found.end(), ""
        self.at = found.end()
        return found.start(group), found[1] if group == 1 else '"' if group == 2 else "w"

    def place(self, at: int) -> str:
        return place(self.text, at)

    def _fail(self, at: int, what: str) -> NoReturn:
        raise FileFault(what, self.place(at))


def place(text: str, at: int) -> str:
    """Line and column of an offset, both from 1."""
    return f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"
