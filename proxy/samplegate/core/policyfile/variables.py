"""``${VAR}`` in a text of the policy: which names it holds and what it says with their values. Does not look at the
environment itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_PLACE: Final = re.compile(r"\$\$(?=\{)|\$\{([^}]*)(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def names(text: str) -> Iterator[str]:
    """The variables of a text, in order, as often as they stand there. ``$${`` is a plain ``${``."""
    return (place[1] for place in _PLACE.finditer(text) if _is_variable(place))


def fault(text: str) -> str | None:
    """What is wrong with the first ``${`` that is no variable, None if all are."""
    for place in _PLACE.finditer(text):
        if place[1] is not None and not _is_variable(place):
            return "`${` begins no variable here; write ${NAME} of letters, digits and _, or $${ for the text itself"
    return None


def fill(text: str, environment: Mapping[str, str]) -> str:
    """The text with every variable replaced. Raises KeyError with the name of one that is not set."""
    return _PLACE.sub(lambda place: environment[place[1]] if _is_variable(place) else _literal(place), text)


def _is_variable(place: re.Match[str]) -> bool:
    return place[1] is not None and place[2] == "}" and _NAME.match(place[1]) is not None


def _literal(place: re.Match[str]) -> str:
    return "$" if place[1] is None else place[0]
