"""Servers of the daemon by URL path: their conversations, process quota and restarts.

A request's path selects a configured server or none, so a request never chooses what is started. After its process has
died, the next request restarts a server, with a delay that grows with each early death. No frame is read here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from samplegate.auth.tokens import LOCAL
from samplegate.config.servers import ServerSettings
from samplegate.durations import duration_text
from samplegate.protocol import capabilities
from samplegate.protocol.bridge.era_detection import Eras
from samplegate.protocol.bridge.negotiation import EraNegotiator
from samplegate.protocol.frames import META, META_CAPABILITIES, Frame
from samplegate.protocol.identity import Identity
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.protocol.session_state import DISCOVER
from samplegate.runtime.evidence_files import EvidenceStore, key_of
from samplegate.runtime.process import ProcessContext
from samplegate.runtime.relay import enforce_timeouts
from samplegate.runtime.session_wiring import SessionWiring
from samplegate.server.conversation import Opens, Process, RemoteServer, ServerConversation
from samplegate.server.reload import Changes, ReloadPlan
from samplegate.status.snapshot import ServerStatus
from samplegate.transport.http_server.endpoint import App, endpoint
from samplegate.transport.http_server.http import AccessRecord, ConversationRefused, Receive, Scope, Send
from samplegate.transport.http_server.sessions import Sessions
from samplegate.transport.subprocess import unresolved

if TYPE_CHECKING:
    import aiohttp


FIRST_DELAY: Final = 0.5  # seconds before the restart after the second early death in a row
MAX_DELAY: Final = 30.0  # seconds: once an operator has fixed the cause, a restart takes no longer than this
STABLE_AFTER: Final = 60.0  # seconds after which a start counts as successful, so that the count of deaths begins anew


class Backoff(msgspec.Struct, frozen=True):
    """Restart delay after the deaths of one server's processes."""

    deaths: int = 0
    """Deaths in a row, each before its process ran for ``STABLE_AFTER``."""

    def died(self, started: float, now: float) -> Backoff:
        """The state after another death; both times are monotonic seconds."""
        return Backoff(1 if now - started >= STABLE_AFTER else self.deaths + 1)

    @property
    def wait(self) -> float:
        """Seconds from the latest death to the next start."""
        if self.deaths <= 1:
            return 0.0
        return min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(self.deaths - 2, 32))


class ProcessQuota:
    """Bound on server processes, in total (``most``) and per caller.

    One of several callers gets at most three quarters of them, so that no caller can keep the others out.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._of: Counter[str] = Counter()

    def take(self, caller: str) -> bool:
        """Reserve one process; False if none is left or the caller has used its share."""
        share = self.most if caller == LOCAL.name else max(1, self.most * 3 // 4)
        if self.taken >= self.most or self._of[caller] >= share:
            return False
        self.taken += 1
        self._of[caller] += 1
        return True

    def give_back(self, caller: str) -> None:
        """Release one process."""
        self.taken -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


class LearnedEras:
    """What the sessions of a server have found out about its eras, for the next one (R86)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.known: Eras | None = None
        self.at = float("-inf")
        """When they last changed."""
        self._clock = clock
        self._open: set[EraNegotiator] = set()
        """Sessions that may find out more. The others are not looked at again, because there may be thousands."""

    def follow(self, session: EraNegotiator) -> None:
        """Learn from this session, too."""
        self._open.add(session)

    def look(self) -> None:
        """Learn what the sessions have found out meanwhile."""
        for session in tuple(self._open):
            self.learn(session)

    def learn(self, session: EraNegotiator) -> None:
        """Learn what a session has found out."""
        if session.died_probing:
            self.known = Eras(legacy=True, modern=False)
        elif session.eras != self.known:
            self.known, self.at = session.eras, self._clock()
        if session.died_probing or session.phase == "settled":
            self._open.discard(session)

    def end(self, session: EraNegotiator) -> None:
        """Learn from a session for the last time."""
        if session in self._open:
            self.learn(session)
            self._open.discard(session)

    def forget(self) -> None:
        """Forget everything: another server may be there by now."""
        self.known = None


ALL_CALLERS: Final = ""  # the key of the conversation that all callers share
ERAS_EXPIRE: Final = 300.0  # seconds for which the eras of a server at a URL are remembered
RETRY_AFTER: Final = 5  # Retry-After in seconds if the process quota is used up


class Key(NamedTuple):
    """Key of a conversation that modern requests share."""

    caller: str
    prefers_legacy: bool = False


