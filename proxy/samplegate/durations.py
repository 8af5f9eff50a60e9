"""Pure. Durations as text."""

from __future__ import annotations


def duration_text(span: float) -> str:
    """A duration in seconds, in the units of a policy: ``0.25s``, ``55s``, ``9m10s``, ``24h``. At least
    a millisecond."""
    if span < 59.95:
        return f"{max(round(span, 3), 0.001) if span > 0 else span:.3g}s"
    whole = round(span)
    parts = (whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")
    return "".join(f"{number}{unit}" for number, unit in parts if number)
