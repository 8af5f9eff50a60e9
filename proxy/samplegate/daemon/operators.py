"""What operators see of the daemon: its metrics, whether it is ready, what it is, the lines at its start. It changes
nothing but by a reload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from samplegate import __version__
from samplegate.auth.guard import Guard
from samplegate.gate.ports import Unavailable
from samplegate.runtime.process import House
from samplegate.server.admin import AdminApp, ReloadReport
from samplegate.server.listeners import Listeners
from samplegate.server.metrics import Counting
from samplegate.server.servers import Public, path_of
from samplegate.settings.serve_definition import ServeSettings
from samplegate.transport.http_server.http import Bounds

BOUNDS: Final = Bounds(connections=64, head=16 * 1024, head_time=5.0, stalled=10.0)
"""Operators' programs are near and send little; one that is slow must not keep the others out."""
KEEP_ALIVE: Final = 5  # seconds


class Operators:
    """Their view of one daemon. ``started``: unix seconds."""

    def __init__(
        self,
        house: House,
        settings: ServeSettings,
        *,
        public: Public,
        guard: Guard,
        counting: Counting,
        listeners: Listeners,
        started: float,
    ) -> None:
        self.unready: str | None = "listen: not yet"
        """Why the daemon itself takes no calls, None while it does."""
        self._house = house
        self._settings = settings
        self._public = public
        self._guard = guard
        self._counting = counting
        self._listeners = listeners
        self._started = started

    def app(self, reload: Callable[[], Awaitable[ReloadReport]]) -> AdminApp:
        """What is served on their listener."""
        return AdminApp(
            metrics=self._metrics,
            ready=self._missing,
            unavailable=self._unavailable,
            reload=reload,
            about=self._about,
            token=lambda: admin_token(self._settings.admin_token_file),
            log=self._house.log,
            hosts=self._settings.allowed_hosts,
        )

    def hello(self) -> list[tuple[str, str, dict[str, str]]]:
        """What is said once it listens: events, sentences, and fields."""
        names = sorted(self._public.servers)
        paths = ["/mcp"] if len(names) == 1 else [path_of(name) for name in names]
        urls = [("clients", "listening", f"http://{self._listeners.at('public')}{path}") for path in paths]
        if "admin" in self._listeners:
            urls.append(("operators", "admin", f"http://{self._listeners.at('admin')}"))
        if "reviews" in self._listeners:
            urls.append(("reviewers", "reviews", f"http://{self._listeners.at('reviews')}/reviews"))
        said = [
            ("listener.opened", f"{word} on {url}", {"listener": listener, "url": url}) for listener, word, url in urls
        ]
        if not self._settings.callers.required:
            open_to_all = "no callers are configured: any program that reaches this machine's own addresses may call"
            said.insert(len(paths), ("callers.absent", open_to_all, {}))
        return said

    async def _metrics(self, accept: str) -> tuple[bytes, str]:
        self._counting.refresh(self._public, self._listeners.connections())
        return await self._house.metrics.page(accept)

    def _missing(self) -> list[str]:
        """What keeps it from serving, a line each."""
        callers = self._guard.unready()
        found = [self.unready, self._house.decisions.problem(), None if callers is None else f"callers: {callers}"]
        none = self._unavailable() if len(self._public.unresolved()) == len(self._public.servers) else []
        return [line for line in found if line is not None] + none

    def _unavailable(self) -> list[str]:
        """Servers that cannot be started now, or that failed when they were last started, a line each."""
        unresolved = {name: f"cannot start: {problem}" for name, problem in self._public.unresolved().items()}
        failing = {name: server.failing() for name, server in self._public.servers.items()} | unresolved
        return [f"server {name}: {problem}" for name, problem in failing.items() if problem is not None]

    def _about(self) -> Mapping[str, object]:
        return {
            "version": __version__,
            "policy": self._house.rules.hash,
            "started": self._started,
            "servers": sorted(self._public.servers),
        }


def admin_token(file: Path | None) -> bytes | None:
    """What a reload over HTTP needs, read anew each time. Raises Unavailable."""
    if file is None:
        return None
    try:
        found = file.read_bytes().strip()
    except OSError as problem:
        raise Unavailable(
            f"admin_token_file: {file} cannot be read: {(problem.strerror or str(problem)).lower()}"
        ) from None
    if not found:
        raise Unavailable(
            f"admin_token_file: {file} is empty; write a token into it, such as `samplegate token admin` prints"
        )
    return found
