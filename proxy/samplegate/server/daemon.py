"""`samplegate serve`: the daemon, from binding its listeners to the end of its drain.

Every problem of the inputs is found before the first connection is accepted (``prepare.py``, ``listeners.py``). No
frame is read here.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from samplegate import __version__
from samplegate.audit.decision_log import DecisionLog
from samplegate.audit.runs import GateFile
from samplegate.auth.guard import AuthObserver, CallerGuard
from samplegate.auth.tokens import still_valid
from samplegate.config import SettingsError
from samplegate.config.identities import PersonToken, Token
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.settings import settings_hash
from samplegate.config.values import address
from samplegate.errors import Unavailable
from samplegate.key_file import seal_keys
from samplegate.policy.file import load
from samplegate.postgres.url import DATABASE
from samplegate.protocol.rounds import Note
from samplegate.runtime import heap
from samplegate.runtime.process import ProcessContext
from samplegate.runtime.run import (
    create_gate_file,
    database_watch,
    loop_options,
    note_failed_start,
    open_decision_log,
)
from samplegate.runtime.status import StatusSource
from samplegate.runtime.status_socket import publish
from samplegate.server.admin import AdminApp, ReloadReport
from samplegate.server.announcements import announce, log_libraries, refuse_start
from samplegate.server.metrics import RequestCounter, measure_loop_lag
from samplegate.server.prepare import ServeConfig, admin_token, read_all
from samplegate.server.reload import ReloadPlan, Reloads, SingleFlight, exposure_error, publish_policy
from samplegate.server.reviews import Reviewers
from samplegate.server.servers import Public, ServerRuntime, path_of
from samplegate.server.systemd import Notify
from samplegate.server.watch import watching
from samplegate.status.snapshot import MAX_PROBLEM, GateStatus, ReloadStatus, shown
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics, metrics_file
from samplegate.telemetry.traces import open_traces
from samplegate.transport.http_server.http import HttpBounds, Receive, Scope, Send
from samplegate.transport.http_server.listeners import Listeners
from samplegate.transport.http_server.sessions import Sessions
from samplegate.transport.sockets import bind, bound
from samplegate.transport.stdio import CannotStart

BOUNDS: Final = HttpBounds(connections=64, head=16 * 1024, head_time=5.0, stalled=10.0)
"""Bounds of the operators' listener. Operators' programs are near and send little, so a slow one must not keep others
out."""
KEEP_ALIVE: Final = 5  # seconds


class Operators:
    """Operator interface of one daemon: metrics, readiness, version and the lines logged at its start. ``started``:
    unix seconds."""

    def __init__(
        self,
        context: ProcessContext,
        settings: ServeSettings,
        *,
        public: Public,
        guard: CallerGuard,
        counting: RequestCounter,
        listeners: Listeners,
        started: float,
    ) -> None:
        self.unready: str | None = "listen: starting"
        """Why the daemon itself takes no calls; None while it does."""
        self._context = context
        self._settings = settings
        self._public = public
        self._guard = guard
        self._counting = counting
        self._listeners = listeners
        self._started = started

    def app(
        self, reload: Callable[[], Awaitable[ReloadReport]], status: Callable[[], Awaitable[GateStatus]]
    ) -> AdminApp:
        """The ASGI application of the operators' listener."""
        return AdminApp(
            status=status,
            metrics=self._metrics,
            ready=self._missing,
            unavailable=self._unavailable,
            reload=reload,
            about=self._about,
            token=lambda: admin_token(self._settings.admin_token_file),
            log=self._context.log,
            hosts=self._settings.allowed_hosts,
        )

    def announcements(self) -> list[tuple[str, str, dict[str, str]]]:
        """Announcements for the start: event, sentence and fields of each."""
        names = sorted(self._public.servers)
        paths = ["/mcp"] if len(names) == 1 else [path_of(name) for name in names]
        urls = [("clients", "listening", f"http://{self._listeners.at('public')}{path}") for path in paths]
        if "admin" in self._listeners:
            urls.append(("operators", "admin", f"http://{self._listeners.at('admin')}"))
        if "reviews" in self._listeners:
            urls.append(("reviewers", "reviews", f"http://{self._listeners.at('reviews')}/reviews"))
        lines = [
            ("listener.opened", f"{word} on {url}", {"listener": listener, "url": url}) for listener, word, url in urls
        ]
        if not self._settings.callers.required:
            warning = "no callers are configured: any program on this machine can call the servers"
            lines.insert(len(paths), ("callers.absent", warning, {}))
        return lines

    async def _metrics(self, accept: str) -> tuple[bytes, str]:
        self._counting.refresh(self._public, self._listeners.connections())
        return await self._context.metrics.page(accept)

    async def status(self, reloads: Reloads) -> GateStatus:
        """The current status of this gate."""
        settings, last = reloads.wanted.settings, reloads.last
        source = StatusSource(
            "serve",
            self._context,
            settings,
            policy=settings.policy or Path(),
            started=self._started,
            servers=lambda found: self._public.statuses(found.by_server),
        )
        status = await source()
        return msgspec.structs.replace(
            status,
            draining=self.unready is not None and self.unready.startswith("draining"),
            problems=tuple(dict.fromkeys((*(shown(line, MAX_PROBLEM) for line in self._missing()), *status.problems))),
            reload=None
            if last is None
            else ReloadStatus(age=time.monotonic() - last[0], result=last[1].result, problems=len(last[1].problems)),
        )

    def _missing(self) -> list[str]:
        """What keeps the daemon from being ready, a line each. A database that all gates share is not among it: it
        would take all of them out of service at once, with the calls that do not need it."""
        callers = self._guard.unready()
        log = None if self._settings.decision_log == DATABASE else self._context.decisions.problem()
        found = [self.unready, log, None if callers is None else f"callers: {callers}"]
        none = self._unavailable() if len(self._public.unresolved()) == len(self._public.servers) else []
        return [line for line in found if line is not None] + none

    def _unavailable(self) -> list[str]:
        """Servers that cannot start now or failed at their latest start, a line each."""
        unresolved = {name: f"cannot start: {problem}" for name, problem in self._public.unresolved().items()}
        failing = {name: server.failing() for name, server in self._public.servers.items()} | unresolved
        return [f"server {name}: {problem}" for name, problem in failing.items() if problem is not None]

    def _about(self) -> Mapping[str, object]:
        return {
            "version": __version__,
            "policy": self._context.rules.hash,
            "started": self._started,
            "servers": sorted(self._public.servers),
        }


