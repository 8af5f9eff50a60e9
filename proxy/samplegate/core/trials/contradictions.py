"""What a test file says that cannot be, such as two requests in one case or time that runs backwards. Not its types (``suite.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from samplegate.core.policy import seconds
from samplegate.core.policyfile import tree
from samplegate.core.trials import scenes
from samplegate.core.trials.suite import FREE, Asked, Case, Elicitation, Said, Sampling, Step

REQUESTS: Final = ("request", "sampling", "elicitation")
OF_STEPS: Final = ("at", "call", "usage", "fails", "verdict", "hold", "expect")
"""What a case with steps leaves to them."""
_LONGEST: Final = 8784 * 3600.0
"""Seconds of a leap year: nothing in a policy lasts longer."""
_YEARS: Final = range(1970, 3000)
"""Of a case's start: what is far from either end can be counted on from, in every time zone."""


def faults(cases: Sequence[Case], steps: Sequence[Sequence[Step]], root: tree.Node) -> Iterator[tree.Fault]:
    """Every contradiction with its place. The cases have the file's defaults, the steps those of their case."""
    if not cases:
        yield fault(root, ("cases",), "there is no case; give at least one")
    yield from _twins(cases, root)
    for index, (case, moments) in enumerate(zip(cases, steps, strict=True)):
        path: tree.Path = ("cases", index)
        if (what := start_fault(case)) is not None:
            yield fault(root, (*path, "start"), what)
        if case.steps is None:
            yield from _of_one(case, root, path)
        else:
            yield from _of_steps(case, moments, root, path)


def _twins(cases: Sequence[Case], root: tree.Node) -> Iterator[tree.Fault]:
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        line = mark(root, ("cases", index)).line
        if case.name in first:
            twice = f"{tree.quoted(case.name)} is the name of the case in line {first[case.name]} too; give each its own"
            yield fault(root, ("cases", index, "name"), twice)
        first.setdefault(case.name, line)


def start_fault(case: Case) -> str | None:
    """Why ``start`` is no moment, None if it is one or is not given."""
    if case.start is None:
        return None
    try:
        moment = datetime.fromisoformat(case.start)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        return f'{tree.quoted(case.start)} is not a time with its zone; write it like "2026-01-31T23:59:00Z"'
    if moment.year not in _YEARS:
        return f"{tree.quoted(case.start)} is not between {_YEARS.start} and {_YEARS.stop - 1}; take a year in which the policy is used"
    return None


def _of_one(case: Case, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    yield from (fault(root, (*path, *key), what) for key, what in _faults(case, "a case"))
    if case.expect is None:
        yield fault(root, (*path, "expect"), "the key is missing; give a mapping")


def _of_steps(case: Case, steps: Sequence[Step], root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    for name in OF_STEPS:
        if getattr(case, name) is not None:
            yield fault(root, (*path, name), "the key belongs to the steps of this case; write it there")
    if not steps:
        yield fault(root, (*path, "steps"), "there is no step; give at least one")
    elif all(step.expect is None for step in steps):
        yield fault(root, (*path, "steps"), "no step has an expect, so the case would pass whatever happens; give at least one")
    before = 0.0
    for number, step in enumerate(steps):
        here = (*path, "steps", number)
        yield from (fault(root, (*here, *key), what) for key, what in _faults(step, "a step"))
        moment = before if step.at is None else seconds(step.at)
        if moment < before:
            yield fault(root, (*here, "at"), f"{step.at} is before the {before:g}s of the step before; time does not go backwards")
        before = max(before, moment)


def _faults(asked: Asked, what: str) -> Iterator[tuple[tree.Path, str]]:
    """Of one request; each with its key, empty where it is about several."""
    found: tuple[tuple[tree.Path, str | None], ...] = (
        ((), scenes.fault(asked)),
        ((), request_fault(asked, what)),
        (("call",), _call_fault(asked)),
        (("hold",), _hold_fault(asked)),
        (("usage",), _usage_fault(asked)),
        (("verdict",), _verdict_fault(asked)),
        (("at",), _span_fault(asked.at)),
        (("hold",), _span_fault(asked.hold)),
    )
    yield from ((key, fault) for key, fault in found if fault is not None)


def request_fault(asked: Asked, what: str) -> str | None:
    """Why there is not exactly one request, or why its short form says two things at once."""
    given = [name for name in REQUESTS if getattr(asked, name) is not None]
    if len(given) != 1:
        return f"{what} has one of request, sampling and elicitation, not {' and '.join(given) or 'none'}"
    match asked.sampling or asked.elicitation:
        case Sampling(text=text, messages=messages) if (text is None) == (messages is None):
            return "sampling has one of text and messages"
        case Sampling(hints=hints, model_preferences=preferences) if hints is not None and preferences is not None:
            return "sampling has one of hints and modelPreferences"
        case Elicitation(url=str(), fields=fields, required=required) if fields is not None or required is not None:
            return "elicitation has one of url and fields"
        case _:
            return None


def _call_fault(asked: Asked) -> str | None:
    if asked.call is None:
        return None
    names, calls = [asked.call] if isinstance(asked.call, str) else asked.call, scenes.origin(asked).calls
    if not calls:
        return "no call is in flight that could have a name; give a tool or a method"
    if len(names) != len(calls):
        return f"{len(calls)} calls are in flight, and the number of names is {len(names)}; name each of them, in their order"
    return None


def _hold_fault(asked: Asked) -> str | None:
    if asked.hold is True and (asked.usage is not None or asked.fails is not None):
        return "a request that stays open has no usage and no failure; give a duration after which it has, or leave them out"
    return None


def _usage_fault(asked: Asked) -> str | None:
    if asked.fails in FREE and asked.usage is not None:
        return f"a request that fails as {asked.fails} is not charged, so it has no usage; leave one of them out"
    return None


def _verdict_fault(asked: Asked) -> str | None:
    if isinstance(asked.verdict, Said) and (asked.verdict.answer is None) == (asked.verdict.edits is None):
        return "a verdict has one of answer and edits, or is one of approve, reject, accept, decline, cancel and none"
    return None


def _span_fault(span: str | bool | None) -> str | None:
    if isinstance(span, str) and seconds(span) > _LONGEST:
        return f"{tree.quoted(span)} is more than a year, and no limit remembers that long; give at most 8784h"
    return None


def fault(root: tree.Node, path: tree.Path, what: str) -> tree.Fault:
    """Something wrong at a place of the file."""
    return tree.Fault(mark(root, path), path, what)


def mark(root: tree.Node, path: tree.Path) -> tree.Mark:
    """Where a place of the file stands; that of the nearest above it, where it is not written out."""
    while (node := tree.find(root, path)) is None and path:
        path = path[:-1]
    return tree.Mark(1, 1) if node is None else node.mark
