"""The query of the list of reviews -> a Filter, or all that is wrong with it. What is not understood is refused, not left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from samplegate.core.policy import Kind
from samplegate.core.review.review import Filter, State
from samplegate.web.context import Person

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50
MAX_NAME: Final = 200  # characters of a reviewer's or server's name
MAX_VALUES: Final = 50  # of one parameter
ID: Final = re.compile(r"rv_[A-Za-z0-9]{24}")
STATES: Final[tuple[State, ...]] = get_args(State)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_KIND: Final[Mapping[str, Kind]] = {kind: kind for kind in KINDS}
_SEVERAL: Final = frozenset({"state", "reviewer"})
_NAMES: Final = (*sorted(_SEVERAL), "server", "kind", "limit", "before")
_limit: Final = re.compile(r"[0-9]{1,3}")


def read(query: Sequence[tuple[str, str]], person: Person) -> Filter | list[tuple[str, str]]:
    """The reviews that are asked for, of those that this person may see. ``query``: names and values as they came."""
    given: dict[str, list[str]] = {}
    for name, value in query:
        given.setdefault(name, []).append(value)
    problems = [(name[:MAX_NAME], f"is not one of {', '.join(_NAMES)}") for name in given.keys() - set(_NAMES)]
    problems += [(name, "stands twice") for name in given.keys() - _SEVERAL if len(given[name]) > 1]
    for name, values in given.items():
        problems += [(name, what) for what in dict.fromkeys(_wrong(name, value) for value in values) if what]
        problems += [(name, f"stands more than {MAX_VALUES} times")] if len(values) > MAX_VALUES else []
    return problems or _filter(given, person)


def _wrong(name: str, value: str) -> str:
    match name:
        case "state" | "kind":
            allowed = STATES if name == "state" else KINDS
            return "" if value in allowed else f"is not one of {', '.join(allowed)}"
        case "limit":
            return "" if _limit.fullmatch(value) and 1 <= int(value) <= MAX_LIMIT else f"is no whole number from 1 to {MAX_LIMIT}"
        case "before":
            return "" if ID.fullmatch(value) else "is no id of a review"
        case "reviewer" | "server":
            return "" if 0 < len(value) <= MAX_NAME else f"is empty, or longer than {MAX_NAME} characters"
    return ""


def _filter(given: dict[str, list[str]], person: Person) -> Filter:
    return Filter(
        states=tuple(state for state in STATES if state in given.get("state", [])),
        reviewers=_reviewers(given.get("reviewer"), person),
        server=given.get("server", [None])[0],
        kind=_KIND.get(given.get("kind", [""])[0]),
        before=given.get("before", [None])[0],
        limit=int(given.get("limit", [str(DEFAULT_LIMIT)])[0]),
    )


def _reviewers(asked: Sequence[str] | None, person: Person) -> tuple[str, ...] | None:
    """Whose reviews: never more than this person may see, whoever is asked for."""
    theirs = None if person.role == "admin" else person.reviewers
    if asked is None:
        return theirs
    return tuple(name for name in dict.fromkeys(asked) if theirs is None or name in theirs)
