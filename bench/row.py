"""Rows of the table, and the format of their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. ``met`` is None for a row without a goal."""

    what: str
    measured: str
    beside: str
    goal: str = "no goal"
    met: bool | None = None


MAX_BASE_RATIO: Final = 1.05
"""The maximum ratio to the earlier version."""


def beside_base(what: str, gate: float, base: float, unit: str, *, more_is_better: bool = False) -> Row:
    """Row of a figure beside that of an earlier version, from the same run. ``gate`` and ``base`` are medians in
    ``unit``."""
    ratio = base / gate if more_is_better else gate / base
    return Row(
        f"{what}, beside the earlier version",
        f"{ratio:.2f} x ({gate:,.0f} {unit})",
        f"{base:,.0f} {unit}",
        f"at most {MAX_BASE_RATIO} x",
        ratio <= MAX_BASE_RATIO,
    )


def failed(what: str, why: str) -> Row:
    """Row of a failed measurement."""
    return Row(what, f"failed: {why}", "", "", False)


def us(took: float) -> str:
    """Microseconds with as many digits as are significant."""
    return f"{took:.1f} us" if took < 10 else f"{took:.0f} us"