# seconds that sessions and connections stay open after the last answer of a drain, because clients list tools right
# after an answer
LINGER: Final = 3.0


class Daemon:
    """The daemon's process: servers, listeners, reload, signals and drain."""

    def __init__(
        self,
        args: argparse.Namespace,
        wanted: ServeConfig,
        decisions: DecisionLog,
        log: EventLog,
        listeners: Listeners,
        *,
        notify: Notify,
        started: float,
        keys: Sequence[bytes],
        gate_file: GateFile | None,
    ) -> None:
        self._args = args
        self._wanted = wanted
        self._settings = wanted.settings
        self._decisions = decisions
        self._log = log
        self._listeners = listeners
        self._notify = notify
        self._started = started
        self._keys = keys
        self._gate_file = gate_file

    async def run(self) -> int:
        """Serve until a signal, then drain. Returns the exit code."""
        self._patience = anyio.CancelScope()
        self._asked = anyio.Event()
        settings = self._settings
        metrics = Metrics(read=settings.metrics_file is not None or settings.admin_listen is not None)
        self.context = ProcessContext(
            self._wanted.rules,
            state=settings.state,
            database=settings.database,
            decisions=self._decisions,
            log=self._log,
            keys=self._keys,
            metrics=metrics,
            gate_file=self._gate_file,
            settings_hash=settings_hash(settings),
            traces=open_traces(os.environ, metrics, self._log),
        )
        self._log.count_dropped(self.context.metrics)
        publish_policy(self.context)
        self.context.metrics.set("samplegate_reload_last_success", 1)
        self.context.metrics.set("samplegate_draining", 0)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.context.aclose)
            group = await stack.enter_async_context(anyio.create_task_group())
            self._build(group)
            await self._serve(group)
            group.cancel_scope.cancel()
        return 0

    def _build(self, group: anyio.abc.TaskGroup) -> None:
        """Build the servers, the guard for callers, reloads and the operators' interface, without listening."""
        settings, at = self._settings, self._listeners.at("public")
        self.counting = RequestCounter(self.context)
        self.sessions = Sessions(_bounds(settings), note=self._note)
        self.public = Public(
            self.context,
            self.sessions,
            group=group,
            http=_pool,
            tell=self.counting.access,
            max_frame=settings.max_frame_bytes,
            most=settings.max_children,
            idle=settings.session_idle,
        )
        observer = AuthObserver(self._log, self.context.metrics.count, clock=time.monotonic)
        self.guard = CallerGuard(
            self.public,
            settings,
            server_at=self.public.at,
            observer=observer,
            bound=at,
            withdrawn=lambda: self.context.withdrawn,
        )
        self.public.prepared(settings.servers, self._wanted.environment).put()
        self.reviewers = Reviewers(self.context, settings, self._wanted, self._listeners)
        self._database = database_watch(self.context, self._withdrawn)
        self.reloads = Reloads(self._args, self._wanted, self.context, self._prepared, at)
        self.reload = SingleFlight(self._reloaded)
        self.operators = Operators(
            self.context,
            settings,
            public=self.public,
            guard=self.guard,
            counting=self.counting,
            listeners=self._listeners,
            started=self._started,
        )
        self.status = SingleFlight(partial(self.operators.status, self.reloads))

    async def _listen(self, group: anyio.abc.TaskGroup) -> None:
        """Open the listeners. The operators' listener opens first; the clients' listener waits for the warm-up of
        models."""
        if "admin" in self._listeners:
            app = self.operators.app(self.reload, self.status)
            self._listeners.open(
                "admin", app, BOUNDS, group, refused=self.counting.count_refused_connection, keep_alive=KEEP_ALIVE
            )
        await self._warm()
        self._listeners.open(
            "public", self._front, self.sessions.bounds, group, refused=self.counting.count_refused_connection
        )
        self.reviewers.listen(group, refused=self.counting.count_refused_connection)

    async def _serve(self, group: anyio.abc.TaskGroup) -> None:
        await group.start(self._watch)  # first, because the default action of SIGHUP ends a process
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            group.start_soon(self._signalled, signals)
            await self._listen(group)
            group.start_soon(
                measure_loop_lag, lambda late: self.context.metrics.observe("samplegate_event_loop_lag_seconds", late)
            )
            group.start_soon(self._notify.feed)
            if self._database is not None:
                group.start_soon(self._database.run)
            group.start_soon(partial(publish, self.context.state, self.status, self._log, delay=0.0))
            metrics = metrics_file(self.context.metrics, self._settings.metrics_file, "serve")
            if metrics is not None and self._settings.metrics_interval:
                group.start_soon(metrics.keep, self._settings.metrics_interval, self._log)
            group.start_soon(self.guard.warm)
            self.operators.unready = None
            for event, line, fields in self.operators.announcements():
                announce(self._log, event, line, fields=fields)
            self._notify.ready(f"serving {len(self.public.servers)} servers")
            await self._asked.wait()
            await self._drain()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # another signal is ignored: the process is about to end
        self._listeners.end()
        if metrics is not None:
            try:
                metrics.write()
            except Unavailable as problem:
                announce(self._log, "metrics.unwritten", str(problem), level="warning")

    async def _warm(self) -> None:
        """Start the models with warm-up, unless a stop is requested meanwhile."""
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._until_asked, waiting.cancel_scope)
            await self.reloads.warm()
            waiting.cancel_scope.cancel()

    async def _until_asked(self, scope: anyio.CancelScope) -> None:
        await self._asked.wait()
        scope.cancel()

    async def _drain(self) -> None:
        """Drain: stay open but not ready for ``drain_delay``, then serve reads only, wait for calls in flight, and
        close the rest."""
        began, delay, seconds = time.monotonic(), float(self._settings.drain_delay), float(self._settings.drain_timeout)
        self.operators.unready = "draining: shutting down"
        self.context.metrics.set("samplegate_draining", 1)
        self._notify.stopping("draining", delay + seconds + 10)
        self._log.info("drain.began", delay=delay, seconds=seconds)
        done = False
        with self._patience:
            await anyio.sleep(delay)  # load balancers notice that it is not ready and send traffic elsewhere
            self.reviewers.drain()
            done = await self._answered(seconds, began)
        if self._patience.cancelled_caught:
            self.reviewers.drain()
            done = await self.sessions.drain(0.0)
        self._decisions.set_shutdown_deadline(5.0)
        self.context.admission.set_shutdown_deadline(5.0)
        await self.public.aclose()
        await self.guard.aclose()
        self.reviewers.end()
        self._log.info("drain.ended", complete=done)
        end = "all calls in flight were answered" if done else "some calls were cut off"
        announce(self._log, "daemon.ended", "; ".join(filter(None, [self.context.tally.summary(), end])))

    async def _answered(self, seconds: float, since: float) -> bool:
        """Wait for the answers to calls in flight, for each server at most its ``end_of_input_timeout``. False if some
        were cut off."""
        cut_off: list[str] = []
        done = False

        async def one(server: ServerRuntime) -> None:
            if await server.drain():
                cut_off.append(server.name)

        async with anyio.create_task_group() as group:
            for server in self.public.servers.values():
                group.start_soon(one, server)
            until = time.monotonic() + seconds
            done = await self.sessions.drain(seconds, linger=LINGER, since=since)
            while any(server.works_for_tasks() for server in self.public.servers.values()):
                if time.monotonic() >= until:
                    done = False
                    break
                await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        return done and not cut_off

    async def _signalled(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Drain at the first signal, and stop waiting at the second."""
        async for _ in signals:
            if self._asked.is_set():
                self._patience.cancel()
            self._asked.set()

    async def _watch(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Reload on SIGHUP and when a watched file changes."""

        def files() -> Sequence[Path]:
            return self.reloads.wanted.files if self._settings.watch else ()

        async with watching(files, note=self._note, since=self._started) as triggers:
            task_status.started()
            async for _ in triggers:
                await self.reload()

    async def _reloaded(self) -> Any:
        self._notify.reloading()
        before = self.reloads.wanted.settings
        report = await self.reloads.reload()
        now = self.reloads.wanted.settings
        gone, new = _digests(before) - _digests(now), _digests(now) - _digests(before)
        if self._database is not None and (gone or new):
            await self._database.withdraw(gone, new)
        self._notify.ready(f"reload {report.result}")
        return report

    async def _withdrawn(self) -> None:
        """End the connections of callers whose tokens were withdrawn at another gate. Their tokens are refused
        already."""
        settings, withdrawn = self.reloads.wanted.settings, self.context.withdrawn
        if names := {one.name for one in _tokens(settings) if bytes.fromhex(one.sha256) in withdrawn}:
            self._log.warning(
                "database.tokens_withdrawn",
                names=sorted(names),
                remedy="remove them here too; to allow one again, remove it, reload, add it, and reload",
            )
        kept = still_valid(settings.callers, settings.callers, withdrawn)
        for server in self.public.servers.values():
            await server.end_callers(kept)

    def _prepared(self, wanted: ServeConfig) -> ReloadPlan:
        """Build the changed servers and callers, without putting them in force."""
        callers = self.guard.prepared(wanted.settings)
        servers = self.public.prepared(wanted.settings.servers, wanted.environment)

        def put() -> None:
            servers.put()
            callers()
            self.reviewers.put(wanted)

        async def end() -> None:
            await self.reviewers.runtime.reloaded()
            await servers.end()
            for server in self.public.servers.values():
                await server.end_callers(kept)

        kept = still_valid(self.reloads.wanted.settings.callers, wanted.settings.callers, self.context.withdrawn)
        return ReloadPlan(servers.changes, put, end)

    async def _front(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The clients' listener. It logs errors that nothing below handles, because uvicorn's log is off."""
        try:
            await self.guard(scope, receive, send)
        except Exception:
            self._log.error("http.failed", exc_info=True)
            raise

    def _note(self, note: Note) -> None:
        fields = dict(note.fields)
        self._log.warning(note.event, **fields) if note.warn else self._log.debug(note.event, **fields)


def _bounds(settings: ServeSettings) -> HttpBounds:
    return HttpBounds(
        connections=settings.max_connections,
        head=settings.max_header_bytes,
        body=settings.max_body_bytes,
        body_time=float(settings.body_timeout),
        sessions=settings.max_sessions,
        sessions_per_caller=settings.max_sessions_per_caller,
        idle=float(settings.session_idle),
    )


def _pool() -> Any:
    from samplegate.transport.http_client.connection import pool

    return pool()


FAILED: Final = 1
"""Exit code: an error in the gate ended the daemon."""
WRONG: Final = 2
"""Exit code: nothing was started, because the policy, the settings, a file or an address is wrong."""


def serve_command(args: argparse.Namespace) -> int:
    """Run `samplegate serve` until SIGTERM or SIGINT; returns the exit code."""
    started = time.time()
    heap.fix_malloc()
    notify = Notify.from_environment(os.environ, os.getpid())  # before the environment is copied for a server
    try:
        wanted = read_all(args)
        settings = wanted.settings
        assert settings.policy is not None
        decisions = open_decision_log(settings, "serve")
        admin_token(settings.admin_token_file)
        keys = seal_keys(settings.seal_key_file)
        log = EventLog(settings.log_level, settings.log_format)
        listeners = _listeners(settings)
        gate_file = create_gate_file(
            settings, wanted.run, command="serve", server="", wrapped="", policy=settings.policy
        )
    except (load.PolicyError, SettingsError, Unavailable, CannotStart) as problem:
        note_failed_start("serve", args)
        refuse_start(str(problem))
        return WRONG
    log_libraries(log)
    for warning in wanted.warnings:
        announce(log, "settings.warned", warning, level="warning")
    daemon = Daemon(
        args, wanted, decisions, log, listeners, notify=notify, started=started, keys=keys, gate_file=gate_file
    )
    heap.freeze_objects()
    try:
        code = anyio.run(daemon.run, backend_options=loop_options())
    except Exception:
        log.error("daemon.failed", exc_info=True)  # noqa: G201
        code = FAILED
    if gate_file is not None:
        gate_file.close(time.time(), code)
    return code


def _listeners(settings: ServeSettings) -> Listeners:
    """Bind every configured listener. Raises CannotStart or Unavailable."""
    sockets = {"public": bind("listen", settings.listens_at)}
    why = exposure_error(bound(sockets["public"]), settings)
    if why is not None:  # a host name may resolve to another address than expected
        raise Unavailable(why)
    for name, text in (("admin", settings.admin_listen), ("reviews", settings.reviews_listen)):
        if text is not None:
            sockets[name] = bind(f"{name}_listen", address(text))
    return Listeners(sockets)


def _digests(settings: ServeSettings) -> set[str]:
    return {token.sha256 for token in _tokens(settings)}


def _tokens(settings: ServeSettings) -> tuple[Token | PersonToken, ...]:
    """All static tokens, of callers and people."""
    return *settings.callers.tokens, *settings.people.tokens
