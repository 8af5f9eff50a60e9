"""Which tools want arguments mirrored in headers, learned from the lists that pass, and whether a call's headers do so (R73, R74).

Not a reader of lists that nobody asked for: a tool that this caller has not listed here is for its server to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from samplegate.core import frames, http_headers
from samplegate.core.http_headers import Annotations
from samplegate.core.jsontext import Malformed
from samplegate.core.session.server_requests import may_say

MAX_LIST: Final = 4 * 1024 * 1024  # bytes of a list that is read; a thousand tools take one
MAX_TOOLS: Final = 1000  # of one caller, those with annotations only
MAX_CALLERS: Final = 1000
MAX_SIZE: Final = 1024 * 1024  # bytes of what is remembered for one caller
MAX_ALL_SIZE: Final = 16 * 1024 * 1024  # and for all of them: the one that listed its tools longest ago gives way
_KEY: Final = http_headers.KEY.encode()


class Mirrored:
    """What one server's callers have been told of its tools: each what it was told itself."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Annotations]] = {}
        self._sizes: dict[str, int] = {}

    def learn(self, caller: str, line: bytes) -> None:
        """Read an answer to a tools/list along. One that cannot be read says nothing."""
        known = self._of.get(caller)
        if len(line) > MAX_LIST or (known is None and not may_say(line, _KEY)):
            return
        try:
            answer = frames.read(line)
            if answer.kind != "result":
                return
            tools = http_headers.listed(answer.payload or b"").tools
        except Malformed:
            return
        known = {**self._of.pop(caller, {}), **tools}  # the last in the order of callers now
        self._sizes.pop(caller, None)
        kept = {name: wanted for name, wanted in list(known.items())[-MAX_TOOLS:] if wanted}
        sizes = {name: http_headers.size(name, wanted) for name, wanted in kept.items()}
        total = sum(sizes.values())
        while total > MAX_SIZE:
            name = next(iter(kept))
            del kept[name]
            total -= sizes[name]
        if kept:
            self._of[caller], self._sizes[caller] = kept, total
        while len(self._of) > MAX_CALLERS or sum(self._sizes.values()) > MAX_ALL_SIZE:
            oldest = next(iter(self._of))
            del self._of[oldest], self._sizes[oldest]

    def knows(self, caller: str) -> bool:
        """Whether any tool of a caller's has annotations: most have none."""
        return caller in self._of

    def fault(self, caller: str, tool: str | None, headers: Iterable[tuple[bytes, bytes]], arguments: bytes | None) -> str | None:
        """Why a call's headers do not mirror its arguments, None if they do or nothing is known of the tool."""
        wanted = self._of.get(caller, {}).get(tool or "")
        return None if wanted is None else http_headers.check_params(headers, wanted, arguments)
