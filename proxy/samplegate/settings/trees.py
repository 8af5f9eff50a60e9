"""A YAML (or JSON) file of settings as a tree, and parts of it held against a type, each problem at its place. Not what the parts mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from samplegate.core.policyfile.nodes import compose
from samplegate.core.policyfile.tree import Fault, Mapping, Mark, Node, Unreadable, dotted, find
from samplegate.core.policyfile.tree import Path as Steps
from samplegate.core.policyfile.walk import Type, Walk, type_of


def tree_of(file: Path, problems: list[str]) -> Node | None:
    """The tree of a file, None where it is empty or there is no tree to go on with."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        problems.append(f"{file}: cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}")
        return None
    if all(line.lstrip()[:1] in ("", "#") for line in text.removeprefix("\ufeff").splitlines()):  # or all of it commented out
        return None
    return tree_in(text, str(file), problems)


def tree_in(text: str, where: str, problems: list[str]) -> Node | None:
    """The tree of a text that stands ``where``, None where there is none to go on with."""
    try:
        root, faults = compose(text)
    except Unreadable as problem:
        root, faults = None, [problem.fault]
    problems += [_told(where, fault) for fault in faults]
    return root


def _told(where: str, fault: Fault) -> str:
    return f"{where}:{fault.mark.line}:{fault.mark.column}: {dotted(fault.path)}{': ' if fault.path else ''}{fault.what}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a tree: its node, the file or variable it stands in, where in it, and what its relative paths are relative to."""

    where: str
    node: Node
    path: Steps
    folder: Path
    problems: list[str] = field(compare=False, repr=False)

    def entries(self) -> dict[str, Part]:
        """The parts of a mapping by name; none, and a problem, where it is something else."""
        if not isinstance(self.node, Mapping):
            self.problem((), "is no mapping; write its names with what they have, one a line")
            return {}
        return {name: Part(self.where, entry.node, (*self.path, name), self.folder, self.problems) for name, entry in self.node.entries.items()}

    def value(self, struct: type[msgspec.Struct]) -> Any:
        """The part as ``struct``; None, with every problem told, where it does not fit."""
        walk = Walk()
        plain = walk.value(self.node, _type(struct), self.path)
        self.problems.extend(_told(self.where, fault) for fault in walk.faults)
        if walk.faults or walk.broken:
            return None
        try:
            return msgspec.convert(plain, struct, strict=True)
        except msgspec.ValidationError as problem:  # the walk lets through what msgspec does not: a gap in the walk, told all the same
            self.problem((), str(problem))
            return None

    def problem(self, below: Steps, what: str) -> None:
        """Something is wrong at ``below`` of this part, or at the nearest place above it that the file has."""
        self.problems.append(_told(self.where, Fault(self._mark(below), (*self.path, *below), what)))

    def place(self, below: Steps) -> str:
        """Where ``below`` of this part stands: ``FILE:LINE:COLUMN: a.b``."""
        mark = self._mark(below)
        return f"{self.where}:{mark.line}:{mark.column}: {dotted((*self.path, *below))}"

    def path_of(self, text: str) -> Path:
        """A path that is said here. Raises RuntimeError where it begins with a ~ that nobody knows."""
        return self.folder / Path(text).expanduser()

    def _mark(self, below: Steps) -> Mark:
        while (node := find(self.node, below)) is None:
            below = below[:-1]
        return node.mark


@cache
def _type(struct: type[msgspec.Struct]) -> Type:
    return type_of(struct)
