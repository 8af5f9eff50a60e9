"""One line of the table, and how its numbers are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``met`` is None for a row without a goal."""

    what: str
    measured: str
    beside: str
    goal: str = "no goal"
    met: bool | None = None


BASE_MOST: Final = 1.05
"""Times the earlier version: what a row may cost more than it."""


def beside_base(what: str, gate: float, base: float, unit: str, *, more_is_better: bool = False) -> Row:
    """A figure beside the same of an earlier version, in one run. ``gate`` and ``base``: medians, in ``unit``."""
    ratio = base / gate if more_is_better else gate / base
    return Row(
        f"{what}, beside the earlier version",
        f"{ratio:.2f} x ({gate:,.0f} {unit})",
        f"{base:,.0f} {unit}",
        f"at most {BASE_MOST} x",
        ratio <= BASE_MOST,
    )


def failed(what: str, why: str) -> Row:
    """A measurement that could not be made."""
    return Row(what, f"failed: {why}", "", "", False)


def us(took: float) -> str:
    """Microseconds, as many digits as mean something."""
    return f"{took:.1f} us" if took < 10 else f"{took:.0f} us"
