"""The built-in model ``scripted``: a file of cases answers in a model's place, for trials and tests. No model, no clock, no guess.

A policy names it ``{name: trial, model: scripted, cases: FILE}``, FILE relative to the policy. FILE is YAML, read as strictly as a policy:

    cases:                                    # in order; the first that fits answers, and if none fits the request fails (no_case)
      - name: risk                            # for messages; optional
        system: "(?i)auditor"                 # RE2, found in the system prompt
        text: "Classify (?P<count>[0-9]+)"    # RE2, found in any text of any message, the newest first
        answer: "{count} accounts: low risk"  # {count} is what the group matched; {{count}} stands for {count}; other braces are left alone
      - text_contains: "audit entry"          # plain text instead of RE2; also system_contains
        answer: "Deleted."
        model: trial-1                        # what the result calls the model; default: scripted
        stop_reason: endTurn                  # default: endTurn
        input_tokens: 12                      # default: counted, one for each word
        output_tokens: 2
      - text: "(?i)joke"
        fail: refused                         # instead of an answer: one of the failures of a real model
      - answer: "I have no script for this"   # without conditions: fits everything, so it must be the last

All conditions of a case must hold. An answer is cut to the request's maxTokens, words counting as tokens, and then stops with ``maxTokens`` (R3).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from samplegate.core.load import PolicyError, Problem
from samplegate.core.policy import Pattern, Strict
from samplegate.core.policyfile import tree
from samplegate.core.policyfile.nodes import compose
from samplegate.core.policyfile.walk import convert, type_of
from samplegate.core.samples import Failure, Sampled, SampleFailed, SampleResult

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

_PLACE: Final = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")
_WORD: Final = re.compile(r"\S+\s*")
_MOST_FILLED: Final = 1_000_000  # characters of a group that an answer repeats


class Case(Strict, frozen=True):
    """One case of the file."""

    name: str | None = None
    system: Pattern | None = None
    text: Pattern | None = None
    system_contains: str | None = None
    text_contains: str | None = None
    answer: str | None = None
    fail: Failure | None = None
    model: str = "scripted"
    stop_reason: str = "endTurn"
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class Cases(Strict, frozen=True):
    """The file."""

    cases: list[Case]


class Compiled(msgspec.Struct, frozen=True):
    """A case with its expressions compiled."""

    case: Case
    system: Any
    text: Any


class Script(msgspec.Struct, frozen=True):
    """A file of cases, ready to answer."""

    cases: tuple[Compiled, ...]


def parse(text: str, *, file: str) -> Script:
    """The cases in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    try:
        root, faults = compose(text)
    except tree.Unreadable as broken:
        raise PolicyError((_problem(file, broken.fault),)) from None
    value, walk = convert(root, type_of(Cases))
    if faults := [*faults, *walk.faults]:
        raise _error(file, faults)
    cases = msgspec.convert(value, Cases).cases
    if faults := [*_contradictions(cases, root)]:
        raise _error(file, faults)
    return Script(tuple(Compiled(case, _compiled(case.system), _compiled(case.text)) for case in cases))


def choose(script: Script, name: str, params: Mapping[str, Any]) -> SampleResult:
    """What the script says to createMessage ``params``; ``name`` is our name of the model, for messages."""
    system = _system(params)
    texts = _texts(params)
    for index, compiled in enumerate(script.cases):
        groups = _groups(compiled, system, texts)
        if groups is None:
            continue
        case = compiled.case
        if case.fail is not None:
            return SampleFailed(case.fail, f"model {name}: its {_called(case, index)} says so (fail: {case.fail})")
        answer = _fill(case.answer or "", groups)
        if not answer:
            return SampleFailed("empty", f"model {name}: the answer of its {_called(case, index)} is empty; write one, or `fail: empty`")
        return _answered(case, answer, params.get("maxTokens"), [system, *texts])
    what = f"no case of its file fits the request, tried {len(script.cases)}; add one, or a last one without conditions"
    return SampleFailed("no_case", f"model {name}: {what}")


