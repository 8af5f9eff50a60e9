"""How one reviewer is getting on: how much may be under way to it, and since when it fails. Values and questions; nothing is sent here.

A reviewer whose endpoint is down is tried with one message at a time, ever more seldom, so that 10,000 waiting messages do not beat on it, and no
other reviewer waits for it.
"""

from __future__ import annotations

from typing import Final

from samplegate.core.policy import Reviewer
from samplegate.core.review import backoff

AT_ONCE: Final = 8  # messages or commands under way to one reviewer


class Lane:
    """One reviewer, as one loading of the policy has it: what went wrong before a reload counts no more after it."""

    def __init__(self, name: str, reviewer: Reviewer) -> None:
        self.name, self.reviewer = name, reviewer
        self.under_way = 0
        self.gone = False
        """It wants nothing more."""
        self._failures = 0
        self._not_before = 0.0
        self._said = ""
        self._odd: str | None = None

    def room(self, now: float) -> int:
        """How many more may be taken."""
        if self.gone or now < self._not_before:
            return 0
        return max(0, (1 if self._failures else AT_ONCE) - self.under_way)

    @property
    def ready(self) -> float:
        """From when on it may be tried again."""
        return self._not_before

    def failed(self, said: str, *, now: float, after: float | None, chance: float) -> bool:
        """It was not reached, or could not take it. Whether that is news, to be told once."""
        self._failures += 1
        self._not_before = max(self._not_before, now + max(backoff.wait(self._failures, chance), after or 0.0))
        return self.news(said)

    def news(self, said: str) -> bool:
        """Whether this fault was not the last one that was told."""
        before, self._said = self._said, said
        return said != before

    def is_news_odd(self, odd: str | None) -> bool:
        """Whether an answer is odd in another way than the one before it; None: it is not odd."""
        before, self._odd = self._odd, odd
        return odd not in (None, before)

    def worked(self) -> bool:
        """It was reached. Whether that is news."""
        before, self._said = self._said, ""
        self._failures, self._not_before = 0, 0.0
        return bool(before)
