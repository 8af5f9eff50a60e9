"""Which callers a server takes, by its settings. Pure. Not what they may do there: that is the policy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from samplegate.core.matching.conditions import globs
from samplegate.settings.servers import ServerSettings


def allowed(server: ServerSettings, caller: str) -> bool:
    """Whether a server takes a caller: its settings name it, by name or glob, case-sensitive, or name nobody."""
    return server.callers is None or bool(_test(server.callers)(caller))


@lru_cache(maxsize=1_024)
def _test(names: tuple[str, ...]) -> Callable[[str], object]:
    test, _ = globs(list(names))
    return test
