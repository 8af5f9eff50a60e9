"""The operators' ASGI app with fakes for metrics, readiness and reload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from samplegate.server.admin import AdminApp, ReloadReport
from samplegate.status.snapshot import GateStatus

TOKEN = b"a token of the operator's"


STATUS: Final = GateStatus(
    command="serve",
    instance="00",
    pid=1,
    version="1.2.3",
    uptime=3.0,
    state="/state",
    policy="/policy.yaml",
    policy_hash="aaaaaaaaaaaa",
    settings_hash="bbbbbbbbbbbb",
)


UNCHANGED = ReloadReport("aaaaaaaaaaaa", "aaaaaaaaaaaa")


class Events:
    """A log that keeps its events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.seen.append((event, fields))

    debug = warning = error = info


def app_of(
    *,
    ready: Callable[[], Sequence[str]] = tuple,
    reload: Callable[[], Any] | None = None,
    token: bytes | None = TOKEN,
    log: Events | None = None,
    hosts: Sequence[str] = (),
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None,
    status: GateStatus = STATUS,
) -> AdminApp:
    async def status_now() -> GateStatus:
        return status

    async def accepted(accept: str) -> tuple[bytes, str]:
        return f"# {accept}\n".encode(), "text/plain; version=0.0.4"

    async def unchanged() -> ReloadReport:
        return UNCHANGED

    return AdminApp(
        metrics=metrics or accepted,
        ready=ready,
        reload=reload or unchanged,
        status=status_now,
        about=lambda: {"version": "1.2.3", "policy": "aaaaaaaaaaaa", "servers": ["db"]},
        token=lambda: token,
        log=log or Events(),
        hosts=hosts,
    )
