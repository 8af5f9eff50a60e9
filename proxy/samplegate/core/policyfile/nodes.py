"""YAML text -> a tree of nodes that know where they stand, read as YAML 1.2's core and nothing more. Not a loader: no types, no policy.

Built from the parser's events, so that depth and number are bounded while it reads. Whatever two YAML readers could take for two things is a
fault: duplicate keys, anchors, tags, merge keys, and the plain words and numbers that YAML 1.1 and 1.2 read differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from samplegate.core.policyfile.scalars import CORE, resolve
from samplegate.core.policyfile.tree import Broken, Entry, Fault, Mapping, Mark, Node, Path, Scalar, Sequence, Unreadable, is_secret, quoted

MAX_BYTES: Final = 1024 * 1024  # a policy of a thousand rules is a tenth of this
MAX_DEPTH: Final = 32  # the schema needs 8; `not` nests
MAX_NODES: Final = 50_000
MAX_FAULTS: Final = 500  # nobody reads more, and a file of 50,000 unknown keys must not take minutes

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is missing where PyYAML was built without libyaml
_FLAT: Final = {CORE + "map": "mapping", CORE + "seq": "list"}
# What reorders, hides or breaks lines: a reader of the file would see another text than the gate. In double quotes "\u202e" still says it.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|(?<!^)\ufeff")


class _Open(msgspec.Struct, eq=False):
    """A container being filled; ``key`` is the key whose value comes next, ``dropped`` if that value is to be thrown away."""

    node: Sequence | Mapping
    path: Path
    key: tuple[str, Mark] | None = None
    dropped: bool = False


def compose(text: str, *, most_bytes: int = MAX_BYTES, most_values: int = MAX_NODES) -> tuple[Node, list[Fault]]:
    """The tree of the one document in ``text``, with every fault in it. Raises Unreadable where it is not YAML or out of bounds."""
    _check_text(text, most_bytes)
    builder = _Builder(most_values)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as problem:
        raise Unreadable(Fault(_mark(problem.problem_mark or problem.context_mark), (), _syntax(problem, text))) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise Unreadable(Fault(Mark(1, 1), (), "it is not YAML; save it as UTF-8 text")) from None
    if builder.root is None:
        raise Unreadable(Fault(Mark(1, 1), (), "the file is empty; see policies/README.md for what it may say"))
    return builder.root, builder.faults


def _events(text: str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=_LOADER))


def _check_text(text: str, most: int) -> None:
    if len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most:
        raise Unreadable(Fault(Mark(1, 1), (), f"the file is larger than {most} bytes; split it"))
    unseen = _UNSEEN.search(text)
    if unseen is not None:
        before = re.split(r"\r\n|\r|\n", text[: unseen.start()])
        code = f"U+{ord(unseen[0]):04X}"
        where = Mark(len(before), len(before[-1]) + 1)
        raise Unreadable(Fault(where, (), f"character {code} cannot be seen; remove it, or write it as an escape in double quotes"))


def _mark(mark: Any) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


def _at(text: str, mark: Any) -> str:
    """The character at a mark of the parser."""
    if mark is None:
        return ""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""


def _syntax(problem: yaml.MarkedYAMLError, text: str) -> str:
    what = " ".join(str(part) for part in (problem.context, problem.problem) if part).rstrip()
    if _at(text, problem.problem_mark) == "\t":
        what += "; indent with spaces"
    elif "mapping values are not allowed" in what:
        what += "; check the indentation, and quote text that holds ': '"
    elif "found character" in what or "undefined alias" in what or "found unexpected" in what:
        what += "; quote text that begins with or holds special characters"
    return "it is not YAML: " + (what or "it cannot be read")


class _Builder:
    """Takes events one by one and hangs nodes together."""

    def __init__(self, most: int) -> None:
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self._most = most
        self._stack: list[_Open] = []
        self._count = 0

    def take(self, event: Any) -> None:
        mark = _mark(event.start_mark)
        match event:
            case yaml.ScalarEvent():
                self._anchor(event, mark)
                self._scalar(event, mark)
            case yaml.AliasEvent():
                self._count_one(mark)
                self._fault(mark, f"alias {quoted('*' + str(event.anchor))} is not read here; write the value out")
                self._leaf(Broken(mark))
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._anchor(event, mark)
                self._start(event, mark)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.DocumentStartEvent() if self.root is not None:
                raise Unreadable(Fault(mark, (), "a second document begins here; keep one document a file"))
            case _:
                pass

    def _here(self) -> Path:
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.node, Sequence):
            return (*top.path, len(top.node.items))
        return top.path if top.key is None else (*top.path, top.key[0])

    def _fault(self, mark: Mark, what: str, path: Path | None = None) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(mark, self._here() if path is None else path, what))

    def _anchor(self, event: Any, mark: Mark) -> None:
        self._count_one(mark)
        if event.anchor is not None:
            self._fault(mark, f"anchor {quoted('&' + str(event.anchor))} is not read here; remove it and write the value out")

    def _count_one(self, mark: Mark) -> None:
        self._count += 1
        if self._count > self._most:
            raise Unreadable(Fault(mark, (), f"the file has more than {self._most} values; split it"))

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].node, Mapping) and self._stack[-1].key is None and not self._stack[-1].dropped

    def _scalar(self, event: Any, mark: Mark) -> None:
        if self._expects_key():
            self._key(event, mark)
            return
        try:
            self._leaf(Scalar(mark, resolve(event), event.value))
        except ValueError as problem:
            what = str(problem)
            self._fault(mark, what.replace(quoted(event.value), "this value") if is_secret(self._here()) else what)
            self._leaf(Broken(mark))

    def _key(self, event: Any, mark: Mark) -> None:
        top = self._stack[-1]
        name = str(event.value)
        why = _bad_key(event)
        if why is not None:
            self._fault(mark, why, top.path)
            top.dropped = True
            return
        assert isinstance(top.node, Mapping)
        first = top.node.entries.get(name)
        if first is not None:
            self._fault(mark, f"the key stands twice, first in line {first.mark.line}; remove one", (*top.path, name))
        top.key, top.dropped = (name, mark), first is not None

    def _start(self, event: Any, mark: Mark) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise Unreadable(Fault(mark, (), f"the file nests deeper than {MAX_DEPTH}; flatten it"))
        path = self._here()
        if self._expects_key():
            self._fault(mark, "a list or mapping stands as a key; a key is text", path)
        node = Mapping(mark) if isinstance(event, yaml.MappingStartEvent) else Sequence(mark)
        tag = None if event.implicit or event.tag in (None, "!") else str(event.tag)
        if tag is not None and _FLAT.get(tag) != ("mapping" if isinstance(node, Mapping) else "list"):
            self._fault(mark, f"tag {quoted(tag)} is not read here; remove it", path)
        self._stack.append(_Open(node, path))

    def _end(self) -> None:
        self._leaf(self._stack.pop().node)

    def _leaf(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        if isinstance(top.node, Sequence):
            top.node.items.append(node)
        elif top.key is None and not top.dropped:
            top.dropped = True  # what stood as the key was no scalar: its value goes with it
        else:
            if top.key is not None and not top.dropped:
                top.node.entries[top.key[0]] = Entry(top.key[1], node)
            top.key, top.dropped = None, False


def _bad_key(event: Any) -> str | None:
    """Why a scalar is no key; a word that YAML 1.1 takes for a boolean is one, as in YAML 1.2."""
    if event.implicit[0] and event.value == "<<":
        return "merge key '<<' is not read here; write the keys out"
    try:
        value = resolve(event)
    except ValueError:
        value = event.value
    if not isinstance(value, str):
        return f"key {quoted(event.value)} is not text; quote it"
    return None
