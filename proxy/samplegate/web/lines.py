"""A review's history in lines for a person: what happened again and again is said once, with how often. The API has every event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from samplegate.core.review.review import Event

MOST: Final = 50
_MEANINGS: Final = {"joined": "the same request came again and waits"}
"""Of events whose names do not say it."""


class Line(msgspec.Struct, frozen=True):
    """One event, or several that are the same to a person: ``event`` is the last of them."""

    event: Event
    count: int
    meaning: str


def lines(events: Sequence[Event]) -> tuple[Line, ...]:
    """The last lines, in order. Whoever is put off and asks again joins each time: one line for as long as nothing else happens."""
    found: list[Line] = []
    for what, some in groupby(events, lambda event: event.what):
        alike = list(some)
        meaning = _MEANINGS.get(what, "")
        found += [Line(alike[-1], len(alike), meaning)] if what == "joined" else [Line(event, 1, meaning) for event in alike]
    return tuple(found[-MOST:])
