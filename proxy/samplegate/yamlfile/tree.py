"""Pure. YAML files as trees of values with positions, with every syntax problem reported at once.

The reader accepts only YAML 1.2's core. It works on the parser's events, so that depth and size are bounded while it
reads. Everything that two YAML readers could interpret differently is a fault: duplicate keys, anchors, tags, merge
keys, and the plain words and numbers that differ between YAML 1.1 and 1.2. ``validate.py`` checks the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from samplegate.secret_names import looks_secret

Path: TypeAlias = tuple[str | int, ...]
Plain: TypeAlias = bool | int | float | str | None

INVISIBLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that hide, reorder or break a line of text; a name must not contain them."""


class Mark(msgspec.Struct, frozen=True):
    """A position in the text, both counted from 1."""

    line: int
    column: int


class Fault(msgspec.Struct, frozen=True):
    """A problem of the file, with its position and its path in the tree."""

    mark: Mark
    path: Path
    what: str


class Scalar(msgspec.Struct, frozen=True):
    """A scalar value. ``text`` is its spelling in the file."""

    mark: Mark
    value: Plain
    text: str


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    mark: Mark
    items: list[Node] = msgspec.field(default_factory=list)


class MappingEntry(msgspec.Struct, frozen=True):
    """One key of a mapping with its value."""

    mark: Mark
    node: Node


class Mapping(msgspec.Struct, frozen=True):
    """A mapping with unique text keys."""

    mark: Mark
    entries: dict[str, MappingEntry] = msgspec.field(default_factory=dict)


class Broken(msgspec.Struct, frozen=True):
    """A node whose fault is already reported."""

    mark: Mark


Node: TypeAlias = Scalar | Sequence | Mapping | Broken


class Unreadable(Exception):
    """A file without a usable tree. ``fault`` has the reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


class Problem(msgspec.Struct, frozen=True):
    """A problem of a file, with ``line`` and ``column`` (from 1) and its ``place`` in the tree (empty for the whole
    file)."""

    file: str
    line: int
    column: int
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: " + (f"{self.place}: " if self.place else "") + self.what


class PolicyError(Exception):
    """An invalid file. ``problems`` has all problems in file order; the text has one per line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def problems(file: str, faults: Iterable[Fault]) -> tuple[Problem, ...]:
    """The faults of a file as problems, in file order, without duplicates."""
    ordered = sorted(dict.fromkeys(faults), key=lambda fault: (fault.mark.line, fault.mark.column))
    return tuple(Problem(file, fault.mark.line, fault.mark.column, dotted(fault.path), fault.what) for fault in ordered)


def plain_value(node: Node) -> Any:
    """The tree as lists, dicts and plain values; None for a broken node."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain_value(item) for item in node.items]
        case Mapping():
            return {key: plain_value(entry.node) for key, entry in node.entries.items()}
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


def mark(root: Node, path: Path) -> Mark:
    """The position of a path in the file; for a path that is not in the file, that of its nearest parent."""
    while (node := find(root, path)) is None:
        path = path[:-1]
    return node.mark


def fault_at(root: Node, path: Path, what: str) -> Fault:
    """A fault at a path of the tree."""
    return Fault(mark(root, path), path, what)


def dotted(path: Path) -> str:
    """A path for messages, such as ``rules.2.match.not.kind``; unusual keys are quoted."""
    return ".".join(
        str(step) if isinstance(step, int) or re.fullmatch(r"[\w-]{1,60}", step) else quoted(step) for step in path
    )


def quoted(text: str) -> str:
    """Text for messages: quoted, escaped, shortened."""
    return ascii(text) if len(text) <= 60 else ascii(text[:60])[:-1] + "...'"


def is_secret(path: Path) -> bool:
    """Whether the value at ``path`` may be a secret and must not be shown: a key in the path looks secret."""
    return any(isinstance(step, str) and looks_secret(step) for step in path)


def display_value(node: Scalar, path: Path) -> str:
    """A value for messages: text is quoted, other values are as spelled, and secrets are hidden."""
    if is_secret(path):
        return "this value"
    return quoted(node.text) if isinstance(node.value, str) else node.text[:60]


CORE: Final = "tag:yaml.org,2002:"
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Final[dict[str, Plain]] = {
    w: v for n, v in (("null", None), ("true", True), ("false", False)) for w in (n, n.title(), n.upper())
}
_NOTHING: Final = frozenset({"", "~"})
_TWO_READINGS: Final = re.compile(
    r"(?:y|n|yes|no|on|off)\Z"
    r"|[-+]?0[0-9_]+(?:\.[0-9]*)?\Z|[-+]?0[ob][0-9_]+\Z|[-+]?0x[0-9a-f]*_[0-9a-f_]*\Z"  # octal, binary
    r"|[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?\Z"  # 1_000
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z"  # base 60
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?\Z"  # dates
    r"|[-+]?\.(?:inf|nan)\Z",
    re.IGNORECASE,
)
MAX_INT: Final = 2**63 - 1


def resolve(event: Any) -> Plain:
    """The value of a scalar by YAML 1.2's core schema. Raises ValueError for an unsupported tag or spelling."""
    text: str = event.value
    if re.search("[\ud800-\udfff]", text):
        # libyaml reports this itself, PyYAML's own parser does not
        raise ValueError("the escape is half of a surrogate pair; write the whole character")
    if event.tag == CORE + "str" or event.tag == "!" or event.implicit[1]:
        return text
    if event.tag is not None and event.tag not in {CORE + name for name in ("null", "bool", "int", "float")}:
        raise ValueError(f"tag {quoted(str(event.tag))} is not supported; remove it")
    if _TWO_READINGS.match(text):
        raise ValueError(
            f"{quoted(text)} means different things to different YAML parsers; quote it for text, or write true,"
            " false or a plain number"
        )
    value = _number(text)
    if event.tag is not None and {"null": type(None), "bool": bool, "int": int, "float": float}[
        event.tag.removeprefix(CORE)
    ] is not type(value):
        raise ValueError(f"{quoted(text)} does not match tag {quoted(event.tag)}; remove the tag")
    return value


