"""Days and months of a calendar as Unix seconds, in any time zone: when the one that holds a time began, and when the next begins. Reads no clock.

A day has 23 to 25 hours where clocks are changed, and begins with the change where there is no midnight.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

Window: TypeAlias = Literal["day", "month"]


def zone(name: str) -> tzinfo:
    """The time zone of that IANA name; ``UTC`` needs no database. Raises ValueError, with the name, for one that is not known here."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; no name at all; a folder of the database
        raise ValueError(name) from None


def start(window: Window, tz: str, now: float) -> float:
    """When the day or month that holds ``now`` began."""
    return _around(window, tz, now)[0]


def after(window: Window, tz: str, now: float) -> float:
    """When the next day or month begins."""
    return _around(window, tz, now)[1]


def _around(window: Window, tz: str, now: float) -> tuple[float, float]:
    here = zone(tz)
    first = datetime.fromtimestamp(now, here).date()
    if window == "month":
        first = first.replace(day=1)
    second = _next(window, first)
    if (edge := _begins(second, here)) <= now:  # clocks set back over midnight show the old date once more
        return edge, _begins(_next(window, second), here)
    return _begins(first, here), edge


def _next(window: Window, first: date) -> date:
    return first + timedelta(days=1) if window == "day" else (first + timedelta(days=31)).replace(day=1)


def _begins(day: date, here: tzinfo) -> float:
    """Midnight: the first of two, and the change itself where clocks skip it (what ``fold=0`` means)."""
    return datetime(day.year, day.month, day.day, tzinfo=here).timestamp()
