"""How `samplegate test --coverage` tells what the cases of each policy reach. Not the counting:
``policytest/coverage.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import floor
from pathlib import Path
from typing import Any

from samplegate.cli.files import count
from samplegate.policytest.coverage import Coverage, Missing


def report(policy: Path, coverage: Coverage, least: float | None) -> Iterator[str]:
    """What is missing, each with its line, and the sum; ``least`` is the percentage that was asked for."""
    yield from (_line(policy, one) for one in coverage.missing)
    yield from (f"{_line(policy, one)}; it is left out" for one in coverage.uncounted)
    reached = (
        f"{coverage.rules_reached} of {count(coverage.rules, 'rule')}, {coverage.arms_reached} of"
        f" {count(coverage.arms, 'arm')}"
    )
    below = f", below the {least:g}% asked for" if is_below(coverage, least) else ""
    yield f"{policy}: coverage: {reached} ({shown(coverage)}%{below})"


def is_below(coverage: Coverage, least: float | None) -> bool:
    """Whether it is less than was asked for."""
    return least is not None and coverage.percent < least


def shown(coverage: Coverage) -> int:
    """Rounded down: 100 means all."""
    return floor(coverage.percent)


def as_json(policy: Path, coverage: Coverage, least: float | None) -> dict[str, Any]:
    """The same for programs."""
    return {
        "policy": str(policy),
        "percent": round(coverage.percent, 2),
        "enough": not is_below(coverage, least),
        "rules": {"total": coverage.rules, "reached": coverage.rules_reached},
        "arms": {"total": coverage.arms, "reached": coverage.arms_reached},
        "missing": _listed(coverage.missing),
        "uncounted": _listed(coverage.uncounted),
    }


def _listed(found: Iterable[Missing]) -> list[dict[str, Any]]:
    return [{"line": one.line, "rule": one.rule, "what": one.what} for one in found]


def _line(policy: Path, one: Missing) -> str:
    return f"{policy}:{one.line}: rule {one.rule!r}: {one.what}"
