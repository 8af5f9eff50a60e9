"""Pure. Loop detection: leaves a server unanswered for a while if it asks too often in one call, or repeats itself.

Nothing is reserved, and no state survives the process. Time is passed in (seconds of a monotonic clock). A process has
one object, whose memory is bounded.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy import schema
from samplegate.policy.schema import seconds
from samplegate.protocol.requests import Origin

Which: TypeAlias = Literal["requests_per_call", "repeats"]

# entries remembered, a few MiB; one process cannot serve more calls in flight than this
MAX_CALLS: Final = 10_000
MAX_SERVERS: Final = 10_000  # never reached in practice: server names come from the configuration
_PASSING: Final = frozenset({"metadata", "modelPreferences", "elicitationId", "progressToken", "task"})
"""Members of params that may differ between identical requests; ``_meta`` may differ at any depth."""
_UNREADABLE: Final = "unreadable"


class Braked(msgspec.Struct, frozen=True):
    """The server is left unanswered."""

    which: Which
    tripped: bool
    """Whether this request tripped the brake: it is logged and counted once."""
    detail: str
    """The reason for the log; no message content."""
    until: float
    """When the server may ask again, by the caller's clock."""


class BrakeState:
    """The recent requests of each server. ``brakes`` None: all of them are off."""

    def __init__(self, brakes: schema.Brakes | None) -> None:
        self._brakes = schema.Brakes() if brakes is None else brakes
        self._cooling = seconds(self._brakes.cooling)
        self._servers: OrderedDict[str, _Server] = OrderedDict()
        self._calls: OrderedDict[tuple[str, str], int] = OrderedDict()

    @property
    def compares(self) -> bool:
        """Whether it needs digests of requests; if not, any string will do."""
        return self._brakes.repeats is not None

    def asked(self, server: str, call_ids: Sequence[str], digest: str, now: float) -> Braked | None:
        """Count one request of a server (``brake_key``) in each of these calls of the client. None: no brake applies.

        The request that trips a brake is left unanswered too, and so are all requests of the server until ``cooling``
        is over. Requests meanwhile do not prolong it. After it, the server and these calls are counted from zero.
        """
        if self._brakes.requests_per_call is None and self._brakes.repeats is None:
            return None
        state = self._servers.setdefault(server, _Server())
        _evict_oldest(self._servers, server, MAX_SERVERS)
        if state.braked is not None:
            if now < state.braked.until:
                return state.braked
            state.braked = None
        which = self._count(state, server, call_ids, digest)
        if which is None:
            return None
        state.digest, state.times = None, 0
        for call in call_ids:
            self._calls.pop((server, call), None)
        braked = Braked(which, True, self._detail(which), now + self._cooling)
        state.braked = msgspec.structs.replace(braked, tripped=False)
        return braked

    def _count(self, state: _Server, server: str, call_ids: Sequence[str], digest: str) -> Which | None:
        state.times = state.times + 1 if digest == state.digest else 1
        state.digest = digest
        most = 0
        if self._brakes.requests_per_call is not None:
            most = max((self._counted(server, call) for call in dict.fromkeys(call_ids)), default=0)
        if self._brakes.requests_per_call is not None and most > self._brakes.requests_per_call:
            return "requests_per_call"
        return "repeats" if self._brakes.repeats is not None and state.times >= self._brakes.repeats else None

    def _counted(self, server: str, call: str) -> int:
        count = self._calls[server, call] = self._calls.get((server, call), 0) + 1
        _evict_oldest(self._calls, (server, call), MAX_CALLS)
        return count

    def _detail(self, which: Which) -> str:
        what = {
            "requests_per_call": f"the server sent more than {self._brakes.requests_per_call} requests in one call",
            "repeats": f"the server sent the same request {self._brakes.repeats} times in a row",
        }[which]
        return f"brakes.{which}: {what}; its requests are not answered for {self._brakes.cooling}"


class _Server:
    """One server's state."""

    __slots__ = ("braked", "digest", "times")

    def __init__(self) -> None:
        self.braked: Braked | None = None
        self.digest: str | None = None
        self.times = 0


def brake_key(origin: Origin) -> str:
    """The key of a brake: server and caller, so that one caller's requests do not brake another's."""
    return f"{origin.server}\n{origin.caller}"


def digest(params: Mapping[str, Any]) -> str:
    """A digest of a request: SHA-256 of its params as canonical JSON, without members that may differ each time. Never
    raises.

    All params that Python cannot write as JSON (numbers of thousands of digits, endless nesting) have the same digest;
    the parser lets none through.
    """
    try:
        bare = {name: _bare(value) for name, value in params.items() if name != "_meta" and name not in _PASSING}
        text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return _UNREADABLE
    return hashlib.sha256(text.encode()).hexdigest()


def _bare(value: Any) -> Any:
    """The value without ``_meta``."""
    match value:
        case dict():
            return {name: _bare(item) for name, item in value.items() if name != "_meta"}
        case list():
            return [_bare(item) for item in value]
        case _:
            return value


def _evict_oldest(kept: OrderedDict[Any, Any], newest: object, most: int) -> None:
    """Mark an entry as the newest, and drop the oldest if there are more than ``most``."""
    kept.move_to_end(newest)
    if len(kept) > most:
        kept.popitem(last=False)
