"""What an ``answer`` rule may say: its content against the kind it answers, and the ``${VAR}`` in it. Values are never shown: they are content.

Not what stands in a file of cases: ``core/casefile.py`` holds that against the same blocks and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from samplegate.core.casefile import bad_block, bad_value
from samplegate.core.matching.secrecy import looks_secret
from samplegate.core.policy import AnswerRule, Policy
from samplegate.core.policyfile import variables
from samplegate.core.policyfile.draft import Draft
from samplegate.core.policyfile.tree import Path


def check_answer(draft: Draft, path: Path, rule: AnswerRule) -> None:
    """That the rule can answer what it matches."""
    kind = rule.match.kind
    content: Path = (*path, "content")
    if draft.says(*path, "cases"):
        _cases(draft, path, rule)
        return
    if kind is None and draft.sound(*path, "match", "kind"):
        draft.problem((*path, "match"), "an answer is for one kind; add `kind: sampling` or `kind: elicitation` to the match")
    if rule.content is None and draft.says(*content):
        draft.problem(content, "nothing stands here; give a value or remove the key")
    elif rule.content is None and not rule.defaults and draft.sound(*content) and draft.sound(*path, "defaults"):
        more = ", `defaults: true`" if kind != "sampling" else ""
        draft.problem(path, f"the rule has nothing to answer; add `content`{more} or `cases`")
    for at, text in texts(rule.content, content):
        if draft.sound(*at) and (why := variables.fault(text)) is not None:
            draft.problem(at, why)
    if kind == "sampling":
        _sampling(draft, path, rule)
    elif kind == "elicitation":
        _elicitation(draft, path, rule)


def _cases(draft: Draft, path: Path, rule: AnswerRule) -> None:
    """A file answers both kinds, and nothing stands beside it."""
    for name in ("content", "defaults"):
        if draft.says(*path, name):
            draft.problem((*path, name), "the rule answers from its `cases`; remove one of the two", key=True)
    if rule.cases is not None and not rule.cases.strip() and draft.sound(*path, "cases"):
        draft.problem((*path, "cases"), "the file's name is empty; give one, relative to this file")


def unset(policy: Policy, environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Every variable of an answer that the environment does not set, with its place."""
    for index, rule in enumerate(policy.rules):
        if isinstance(rule, AnswerRule):
            for path, text in texts(rule.content, ("rules", index, "content")):
                yield from ((path, name) for name in dict.fromkeys(variables.names(text)) if name not in environment)


def texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every text in plain data, with its place."""
    match value:
        case str():
            yield path, value
        case list():
            for index, item in enumerate(value):
                yield from texts(item, (*path, index))
        case dict():
            for key, item in value.items():
                yield from texts(item, (*path, key))
        case _:
            pass


def _sampling(draft: Draft, path: Path, rule: AnswerRule) -> None:
    content: Path = (*path, "content")
    if draft.says(*path, "defaults"):
        draft.problem((*path, "defaults"), "the key is for elicitations, and the match says kind: sampling; remove one of the two", key=True)
    if rule.content is None or isinstance(rule.content, str) or not draft.sound(*content):
        return
    if not isinstance(rule.content, list) or not rule.content:
        draft.problem(content, "an answer to sampling is text or a list of content blocks; quote a number, and put one block into a list")
        return
    for index, block in enumerate(rule.content):
        if (why := bad_block(block)) is not None:
            draft.problem((*content, index), why)


def _elicitation(draft: Draft, path: Path, rule: AnswerRule) -> None:
    modes = [rule.match.mode] if isinstance(rule.match.mode, str) else rule.match.mode or []
    if "url" in modes:
        draft.problem((*path, "match", "mode"), "a url is never accepted by the gate; use forward or deny for mode url")
    content: Path = (*path, "content")
    if rule.content is None or not draft.sound(*content):
        return
    if not isinstance(rule.content, dict):
        draft.problem(content, "an answer to an elicitation is a mapping from field names to values; write {field: value}")
        return
    fields = rule.match.fields if draft.sound(*path, "match", "fields") else None
    for name, value in rule.content.items():
        _field(draft, (*content, name), value, fields)


def _field(draft: Draft, path: Path, value: Any, fields: list[str] | None) -> None:
    name = str(path[-1])
    if (why := bad_value(value)) is not None:
        draft.problem(path, why)
    if looks_secret(name) and not isinstance(value, bool):
        draft.warn(path, "the field looks like a secret, and the gate answers no such form; use forward or deny", key=True)
    if fields is not None and name not in fields:
        draft.warn(path, "the field is not among `fields` of the match, so it is never sent; add it there or remove it", key=True)
