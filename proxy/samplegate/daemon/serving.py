"""`samplegate serve`: reads what it is told, listens, serves until a signal, and lets what is under way end. It reads no frame.

Everything that can be wrong is found before the first connection is taken (``preparation``, ``listening``).
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from samplegate import __version__
from samplegate.admin.app import admin_app
from samplegate.callers.allowing import still_taken
from samplegate.callers.guard import Guard
from samplegate.callers.telling import Telling
from samplegate.core import load
from samplegate.core.session.rounds import Note
from samplegate.daemon import lag
from samplegate.daemon.counting import Counting
from samplegate.daemon.joining import Joined
from samplegate.daemon.listening import Listener, bind, bound, listener
from samplegate.daemon.notify import Notify
from samplegate.daemon.preparation import Wanted, read_all
from samplegate.daemon.public import Public, path_of
from samplegate.daemon.reload import Change, Reloads, open_to_all, tell_policy
from samplegate.daemon.sealing import seal_key
from samplegate.daemon.watch import watching
from samplegate.house import House
from samplegate.links.failures import CannotStart
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.connection import bounded
from samplegate.links.front.replies import Receive, Scope, Send
from samplegate.links.front.sessions import Sessions
from samplegate.ports import Unavailable
from samplegate.preparation import open_decision_log
from samplegate.records.decisions import DecisionLog
from samplegate.records.exposition import page, preload
from samplegate.records.log import Log, configure
from samplegate.records.metricsfile import MetricsFile, file_path
from samplegate.say import say
from samplegate.settings import SettingsError
from samplegate.settings.serving import ServeSettings

OK: Final = 0
WRONG: Final = 2
"""Nothing was started: the policy, the settings, a file or an address is wrong."""
ADMIN_CONNECTIONS: Final = 64
ADMIN_BOUNDS: Final = Bounds(head=16 * 1024, head_time=5.0, stalled=10.0)
"""Operators' programs are near and send little; one that is slow must not keep the few connections from the others."""


