"""Pure. Scripts: case files of the ``scripted`` model and of ``answer`` rules, and their answers to requests.

    cases:                                    # in order; the first case that fits answers
      - name: risk                            # for messages; optional
        system: "(?i)auditor"                 # RE2, found in the system prompt
        text: "Classify (?P<count>[0-9]+)"    # RE2, found in any text of any message, the newest first
        answer: "{count} accounts: low risk"  # {count}: the group's match; {{count}}: a literal {count}; others stay
      - text_contains: "audit entry"          # plain text instead of RE2; also system_contains
        answer: "Deleted."
        model: trial-1                        # the model's name in the result; default: scripted
        stop_reason: endTurn                  # default: endTurn, or toolUse if the content uses a tool
        input_tokens: 12                      # default: counted, one for each word
        output_tokens: 2
        delay: 200ms                          # time before the answer
      - fingerprint: 0f1e2d3c4b5a6978         # exactly this request; cases with one fingerprint take turns
        content: [{type: tool_use, id: a, name: rm, input: {}}]   # content blocks instead of answer, unchanged
      - text: "(?i)joke"
        fail: refused                         # a failure of a real model instead of an answer
      - message_contains: "Sure?"             # an elicitation: plain text found in its message; also `message`, RE2
        action: accept                        # or decline, cancel
        values: {confirm: true}               # the values of the form
      - answer: "I have no script for this"   # no conditions: fits every sampling request, so it must be the last

All conditions of a case must hold. If several cases have the same fingerprint, the last one repeats. A policy names the
model ``{name: trial, model: scripted, cases: FILE}``, with FILE relative to the policy. An answer is cut to the
request's maxTokens, with a word as a token, and then stops with ``maxTokens`` (R3).

A fingerprint identifies a request: messages, system prompt and tools, or an elicitation's message and form. It ignores
differences between two runs of the same question: ``_meta``, ``metadata``, bounds and priorities. The IDs of tool uses
count by their position only.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.conditions import listed
from samplegate.policy.prompt import Failure, Sampled, SampleFailed, SampleResult
from samplegate.policy.schema import Duration, Pattern, Strict, seconds
from samplegate.protocol.requests import Kind
from samplegate.yamlfile import tree
from samplegate.yamlfile.validate import read

NAME: Final = "scripted"
"""The model's name in a result if the case has none."""

_WORD: Final = re.compile(r"\S+\s*")
_MAX_GROUP_CHARACTERS: Final = 1_000_000  # characters of a group in an answer
_NO_TURNS: Final[Mapping[str, int]] = MappingProxyType({})


class Picked(msgspec.Struct, frozen=True):
    """A script's answer to a sampling request."""

    result: SampleResult
    delay: float = 0.0
    """Seconds to wait before the answer."""
    fingerprint: str | None = None
    """The request's fingerprint, if the case has one; the caller counts it in ``turns``."""
    index: int | None = None
    """The case's index in the file; None if no case fits."""


class ScriptReply(msgspec.Struct, frozen=True):
    """A script's answer to an elicitation."""

    action: Action
    values: Mapping[str, Any]


def pick(
    script: Script, name: str, params: Mapping[str, Any], turns: Mapping[str, int] = _NO_TURNS, *, called: str = NAME
) -> Picked:
    """The script's answer to createMessage ``params``.

    ``name`` is the policy's name of the model, for messages; ``called`` is its name in the result. ``turns`` counts how
    often each fingerprint was picked before. Cases with the same fingerprint take turns, and the last one repeats.
    """
    asked = _RequestParts(params, script)
    found = _first(script.sampling, asked, turns)
    if found is None:
        what = (
            f"none of the {len(script.sampling)} cases in its file matches the request; add one, or a last one"
            " without conditions"
        )
        return Picked(SampleFailed("no_case", f"model {name}: {what}", free=True))
    compiled, groups = found
    return Picked(
        _result(compiled, groups, asked, name, called), compiled.delay, compiled.case.fingerprint, compiled.index
    )


def reply(script: Script, params: Mapping[str, Any]) -> ScriptReply | None:
    """The script's answer to elicitation ``params``, None if no case fits. The values are not checked against the form
    here."""
    found = reply_case(script, params, _NO_TURNS)
    return None if found is None else reply_of(found)


def reply_case(script: Script, params: Mapping[str, Any], turns: Mapping[str, int]) -> Compiled | None:
    """The case that answers elicitation ``params``, None if no case fits. ``turns`` are those of ``pick``."""
    found = _first(script.elicitation, _RequestParts(params, script), turns)
    return None if found is None else found[0]


