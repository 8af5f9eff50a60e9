"""The numbers of reviews: how many of which reviewer came to what by which door, and how long it took. Each is counted by the process that asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from samplegate.core.review.review import ENDED, Event, Review

MOST: Final = 100_000  # reviews whose end is still to be counted; what was asked before those is not


class Meters(Protocol):
    """Where numbers go: ``records.metrics.Metrics`` has this shape."""

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None: ...
    def observe(self, name: str, value: float, /, **labels: object) -> None: ...
    def set(self, name: str, value: float, /, **labels: object) -> None: ...


class Counts:
    """Of one process."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._open: dict[str, tuple[str, float]] = {}
        self._seen: set[str] = set()

    @property
    def counting(self) -> bool:
        """Whether the end of any is still to be counted."""
        return bool(self._open)

    def opened(self, review: Review) -> None:
        """It was put before its reviewer."""
        self._open[review.id] = (review.reviewer, review.created)
        while len(self._open) > MOST:
            del self._open[next(iter(self._open))]

    def failed(self) -> None:
        """The store could not be asked."""
        self._meters.count("samplegate_review_store_failures_total")

    def waiting(self, pending: Mapping[str, tuple[int, float]], now: float) -> None:
        """How many wait in the store by reviewer, and when the oldest was opened. A reviewer once seen goes on being told of, with none."""
        self._seen.update(pending)
        for reviewer in self._seen:
            number, oldest = pending.get(reviewer, (0, now))
            self._meters.set("samplegate_reviews_pending", number, reviewer=reviewer)
            self._meters.set("samplegate_review_oldest_seconds", max(now - oldest, 0.0), reviewer=reviewer)

    def took(self, review: Review) -> None:
        """One of another process, or of before a restart, is ours now."""
        if review.state == "pending" and review.id not in self._open:
            self.opened(review)

    def happened(self, event: Event) -> None:
        """Something was said of a review; what is not of ours is counted elsewhere."""
        if event.what not in ENDED or (found := self._open.pop(event.review, None)) is None:
            return
        reviewer, created = found
        self._meters.count("samplegate_reviews_total", reviewer=reviewer, door=event.door, outcome=event.what)
        if event.what in ("approved", "rejected", "answered"):
            self._meters.observe("samplegate_review_duration_seconds", max(event.at - created, 0.0), reviewer=reviewer)
