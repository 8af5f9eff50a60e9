"""What may come of one try to tell a reviewer, and a verdict that came with it. Values, and their way into the store; nothing is sent here."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Answered(msgspec.Struct, frozen=True):
    """Told, and there is a verdict in the answer: not read yet."""

    raw: bytes
    said: str


class Delivered(msgspec.Struct, frozen=True):
    """Told; a verdict may come later by another door.

    ``odd``: the answer is neither JSON nor empty, as that of a sign-in page that stands before the receiver; this is its media type, "none" without.
    """

    said: str
    odd: str | None = None


class Again(msgspec.Struct, frozen=True):
    """Not told: the other end could not, or was not reached. ``after``: seconds that it asks to be left alone; None: it says nothing."""

    said: str
    after: float | None = None


class Refused(msgspec.Struct, frozen=True):
    """Not told, and unlikely to be before somebody mends the configuration; tried again all the same."""

    said: str


class Gone(msgspec.Struct, frozen=True):
    """Not told: the other end wants nothing more, ever (410)."""

    said: str


Said: TypeAlias = Answered | Delivered | Again | Refused | Gone
"""``said`` is a status or a kind of fault, never content."""
