"""The text of a ``*_test.yaml`` file -> the cases of a policy, or every problem at once. Not their outcome (``trials/trial.py``).

A case is a request, or several steps one after the other in a time of their own, and what is expected of each. ``trials/suite.py`` has its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec
import msgspec.structs

from samplegate.core.policyfile import tree
from samplegate.core.policyfile.walk import read
from samplegate.core.trials import contradictions, scenes
from samplegate.core.trials.scenes import Scene
from samplegate.core.trials.schema import json_schema
from samplegate.core.trials.suite import Asked, Case, Elicitation, Expect, Raw, Sampling, Step, Suite, Usage

__all__ = [
    "Case",
    "Cases",
    "Elicitation",
    "Expect",
    "Moment",
    "Placed",
    "Raw",
    "Sampling",
    "Step",
    "Suite",
    "Usage",
    "json_schema",
    "load_cases",
]

S = TypeVar("S", bound=Scene)


class Moment(msgspec.Struct, frozen=True):
    """A step with all that it leaves out taken from its case, the line where it stands, and its place in it: ``steps.1``."""

    step: Step
    line: int
    place: str = ""
    """Empty for a case without steps."""


class Placed(msgspec.Struct, frozen=True):
    """A case with the defaults of its file, and the line where it stands. A case of one request is one moment."""

    case: Case
    line: int
    moments: tuple[Moment, ...]


class Cases(msgspec.Struct, frozen=True):
    """A test file that is as it should be. ``policy`` is as the file says it, None where it says nothing."""

    policy: str | None
    cases: tuple[Placed, ...]


def load_cases(text: str, *, file: str) -> Cases:
    """The cases in ``text``; ``file`` is its name in messages. Raises PolicyError with every problem."""
    suite, root = read(text, Suite, file=file)
    placed = tuple(_placed(suite, root))
    steps = [[moment.step for moment in each.moments] for each in placed]
    if faults := [*contradictions.faults([each.case for each in placed], steps, root)]:
        raise tree.PolicyError(tree.problems(file, faults))
    return Cases(suite.policy, placed)


def _placed(suite: Suite, root: tree.Node) -> Iterator[Placed]:
    for index, written in enumerate(suite.cases):
        case = _over(written, suite.defaults)
        path: tree.Path = ("cases", index)
        line = contradictions.mark(root, path).line
        yield Placed(case, line, tuple(_moments(case, root, path)))


def _moments(case: Case, root: tree.Node, path: tree.Path) -> Iterator[Moment]:
    if case.steps is None:
        shared = {name: getattr(case, name) for name in Asked.__struct_fields__}
        yield Moment(Step(**shared), contradictions.mark(root, path).line)
        return
    asked = {name: getattr(case, name) for name in contradictions.REQUESTS}
    for number, written in enumerate(case.steps):
        step = _over(written, case)
        if all(getattr(step, name) is None for name in contradictions.REQUESTS):
            step = msgspec.structs.replace(step, **asked)
        yield Moment(step, contradictions.mark(root, (*path, "steps", number)).line, f"steps.{number}")


def _over(written: S, defaults: Scene) -> S:
    scene = scenes.over(written, defaults)
    return msgspec.structs.replace(written, **{name: getattr(scene, name) for name in Scene.__struct_fields__})
