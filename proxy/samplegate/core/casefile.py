"""The file of cases that the ``scripted`` model and ``answer`` rules answer from: what it may say, and its text -> a Script. Not the answering.

    cases:                                    # in order; the first that fits answers
      - name: risk                            # for messages; optional
        system: "(?i)auditor"                 # RE2, found in the system prompt
        text: "Classify (?P<count>[0-9]+)"    # RE2, found in any text of any message, the newest first
        answer: "{count} accounts: low risk"  # {count} is what the group matched; {{count}} stands for {count}; other braces are left alone
      - text_contains: "audit entry"          # plain text instead of RE2; also system_contains
        answer: "Deleted."
        model: trial-1                        # what the result calls the model; default: scripted
        stop_reason: endTurn                  # default: endTurn, toolUse for content that uses a tool
        input_tokens: 12                      # default: counted, one for each word
        output_tokens: 2
        delay: 200ms                          # before it answers
      - fingerprint: 0f1e2d3c4b5a6978         # exactly this request (fingerprint.py); several of one fingerprint take turns, the last one stays
        content: [{type: tool_use, id: a, name: rm, input: {}}]   # instead of answer: content blocks, as they are
      - text: "(?i)joke"
        fail: refused                         # instead of an answer: one of the failures of a real model
      - message_contains: "Sure?"             # an elicitation: plain text found in its message; also `message`, RE2
        action: accept                        # or decline, cancel
        values: {confirm: true}               # what the form is filled in with
      - answer: "I have no script for this"   # without conditions: fits everything of its kind, so it must be the last

All conditions of a case must hold.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.policy import Duration, Kind, Pattern, Strict, seconds
from samplegate.core.policyfile import tree
from samplegate.core.policyfile.validate import read
from samplegate.core.prompt import Failure

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Action: TypeAlias = Literal["accept", "decline", "cancel"]
Print: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]

MAX_BYTES: Final = 16 * 1024 * 1024  # of a file: a recorded day holds images
MAX_VALUES: Final = 500_000
PLACE: Final = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")

BLOCKS: Final[Mapping[str, Mapping[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
"""The content blocks of an answer (R13): their members beside `type`, and what each is."""

_OF_SAMPLING: Final = ("system", "text", "system_contains", "text_contains", "model", "stop_reason", "input_tokens", "output_tokens", "delay")
_OF_ELICITATION: Final = ("message", "message_contains", "values")
_CONDITIONS: Final = ("fingerprint", "system", "text", "system_contains", "text_contains", "message", "message_contains")
_ANSWERS: Final = ("answer", "content", "fail", "action")


class Case(Strict, frozen=True):
    """One case of the file."""

    name: str | None = None
    fingerprint: Print | None = None
    system: Pattern | None = None
    text: Pattern | None = None
    system_contains: str | None = None
    text_contains: str | None = None
    message: Pattern | None = None
    message_contains: str | None = None
    answer: str | None = None
    content: list[Any] | None = None
    fail: Failure | None = None
    action: Action | None = None
    values: dict[str, Any] | None = None
    model: str | None = None
    stop_reason: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    delay: Duration | None = None


class Cases(Strict, frozen=True):
    """The file."""

    cases: list[Case]


class Compiled(msgspec.Struct, frozen=True):
    """A case with its expressions compiled; its place in the file, from 0; seconds to wait."""

    case: Case
    index: int
    system: Any
    text: Any
    message: Any
    delay: float

    @property
    def called(self) -> str:
        """How messages call it."""
        return _called(self.case, self.index)


class Script(msgspec.Struct, frozen=True):
    """A file of cases, ready to answer."""

    sampling: tuple[Compiled, ...]
    elicitation: tuple[Compiled, ...]
    prints: frozenset[str]
    """The fingerprints that it knows."""

    @property
    def size(self) -> int:
        """How many cases it has."""
        return len(self.sampling) + len(self.elicitation)


def parse(text: str, *, file: str) -> Script:
    """The cases in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    file_cases, root = read(text, Cases, file=file, most_bytes=MAX_BYTES, most_values=MAX_VALUES)
    cases = file_cases.cases
    if faults := [*_contradictions(cases, root)]:
        raise tree.PolicyError(tree.problems(file, faults))
    compiled = [_compile(case, index) for index, case in enumerate(cases)]
    kinds = [kind_of(case) for case in cases]
    sampling, elicitation = (tuple(one for one, its in zip(compiled, kinds, strict=True) if its == kind) for kind in ("sampling", "elicitation"))
    return Script(sampling, elicitation, frozenset(case.fingerprint for case in cases if case.fingerprint is not None))