class ServerRuntime:
    """One configured server and its conversations, until the settings change.

    ``idle``: seconds without an open stream after which a conversation of modern requests ends.
    """

    def __init__(
        self,
        settings: ServerSettings,
        context: ProcessContext,
        behind: Opens,
        *,
        group: anyio.abc.TaskGroup,
        clock: Callable[[], float],
        quota: ProcessQuota,
        idle: float,
    ) -> None:
        self.settings = settings
        self._context = context
        self._behind = behind
        self._group = group
        self._clock = clock
        self._quota = quota
        self._idle = idle
        self._eras = LearnedEras(clock)
        self._shared: dict[Key, ServerConversation] = {}
        self._locks: dict[Key, anyio.Lock] = {}
        self._unaware: set[ServerConversation] = set()
        """Shared conversations that began before any evidence that the server prefers the legacy eras."""
        self._undeclared: set[str] = set()
        """Callers whose latest ``server/discover`` declared no modern extension, and went to a conversation that
        prefers the legacy eras."""
        self._evidence = EvidenceStore(
            settings.name,
            key_of(settings.name, settings.argv, settings.url),
            state=context.state,
            setting=(
                f"servers: {{{settings.name}: {{protocol: legacy}}}} (or --protocol legacy for a server on the command"
                " line)"
            ),
            log=context.log,
        )
        self._all: set[ServerConversation] = set()
        self._backoff = Backoff()
        self._died = float("-inf")
        self._to_restart = False
        self._closed = False
        self.problem: str | None = None
        """Why the last start failed; None if it succeeded."""
        self._failing: str | None = None
        """Why the server is unusable although it can be started: it died early or did not answer. None once it
        answers."""
        self._silent = False

    @property
    def name(self) -> str:
        """Name of the server, for rules and in its URL."""
        return self.settings.name

    def failing(self) -> str | None:
        """Why its latest starts failed; None if they did not."""
        if any(live.wiring.state.answered and not live.over for live in self._all):
            self._failing = None
        return self._failing if self.problem is None else f"cannot start: {self.problem}"

    def status(self, found: ServerStatus | None, unresolved: str | None) -> ServerStatus:
        """The status of the server. ``found`` has what its conversations do; None without any. ``unresolved``: why its
        command cannot be started now."""
        status = ServerStatus(name=self.name, state="idle") if found is None else found
        cannot_start = None if unresolved is None else f"cannot start: {unresolved}"
        problem = self.failing() or cannot_start or self._behind.problem()
        left = self._died + self._backoff.wait - self._clock()
        if found is None and left > 0:
            return msgspec.structs.replace(status, state="backoff", problem=problem, restart_in=left)
        return status.failed(problem)

    def open_conversations(self) -> dict[str, int]:
        """Number of open conversations by era: those of legacy sessions, and those that modern requests share."""
        shared = sum(1 for one in self._shared.values() if one in self._all)
        return {"legacy": len(self._all) - shared, "modern": shared}

    def open_streams(self) -> int:
        """Number of client streams with requests under way."""
        return sum(conversation.busy_streams for conversation in self._all)

    def works_for_tasks(self) -> bool:
        """Whether an end now would lose work for tasks, whose clients do not wait on a stream."""
        return any(conversation.wiring.works_for_tasks for conversation in self._all)

    async def begin(self, identity: Identity) -> ServerConversation:
        """Start a conversation for one legacy session (R119). Raises ConversationRefused."""
        return await self._start(identity, modern=False)

    async def modern(self, identity: Identity, frame: Frame) -> ServerConversation:
        """The conversation that this caller's modern requests share. Raises ConversationRefused."""
        caller = identity.name
        key = Key(ALL_CALLERS if self._is_shared_by_all() else caller)
        if self._prefers_legacy(key, caller, frame):
            key = Key(caller, True)
        found = self._shared.get(key)
        if found is None or found.over:
            found = await self._shared_conversation(key, identity)
        return found

    def _prefers_legacy(self, key: Key, caller: str, frame: Frame) -> bool:
        """Whether a frame goes to a conversation that prefers the legacy eras; never for a client with a modern
        extension, except one that discovered the server without it: some declare tasks only in their calls, if the
        server has them, and the gate may have offered its own.

        The preference applies from a client's next connection. In the modern era, that is its next ``server/discover``,
        or the first request after the present conversation has ended.
        """
        if self.settings.protocol != "auto" or not self._evidence.evidence.prefers_legacy:
            return False
        declares = _has_modern_extension(frame)
        if frame.method == DISCOVER:
            (self._undeclared.discard if declares else self._undeclared.add)(caller)
        if declares:
            bridged = self._shared.get(Key(caller, True))
            return caller in self._undeclared and bridged is not None and not bridged.over
        begun = self._shared.get(key)
        goes_on = begun in self._unaware and not begun.over and frame.method != DISCOVER if begun is not None else False
        return not goes_on or Key(caller, True) in self._shared

    def _is_shared_by_all(self) -> bool:
        """Whether all callers share one conversation.

        They may share a process that is known to be modern. A legacy process must not be shared, because its requests
        name no caller. Over HTTP each caller has its own conversation, which costs no process.
        """
        if self.settings.share != "all" or self._behind.streams:
            return False
        if self.settings.protocol != "auto":
            return self.settings.protocol == "modern"
        if self._eras.known is None:
            self._eras.look()
        return self._eras.known is not None and self._eras.known.modern is True

    async def _shared_conversation(self, key: Key, identity: Identity) -> ServerConversation:
        """The running shared conversation of a key. Of several concurrent requests, the first starts it and the others
        wait."""
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                found = self._shared.get(key)
                if found is None or found.over:
                    found = self._shared[key] = await self._start(
                        identity, modern=True, prefers_legacy=key.prefers_legacy
                    )
                    found.on_end(partial(self._forget, key, found))
                    self._group.start_soon(self._end_idle, found)
        finally:
            if not lock.statistics().tasks_waiting and self._locks.get(key) is lock:
                del self._locks[key]
        return found

    def _forget(self, key: Key, conversation: ServerConversation) -> None:
        if self._shared.get(key) is conversation:
            del self._shared[key]
            if key.prefers_legacy:
                self._undeclared.discard(key.caller)

    async def _start(self, identity: Identity, *, modern: bool, prefers_legacy: bool = False) -> ServerConversation:
        self._check()
        if not self._behind.streams and not self._quota.take(identity.name):
            raise ConversationRefused(
                503,
                f"server {self.name}: the process limit or this caller's share of it is used up; retry later",
                RETRY_AFTER,
            )
        started = self._clock()
        conversation = self._build_conversation(identity, modern, prefers_legacy)
        self._all.add(conversation)
        if isinstance(session := conversation.wiring.relay.session, EraNegotiator):
            self._eras.follow(session)
        if not self._evidence.evidence.prefers_legacy:
            self._unaware.add(conversation)
        self._count_start()
        conversation.on_end(partial(self._ended, conversation, started))
        with anyio.move_on_after(self.settings.start_timeout):
            await self._group.start(conversation.run)
            if conversation.failed is None:
                self.problem = None
                return conversation
            self.problem = str(conversation.failed)
            self._context.log.error("server.not_started", server=self.name, problem=self.problem)
        raise ConversationRefused(502, f"server {self.name}: it could not be started; see the gate's log", RETRY_AFTER)

    def _count_start(self) -> None:
        if not self._behind.streams:
            self._context.metrics.count("samplegate_children_started_total", server=self.name)
            if self._to_restart:
                self._to_restart = False
                self._context.metrics.count("samplegate_children_restarted_total", server=self.name)

    def _check(self) -> None:
        """Check that a conversation may start now. Raises ConversationRefused."""
        if self._closed:
            raise ConversationRefused(
                503, f"server {self.name}: the gate is shutting down, or the server's settings changed; retry", 1
            )
        left = self._died + self._backoff.wait - self._clock()
        if left > 0:
            raise ConversationRefused(
                503,
                f"server {self.name}: its process died {self._backoff.deaths} times in a row; it will be restarted"
                " soon",
                max(1, ceil(left)),
            )

    def _build_conversation(self, identity: Identity, modern: bool, prefers_legacy: bool) -> ServerConversation:
        self._evidence.refresh()
        self._eras.look()
        if self._behind.streams and self._clock() - self._eras.at > ERAS_EXPIRE:
            self._eras.forget()
        wiring = SessionWiring(
            self._context,
            self.name,
            identity=identity,
            realm=self._behind.realm,
            maps_ids=modern,
            streams=self._behind.streams,
            outlived=True,
            session=partial(
                EraNegotiator, known=self._eras.known, protocol=self.settings.protocol, prefers_legacy=prefers_legacy
            ),
            observe=self._observe,
        )
        timeouts = partial(enforce_timeouts, self.settings.start_timeout, self.settings.call_timeout, self._log_silent)
        return ServerConversation(wiring, self._behind, timeouts)

    def _observe(self, note: Note) -> None:
        """Collect evidence of how the server asks, unless the protocol version is configured."""
        if self.settings.protocol == "auto":
            self._evidence.take(note)

    def _ended(self, conversation: ServerConversation, started: float) -> None:
        self._all.discard(conversation)
        self._unaware.discard(conversation)
        if isinstance(session := conversation.wiring.relay.session, EraNegotiator):
            self._eras.end(session)
        lost = len(conversation.wiring.relay.left)
        if lost:
            reason = "removed" if self._closed else "died"
            self._context.metrics.count("samplegate_calls_lost_total", lost, server=self.name, reason=reason)
            for call in conversation.wiring.relay.left:
                self._context.tally.count_unanswered_call(call.method, call.tool)
            self._context.publish()
        silent, self._silent = self._silent, False
        if conversation.asked_to_end and conversation.wiring.state.answered:
            self._failing = None
        if self._behind.streams:
            return
        self._quota.give_back(conversation.wiring.state.caller)
        self._context.metrics.count("samplegate_children_exited_total", server=self.name, how=_exit_kind(conversation))
        if not conversation.asked_to_end:
            now = self._clock()
            self._backoff, self._died, self._to_restart = self._backoff.died(started, now), now, True
            if not _died_probing(conversation):
                self._eras.forget()  # the next process may speak another version
            if conversation.failed is None:  # otherwise it was never started, and the log has the reason
                self._context.log.warning("server.died", server=self.name, deaths=self._backoff.deaths)
                if self._backoff.wait and not silent:
                    self._failing = f"its process died {self._backoff.deaths} times in a row"

    def _log_silent(self) -> None:
        self._silent, self._failing = (
            True,
            f"it did not answer its first request within {duration_text(self.settings.start_timeout)} (start_timeout)",
        )
        self._context.log.error("server.silent", server=self.name, seconds=self.settings.start_timeout)

    async def _end_idle(self, conversation: ServerConversation) -> None:
        """Close a conversation after ``idle`` seconds without use. Tasks of the gate use it."""
        while not conversation.over:
            left = conversation.used + self._idle - self._clock()
            if not (conversation.streams or conversation.wiring.state.inflight.for_tasks) and left <= 0:
                await conversation.aclose()
                return
            await anyio.sleep(max(left, min(self._idle, 1.0)))

    async def end_callers(self, keep: Callable[[str], bool]) -> None:
        """Close the conversations of callers that are no longer configured, with their open streams."""
        async with anyio.create_task_group() as group:
            for conversation in list(self._all):
                if not keep(conversation.wiring.state.caller):
                    group.start_soon(conversation.aclose)

    async def drain(self) -> bool:
        """Cut off the calls still in flight after the server's ``end_of_input_timeout``; returns whether there were
        any."""
        seconds = self.settings.end_of_input_timeout
        if seconds is None:
            return False
        await anyio.sleep(seconds)
        calls = sum(len(conversation.wiring.relay.session.open_calls()) for conversation in self._all)
        if calls:
            self._context.log.warning("drain.cut_off", server=self.name, seconds=seconds, calls=calls)
            await self.aclose("the gate is shutting down (setting end_of_input_timeout)")
        return calls > 0

    async def aclose(self, why: str | None = None) -> None:
        """Close all conversations and start no more. ``why`` is the error of requests still in flight."""
        self._closed = True
        async with anyio.create_task_group() as group:
            for conversation in list(self._all):
                group.start_soon(conversation.aclose, why)


