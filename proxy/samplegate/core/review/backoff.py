"""When a delivery that failed is tried again. Pure: chance and time are arguments, and it sends nothing."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Final

FIRST: Final = 2.0  # seconds: a person waits at the other end
LONGEST: Final = 300.0  # seconds: a reviewer whose endpoint is mended is told no later than this
MOST_ASKED: Final = 3_600.0  # seconds: what a peer may ask for; the review's own end may come first

_seconds: Final = re.compile(r"[0-9]{1,9}\Z")


def wait(tries: int, chance: float) -> float:
    """Seconds until the next try after ``tries`` failures (from 1), between half and whole of a doubling time. ``chance``: from 0 to below 1.

    Spread, so that what failed together does not come back together.
    """
    whole = min(LONGEST, FIRST * 2.0 ** min(max(tries, 1) - 1, 32))
    return whole * (0.5 + chance / 2)


def asked(text: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110 10.2.3: seconds or a date), at most MOST_ASKED; None: it says nothing that can be read."""
    if text is None:
        return None
    text = text.strip()
    if _seconds.match(text):
        return min(float(text), MOST_ASKED)
    try:
        until = parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(until - now, 0.0), MOST_ASKED)
