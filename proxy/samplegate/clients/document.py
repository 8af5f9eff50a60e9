"""Pure. The servers in a client's file, with the positions of what an edit may replace.

JSON and TOML give the same structs, so that an edit does not depend on the format. Positions are offsets in the text of
the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

Format: TypeAlias = Literal["json", "toml"]
Key: TypeAlias = tuple[str, ...]
"""The keys that lead to a mapping of servers. Empty for the whole file."""

MAX_SERVERS: Final = 1_000
"""Of one file."""


@dataclass(frozen=True, slots=True)
class Span:
    """``text[start:end]``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Member:
    """One key of an entry with its value."""

    name: str
    key: Span
    """The key with its quotes."""
    value: Span
    plain: Any
    items: tuple[Span, ...] = ()
    """The elements of a list."""
    members: Mapping[str, Member] = field(default_factory=dict)
    """The members of a mapping."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A server in a file."""

    key: Key
    """The keys of the mapping that has the entry."""
    name: str
    plain: Any
    """The value of the entry, of any type."""
    members: Mapping[str, Member]
    """Empty if the entry is not a mapping."""
    span: Span
    """What the entry consists of, with its name."""

    @property
    def pointer(self) -> str:
        """The entry's place in the file, as a JSON pointer."""
        return pointer((*self.key, self.name))


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces a span."""

    start: int
    end: int
    text: str


class Document(Protocol):
    """The text of a file, read once."""

    text: str

    def entries(self, key: Key) -> Sequence[Entry] | None:
        """The servers below ``key``, in which ``*`` stands for any name. None if there is no such key. Raises
        FileFault if it has no mapping."""
        ...

    def others(self, entries: Sequence[Entry]) -> Any:
        """Everything but these entries, to compare it before and after an edit."""
        ...

    def quote(self, text: str) -> str:
        """A string in the file's format."""
        ...

    def key(self, name: str) -> str:
        """A key in the file's format."""
        ...

    def pair(self, like: Member, name: str, value: str) -> Edit:
        """Adds a member right after another. ``value`` is in the file's format."""
        ...

    def without(self, entry: Entry, member: Member) -> Edit:
        """Removes a member."""
        ...


def applied(text: str, edits: Sequence[Edit]) -> str:
    """The text with the edits, which do not overlap."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= done, "edits overlap"
        parts += text[done : edit.start], edit.text
        done = edit.end
    return "".join((*parts, text[done:]))


def pointer(key: Key) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in key)
