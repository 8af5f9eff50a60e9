"""How many processes of servers there may be at a time, all servers together, and how many of them for one caller."""

from __future__ import annotations

from collections import Counter
from typing import Final

ALONE: Final = "local"
"""Who calls where nobody needs a token: then there is nobody to share with."""


class Places:
    """``most`` of them, taken and given back. One of several callers gets three quarters at most, so that none can keep the others out."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._of: Counter[str] = Counter()

    def take(self, caller: str) -> bool:
        """Take one; False where there is none, or the caller has its share."""
        share = self.most if caller == ALONE else max(1, self.most * 3 // 4)
        if self.taken >= self.most or self._of[caller] >= share:
            return False
        self.taken += 1
        self._of[caller] += 1
        return True

    def give_back(self, caller: str) -> None:
        """One is free again."""
        self.taken -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]
