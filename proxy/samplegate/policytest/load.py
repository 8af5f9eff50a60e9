"""Pure. Loader of ``*_test.yaml`` files: the cases of a text, or every problem at once with its position. Also the JSON
Schema for editors.

``suite.py`` has the structs. This module checks the constraints that types cannot express: two requests in one case,
time that goes backwards, duplicate names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
import msgspec.structs

from samplegate import SCHEMAS
from samplegate.durations import duration_text
from samplegate.policy.file.json_schema import without_null
from samplegate.policy.schema import seconds
from samplegate.policytest.suite import (
    FREE,
    Asked,
    Case,
    Elicitation,
    Said,
    Sampling,
    Scene,
    Step,
    Suite,
    Verdict,
    origin,
    scene_fault,
    with_defaults,
)
from samplegate.yamlfile import tree
from samplegate.yamlfile.validate import read

S = TypeVar("S", bound=Scene)
REQUESTS: Final = ("request", "sampling", "elicitation")
OF_STEPS: Final = ("at", "call", "usage", "fails", "verdict", "votes", "hold", "expect")
"""Keys that a case with steps leaves to its steps."""
_LONGEST: Final = 8784 * 3600.0
"""Seconds of a leap year; no limit of a policy is longer."""
_YEARS: Final = range(1970, 3000)
"""Years of a case's start, far enough from the limits of dates for calculations in every time zone."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Moment(msgspec.Struct, frozen=True):
    """A step with the defaults of its case, its line, and its place in the case: ``steps.1``."""

    step: Step
    line: int
    place: str = ""
    """Empty for a case without steps."""


class PlacedCase(msgspec.Struct, frozen=True):
    """A case with the defaults of its file, and its line. A case without steps has one moment."""

    case: Case
    line: int
    moments: tuple[Moment, ...]


class CaseFile(msgspec.Struct, frozen=True):
    """A valid test file. ``policy`` is the file's value, None if absent."""

    policy: str | None
    cases: tuple[PlacedCase, ...]


def load_cases(text: str, *, file: str) -> CaseFile:
    """The cases in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    suite, root = read(text, Suite, file=file)
    placed = tuple(_placed(suite, root))
    steps = [[moment.step for moment in each.moments] for each in placed]
    if faults := [*_contradictions([each.case for each in placed], steps, root)]:
        raise tree.PolicyError(tree.problems(file, faults))
    return CaseFile(suite.policy, placed)


def _placed(suite: Suite, root: tree.Node) -> Iterator[PlacedCase]:
    for index, written in enumerate(suite.cases):
        case = _over(written, suite.defaults)
        path: tree.Path = ("cases", index)
        line = tree.mark(root, path).line
        yield PlacedCase(case, line, tuple(_moments(case, root, path)))


def _moments(case: Case, root: tree.Node, path: tree.Path) -> Iterator[Moment]:
    if case.steps is None:
        shared = {name: getattr(case, name) for name in Asked.__struct_fields__}
        yield Moment(Step(**shared), tree.mark(root, path).line)
        return
    asked = {name: getattr(case, name) for name in REQUESTS}
    for number, written in enumerate(case.steps):
        step = _over(written, case)
        if all(getattr(step, name) is None for name in REQUESTS):
            step = msgspec.structs.replace(step, **asked)
        yield Moment(step, tree.mark(root, (*path, "steps", number)).line, f"steps.{number}")


def _over(written: S, defaults: Scene) -> S:
    scene = with_defaults(written, defaults)
    return msgspec.structs.replace(written, **{name: getattr(scene, name) for name in Scene.__struct_fields__})


def _contradictions(cases: Sequence[Case], steps: Sequence[Sequence[Step]], root: tree.Node) -> Iterator[tree.Fault]:
    """Every contradiction with its position. The cases have the file's defaults, the steps those of their case."""
    if not cases:
        yield tree.fault_at(root, ("cases",), "there are no cases; add at least one")
    yield from _twins(cases, root)
    for index, (case, moments) in enumerate(zip(cases, steps, strict=True)):
        path: tree.Path = ("cases", index)
        if (what := _start_fault(case)) is not None:
            yield tree.fault_at(root, (*path, "start"), what)
        if case.steps is None:
            yield from _of_one(case, root, path)
        else:
            yield from _of_steps(case, moments, root, path)


def _twins(cases: Sequence[Case], root: tree.Node) -> Iterator[tree.Fault]:
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        line = tree.mark(root, ("cases", index)).line
        if case.name in first:
            twice = (
                f"{tree.quoted(case.name)} is already the name of the case on line {first[case.name]}; use unique names"
            )
            yield tree.fault_at(root, ("cases", index, "name"), twice)
        first.setdefault(case.name, line)


def _start_fault(case: Case) -> str | None:
    """Why ``start`` is not a valid time, None if it is valid or absent."""
    if case.start is None:
        return None
    try:
        moment = datetime.fromisoformat(case.start)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        return f'{tree.quoted(case.start)} is not a time with a time zone; use a time such as "2026-01-31T23:59:00Z"'
    if moment.year not in _YEARS:
        return (
            f"{tree.quoted(case.start)} is not between {_YEARS.start} and {_YEARS.stop - 1}; take a year in which the"
            " policy is used"
        )
    return None