def serve_command(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    started = time.time()
    notify = Notify.taken_from(os.environ, os.getpid())  # before anything copies the environment for a server
    try:
        wanted = read_all(args)
        settings = wanted.settings
        decisions = open_decision_log(settings, "serve")
        _token(settings.admin_token_file)
        key = seal_key(settings.seal_key_file)
        log = configure(settings.log_level, settings.log_format)
        public = bind("listen", settings.listens_at)
        why = open_to_all(bound(public), settings)
        if why is not None:  # a name that is another address than it should be
            raise Unavailable(why)
        admin = None if settings.admin_at is None else bind("admin_listen", settings.admin_at)
    except (load.PolicyError, SettingsError, Unavailable, CannotStart) as problem:
        for line in str(problem).split("\n"):
            say(line)
        return WRONG
    except OSError as problem:
        say(f"{problem.filename}: cannot be read: {(problem.strerror or str(problem)).lower()}")
        return WRONG
    except UnicodeDecodeError as problem:
        say(f"policy: cannot be read: byte {problem.start} is not UTF-8; save it as UTF-8 text")
        return WRONG
    for warning in wanted.warnings:
        say(f"warning: {warning}")
    daemon = Daemon(args, wanted, decisions, log, Sockets(public, admin), notify=notify, started=started, key=key)
    return anyio.run(daemon.run, backend_options={"use_uvloop": _has_uvloop()})


class Sockets(msgspec.Struct, frozen=True, eq=False):
    """What it listens on."""

    public: socket.socket
    admin: socket.socket | None


class Daemon:
    """One process that serves."""

    def __init__(
        self,
        args: argparse.Namespace,
        wanted: Wanted,
        decisions: DecisionLog,
        log: Log,
        sockets: Sockets,
        *,
        notify: Notify,
        started: float,
        key: bytes | None,
    ) -> None:
        self._args = args
        self._wanted = wanted
        self._settings = wanted.settings
        self._decisions = decisions
        self._log = log
        self._sockets = sockets
        self._notify = notify
        self._started = started
        self._key = key
        self._draining = False
        self._listening = False
        self._listeners: dict[str, Listener] = {}

    async def run(self) -> int:
        """From the first connection to the last."""
        settings = self._settings
        self._patience = anyio.CancelScope()
        self.house = House(self._wanted.rules, state=settings.state, decisions=self._decisions, log=self._log, key=self._key)
        self.counting = Counting(self.house)
        self.sessions = Sessions(_bounds(settings), note=self._note)
        tell_policy(self.house)
        self.house.metrics.set("samplegate_reload_last_success", 1)
        self.house.metrics.set("samplegate_draining", 0)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.house.aclose)
            group = await stack.enter_async_context(anyio.create_task_group())
            self.public = Public(
                self.house,
                self.sessions,
                group=group,
                http=_pool,
                tell=self.counting.access,
                max_frame=settings.max_frame_bytes,
                most=settings.max_children,
                idle=settings.session_idle,
            )
            telling = Telling(self._log, self.house.metrics.count, clock=time.monotonic)
            self.guard = Guard(self.public, settings, server_at=self.public.at, telling=telling, bound=bound(self._sockets.public))
            self.public.prepared(settings.servers, self._wanted.environment).put()
            self.reloads = Reloads(self._args, self._wanted, self.house, self._prepared, bound(self._sockets.public))
            self.reload = Joined(self._reloaded)
            await self._serve(group)
            group.cancel_scope.cancel()
        return OK

    async def _serve(self, group: anyio.abc.TaskGroup) -> None:
        settings = self._settings
        front = listener(self._front, http=bounded(self.sessions.bounds), connections=settings.max_connections)
        self._listeners["public"] = front
        group.start_soon(_listen, front, self._sockets.public)
        if self._sockets.admin is not None:
            self._listeners["admin"] = listener(self._admin(), http=bounded(ADMIN_BOUNDS), connections=ADMIN_CONNECTIONS, keep_alive=5)
            group.start_soon(_listen, self._listeners["admin"], self._sockets.admin)
            group.start_soon(anyio.to_thread.run_sync, preload)
        group.start_soon(lag.measure, lambda late: self.house.metrics.observe("samplegate_event_loop_lag_seconds", late))
        group.start_soon(self._notify.feed)
        metrics = self._metrics_file()
        if metrics is not None and settings.metrics_interval:
            group.start_soon(metrics.keep, settings.metrics_interval, self._complain)
        group.start_soon(self.guard.warm)
        await group.start(self._watch)  # before we are ready: until then SIGHUP ends a process
        self._listening = True
        for line in self._hello():
            say(line)
        self._notify.ready(f"serving {len(self.public.servers)} servers")
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await anext(signals)
            group.start_soon(self._again, signals)
            await self._drain(front)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # who asks once more is answered by the end, which is near
        for server in self._listeners.values():
            server.should_exit = True
        if metrics is not None:
            try:
                metrics.write()
            except Unavailable as problem:
                say(str(problem))

    async def _drain(self, front: Listener) -> None:
        """Take nothing new, let what is under way be answered, then end it."""
        seconds = float(self._settings.drain_timeout)
        self._draining = True
        self.house.metrics.set("samplegate_draining", 1)
        self._notify.stopping("draining", seconds + 10)
        self._log.info("drain.began", seconds=seconds)
        for listening in front.servers:
            listening.close()
        done = False
        with self._patience:
            done = await self.sessions.drain(seconds)
        if self._patience.cancelled_caught:
            done = await self.sessions.drain(0.0)
        self._decisions.hurry(5.0)
        self.house.admission.hurry(5.0)
        await self.public.aclose()
        await self.guard.aclose()
        self._log.info("drain.ended", complete=done)
        say("; ".join(filter(None, [self.house.tally.summary(), "all that was under way was answered" if done else "some calls were cut off"])))

    async def _again(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Who asks a second time does not want to wait."""
        async for _ in signals:
            self._patience.cancel()

    async def _watch(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Reload on SIGHUP, and where a file changes."""

        def files() -> Sequence[Path]:
            return self.reloads.wanted.files if self._settings.watch else ()

        async with watching(files, note=self._note, since=self._started) as wishes:
            task_status.started()
            async for _ in wishes:
                await self.reload()

    async def _reloaded(self) -> Any:
        self._notify.reloading()
        report = await self.reloads.reload()
        self._notify.ready(f"reload {report.result}")
        return report

    def _prepared(self, wanted: Wanted) -> Change:
        """Other servers and callers, built and not in force yet."""
        callers = self.guard.prepared(wanted.settings)
        servers = self.public.prepared(wanted.settings.servers, wanted.environment)

        def put() -> None:
            servers.put()
            callers()

        async def end() -> None:
            await servers.end()
            for server in self.public.servers.values():
                await server.end_callers(kept)

        kept = still_taken(self.reloads.wanted.settings.callers, wanted.settings.callers)
        return Change(servers.changes, put, end)

    async def _front(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The clients' listener: a fault that nobody below has taken is in our log, for uvicorn's is silent."""
        try:
            await self.guard(scope, receive, send)
        except Exception:
            self._log.error("http.failed", exc_info=True)
            raise

    def _metrics_file(self) -> MetricsFile | None:
        template = self._settings.metrics_file
        return None if template is None else MetricsFile(self.house.metrics, file_path(template, "serve", os.getpid()))

    def _complain(self, problem: str) -> None:
        self._log.warning("metrics.unwritten", problem=problem)

    def _admin(self) -> Any:
        return admin_app(
            metrics=self._metrics,
            ready=self._unready,
            reload=self.reload,
            about=self._about,
            token=lambda: _token(self._settings.admin_token_file),
            log=self._log,
            hosts=self._settings.allowed_hosts,
        )

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        self.counting.refresh(self.public, {name: len(server.server_state.connections) for name, server in self._listeners.items()})
        return page(self.house.metrics, accept)

    def _unready(self) -> list[str]:
        """What keeps it from serving."""
        found = ["draining: it is ending"] if self._draining else []
        found += [] if self._listening else ["listen: not yet"]
        problem = self._decisions.problem()
        found += [] if problem is None else [problem]
        callers = self.guard.unready()
        return found + ([] if callers is None else [f"callers: {callers}"])

    def _about(self) -> Mapping[str, object]:
        return {
            "version": __version__,
            "policy": self.house.rules.hash,
            "started": self._started,
            "servers": sorted(self.public.servers),
        }

    def _hello(self) -> list[str]:
        at = bound(self._sockets.public)
        paths = ["/mcp"] if len(self.public.servers) == 1 else [path_of(name) for name in sorted(self.public.servers)]
        lines = [f"listening on http://{at}{path}" for path in paths]
        if not self._settings.callers.required:
            lines.append("no callers are configured: whoever reaches this machine's own addresses may call")
        if self._sockets.admin is not None:
            lines.append(f"admin on http://{bound(self._sockets.admin)}")
        return lines

    def _note(self, note: Note) -> None:
        fields = dict(note.fields)
        self._log.warning(note.event, **fields) if note.warn else self._log.debug(note.event, **fields)


async def _listen(server: Listener, ours: socket.socket) -> None:
    await server.serve(sockets=[ours])


def _bounds(settings: ServeSettings) -> Bounds:
    return Bounds(
        head=settings.max_header_bytes,
        body=settings.max_body_bytes,
        body_time=float(settings.body_timeout),
        sessions=settings.max_sessions,
        sessions_per_caller=settings.max_sessions_per_caller,
        idle=float(settings.session_idle),
    )


def _pool() -> Any:
    from samplegate.links.remote.pool import pool

    return pool()


def _token(file: Path | None) -> bytes | None:
    """What a reload over HTTP needs, read anew each time. Raises Unavailable."""
    if file is None:
        return None
    try:
        found = file.read_bytes().strip()
    except OSError as problem:
        raise Unavailable(f"admin_token_file: {file} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if not found:
        raise Unavailable(f"admin_token_file: {file} is empty; write a token into it, such as `samplegate token admin` prints")
    return found


def _has_uvloop() -> bool:
    try:
        import uvloop
    except ImportError:
        return False
    return uvloop is not None