def _number(text: str) -> Plain:
    if text in _NOTHING or text in _WORDS:
        return _WORDS.get(text)
    if _INT.match(text) or _HEX.match(text):
        number = int(text, 0 if _HEX.match(text) else 10) if len(text) <= 20 else MAX_INT + 1
        if abs(number) > MAX_INT:
            raise ValueError(f"{quoted(text)} is too large; the largest whole number is {MAX_INT}")
        return number
    if _FLOAT.match(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{quoted(text)} is too large; write a smaller number")
        return value
    return text


def unquoted_value(text: str) -> Plain:
    """The value that the text would have without quotes; the text itself if that is invalid."""
    try:
        return _number(text)
    except ValueError:
        return text


MAX_BYTES: Final = 1024 * 1024  # ten times the size of a policy with a thousand rules
MAX_DEPTH: Final = 32  # the schema needs 8, plus nested `not`
MAX_NODES: Final = 50_000
MAX_FAULTS: Final = 500  # a file with 50,000 unknown keys must not take minutes, and more faults do not help

# PyYAML has no C loader if it was built without libyaml
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FLAT: Final = {CORE + "map": "mapping", CORE + "seq": "list"}
# Characters that reorder, hide or break lines: a reader of the file would see other text than the gate. The escape
# "\u202e" in double quotes stays possible.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|(?<!^)\ufeff"
)


class _Open(msgspec.Struct, eq=False):
    """A container under construction. ``key`` is the key whose value comes next; ``dropped`` means that this value is
    discarded."""

    node: Sequence | Mapping
    path: Path
    key: tuple[str, Mark] | None = None
    dropped: bool = False


def compose(text: str, *, max_bytes: int = MAX_BYTES, max_values: int = MAX_NODES) -> tuple[Node, list[Fault]]:
    """The tree of the single document in ``text``, with every fault in it. Raises Unreadable if it is not YAML or
    exceeds a limit."""
    _check_text(text, max_bytes)
    builder = _Builder(max_values)
    try:
        for event in _events(text):
            builder.feed(event)
    except yaml.MarkedYAMLError as problem:
        raise Unreadable(
            Fault(_mark(problem.problem_mark or problem.context_mark), (), _syntax(problem, text))
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise Unreadable(Fault(Mark(1, 1), (), "not valid YAML; save the file as UTF-8 text")) from None
    if builder.root is None:
        raise Unreadable(Fault(Mark(1, 1), (), "the file is empty; `samplegate docs policies` describes its format"))
    return builder.root, builder.faults


def _events(text: str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=_LOADER))


