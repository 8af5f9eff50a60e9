"""The built-in model ``scripted``, and the cases of ``answer`` rules: what a script says to a request. No model, no clock, no guess.

A policy names it ``{name: trial, model: scripted, cases: FILE}``, FILE relative to the policy; ``casefile.py`` says what stands in it.
An answer is cut to the request's maxTokens, words counting as tokens, and then stops with ``maxTokens`` (R3).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from samplegate.core.casefile import PLACE, Action, Case, Compiled, Script, parse
from samplegate.core.fingerprint import fingerprint
from samplegate.core.prompt import Sampled, SampleFailed, SampleResult

__all__ = ["NAME", "Case", "Picked", "Reply", "Script", "parse", "pick", "reply"]

NAME: Final = "scripted"
"""What a result calls the model where the case names none."""

_WORD: Final = re.compile(r"\S+\s*")
_MOST_FILLED: Final = 1_000_000  # characters of a group that an answer repeats
_NO_TURNS: Final[Mapping[str, int]] = MappingProxyType({})


class Picked(msgspec.Struct, frozen=True):
    """What a script says to a sampling request."""

    result: SampleResult
    delay: float = 0.0
    """Seconds to wait before."""
    fingerprint: str | None = None
    """That of the request, where a case names it: whoever asks again counts it in ``turns``."""


class Reply(msgspec.Struct, frozen=True):
    """What a script says to an elicitation."""

    action: Action
    values: Mapping[str, Any]


def pick(script: Script, name: str, params: Mapping[str, Any], turns: Mapping[str, int] = _NO_TURNS, *, called: str = NAME) -> Picked:
    """What the script says to createMessage ``params``.

    ``name`` is our name of the model, for messages; ``called`` what the result calls it. ``turns`` says how often each fingerprint was picked
    before: several cases of one fingerprint are used in turn, and the last one stays.
    """
    asked = _Asked(params, script)
    found = _first(script.sampling, asked, turns)
    if found is None:
        what = f"no case of its file fits the request, tried {len(script.sampling)}; add one, or a last one without conditions"
        return Picked(SampleFailed("no_case", f"model {name}: {what}", free=True))
    compiled, groups = found
    return Picked(_said(compiled, groups, asked, name, called), compiled.delay, compiled.case.fingerprint)


def reply(script: Script, params: Mapping[str, Any]) -> Reply | None:
    """What the script says to elicitation ``params``, None if no case fits. The values are not held against the form here."""
    found = _first(script.elicitation, _Asked(params, script), _NO_TURNS)
    if found is None:
        return None
    case = found[0].case
    assert case.action is not None
    return Reply(case.action, case.values or {})


class _Asked:
    """A request as the conditions look at it."""

    def __init__(self, params: Mapping[str, Any], script: Script) -> None:
        self.system = _text(params.get("systemPrompt"))
        self.texts = list(_texts(params))
        self.message = _text(params.get("message"))
        self.most = params.get("maxTokens")
        self.fingerprint = fingerprint(params) if script.prints else ""


def _first(cases: tuple[Compiled, ...], asked: _Asked, turns: Mapping[str, int]) -> tuple[Compiled, dict[str, str]] | None:
    """The first case that fits, with its groups; where it names a fingerprint, the one of those whose turn it is."""
    fitting = ((one, groups) for one in cases if (groups := _groups(one, asked)) is not None)
    first = next(fitting, None)
    if first is None or first[0].case.fingerprint is None:
        return first
    same = [first, *(one for one in fitting if one[0].case.fingerprint == first[0].case.fingerprint)]
    return same[min(turns.get(first[0].case.fingerprint, 0), len(same) - 1)]


def _groups(compiled: Compiled, asked: _Asked) -> dict[str, str] | None:
    """What the named groups of the case's expressions matched, None if the case does not fit."""
    case = compiled.case
    if case.fingerprint is not None and case.fingerprint != asked.fingerprint:
        return None
    contained = ((case.system_contains, [asked.system]), (case.text_contains, asked.texts), (case.message_contains, [asked.message]))
    if any(wanted is not None and not any(wanted in text for text in heard) for wanted, heard in contained):
        return None
    groups: dict[str, str] = {}
    for expression, heard in ((compiled.system, [asked.system]), (compiled.text, asked.texts), (compiled.message, [asked.message])):
        if expression is None:
            continue
        found = next(filter(None, map(expression.search, heard)), None)
        if found is None:
            return None
        groups.update({group: value or "" for group, value in found.groupdict().items()})
    return groups


def _said(compiled: Compiled, groups: Mapping[str, str], asked: _Asked, name: str, called: str) -> SampleResult:
    case = compiled.case
    if case.fail is not None:
        what = f"model {name}: its {compiled.called} says so (fail: {case.fail})"
        free = (case.input_tokens, case.output_tokens) == (None, None) and case.fail not in ("refused", "empty", "timeout", "crashed", "error")
        return SampleFailed(case.fail, what, free=free, input_tokens=case.input_tokens, output_tokens=case.output_tokens)
    blocks = case.content if case.content is not None else [{"type": "text", "text": _fill(case.answer or "", groups)}]
    if blocks == [{"type": "text", "text": ""}]:
        return SampleFailed("empty", f"model {name}: the answer of its {compiled.called} is empty; write one, or `fail: empty`")
    return _answered(case, blocks, asked, called)


def _answered(case: Case, blocks: Sequence[Mapping[str, Any]], asked: _Asked, called: str) -> Sampled:
    bound = asked.most if isinstance(asked.most, int) and not isinstance(asked.most, bool) else sys.maxsize
    kept, words, whole = _cut(blocks, bound)
    usual = "toolUse" if any(block["type"] == "tool_use" for block in kept) else "endTurn"
    stop_reason = (case.stop_reason or usual) if whole else "maxTokens"
    heard = sum(map(_count, (asked.system, *asked.texts))) if case.input_tokens is None else case.input_tokens
    said = words if case.output_tokens is None else case.output_tokens
    return Sampled(kept, case.model or called, stop_reason, heard, said)


def _cut(blocks: Sequence[Mapping[str, Any]], bound: int) -> tuple[tuple[Mapping[str, Any], ...], int, bool]:
    """The blocks with at most ``bound`` words in their texts, how many those are, and whether that is all of them."""
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
    return PLACE.sub(lambda place: place[0][1:-1] if place[1] else groups[place[2]][:_MOST_FILLED], answer)


def _texts(params: Mapping[str, Any]) -> Iterator[str]:
    """Every text of every message, the newest first; those of a tool's result too, as the policy's `text` sees them."""
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
    """RE2 reads UTF-8, which has no half of a surrogate pair."""
    if not isinstance(text, str):
        return ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
