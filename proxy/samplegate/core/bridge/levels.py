"""Log messages of a legacy server for modern clients: its one level, and who asked for which (R79, R105). Tables only.

A legacy server has one level for the whole session, a modern client names one in each request. The server is set to the most talkative
that is in flight when one is named; it is not set back when a call ends, for what nobody asked for is dropped here anyway.
"""

from __future__ import annotations

import msgspec

from samplegate.core.bridge.envelope import LEVELS
from samplegate.core.bridge.listens import Key


class Levels(msgspec.Struct, eq=False):
    """The levels that requests in flight asked for."""

    _wanted: dict[Key, int] = msgspec.field(default_factory=dict)
    _set: int | None = None

    def enter(self, key: Key, level: str | None) -> str | None:
        """A request goes to the server; the level to set there before it, None where it stays."""
        if level is None:
            return None
        self._wanted[key] = LEVELS.index(level)
        most = min(self._wanted.values())
        if most == self._set:
            return None
        self._set = most
        return LEVELS[most]

    def leave(self, key: Key) -> None:
        """A request is over."""
        self._wanted.pop(key, None)

    def takers(self, level: str | None, only: Key | None) -> list[int]:
        """The lanes that asked for a message of this level; ``only``: the request that it came for, where that is known."""
        if level not in LEVELS:
            return []
        said = LEVELS.index(level)
        return list(dict.fromkeys(key[0] for key, wanted in self._wanted.items() if wanted <= said and (only is None or key == only)))
