"""How many bytes a session remembers of what its peers sent, and the bounds: for calls in flight with their rounds, and for pushed requests.

Counted is what stays after a frame has passed. What a link has not written yet has bounds of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from samplegate.core.parsing.strictjson import separators

MIB: Final = 1024 * 1024
MOST_CALLS: Final = 128 * MIB
"""Bytes of one session's calls in flight: eight of 15 MiB, or 30,000 small ones."""
MOST_PUSHES: Final = 64 * MIB
"""Bytes of one session's pushed requests: real ones have some KiB, with pictures some MiB."""
MOST_OF_ALL: Final = 512 * MIB
"""Bytes of both, of all sessions of a process together."""
SMALL: Final = 256 * 1024
"""Bytes that a session may have in flight even where others fill the process: small calls go on."""
ENTRY: Final = 4096
"""Bytes that stand for a request without its params: ids, tokens and names are bounded."""
VALUE: Final = 64
"""Bytes that a parsed value takes beside its text."""

CALLS_FULL: Final = f"refused: the calls in flight in this session already hold {MOST_CALLS // MIB} MiB"
PUSHES_FULL: Final = f"refused: the open requests of this server already hold {MOST_PUSHES // MIB} MiB"
ALL_FULL: Final = f"refused: the requests in flight in all sessions already hold {MOST_OF_ALL // MIB} MiB"


def parsed(texts: Iterable[bytes | None]) -> int:
    """Bytes of JSON texts that are kept together with what they were read as."""
    return sum(2 * len(text) + VALUE * separators(text) for text in texts if text is not None)