def reply_of(compiled: Compiled) -> ScriptReply:
    """The reply of a case for elicitations."""
    case = compiled.case
    assert case.action is not None
    return ScriptReply(case.action, case.values or {})


class _RequestParts:
    """The parts of a request that conditions read."""

    def __init__(self, params: Mapping[str, Any], script: Script) -> None:
        self.system = _text(params.get("systemPrompt"))
        self.texts = list(_texts(params))
        self.message = _text(params.get("message"))
        self.max_tokens = params.get("maxTokens")
        self.fingerprint = fingerprint(params) if script.prints else ""


def _first(
    cases: tuple[Compiled, ...], asked: _RequestParts, turns: Mapping[str, int]
) -> tuple[Compiled, dict[str, str]] | None:
    """The first case that fits, with its groups. Of several cases with its fingerprint, the one whose turn it is."""
    fitting = ((one, groups) for one in cases if (groups := _groups(one, asked)) is not None)
    first = next(fitting, None)
    if first is None or first[0].case.fingerprint is None:
        return first
    same = [first, *(one for one in fitting if one[0].case.fingerprint == first[0].case.fingerprint)]
    return same[min(turns.get(first[0].case.fingerprint, 0), len(same) - 1)]


def _groups(compiled: Compiled, asked: _RequestParts) -> dict[str, str] | None:
    """The matches of the named groups in the case's expressions, None if the case does not fit."""
    case = compiled.case
    if case.fingerprint is not None and case.fingerprint != asked.fingerprint:
        return None
    contained = (
        (case.system_contains, [asked.system]),
        (case.text_contains, asked.texts),
        (case.message_contains, [asked.message]),
    )
    if any(wanted is not None and not any(wanted in text for text in heard) for wanted, heard in contained):
        return None
    groups: dict[str, str] = {}
    for expression, heard in (
        (compiled.system, [asked.system]),
        (compiled.text, asked.texts),
        (compiled.message, [asked.message]),
    ):
        if expression is None:
            continue
        found = next(filter(None, map(expression.search, heard)), None)
        if found is None:
            return None
        groups.update({group: value or "" for group, value in found.groupdict().items()})
    return groups


def _result(
    compiled: Compiled, groups: Mapping[str, str], asked: _RequestParts, name: str, called: str
) -> SampleResult:
    case = compiled.case
    if case.fail is not None:
        what = f"model {name}: its {compiled.called} has fail: {case.fail}"
        free = (case.input_tokens, case.output_tokens) == (None, None) and case.fail not in (
            "refused",
            "empty",
            "timeout",
            "crashed",
            "error",
        )
        return SampleFailed(
            case.fail, what, free=free, input_tokens=case.input_tokens, output_tokens=case.output_tokens
        )
    blocks = case.content if case.content is not None else [{"type": "text", "text": _fill(case.answer or "", groups)}]
    if blocks == [{"type": "text", "text": ""}]:
        return SampleFailed(
            "empty", f"model {name}: the answer of its {compiled.called} is empty; write one, or `fail: empty`"
        )
    return _sampled(case, blocks, asked, called)


def _sampled(case: ScriptCase, blocks: Sequence[Mapping[str, Any]], asked: _RequestParts, called: str) -> Sampled:
    bound = (
        asked.max_tokens
        if isinstance(asked.max_tokens, int) and not isinstance(asked.max_tokens, bool)
        else sys.maxsize
    )
    kept, words, whole = _cut(blocks, bound)
    usual = "toolUse" if any(block["type"] == "tool_use" for block in kept) else "endTurn"
    stop_reason = (case.stop_reason or usual) if whole else "maxTokens"
    heard = sum(map(_count, (asked.system, *asked.texts))) if case.input_tokens is None else case.input_tokens
    said = words if case.output_tokens is None else case.output_tokens
    return Sampled(kept, case.model or called, stop_reason, heard, said)


def _cut(blocks: Sequence[Mapping[str, Any]], bound: int) -> tuple[tuple[Mapping[str, Any], ...], int, bool]:
    """The blocks cut to at most ``bound`` words of text, the number of words, and whether nothing was cut."""
    kept: list[Mapping[str, Any]] = []
    left = bound
    for block in blocks:
        words = _WORD.findall(block["text"]) if block["type"] == "text" else []
        if len(words) > left:
            text = "".join(words[:left]).rstrip()
            return (*kept, *([{**block, "text": text}] if text else [])), bound, False
        left -= len(words)
        kept.append(block)
    return tuple(kept), bound - left, True


