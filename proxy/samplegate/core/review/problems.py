"""What is wrong with something that a person said of a review: where, and what. Values only."""

from __future__ import annotations

import msgspec

from samplegate.core.parsing.strictjson import Fault, told


class Problem(msgspec.Struct, frozen=True):
    """``path``: the field, such as ``content.port`` or ``edits.maxTokens``; "" for the whole. ``what`` follows its name, and holds no content."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def below(path: str, fault: Fault) -> Problem:
    """A parser's fault, whose own place is before its first colon, as a problem below ``path``; ``path`` ends with a dot."""
    place, colon, what = str(fault).partition(": ")
    return Problem(f"{path}{place}", what) if colon else Problem(path[:-1], place)


def unknown(given: dict[str, object], known: frozenset[str], path: str = "") -> list[Problem]:
    """A problem for each member that nothing knows: most likely a known one misspelt, so it is not passed over."""
    return [Problem(f"{path}{told(name)}", f"is none of {', '.join(sorted(known))}") for name in given if name not in known]
