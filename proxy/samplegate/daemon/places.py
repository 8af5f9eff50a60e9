"""How many processes of servers there may be at a time, all servers together."""

from __future__ import annotations


class Places:
    """``most`` of them, taken and given back."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self) -> bool:
        """Take one; False where there is none."""
        if self.taken >= self.most:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        """One is free again."""
        self.taken -= 1
