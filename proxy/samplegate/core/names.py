"""Names of JSON members as lenient parsers compare them: without regard to case, width or underscores, and up to a NUL.

Go, .NET and Jackson fold case. pydantic takes a field's own name beside its alias: ``input_responses`` for ``inputResponses``, ``meta`` for
``_meta``. Parsers in C end a name at a NUL. A member that one of them takes for another is a second reading of its object.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Final

_LONGEST: Final = 100  # characters that are compared; the longest name of the protocol has 43


def second_reading(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser takes for one of ``known`` or for another of ``names``; None if there is none.

    The names of one object, which ``jsontext`` has bounded.
    """
    found = resembling(names, known)
    if found is not None or len(names) < 2:
        return found
    seen: set[str] = set()
    for name in names:
        folded = fold(name)
        if folded in seen:
            return name
        seen.add(folded)
    return None


def resembling(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser takes for one of ``known``, which it is not; None if there is none."""
    loose = _loose(known)
    for name in names:
        if name not in known and _loosely(name) in loose:
            return name
    return None


def resembles(name: str, known: frozenset[str]) -> bool:
    """Whether a lenient parser takes ``name`` for one of ``known``, which it is not."""
    return name not in known and _loosely(name) in _loose(known)


def fold(name: str) -> str:
    """A name without regard to case and width, up to a NUL; a longer one than any of the protocol's is cut."""
    if name.isascii():
        return name.partition("\0")[0].lower()
    wide = unicodedata.normalize("NFKC", name[:_LONGEST]).partition("\0")[0]
    # upper case first: Java and others take a dotless i for an i; the dot above is what is left of a dotted capital
    return unicodedata.normalize("NFKC", wide.upper().casefold()).replace("\u0307", "")


def _loosely(name: str) -> str:
    """The same without underscores."""
    return name.lower() if name.isascii() and name.isalnum() else fold(name).replace("_", "")


@lru_cache(maxsize=64)
def _loose(known: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_loosely, known))
