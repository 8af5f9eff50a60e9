"""The rules that were looked at, as `test` and `explain` print them. Not the looking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplegate.policy.decisions import Step


def lines(steps: Sequence[Step]) -> list[str]:
    """One line a rule: its number, whether it was taken, its name and effect, and why."""
    width = max((len(step.rule) for step in steps), default=0)
    return [
        f"{number:>3} {'taken' if step.taken else 'no   '} {step.rule:<{width}}  {step.effect:<7}  {step.why}".rstrip()
        for number, step in enumerate(steps, 1)
    ]


def as_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [{"rule": step.rule, "effect": step.effect, "taken": step.taken, "why": step.why} for step in steps]
