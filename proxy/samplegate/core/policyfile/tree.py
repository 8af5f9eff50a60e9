"""The tree of a YAML file: values that know where they stand, and what is wrong with them. Not how a file becomes one (``nodes.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.core.matching.secrecy import looks_secret

Path: TypeAlias = tuple[str | int, ...]
Plain: TypeAlias = bool | int | float | str | None

UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that hide, reorder or break a line of text: they have no place in a name."""


class Mark(msgspec.Struct, frozen=True):
    """A place in the text, both counted from 1."""

    line: int
    column: int


class Fault(msgspec.Struct, frozen=True):
    """Something wrong with the file, where, and at which place of its tree."""

    mark: Mark
    path: Path
    what: str


class Scalar(msgspec.Struct, frozen=True):
    """A value. ``text`` is how it is spelled."""

    mark: Mark
    value: Plain
    text: str


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    mark: Mark
    items: list[Node] = msgspec.field(default_factory=list)


class Entry(msgspec.Struct, frozen=True):
    """One key of a mapping with its value."""

    mark: Mark
    node: Node


class Mapping(msgspec.Struct, frozen=True):
    """A mapping. Keys are text, each stands once."""

    mark: Mark
    entries: dict[str, Entry] = msgspec.field(default_factory=dict)


class Broken(msgspec.Struct, frozen=True):
    """A place whose fault is already told."""

    mark: Mark


Node: TypeAlias = Scalar | Sequence | Mapping | Broken


class Unreadable(Exception):
    """There is no tree to go on with. ``fault`` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a file, at ``line`` and ``column`` (from 1), at ``place`` of its tree (empty for the whole of it)."""

    file: str
    line: int
    column: int
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: " + (f"{self.place}: " if self.place else "") + self.what


class PolicyError(Exception):
    """The file is wrong. ``problems`` are all of them, in the order of the file; the text has one a line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def problems(file: str, faults: Iterable[Fault]) -> tuple[Problem, ...]:
    """Faults of a file as its problems, in the order of the file, each once."""
    ordered = sorted(dict.fromkeys(faults), key=lambda fault: (fault.mark.line, fault.mark.column))
    return tuple(Problem(file, fault.mark.line, fault.mark.column, dotted(fault.path), fault.what) for fault in ordered)


def plain(node: Node) -> Any:
    """The tree as lists, dicts and plain values; None in place of what is broken."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(entry.node) for key, entry in node.entries.items()}
        case Broken():
            return None


def find(root: Node, path: Path) -> Node | None:
    """The node at ``path``, None if there is none."""
    for step in path:
        if isinstance(root, Mapping) and step in root.entries:
            root = root.entries[str(step)].node
        elif isinstance(root, Sequence) and isinstance(step, int) and step < len(root.items):
            root = root.items[step]
        else:
            return None
    return root


def dotted(path: Path) -> str:
    """A path as it stands in messages: ``rules.2.match.not.kind``; a key that is no plain word is quoted."""
    return ".".join(str(step) if isinstance(step, int) or re.fullmatch(r"[\w-]{1,60}", step) else quoted(step) for step in path)


def quoted(text: str) -> str:
    """Text as it stands in messages: quoted, escaped, shortened."""
    return ascii(text) if len(text) <= 60 else ascii(text[:60])[:-1] + "...'"


def is_secret(path: Path) -> bool:
    """Whether what stands at ``path`` may be a secret and is not to be shown: its key, or one above it, is called like one."""
    return any(isinstance(step, str) and looks_secret(step) for step in path)


def shown(node: Scalar, path: Path) -> str:
    """A value as it stands in messages: text quoted, the rest as it is spelled, nothing of a secret."""
    if is_secret(path):
        return "this value"
    return quoted(node.text) if isinstance(node.value, str) else node.text[:60]
