"""One server of the settings, as the HTTP front sees it: conversations are begun for legacy sessions and shared by a caller's modern requests.

Not the front and not the frames. A process that died is started again by the next request, after a pause that grows with each early death.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final, NamedTuple

import anyio
import anyio.abc
import anyio.lowlevel

from samplegate.core.bridge.era_detection import Eras
from samplegate.core.bridge.negotiation import Opening
from samplegate.core.eras import META, META_CAPABILITIES
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import capabilities
from samplegate.core.session.rounds import Note
from samplegate.core.session.state import DISCOVER
from samplegate.daemon.backoff import Backoff
from samplegate.daemon.behind import Opens
from samplegate.daemon.conversation import Conversation
from samplegate.daemon.places import Places
from samplegate.evidence import Witnessed, key_of
from samplegate.flow import Sink
from samplegate.house import House
from samplegate.links.front.http import Refused
from samplegate.relay import enforce_timeouts
from samplegate.settings.servers import ServerSettings
from samplegate.wiring import Wires

EVERYBODY: Final = ""  # the key of the conversation that all callers share
KEPT: Final = 300.0  # seconds that the eras of a server at a URL are remembered
BUSY: Final = 5  # seconds after which a client may come back where there is no place


class Key(NamedTuple):
    """What modern requests share a conversation by."""

    caller: str
    prefers_legacy: bool = False


class Server:
    """One server, until the settings change it. ``idle`` seconds without an open lane end what a caller's modern requests share."""

    def __init__(
        self,
        settings: ServerSettings,
        house: House,
        behind: Opens,
        *,
        group: anyio.abc.TaskGroup,
        clock: Callable[[], float],
        places: Places,
        idle: float,
    ) -> None:
        self.settings = settings
        self._house = house
        self._behind = behind
        self._group = group
        self._clock = clock
        self._places = places
        self._idle = idle
        self._eras: Eras | None = None
        self._learned = float("-inf")
        self._shared: dict[Key, Conversation] = {}
        self._locks: dict[Key, anyio.Lock] = {}
        self._unaware: set[Conversation] = set()
        """Those that modern callers share and that began before anything showed that the server prefers the legacy eras."""
        self._witnessed = Witnessed(
            settings.name,
            key_of(settings.name, settings.argv, settings.url),
            state=house.state,
            setting=f"servers: {{{settings.name}: {{protocol: legacy}}}} (or --protocol legacy for a server of the command line)",
            log=house.log,
        )
        self._all: set[Conversation] = set()
        self._backoff = Backoff()
        self._died = float("-inf")
        self._to_restart = False
        self._closed = False
        self.problem: str | None = None
        """Why the last start failed, None where it did not."""
        self._failing: str | None = None
        """Why the server is of no use though it can be started: it died early, or it answered nothing. None once it answers."""
        self._silent = False

    @property
    def name(self) -> str:
        """What the rules and the URL call it."""
        return self.settings.name

    def failing(self) -> str | None:
        """Why its latest starts failed, None where they did not."""
        if any(live.wires.state.answered and not live.over for live in self._all):
            self._failing = None
        return self._failing if self.problem is None else f"cannot start: {self.problem}"

    def open_conversations(self) -> dict[str, int]:
        """How many are open, by era: legacy clients' own, and those that modern callers share."""
        shared = sum(1 for one in self._shared.values() if one in self._all)
        return {"legacy": len(self._all) - shared, "modern": shared}

    def open_lanes(self) -> int:
        """Streams to clients."""
        return sum(conversation.busy_lanes for conversation in self._all)

    async def begin(self, caller: str) -> Conversation:
        """A conversation of its own for one legacy session (R119). Raises Refused."""
        return await self._start(caller, modern=False)

    async def modern(self, caller: str, frame: Frame) -> Conversation | OfCaller:
        """What this caller's modern requests share. Raises Refused."""
        key = Key(EVERYBODY if self._is_shared_by_all() else caller)
        if self._prefers_legacy(key, caller, frame):
            key = Key(caller, True)
        found = self._shared.get(key)
        if found is None or found.over:
            found = await self._one(key, caller)
        return OfCaller(found, caller) if key.caller == EVERYBODY else found

    def _prefers_legacy(self, key: Key, caller: str, frame: Frame) -> bool:
        """Whether a frame goes to a conversation that prefers the legacy eras: never for a client that declared a modern extension.

        That applies from a client's next connection. In the modern era that is its ``server/discover``, or the end of what was begun before.
        """
        if self.settings.protocol != "auto" or not self._witnessed.evidence.prefers_legacy or _has_modern_extension(frame):
            return False
        begun = self._shared.get(key)
        goes_on = begun in self._unaware and not begun.over and frame.method != DISCOVER if begun is not None else False
        return not goes_on or Key(caller, True) in self._shared

    def _is_shared_by_all(self) -> bool:
        """A process may be, once it is known to be modern: what a legacy one asks names no caller. Over HTTP each has streams at no cost."""
        if self.settings.share != "all" or self._behind.streams:
            return False
        if self.settings.protocol != "auto":
            return self.settings.protocol == "modern"
        if self._eras is None:
            for live in self._all:
                self._learn(live)
        return self._eras is not None and self._eras.modern is True

    async def _one(self, key: Key, caller: str) -> Conversation:
        """Of several requests that come at once the first starts it, and the others wait."""
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                found = self._shared.get(key)
                if found is None or found.over:
                    found = self._shared[key] = await self._start(caller, modern=True, prefers_legacy=key.prefers_legacy)
                    found.on_end(partial(self._forget, key, found))
                    self._group.start_soon(self._end_idle, found)
        finally:
            if not lock.statistics().tasks_waiting and self._locks.get(key) is lock:
                del self._locks[key]
        return found

    def _forget(self, key: Key, conversation: Conversation) -> None:
        if self._shared.get(key) is conversation:
            del self._shared[key]

    async def _start(self, caller: str, *, modern: bool, prefers_legacy: bool = False) -> Conversation:
        self._check()
        if not self._behind.streams and not self._places.take(caller):
            raise Refused(503, f"server {self.name}: as many processes run as may, or as may for one caller; come back later", BUSY)
        started = self._clock()
        conversation = self._made(caller, modern, prefers_legacy)
        self._all.add(conversation)
        if not self._witnessed.evidence.prefers_legacy:
            self._unaware.add(conversation)
        self._count_start()
        conversation.on_end(partial(self._ended, conversation, started))
        with anyio.move_on_after(self.settings.start_timeout):
            await self._group.start(conversation.run)
            if conversation.failed is None:
                self.problem = None
                return conversation
            self.problem = str(conversation.failed)
            self._house.log.error("server.not_started", server=self.name, problem=self.problem)
        raise Refused(502, f"server {self.name}: it could not be started; the gate's log has why", BUSY)

    def _count_start(self) -> None:
        if not self._behind.streams:
            self._house.metrics.count("samplegate_children_started_total", server=self.name)
            if self._to_restart:
                self._to_restart = False
                self._house.metrics.count("samplegate_children_restarted_total", server=self.name)

    def _check(self) -> None:
        """Whether it may be started now. Raises Refused."""
        if self._closed:
            raise Refused(503, f"server {self.name}: the gate is ending, or its settings have changed; come back", 1)
        left = self._died + self._backoff.wait - self._clock()
        if left > 0:
            raise Refused(
                503, f"server {self.name}: it has died {self._backoff.deaths} times in a row; it is started again in a while", max(1, ceil(left))
            )

    def _made(self, caller: str, modern: bool, prefers_legacy: bool) -> Conversation:
        self._witnessed.refresh()
        for live in self._all:
            self._learn(live)
        if self._behind.streams and self._clock() - self._learned > KEPT:
            self._eras = None  # whoever stands behind a URL may be another by now
        wires = Wires(
            self._house,
            self.name,
            caller=caller,
            realm=self._behind.realm,
            maps_ids=modern,
            streams=self._behind.streams,
            outlived=True,
            session=partial(Opening, known=self._eras, protocol=self.settings.protocol, prefers_legacy=prefers_legacy),
            observe=self._observe,
        )
        timeouts = partial(enforce_timeouts, self.settings.start_timeout, self.settings.call_timeout, self._log_silent)
        return Conversation(wires, self._behind, timeouts)

    def _observe(self, note: Note) -> None:
        """What a session noticed about how the server asks counts where the protocol version is not set."""
        if self.settings.protocol == "auto":
            self._witnessed.take(note)

    def _learn(self, conversation: Conversation) -> None:
        """What a conversation has found out about the eras of the server (R86)."""
        session = conversation.wires.relay.session
        if _died_probing(conversation):
            self._eras = Eras(legacy=True, modern=False)
        elif isinstance(session, Opening) and session.eras != self._eras:
            self._eras, self._learned = session.eras, self._clock()

    def _ended(self, conversation: Conversation, started: float) -> None:
        self._all.discard(conversation)
        self._unaware.discard(conversation)
        self._learn(conversation)
        lost = len(conversation.wires.relay.left)
        if lost:
            reason = "removed" if self._closed else "died"
            self._house.metrics.count("samplegate_calls_lost_total", lost, server=self.name, reason=reason)
        silent, self._silent = self._silent, False
        if conversation.asked_to_end and conversation.wires.state.answered:
            self._failing = None
        if self._behind.streams:
            return
        self._places.give_back(conversation.wires.state.caller)
        self._house.metrics.count("samplegate_children_exited_total", server=self.name, how=_how(conversation))
        if not conversation.asked_to_end:
            now = self._clock()
            self._backoff, self._died, self._to_restart = self._backoff.died(started, now), now, True
            if not _died_probing(conversation):
                self._eras = None  # it may come back as another
            if conversation.failed is None:  # else it never lived, and the log has why
                self._house.log.warning("server.died", server=self.name, deaths=self._backoff.deaths)
                if self._backoff.wait and not silent:
                    self._failing = f"its process has died {self._backoff.deaths} times in a row"

    def _log_silent(self) -> None:
        self._silent, self._failing = True, f"it did not answer its first request within {self.settings.start_timeout:g} s (start_timeout)"
        self._house.log.error("server.silent", server=self.name, seconds=self.settings.start_timeout)

    async def _end_idle(self, conversation: Conversation) -> None:
        """End it once nobody has used it for a while."""
        while not conversation.over:
            left = conversation.used + self._idle - self._clock()
            if not conversation.lanes and left <= 0:
                await conversation.aclose()
                return
            await anyio.sleep(max(left, min(self._idle, 1.0)))

    async def end_callers(self, keep: Callable[[str], bool]) -> None:
        """End the conversations of callers who are not taken any more, with the streams that they have open."""
        async with anyio.create_task_group() as group:
            for conversation in list(self._all):
                if not keep(conversation.wires.state.caller):
                    group.start_soon(conversation.aclose)

    async def drain(self) -> bool:
        """Cut off the calls that are still in flight after the server's ``end_of_input_timeout``; whether there were any."""
        seconds = self.settings.end_of_input_timeout
        if seconds is None:
            return False
        await anyio.sleep(seconds)
        calls = sum(len(conversation.wires.relay.session.open_calls()) for conversation in self._all)
        if calls:
            self._house.log.warning("drain.cut_off", server=self.name, seconds=seconds, calls=calls)
            await self.aclose("the gate is shutting down (setting end_of_input_timeout)")
        return calls > 0

    async def aclose(self, why: str | None = None) -> None:
        """End all of its conversations, with ``why`` as the error of those who still wait; nothing is begun any more."""
        self._closed = True
        async with anyio.create_task_group() as group:
            for conversation in list(self._all):
                group.start_soon(conversation.aclose, why)