def _of_one(case: Case, root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    yield from (tree.fault_at(root, (*path, *key), what) for key, what in _faults_of(case, "a case"))
    if case.expect is None:
        yield tree.fault_at(root, (*path, "expect"), "the key is required; set it to a mapping")


def _of_steps(case: Case, steps: Sequence[Step], root: tree.Node, path: tree.Path) -> Iterator[tree.Fault]:
    for name in OF_STEPS:
        if getattr(case, name) is not None:
            yield tree.fault_at(root, (*path, name), "a case with steps cannot have this key; move it to the steps")
    if not steps:
        yield tree.fault_at(root, (*path, "steps"), "there are no steps; add at least one")
    elif all(step.expect is None for step in steps):
        yield tree.fault_at(
            root, (*path, "steps"), "no step has an expect, so the case can never fail; add at least one"
        )
    before = 0.0
    for number, step in enumerate(steps):
        here = (*path, "steps", number)
        yield from (tree.fault_at(root, (*here, *key), what) for key, what in _faults_of(step, "a step"))
        moment = before if step.at is None else seconds(step.at)
        if moment < before:
            yield tree.fault_at(
                root,
                (*here, "at"),
                f"{step.at} is earlier than the previous step at {duration_text(before)};"
                " put the steps in order of time",
            )
        before = max(before, moment)


def _faults_of(asked: Asked, what: str) -> Iterator[tuple[tree.Path, str]]:
    """The faults of one request, each with its key; the key is empty if several are involved."""
    yield from (((), why) for why in (scene_fault(asked), _request_fault(asked, what)) if why is not None)
    if asked.call is not None:
        names, calls = [asked.call] if isinstance(asked.call, str) else asked.call, origin(asked).calls
        if not calls:
            yield ("call",), "no call is in flight, so there is none to name; add a tool or a method"
        elif len(names) != len(calls):
            yield (
                ("call",),
                (
                    f"the number of names is {len(names)}, but the number of calls in flight is {len(calls)}; name"
                    " each call, in order"
                ),
            )
    if asked.hold is True and (asked.usage is not None or asked.fails is not None):
        yield (
            ("hold",),
            ("a request that stays open has no usage and no failure; use a duration, or remove them"),
        )
    if asked.fails in FREE and asked.usage is not None:
        yield (
            ("usage",),
            f"a request that fails as {asked.fails} is not charged, so it has no usage; remove one of the two",
        )
    if asked.verdict is not None and asked.votes is not None:
        yield ("votes",), "verdict is also set; keep one of the two"
    given: dict[tree.Path, Verdict | None] = {("verdict",): asked.verdict}
    given.update({("votes", name): vote for name, vote in (asked.votes or {}).items()})
    for place, said in given.items():
        if not isinstance(said, Said) or (said.answer is None) != (said.edits is None):
            continue
        yield (
            place,
            (
                "a verdict must have exactly one of answer and edits, or be one of approve, reject, accept, decline,"
                " cancel and none"
            ),
        )
    for key, span in (("at", asked.at), ("hold", asked.hold)):
        if isinstance(span, str) and seconds(span) > _LONGEST:
            yield (
                (key,),
                f"{tree.quoted(span)} is longer than a year; use at most 8784h",
            )


def _request_fault(asked: Asked, what: str) -> str | None:
    """Why a case or step does not have exactly one request, or why its short form contradicts itself; None if
    neither."""
    given = [name for name in REQUESTS if getattr(asked, name) is not None]
    if len(given) != 1:
        return (
            f"{what} must have exactly one of request, sampling and elicitation; it has {' and '.join(given) or 'none'}"
        )
    match asked.sampling or asked.elicitation:
        case Sampling(text=text, messages=messages) if (text is None) == (messages is None):
            return "sampling must have exactly one of text and messages"
        case Sampling(hints=hints, model_preferences=preferences) if hints is not None and preferences is not None:
            return "sampling can have only one of hints and modelPreferences"
        case Elicitation(url=str(), fields=fields, required=required) if fields is not None or required is not None:
            return "elicitation can have only one of url and fields"
        case _:
            return None


def json_schema() -> dict[str, Any]:
    """The JSON Schema, draft 2020-12: the schema of the structs, and those constraints that a schema can express."""
    schema: dict[str, Any] = without_null(msgspec.json.schema(Suite))
    structs = schema["$defs"]
    structs["Suite"]["properties"]["cases"]["minItems"] = 1
    _case(structs["Case"])
    structs["Step"]["allOf"] = [_at_most_one(REQUESTS)]
    structs["Sampling"]["allOf"] = [
        {"oneOf": _required("text", "messages")},
        _at_most_one(("hints", "modelPreferences")),
    ]
    structs["Said"]["oneOf"] = _required("answer", "edits")
    structs["Elicitation"]["allOf"] = [_at_most_one(("url", "fields")), _at_most_one(("url", "required"))]
    return {"$schema": _DIALECT, "$id": f"{SCHEMAS}tests", "title": "samplegate policy tests", **schema}


def _case(case: dict[str, Any]) -> None:
    """Add the constraints of a case with steps and of one with a single request."""
    case["properties"]["steps"]["minItems"] = 1
    case["if"] = {"required": ["steps"]}
    case["then"] = {"allOf": [{"properties": dict.fromkeys(OF_STEPS, False)}, _at_most_one(REQUESTS)]}
    case["else"] = {"required": ["expect"], "oneOf": _required(*REQUESTS)}


def _required(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name]} for name in names]


def _at_most_one(names: tuple[str, ...]) -> dict[str, Any]:
    pairs = [[one, other] for index, one in enumerate(names) for other in names[index + 1 :]]
    return {"not": {"anyOf": [{"required": pair} for pair in pairs]}}
