"""Names of JSON members as lenient parsers compare them: without regard to case, width or underscores, and up to a NUL.

Go, .NET and Jackson fold case. pydantic takes a field's own name beside its alias: ``input_responses`` for
``inputResponses``, ``meta`` for ``_meta``. Parsers in C end a name at a NUL. A member that one of them takes for
another is a second reading of its object.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Final

_LONGEST: Final = 100  # characters that are compared; the longest name of the protocol has 43
MAX_FOLDED: Final = 1024
"""Characters, of all names of one object that are not ASCII: folding one can cost two microseconds. The protocol's
names are ASCII."""


def second_reading(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser takes for one of ``known`` or for another of ``names``; None if
    there is none.

    The names of one object, which ``jsontext`` has bounded. The first name past MAX_FOLDED counts as a second reading,
    because it is not compared.
    """
    found = resembling(names, known)
    if found is not None or len(names) < 2:
        return found
    seen: set[str] = set()
    room = MAX_FOLDED
    for name in names:
        if not name.isascii():
            room -= len(name)
            if room < 0:
                return name
        folded = fold(name)
        if folded in seen:
            return name
        seen.add(folded)
    return None


def resembling(names: Collection[str], known: frozenset[str]) -> str | None:
    """The first of ``names`` that a lenient parser takes for one of ``known``, which it is not; None if there is none.

    ``known``: names of the protocol. They are ASCII, and how they fold is remembered.
    """
    return next((name for name in names if resembles(name, known)), None)


def resembling_field(names: Collection[str], fields: frozenset[str]) -> str | None:
    """The same for a peer's own names, such as the fields of a form."""
    loose = frozenset(map(_loosely, fields))
    return next((name for name in names if name not in fields and _loosely(name) in loose), None)


def resembles(name: str, known: frozenset[str]) -> bool:
    """Whether a lenient parser takes ``name`` for one of ``known``, which it is not."""
    return (
        name not in known
        and (name.isascii() or all(map(_is_ascii, name[:_LONGEST])))
        and _loosely(name) in _loose(known)
    )


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


@lru_cache(maxsize=8192)
def _is_ascii(letter: str) -> bool:
    """Whether a letter folds to ASCII: a name folds to ASCII, as all names of the protocol are, only if each of its
    letters does."""
    return fold(letter).isascii()


@lru_cache(maxsize=64)
def _loose(known: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_loosely, known))