def bad_block(block: Any, *, variables: bool = True) -> str | None:
    """Why a value is no content block of an answer (R13), as a sentence; ``variables``: data may be a ``${VAR}``."""
    if not isinstance(block, dict) or block.get("type") not in BLOCKS:
        return "this is not a content block; its type is one of text, image, audio, tool_use, as in {type: text, text: ...}"
    members = BLOCKS[block["type"]]
    for name, form in members.items():
        if not isinstance(block.get(name), form):
            return f"a block of type {block['type']} has no {'text' if form is str else 'mapping'} at {name}; add it"
    odd = [name for name in block if name not in {"type", *members}]
    if odd:
        return f"a block of type {block['type']} has no {tree.quoted(odd[0])}; remove it"
    if "data" in members and not (variables and "${" in block["data"]) and not _is_base64(block["data"]):
        return "data is not base64; encode it"
    return None


def _is_base64(text: str) -> bool:
    try:
        return bool(binascii.a2b_base64(text.encode("ascii"), strict_mode=True)) or text == ""
    except (ValueError, UnicodeEncodeError):
        return False


def bad_value(value: Any) -> str | None:
    """Why a value is none that a field can have (R34)."""
    if isinstance(value, (str, bool, int, float)) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return None
    return "a field is text, a number, true or false, or a list of texts; write one of these"


def kind_of(case: Case) -> Kind:
    """What a case answers: the one with an action answers elicitations."""
    return "sampling" if case.action is None else "elicitation"


def _compile(case: Case, index: int) -> Compiled:
    expressions = (_expression(case.system), _expression(case.text), _expression(case.message))
    return Compiled(case, index, *expressions, 0.0 if case.delay is None else seconds(case.delay))


def _contradictions(cases: list[Case], root: tree.Node) -> Iterator[tree.Fault]:
    """What the types do not say: one answer, of one kind; no place without a group; nothing behind a case that takes everything."""
    everything: dict[Kind, int] = {}
    if not cases:
        yield _fault(root, ("cases",), "there is no case; give at least one")
    for index, case in enumerate(cases):
        path: tree.Path = ("cases", index)
        kind = kind_of(case)
        if kind in everything:
            first = _called(cases[everything[kind]], everything[kind])
            yield _fault(root, path, f"{_called(case, index)} is never reached: {first} fits everything; put that one last")
        elif not _given(case, _CONDITIONS):
            everything[kind] = index
        yield from _answer(case, index, root, path)
        yield from _places(case, root, path)


def _given(case: Case, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(case, name) is not None]


def _answer(case: Case, index: int, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    """One answer, with nothing of the other kind beside it."""
    given = _given(case, _ANSWERS)
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "answers nothing"
        yield _fault(root, path, f"{_called(case, index)} {found}; give one of {', '.join(_ANSWERS)}")
        return
    for name in _given(case, _OF_ELICITATION if case.action is None else _OF_SAMPLING):
        why = "belongs to an elicitation, and the case has no action" if case.action is None else "belongs to sampling, and the case has an action"
        yield _fault(root, (*path, name), f"the key {why}; remove one of the two")
    if case.values is not None and case.action in ("decline", "cancel"):
        yield _fault(root, (*path, "values"), f"nothing is filled in with action: {case.action}; remove one of the two")
    if case.content == []:
        yield _fault(root, (*path, "content"), "the list is empty; give a content block")
    for at, why in _bad_contents(case):
        yield _fault(root, (*path, *at), why)


def _bad_contents(case: Case) -> Iterator[tuple[tree.Path, str]]:
    for number, block in enumerate(case.content or ()):
        if (why := bad_block(block, variables=False)) is not None:
            yield ("content", number), why
    for name, value in (case.values or {}).items():
        if (why := bad_value(value)) is not None:
            yield ("values", name), why


def _places(case: Case, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    systems, texts = (set() if pattern is None else set(_expression(pattern).groupindex) for pattern in (case.system, case.text))
    for twice in sorted(systems & texts):
        yield _fault(root, (*path, "text"), f"group {twice!r} stands in system and in text; rename one")
    for place in PLACE.finditer(case.answer or ""):
        if place[2] and place[2] not in systems | texts:
            remedy = f"name a group (?P<{place[2]}>...), or write {{{place[0]}}} for the text itself"
            yield _fault(root, (*path, "answer"), f"{place[0]!r} names no group of system or text; {remedy}")


def _called(case: Case, index: int) -> str:
    return f"case {index + 1}" if case.name is None else f"case {tree.quoted(case.name)}"


def _expression(pattern: str | None) -> Any:
    if pattern is None:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _fault(root: tree.Node, path: tree.Path, what: str) -> tree.Fault:
    node = tree.find(root, path) or root
    return tree.Fault(node.mark, path, what)
