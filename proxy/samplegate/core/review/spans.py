"""Spans of time in short, as people say them. Pure."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(seconds: float) -> str:
    """Seconds as 42 s, 13 min, 24 h, 3 d; never less than 0 s."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
