"""Which callers a server takes, by its settings. Pure. Not what they may do there: that is the policy's."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from samplegate.callers.knowing import LOCAL
from samplegate.core.matching.conditions import globs
from samplegate.settings.identities import CallerSettings
from samplegate.settings.servers import ServerSettings


def allowed(server: ServerSettings, caller: str) -> bool:
    """Whether a server takes a caller: its settings name it, by name or glob, case-sensitive, or name nobody."""
    return server.callers is None or bool(_test(server.callers)(caller))


@lru_cache(maxsize=1_024)
def _test(names: tuple[str, ...]) -> Callable[[str], object]:
    test, _ = globs(list(names))
    return test


def still_taken(before: CallerSettings, now: CallerSettings) -> Callable[[str], bool]:
    """Whether a caller that was known by one version of the settings is known by another: what it has open ends if not.

    A JWT's caller is, while the issuer's settings are the same: its tokens end by themselves.
    """
    names = {token.name for token in now.tokens}

    def taken(caller: str) -> bool:
        if caller == LOCAL.name:
            return not now.required
        if caller.startswith("jwt:"):
            return now.jwt is not None and now.jwt == before.jwt
        return caller in names

    return taken
