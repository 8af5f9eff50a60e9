"""What every handler of the reviewers' listener is given: the store, who people are, the clock, the log. Values and questions about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from samplegate.core.review.review import Review
from samplegate.ports import Log, ReviewStore

Role: TypeAlias = Literal["viewer", "reviewer", "admin"]


class Person(msgspec.Struct, frozen=True):
    """Somebody who signed in. ``reviewers``: the policy's reviewers in whose name this person may act; None: all."""

    name: str
    role: Role
    reviewers: tuple[str, ...] | None = None

    def sees(self, review: Review) -> bool:
        """Whether this person may look at it."""
        return self.role == "admin" or self.reviewers is None or review.reviewer in self.reviewers

    def decides(self, review: Review) -> bool:
        """Whether this person may give a verdict on it."""
        return self.role != "viewer" and self.sees(review)


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """The listener's side of the world; each a plain callable or value, so that a fake is a few lines."""

    store: ReviewStore
    person: Callable[[str], Person | None]
    """A token -> whose it is; asked each time, so that a reload holds at once."""
    known: Callable[[bytes], Person | None] = lambda _: None
    """The SHA-256 of a token -> whose it is: what a session at the page is asked by, so that a token that is taken away ends it."""
    url: str
    """How people reach this listener, without a slash at its end: ``https://reviews.example.com``."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
    version: str
    count: Callable[..., None] = lambda *_, **__: None
    """A metric's name, and labels as keywords."""
    hosts: tuple[str, ...] = ()
    """Host headers that are taken besides that of ``url`` and this machine's own."""
    session: int = 43_200
    """Seconds that somebody stays signed in at the page."""
