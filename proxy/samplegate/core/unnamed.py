"""Whether a policy has a rule for a server's name at all: a misspelled ``--server`` would leave every request Unanswered."""

from __future__ import annotations

from samplegate.core.matching.facts import UNKNOWN, Known
from samplegate.core.matching.match import Rulebook


def unnamed(book: Rulebook, server: str) -> bool:
    """True if there are rules, and none can match a request of this server."""
    known = Known(UNKNOWN, {"server": server})
    return bool(book.entries) and all(entry.holds(known) is False for entry in book.entries)