class OfCaller:
    """A conversation that several callers share, as one of them sees it."""

    def __init__(self, conversation: Conversation, caller: str) -> None:
        self._conversation = conversation
        self._caller = caller
        self.received = conversation.received
        self.close_lane = conversation.close_lane
        self.on_end = conversation.on_end
        self.undelivered = conversation.undelivered
        self.aclose = conversation.aclose

    def open_lane(self, lane: Sink, *, standalone: bool = False, trace: str = "") -> int:
        """Enter a lane, which is this caller's."""
        return self._conversation.open_lane(lane, standalone=standalone, caller=self._caller, trace=trace)


def _has_modern_extension(frame: Frame) -> bool:
    """Whether a frame's envelope declares one; one of two readings declares nothing, and the session refuses it."""
    try:
        return capabilities.has_modern_extension(frame.lookup(META, META_CAPABILITIES))
    except Malformed:
        return False


def _how(conversation: Conversation) -> str:
    """How a server's process ended, as metrics have it."""
    if conversation.failed is not None:
        return "failed"
    if conversation.asked_to_end:
        return "asked"
    return "signal" if isinstance(conversation.exit, int) and conversation.exit < 0 else "code"


def _died_probing(conversation: Conversation) -> bool:
    """Whether its server ended when it was asked which eras it speaks: some do, at a request that they do not know."""
    session = conversation.wires.relay.session
    return isinstance(session, Opening) and session.died_probing
