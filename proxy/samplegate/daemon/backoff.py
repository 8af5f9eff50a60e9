"""How long a server's process that died is left alone before it is started again. Pure: it starts nothing and knows no clock.

At once after the first death, which may be the only one; then half a second, doubling, so that a server that cannot run costs next to nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

FIRST: Final = 0.5  # seconds
LONGEST: Final = 30.0  # seconds: an operator who mended the cause waits no longer than this
STEADY: Final = 60.0  # seconds: what lived this long came up well, and its death is a first one again


class Backoff(msgspec.Struct, frozen=True):
    """What is known of one server's deaths; a new one knows none."""

    deaths: int = 0
    """In a row, each before its process was steady."""

    def died(self, started: float, now: float) -> Backoff:
        """What is known after a death; both times are monotonic seconds."""
        return Backoff(1 if now - started >= STEADY else self.deaths + 1)

    @property
    def wait(self) -> float:
        """Seconds from the latest death to the next start."""
        if self.deaths <= 1:
            return 0.0
        return min(LONGEST, FIRST * 2.0 ** min(self.deaths - 2, 32))