def _answered(case: Case, text: str, most: object, said: list[str]) -> Sampled:
    bound = most if isinstance(most, int) and not isinstance(most, bool) else sys.maxsize
    words, stop_reason = _WORD.findall(text), case.stop_reason
    if len(words) > bound:
        words, stop_reason = words[:bound], "maxTokens"
        text = "".join(words).rstrip()
    heard = sum(len(_WORD.findall(one)) for one in said) if case.input_tokens is None else case.input_tokens
    return Sampled(text, case.model, stop_reason, heard, min(len(words) if case.output_tokens is None else case.output_tokens, bound))


def _groups(compiled: Compiled, system: str, texts: list[str]) -> dict[str, str] | None:
    """What the named groups of the case's expressions matched, None if the case does not fit."""
    case = compiled.case
    if case.system_contains is not None and case.system_contains not in system:
        return None
    if case.text_contains is not None and not any(case.text_contains in text for text in texts):
        return None
    groups: dict[str, str] = {}
    for expression, heard in ((compiled.system, [system]), (compiled.text, texts)):
        if expression is None:
            continue
        found = next(filter(None, map(expression.search, heard)), None)
        if found is None:
            return None
        groups.update({group: value or "" for group, value in found.groupdict().items()})
    return groups


def _fill(answer: str, groups: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: place[0][1:-1] if place[1] else groups[place[2]][:_MOST_FILLED], answer)


def _system(params: Mapping[str, Any]) -> str:
    system = params.get("systemPrompt")
    return _whole(system) if isinstance(system, str) else ""


def _texts(params: Mapping[str, Any]) -> list[str]:
    """Every text of every message, the newest first."""
    messages = params.get("messages")
    contents = [message.get("content") for message in (messages if isinstance(messages, list) else ()) if isinstance(message, Mapping)]
    blocks = [block for content in contents for block in (content if isinstance(content, list) else [content])]
    return [_whole(block["text"]) for block in reversed(blocks) if isinstance(block, Mapping) and isinstance(block.get("text"), str)]


def _whole(text: str) -> str:
    """RE2 reads UTF-8, which has no half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def _contradictions(cases: list[Case], root: tree.Node) -> Iterator[tree.Fault]:
    """What the types do not say: an answer or a failure, no place without a group, nothing behind a case that takes everything."""
    everything: int | None = None
    if not cases:
        yield _fault(root, ("cases",), "there is no case; give at least one")
    for index, case in enumerate(cases):
        path: tree.Path = ("cases", index)
        if everything is not None:
            first = _called(cases[everything], everything)
            yield _fault(root, path, f"{_called(case, index)} is never reached: {first} fits everything; put that one last")
        elif (case.system, case.text, case.system_contains, case.text_contains) == (None,) * 4:
            everything = index
        if (case.answer is None) == (case.fail is None):
            which = "neither answer nor" if case.fail is None else "both answer and"
            yield _fault(root, path, f"{_called(case, index)} has {which} fail; give one of the two")
        yield from _places(case, root, path)


def _places(case: Case, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    systems, texts = (set() if pattern is None else set(_compiled(pattern).groupindex) for pattern in (case.system, case.text))
    for twice in sorted(systems & texts):
        yield _fault(root, (*path, "text"), f"group {twice!r} stands in system and in text; rename one")
    for place in _PLACE.finditer(case.answer or ""):
        if place[2] and place[2] not in systems | texts:
            remedy = f"name a group (?P<{place[2]}>...), or write {{{place[0]}}} for the text itself"
            yield _fault(root, (*path, "answer"), f"{place[0]!r} names no group of system or text; {remedy}")


def _called(case: Case, index: int) -> str:
    return f"case {index + 1}" if case.name is None else f"case {tree.quoted(case.name)}"


def _compiled(pattern: str | None) -> Any:
    if pattern is None:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _fault(root: tree.Node, path: tree.Path, what: str) -> tree.Fault:
    node = tree.find(root, path) or root
    return tree.Fault(node.mark, path, what)


def _error(file: str, faults: list[tree.Fault]) -> PolicyError:
    return PolicyError(tuple(_problem(file, fault) for fault in sorted(faults, key=lambda fault: (fault.mark.line, fault.mark.column))))


def _problem(file: str, fault: tree.Fault) -> Problem:
    return Problem(file, fault.mark.line, fault.mark.column, tree.dotted(fault.path), fault.what)