def _count(text: str) -> int:
    return len(_WORD.findall(text))


def _fill(answer: str, groups: Mapping[str, str]) -> str:
    return PLACE.sub(lambda place: place[0][1:-1] if place[1] else groups[place[2]][:_MAX_GROUP_CHARACTERS], answer)


def _texts(params: Mapping[str, Any]) -> Iterator[str]:
    """Every text of every message, the newest first, including a tool's result, as in the policy's `text`."""
    given = params.get("messages")
    messages: list[Any] = given if isinstance(given, list) else []
    for message in reversed(messages):
        if isinstance(message, Mapping):
            yield from _of_blocks(message.get("content"))


def _of_blocks(content: object) -> Iterator[str]:
    for block in reversed(content) if isinstance(content, list) else [content]:
        if not isinstance(block, Mapping):
            continue
        if isinstance(block.get("text"), str):
            yield _text(block["text"])
        if isinstance(block.get("resource"), Mapping):
            yield from _of_blocks(block["resource"])
        if block.get("type") == "tool_result":
            yield from _of_blocks(block.get("content"))


def _text(text: object) -> str:
    """The text without lone surrogates, because RE2 reads UTF-8; empty for other types."""
    if not isinstance(text, str):
        return ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Action: TypeAlias = Literal["accept", "decline", "cancel"]
Print: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]

MAX_BYTES: Final = 16 * 1024 * 1024  # of a file: a recorded day contains images
MAX_VALUES: Final = 500_000
PLACE: Final = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")