def _has_modern_extension(frame: Frame) -> bool:
    """Whether a frame's envelope declares a modern extension. False for ambiguous JSON, which the session refuses."""
    try:
        return capabilities.has_modern_extension(frame.lookup(META, META_CAPABILITIES))
    except Malformed:
        return False


def _exit_kind(conversation: ServerConversation) -> str:
    """How a server's process ended, as a metric label."""
    if conversation.failed is not None:
        return "failed"
    if conversation.asked_to_end:
        return "asked"
    return "signal" if isinstance(conversation.exit, int) and conversation.exit < 0 else "code"


def _died_probing(conversation: ServerConversation) -> bool:
    """Whether the server ended when it was asked for its eras: some end at a request that they do not know."""
    session = conversation.wiring.relay.session
    return isinstance(session, EraNegotiator) and session.died_probing


SINGLE_SERVER_PATH: Final = "/mcp"
"""A second URL path of the server, if there is only one."""


def path_of(name: str) -> str:
    """URL path of a server."""
    return f"/servers/{name}/mcp"


class MountedServer(msgspec.Struct, frozen=True, eq=False):
    """A server and its endpoint."""

    server: ServerRuntime
    app: App


class Public:
    """All servers by name and URL path. ``http`` creates the connection pool for servers at URLs on first use."""

    def __init__(
        self,
        context: ProcessContext,
        sessions: Sessions,
        *,
        group: anyio.abc.TaskGroup,
        http: Callable[[], aiohttp.ClientSession],
        tell: Callable[[AccessRecord], None],
        max_frame: int,
        most: int,
        idle: float,
    ) -> None:
        self.quota = ProcessQuota(most)
        self._context = context
        self._sessions = sessions
        self._group = group
        self._make_http = http
        self._http: aiohttp.ClientSession | None = None
        self._tell = tell
        self._max_frame = max_frame
        self._idle = idle
        self._environment: Mapping[str, str] = {}
        self._by_name: dict[str, MountedServer] = {}
        self._by_path: dict[str, MountedServer] = {}

    @property
    def servers(self) -> dict[str, ServerRuntime]:
        """Servers by name."""
        return {name: mounted.server for name, mounted in self._by_name.items()}

    def unresolved(self) -> dict[str, str]:
        """Why servers cannot be started now, by name. Each call looks for their programs again."""
        found = {name: server.settings for name, server in self.servers.items() if server.settings.url is None}
        problems = {
            name: unresolved(each.argv, env={**self._environment, **each.env}, cwd=each.cwd)
            for name, each in found.items()
        }
        return {name: str(problem) for name, problem in problems.items() if problem is not None}

    def statuses(self, found: Mapping[str, ServerStatus]) -> list[ServerStatus]:
        """The status of each server by name. ``found`` has what the conversations of a server do."""
        unresolved = self.unresolved()
        return [server.status(found.get(name), unresolved.get(name)) for name, server in sorted(self.servers.items())]

    def at(self, path: str) -> ServerSettings | None:
        """Settings of the server at a path; None if there is none."""
        mounted = self._by_path.get(path)
        return None if mounted is None else mounted.server.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the endpoint at its path. The caller is already authorized."""
        mounted = self._by_path.get(scope["path"])
        if mounted is None:  # removed while the caller was authenticated
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        await mounted.app(scope, receive, send)

    def prepared(self, servers: Mapping[str, ServerSettings], environment: Mapping[str, str]) -> ReloadPlan:
        """Build the endpoints of these servers, without putting them in force. ``environment`` is for all processes
        that start after that."""
        kept = {
            name: mounted for name, mounted in self._by_name.items() if servers.get(name) == mounted.server.settings
        }
        gone = [mounted.server for name, mounted in self._by_name.items() if name not in kept]
        changes = Changes(
            added=tuple(name for name in servers if name not in self._by_name),
            changed=tuple(server.name for server in gone if server.name in servers),
            removed=tuple(server.name for server in gone if server.name not in servers),
        )
        by_name = {name: kept.get(name) or self._mount(settings) for name, settings in servers.items()}
        by_path = {path_of(name): mounted for name, mounted in by_name.items()}
        if len(servers) == 1:
            by_path[SINGLE_SERVER_PATH] = next(iter(by_name.values()))

        def put() -> None:
            self._by_name, self._by_path, self._environment = by_name, by_path, environment

        return ReloadPlan(changes, put, partial(self._end, gone, changes.removed))

    async def _end(self, gone: Sequence[ServerRuntime], removed: Sequence[str]) -> None:
        """End the conversations of removed and changed servers, and no others."""
        async with anyio.create_task_group() as group:
            for server in gone:
                group.start_soon(server.aclose)
        for name in removed:
            self._context.metrics.forget(server=name)

    def _mount(self, settings: ServerSettings) -> MountedServer:
        server = ServerRuntime(
            settings,
            self._context,
            self._behind(settings),
            group=self._group,
            clock=time.monotonic,
            quota=self.quota,
            idle=self._idle,
        )
        return MountedServer(server, endpoint(server, self._sessions, tell=self._tell))

    def _behind(self, settings: ServerSettings) -> Opens:
        if settings.url is None:
            return Process(settings, lambda: self._environment, self._max_frame, self._context.log)
        if self._http is None:
            self._http = self._make_http()
        return RemoteServer(settings, self._http, self._max_frame, state=self._context.state, log=self._context.log)

    async def aclose(self) -> None:
        """Close every conversation, then the connection pool."""
        async with anyio.create_task_group() as group:
            for server in self.servers.values():
                group.start_soon(server.aclose)
        if self._http is not None:
            await self._http.close()