def _check_text(text: str, max_bytes: int) -> None:
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise Unreadable(Fault(Mark(1, 1), (), f"the file is larger than {max_bytes} bytes; shorten it"))
    unseen = _UNSEEN.search(text)
    if unseen is not None:
        before = re.split(r"\r\n|\r|\n", text[: unseen.start()])
        code = f"U+{ord(unseen[0]):04X}"
        where = Mark(len(before), len(before[-1]) + 1)
        raise Unreadable(
            Fault(where, (), f"character {code} is invisible; remove it, or write it as an escape in double quotes")
        )


def _mark(mark: Any) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


def _at(text: str, mark: Any) -> str:
    """The character at a position of the parser."""
    if mark is None:
        return ""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""


def _line_of(text: str, mark: yaml.Mark | None) -> str:
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[mark.line] if mark is not None and mark.line < len(lines) else ""


def _syntax(problem: yaml.MarkedYAMLError, text: str) -> str:
    what = " ".join(str(part) for part in (problem.context, problem.problem) if part).rstrip()
    if _at(text, problem.problem_mark) == "\t":
        what += "; indent with spaces"
    elif "flow mapping" in what and "${" in _line_of(text, problem.problem_mark):
        what += "; quote text that contains ${"
    elif "mapping values are not allowed" in what:
        what += "; check the indentation, and quote text that contains ': '"
    elif "block collection" in what or "block mapping" in what:
        what += "; check the indentation: the entries of a list or mapping begin in the same column"
    elif "expected ','" in what:
        what += "; close the bracket or brace, and quote text that contains one"
    elif "found character" in what or "undefined alias" in what or "found unexpected" in what:
        what += "; quote text that starts with or contains special characters"
    return "not valid YAML: " + (what or "syntax error")


class _Builder:
    """Builds the tree from the parser's events."""

    def __init__(self, max_nodes: int) -> None:
        self.root: Node | None = None
        self.faults: list[Fault] = []
        self._max_nodes = max_nodes
        self._stack: list[_Open] = []
        self._count = 0

    def feed(self, event: Any) -> None:
        mark = _mark(event.start_mark)
        match event:
            case yaml.ScalarEvent():
                self._anchor(event, mark)
                self._scalar(event, mark)
            case yaml.AliasEvent():
                self._count_one(mark)
                self._fault(mark, f"alias {quoted('*' + str(event.anchor))} is not supported; write the value out")
                self._leaf(Broken(mark))
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._anchor(event, mark)
                self._start(event, mark)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.DocumentStartEvent() if self.root is not None:
                raise Unreadable(Fault(mark, (), "a second document starts here; use one file per document"))
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
            self._fault(
                mark, f"anchor {quoted('&' + str(event.anchor))} is not supported; remove it and write the value out"
            )

    def _count_one(self, mark: Mark) -> None:
        self._count += 1
        if self._count > self._max_nodes:
            raise Unreadable(Fault(mark, (), f"the file has more than {self._max_nodes} values; shorten it"))

    def _expects_key(self) -> bool:
        return (
            bool(self._stack)
            and isinstance(self._stack[-1].node, Mapping)
            and self._stack[-1].key is None
            and not self._stack[-1].dropped
        )

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
            self._fault(mark, f"duplicate key, first on line {first.mark.line}; remove one", (*top.path, name))
        top.key, top.dropped = (name, mark), first is not None

    def _start(self, event: Any, mark: Mark) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise Unreadable(Fault(mark, (), f"the file is nested deeper than {MAX_DEPTH} levels; flatten it"))
        path = self._here()
        if self._expects_key():
            self._fault(mark, "a list or mapping cannot be a key; use a string", path)
        node = Mapping(mark) if isinstance(event, yaml.MappingStartEvent) else Sequence(mark)
        tag = None if event.implicit or event.tag in (None, "!") else str(event.tag)
        if tag is not None and _FLAT.get(tag) != ("mapping" if isinstance(node, Mapping) else "list"):
            self._fault(mark, f"tag {quoted(tag)} is not supported; remove it", path)
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
            top.dropped = True  # the key was not a scalar: its value is discarded too
        else:
            if top.key is not None and not top.dropped:
                top.node.entries[top.key[0]] = MappingEntry(top.key[1], node)
            top.key, top.dropped = None, False


def _bad_key(event: Any) -> str | None:
    """Why a scalar is not a valid key, None if it is. A word that YAML 1.1 reads as a boolean is valid, as in YAML
    1.2."""
    if event.implicit[0] and event.value == "<<":
        return "merge key '<<' is not supported; write the keys out"
    try:
        value = resolve(event)
    except ValueError:
        value = event.value
    if not isinstance(value, str):
        return f"key {quoted(event.value)} is not a string; quote it"
    return None