BLOCKS: Final[Mapping[str, Mapping[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
"""The content blocks of an answer (R13): their members besides `type`, with their types."""

_OF_SAMPLING: Final = (
    "system",
    "text",
    "system_contains",
    "text_contains",
    "model",
    "stop_reason",
    "input_tokens",
    "output_tokens",
    "delay",
)
_OF_ELICITATION: Final = ("message", "message_contains", "values")
_CONDITIONS: Final = (
    "fingerprint",
    "system",
    "text",
    "system_contains",
    "text_contains",
    "message",
    "message_contains",
)
_ANSWERS: Final = ("answer", "content", "fail", "action")


class ScriptCase(Strict, frozen=True):
    """One case of a script."""

    name: Annotated[str | None, msgspec.Meta(description="A name for messages.")] = None
    fingerprint: Annotated[
        Print | None,
        msgspec.Meta(
            description=(
                "Matches exactly one request, by 16 hex digits over its content: messages, system prompt and tools, or"
                " a form and its message. `run --record` writes fingerprints."
            )
        ),
    ] = None
    system: Annotated[Pattern | None, msgspec.Meta(description="An expression found in the system prompt.")] = None
    text: Annotated[
        Pattern | None,
        msgspec.Meta(description="An expression found in any text of any message. Newer messages are searched first."),
    ] = None
    system_contains: Annotated[str | None, msgspec.Meta(description="Plain text found in the system prompt.")] = None
    text_contains: Annotated[str | None, msgspec.Meta(description="Plain text found in any text of any message.")] = (
        None
    )
    message: Annotated[Pattern | None, msgspec.Meta(description="An expression found in an elicitation's message.")] = (
        None
    )
    message_contains: Annotated[
        str | None, msgspec.Meta(description="Plain text found in an elicitation's message.")
    ] = None
    answer: Annotated[
        str | None,
        msgspec.Meta(
            description=(
                "The text of the answer. `{name}` is the match of the named group `(?P<name>...)`; `{{name}}` is a"
                " literal `{name}`."
            )
        ),
    ] = None
    content: Annotated[
        list[Any] | None,
        msgspec.Meta(
            description=(
                "Instead of `answer`, a list of content blocks, passed on unchanged: also `tool_use`, `image` and"
                " `audio`."
            )
        ),
    ] = None
    fail: Annotated[Failure | None, msgspec.Meta(description="Instead of an answer, the failure of a real model.")] = (
        None
    )
    action: Annotated[Action | None, msgspec.Meta(description="The reply to an elicitation.")] = None
    values: Annotated[dict[str, Any] | None, msgspec.Meta(description="With `accept`, the values by field name.")] = (
        None
    )
    model: Annotated[str | None, msgspec.Meta(description="The model's name in the result. Default: `scripted`.")] = (
        None
    )
    stop_reason: Annotated[
        str | None,
        msgspec.Meta(
            description=(
                "Default: `endTurn`, or `toolUse` if a tool is used. An answer that is cut to the requested tokens has"
                " `maxTokens`."
            )
        ),
    ] = None
    input_tokens: Annotated[Count | None, msgspec.Meta(description="Default: one per word; for a failure, none.")] = (
        None
    )
    output_tokens: Annotated[Count | None, msgspec.Meta(description="Default: one per word; for a failure, none.")] = (
        None
    )
    delay: Annotated[
        Duration | None, msgspec.Meta(description="How long the model waits before it answers, such as `200ms`.")
    ] = None


class ScriptFile(Strict, frozen=True):
    """A script: the cases of the `scripted` model or of an `answer` rule."""

    cases: list[ScriptCase]


class Compiled(msgspec.Struct, frozen=True):
    """A case with compiled expressions, its index in the file, and its delay in seconds."""

    case: ScriptCase
    index: int
    line: int
    """Where it begins in the file, from 1."""
    system: Any
    text: Any
    message: Any
    delay: float

    @property
    def called(self) -> str:
        """The case's name in messages."""
        return _called(self.case, self.index)


class Script(msgspec.Struct, frozen=True):
    """A case file that is ready to answer."""

    sampling: tuple[Compiled, ...]
    elicitation: tuple[Compiled, ...]
    prints: frozenset[str]
    """The fingerprints in its cases."""

    @property
    def size(self) -> int:
        """The number of cases."""
        return len(self.sampling) + len(self.elicitation)

    @property
    def cases(self) -> list[Compiled]:
        """All cases in the file's order."""
        return sorted((*self.sampling, *self.elicitation), key=lambda one: one.index)


def parse(text: str, *, file: str) -> Script:
    """The script in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    file_cases, root = read(text, ScriptFile, file=file, max_bytes=MAX_BYTES, max_values=MAX_VALUES)
    cases = file_cases.cases
    if faults := [*_contradictions(cases, root)]:
        raise tree.PolicyError(tree.problems(file, faults))
    compiled = [_compile(case, index, tree.mark(root, ("cases", index)).line) for index, case in enumerate(cases)]
    kinds = [kind_of(case) for case in cases]
    sampling, elicitation = (
        tuple(one for one, its in zip(compiled, kinds, strict=True) if its == kind)
        for kind in ("sampling", "elicitation")
    )
    return Script(sampling, elicitation, frozenset(case.fingerprint for case in cases if case.fingerprint is not None))


def bad_block(block: Any, *, variables: bool = True) -> str | None:
    """Why a value is not a content block of an answer (R13), as a sentence; None if it is. ``variables`` allows data to
    be a ``${VAR}``."""
    if not isinstance(block, dict) or block.get("type") not in BLOCKS:
        return "this is not a content block; use type text, image, audio or tool_use, such as {type: text, text: ...}"
    members = BLOCKS[block["type"]]
    for name, form in members.items():
        if not isinstance(block.get(name), form):
            return (
                f"a block of type {block['type']} needs a {'string' if form is str else 'mapping'} as `{name}`; add it"
            )
    odd = [name for name in block if name not in {"type", *members}]
    if odd:
        return f"a block of type {block['type']} cannot have the key {tree.quoted(odd[0])}; remove it"
    if "data" in members and not (variables and "${" in block["data"]) and not _is_base64(block["data"]):
        return "data is not base64; encode it"
    return None


def _is_base64(text: str) -> bool:
    try:
        return bool(binascii.a2b_base64(text.encode("ascii"), strict_mode=True)) or text == ""
    except (ValueError, UnicodeEncodeError):
        return False


def bad_value(value: Any) -> str | None:
    """Why a value is not valid for a form field (R34), None if it is."""
    if isinstance(value, (str, bool, int, float)) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ):
        return None
    return "a field value must be a string, a number, true, false or a list of strings"


def kind_of(case: ScriptCase) -> Kind:
    """The kind of request that a case answers; a case with an action answers elicitations."""
    return "sampling" if case.action is None else "elicitation"


def _compile(case: ScriptCase, index: int, line: int) -> Compiled:
    expressions = (_expression(case.system), _expression(case.text), _expression(case.message))
    return Compiled(case, index, line, *expressions, 0.0 if case.delay is None else seconds(case.delay))


def _contradictions(cases: list[ScriptCase], root: tree.Node) -> Iterator[tree.Fault]:
    """Contradictions that types cannot express. A case has one answer of one kind, answers refer to existing groups,
    and nothing follows a case that fits everything."""
    everything: dict[Kind, int] = {}
    if not cases:
        yield tree.fault_at(root, ("cases",), "there are no cases; add at least one")
    for index, case in enumerate(cases):
        path: tree.Path = ("cases", index)
        kind = kind_of(case)
        if kind in everything:
            first = _called(cases[everything[kind]], everything[kind])
            yield tree.fault_at(
                root, path, f"{_called(case, index)} is never reached: {first} matches everything; put that one last"
            )
        elif not _given(case, _CONDITIONS):
            everything[kind] = index
        yield from _answer(case, index, root, path)
        yield from _places(case, root, path)


def _given(case: ScriptCase, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(case, name) is not None]


def _answer(case: ScriptCase, index: int, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    """Check that a case has one answer, and no keys of the other kind."""
    given = _given(case, _ANSWERS)
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "has no answer"
        yield tree.fault_at(root, path, f"{_called(case, index)} {found}; use exactly one of {', '.join(_ANSWERS)}")
        return
    for name in _given(case, _OF_ELICITATION if case.action is None else _OF_SAMPLING):
        why, remedy = (
            ("is for elicitations, but the case has no action", "remove the key or add an action")
            if case.action is None
            else ("is for sampling, but the case has an action", "remove one of the two")
        )
        yield tree.fault_at(root, (*path, name), f"the key {why}; {remedy}")
    if case.values is not None and case.action in ("decline", "cancel"):
        yield tree.fault_at(root, (*path, "values"), f"`action: {case.action}` sends no values; remove one of the two")
    if case.content == []:
        yield tree.fault_at(root, (*path, "content"), "the list is empty; add a content block")
    for at, why in _bad_contents(case):
        yield tree.fault_at(root, (*path, *at), why)


def _bad_contents(case: ScriptCase) -> Iterator[tuple[tree.Path, str]]:
    for number, block in enumerate(case.content or ()):
        if (why := bad_block(block, variables=False)) is not None:
            yield ("content", number), why
    for name, value in (case.values or {}).items():
        if (why := bad_value(value)) is not None:
            yield ("values", name), why


def _places(case: ScriptCase, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    systems, texts = (
        set() if pattern is None else set(_expression(pattern).groupindex) for pattern in (case.system, case.text)
    )
    for twice in sorted(systems & texts):
        yield tree.fault_at(root, (*path, "text"), f"group {twice!r} is in both system and text; rename one")
    for place in PLACE.finditer(case.answer or ""):
        if place[2] and place[2] not in systems | texts:
            remedy = f"add a group (?P<{place[2]}>...), or write {{{place[0]}}} for a literal {place[0]}"
            yield tree.fault_at(root, (*path, "answer"), f"{place[0]!r} refers to no group in system or text; {remedy}")


def _called(case: ScriptCase, index: int) -> str:
    return f"case {index + 1}" if case.name is None else f"case {tree.quoted(case.name)}"


def _expression(pattern: str | None) -> Any:
    if pattern is None:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


SIZE: Final = 16
"""Hex digits: enough that the fingerprints in one file do not collide by chance."""


def fingerprint(params: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 over canonical JSON (sorted keys, no blanks, ASCII). Empty for params without a JSON
    form, which match no fingerprint."""
    try:
        text = json.dumps(_read(params), sort_keys=True, separators=(",", ":"))
    # parsed requests have no such values: numbers of thousands of digits, unlimited depth
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:SIZE]


def _read(params: Mapping[str, Any]) -> dict[str, Any]:
    """The params that count; an absent, null or empty one is the same."""
    ids: dict[Any, str] = {}
    messages = [_message(message, ids) for message in listed(params.get("messages"))]
    found = {
        "messages": messages,
        "systemPrompt": params.get("systemPrompt"),
        "tools": [_bare(tool) for tool in listed(params.get("tools"))],
        "message": params.get("message"),
        "requestedSchema": params.get("requestedSchema"),
    }
    return {name: value for name, value in found.items() if value}


def _message(message: Any, ids: dict[Any, str]) -> Any:
    if not isinstance(message, Mapping):
        return message
    return {**_bare(message), "content": [_block(block, ids) for block in listed(message.get("content"))]}


def _block(block: Any, ids: dict[Any, str]) -> Any:
    """A block with the ID of a tool use replaced by its position."""
    if not isinstance(block, Mapping):
        return block
    return {**_bare(block), **{name: ids.setdefault(block[name], f"tool {len(ids)}") for name in _ids(block)}}


def _ids(block: Mapping[str, Any]) -> Iterator[str]:
    name = {"tool_use": "id", "tool_result": "toolUseId"}.get(str(block.get("type")))
    if name is not None and isinstance(block.get(name), str):
        yield name


def _bare(value: Any) -> Any:
    return {name: item for name, item in value.items() if name != "_meta"} if isinstance(value, Mapping) else value
