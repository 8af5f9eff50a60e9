"""Relay of one session: passes frames to the session, carries out the effects, and runs rounds as tasks.

The relay holds no rules. It handles a frame in the event loop's callback that delivers it, so a frame that passes
through costs no task switch. Only rounds are tasks.

An error in the session or the gate ends only the frame or round that it happened in, unanswered. All other calls of the
process continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, assert_never

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.protocol import frames
from samplegate.protocol.bridge.calls import SessionProtocol
from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import Reason, Unanswered
from samplegate.protocol.rawjson import Malformed, Object
from samplegate.protocol.requests import ClientCapabilities
from samplegate.protocol.rounds import (
    ClientReply,
    Close,
    Conclusion,
    Effects,
    Later,
    Note,
    Open,
    Over,
    Release,
    ResourceRead,
    Round,
    Settled,
    Side,
    TaskStep,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.session_state import OpenCall
from samplegate.protocol.task_state import TaskRecord
from samplegate.protocol.ui_resources import UiResource, ui_in
from samplegate.runtime.flow import (
    ClientEnd,
    InputClosedClient,
    Link,
    NoClient,
    NoServer,
    ServerEnd,
    StdioClientWriter,
    StdioServerWriter,
    connect_writers,
)


class RelayReceiver(msgspec.Struct, eq=False):
    """Receiver that a link with one stream calls for its side."""

    relay: Relay
    side: Side

    def received(self, line: bytes) -> None:
        """Handle one line."""
        self.relay.handle(self.side, 0, line)

    def oversized(self, size: int, head: bytes) -> None:
        """Handle an oversized line, which was discarded. Its head may have the id of the request to answer."""
        self.relay.handle_oversized(self.side, 0, size, head)

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Handle the end of an oversized line: some writers put the id last."""
        self.relay.handle_oversized_end(self.side, 0, head, tail)

    def ended(self) -> None:
        """Handle the end of this side."""
        self.relay.ended(self.side)


class InputReceiver(RelayReceiver, eq=False):
    """Receiver for our own stdin. The end of input is not the end of the client, because the client may still read."""

    over: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def ended(self) -> None:
        """Record the client's end of input."""
        self.over.set()


class StreamReceiver(msgspec.Struct, eq=False):
    """Receiver for a server with a stream for each request."""

    relay: Relay

    def received(self, stream: int, line: bytes | Frame) -> None:
        """Handle one frame, parsed or not, from a request's stream or from the standalone one (0)."""
        self.relay.handle("server", stream, line)

    def oversized(self, stream: int, size: int, head: bytes) -> None:
        """Handle an oversized frame, which was discarded."""
        self.relay.handle_oversized("server", stream, size, head)

    def ended(self) -> None:
        """Handle the end of the server's session."""
        self.relay.ended("server")


ENDED_UNANSWERED: Final = "the server ended before it answered its first request; check the server's own log"
LARGE_FRAME: Final = 256 * 1024  # bytes of a frame after which memory is given back
TOKEN_PROGRESS_INTERVAL: Final = 1.0  # seconds between two progress notifications that a model's tokens cause
BEAT: Final = 5.0  # seconds between two progress notifications of a round: rare, but well below any peer's timeout


class RunningRound(msgspec.Struct, eq=False):
    """A running round: its cancel scope, and the client's reply that the round waits for."""

    scope: anyio.CancelScope
    replied: anyio.Event = msgspec.field(default_factory=anyio.Event)
    reply: ClientReply | None = None
    last_progress: float = float("-inf")
    """Time of the last progress notification for tokens."""

    def ask_anew(self) -> None:
        """Discard an earlier reply, so that it does not answer the next question."""
        self.replied, self.reply = anyio.Event(), None


READ_TIMEOUT: Final = 10.0  # seconds for the server to answer a resources/read of the gate's own


class RunningRead(msgspec.Struct, eq=False):
    """A ``resources/read`` of the gate's own that waits for the server."""

    done: anyio.Event
    result: Object | None = None
    fault: str = ""


class Relay:
    """Connects one session with a client link and a server link."""

    def __init__(
        self,
        session: SessionProtocol,
        run_round: Callable[[Round], Awaitable[Conclusion]],
        *,
        clock: Callable[[], float],
        note: Callable[[Note], None],
        beat: float = BEAT,
        tasks: Callable[[TaskStep], Awaitable[TaskRecord | None]] | None = None,
    ) -> None:
        """``tasks`` carries out a step in the store of tasks; it raises Unavailable."""
        self.session = session
        self.clock = clock
        self.note = note
        self.first_answer: Callable[[], object] | None = None
        """Called once, after the server's first answer."""
        self.first_call: Callable[[], Coroutine[Any, Any, object]] | None = None
        """Runs as a task at the client's first tools/call, such as a warm-up of the sampler. No decision depends on it.
        """
        self.on_large: Callable[[], None] | None = None
        """Called for each large frame that arrives."""
        self.client = RelayReceiver(self, "client")
        self.server = RelayReceiver(self, "server")
        self.streams = StreamReceiver(self)
        self.left: list[OpenCall] = []
        """The client's requests without an answer when the first side ended."""
        self._some_answered = anyio.Event()
        self.client_gone = anyio.Event()
        self.server_gone = anyio.Event()
        self._run_round = run_round
        self._beat = beat
        self._rounds: dict[str, RunningRound] = {}
        self._reads: dict[str, RunningRead] = {}
        self._tasks = tasks
        self._steps: deque[TaskStep] = deque()
        self._stepping = False
        self._group: anyio.abc.TaskGroup | None = None
        self._to_client: ClientEnd = NoClient()
        self._to_server: ServerEnd = NoServer()

    @property
    def is_storing(self) -> bool:
        """Whether a step in the store of tasks is under way."""
        return self._stepping

    def connect(self, client: Link, server: Link) -> None:
        """Connect two links with one stream each, with backpressure in both directions."""
        to_client, to_server = connect_writers(client, server)
        self._to_client, self._to_server = StdioClientWriter(to_client), StdioServerWriter(to_server)

    def connect_client(self, client: ClientEnd) -> None:
        """Connect the client's side."""
        self._to_client = client

    def connect_server(self, server: ServerEnd) -> None:
        """Connect the server's side."""
        self._to_server = server

    def handle(self, side: Side, stream: int, line: bytes | Frame) -> None:
        """Handle one frame. If the gate fails on it, the frame is dropped and its sender gets an error; it is never let
        through."""
        if self.on_large is not None and len(_raw(line)) > LARGE_FRAME:
            self.on_large()
        if side == "client":
            if self.first_call is not None and b"tools/call" in _raw(line):
                self.start(self.beside, self.first_call)
                self.first_call = None
            if self._to_server.full:
                self.refuse(stream, _raw(line), "the server is not reading its input")
                return
        try:
            self.carry_out(self.session.frame(side, stream, line, self.clock()), side)
        except Exception:
            self.note(Note("frame.failed", {"side": side, "exc_info": True}))
            self.guarded(
                "frame.failed",
                lambda: self.session.lost(side, stream, _raw(line), "internal error in the gate; see the log"),
                side=side,
            )
        if self.first_answer is not None and self.session.state.answered:
            self.first_answer()
            self.first_answer = None

    def refuse(self, stream: int, line: bytes, why: str) -> None:
        """Refuse a client's frame: its request, if it is one, gets an error at once."""
        self.guarded("frame.failed", lambda: self.session.lost("client", stream, line, why), side="client")

    def handle_oversized_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> None:
        """Handle the end of an oversized frame: some writers put the id last."""
        self.guarded("frame.failed", lambda: self.session.lost_end(side, stream, head, tail), side=side)

    def handle_oversized(self, side: Side, stream: int, size: int, head: bytes) -> None:
        """Handle an oversized frame, which was discarded. Its head may have the id of the request to answer."""
        self.note(Note("frame.oversized", {"side": side, "size": size}))
        self.guarded(
            "frame.failed",
            lambda: self.session.lost(side, stream, head, f"it has {size} bytes or more, which is over the limit"),
            side=side,
        )

    def stream_closed(self, stream: int) -> None:
        """Handle a stream that the client closed. This cancels its requests in the modern era, but not in the legacy
        eras (T35)."""
        self.guarded("side.failed", lambda: self.session.stream_closed("client", stream), side="client")

    def undelivered(self, id: str | int) -> None:
        """Answer a server's request with an error, because no stream that the client reads could carry it."""
        self.guarded("side.failed", lambda: self.session.undelivered(id), side="client")

    async def run(self, until: Callable[[], Awaitable[None]]) -> None:
        """Run rounds until ``until`` returns; then withdraw those still open."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._report_progress)
            await until()
            group.cancel_scope.cancel()

    def client_silent(self) -> None:
        """Handle the client's end of input: its requests continue, and requests to it get an error."""
        self._to_client = InputClosedClient(self._to_client, self._unanswerable, self._answered)
        self.session.state.silent = True
        # a rule that forwards cannot work any more: its `otherwise` applies
        self.session.state.client = ClientCapabilities()
        for id in self.session.questions():
            self.undelivered(id)

    def _unanswerable(self, id: str | int, line: bytes) -> None:
        """Answer a request to a client that cannot answer. A ping gets a result, because it only checks for life
        (R104)."""
        self.start(self._no_answer, id, frames.read(line).method == "ping")

    async def _no_answer(self, id: str | int, ping: bool) -> None:
        if ping:
            self.handle("client", 0, frames.result(id, b"{}"))
        else:
            self.undelivered(id)

    def _answered(self) -> None:
        self._some_answered.set()
        self._some_answered = anyio.Event()

    async def all_answered(self) -> None:
        """Wait until no request of a silent client is open."""
        while self.session.open_calls():
            await self._some_answered.wait()

    def give_up(self, why: str) -> None:
        """End the server's side: open requests get an error with this reason."""
        self.session.state.outlived, self.session.state.end_reason = True, why
        self.ended("server")

    def ended(self, side: Side) -> None:
        """Handle the end of a side: withdraw what is open. If a server ends before its first answer, the client's
        requests get an error."""
        state = self.session.state
        if not (self.client_gone.is_set() or self.server_gone.is_set()):
            self.left = self.session.open_calls()
            if side == "server" and not (state.answered or state.outlived):  # the client can show why it has no server
                state.outlived, state.end_reason = True, ENDED_UNANSWERED
        self.guarded("side.failed", lambda: self.session.eof(side), side=side)
        (self.client_gone if side == "client" else self.server_gone).set()

    def guarded(self, event: str, effects: Callable[[], Effects], **where: object) -> bool:
        """Carry out the effects of a call to the session. If it raises, log the error under ``event`` and return
        False."""
        try:
            self.carry_out(effects())
        except Exception:
            self.note(Note(event, {**where, "exc_info": True}))
            return False
        return True

    def carry_out(self, effects: Effects, source: Side | None = None) -> None:
        """Carry out effects in order. ``source`` is the side whose frame caused them: a line passed on to the other
        side is not the gate's own."""
        for effect in effects:
            match effect:
                case ToClient(asks=None, cancels=None):
                    self._to_client.send(effect.stream, effect.line, effect.last, source != "server")
                case ToClient():
                    self._ask_client(effect, source != "server")
                case ToServer():
                    self._to_server.send(effect.stream, effect.line, source != "client", effect.frame)
                case Open(round):
                    self._rounds[round.id] = RunningRound(anyio.CancelScope())
                    self.start(self._round, round, self._rounds[round.id])
                case Withdraw(round):
                    running = self._rounds.pop(round, None)
                    if running is not None:
                        running.scope.cancel()
                case ClientReply() | ResourceRead():
                    self._answered_by(effect)
                case Later() | TaskStep():
                    self._do_later(effect)
                case Note():
                    self.note(effect)
                case Over() | Close():
                    self._end_stream(effect)
                case _:
                    assert_never(effect)

    def _do_later(self, effect: Later | TaskStep) -> None:
        if isinstance(effect, Later):
            self.start(self._later, effect)
            return
        self._steps.append(effect)
        if not self._stepping:
            self._stepping = True
            self.start(self._take_steps)

    async def read_ui(self, round: str, uri: str, origins: tuple[str, ...]) -> UiResource:
        """Read the server's own UI for a round; it may be a URL at one of ``origins``. Raises Unavailable with the
        reason, without content."""
        token, done = self.session.state.new_round(), anyio.Event()
        reading = self._reads[token] = RunningRead(done)
        try:
            with anyio.fail_after(READ_TIMEOUT):
                self.carry_out(self.session.read_resource(token, round, uri, self.clock()))
                await done.wait()
        except TimeoutError:
            raise Unavailable(f"the server did not answer within {READ_TIMEOUT:g} s") from None
        finally:
            del self._reads[token]
            self.guarded("request.failed", lambda: self.session.stop_reading(token), round=round, door="push")
        if reading.result is None:
            raise Unavailable(reading.fault)
        try:
            return ui_in(reading.result, uri, origins)
        except Malformed as problem:
            raise Unavailable(problem.fault) from None

    def _answered_by(self, effect: ClientReply | ResourceRead) -> None:
        if isinstance(effect, ClientReply):
            self._replied(effect)
            return
        reading = self._reads.get(effect.token)
        if reading is not None:
            reading.result, reading.fault = effect.result, effect.fault
            reading.done.set()

    def _ask_client(self, effect: ToClient, own: bool) -> None:
        """Send the client a request, or the cancellation of one."""
        if effect.asks is not None:
            self._to_client.ask(effect.stream, effect.asks, effect.line, own)
        elif effect.cancels is not None:
            self._to_client.cancel(effect.stream, effect.cancels, effect.line, own)

    def _end_stream(self, effect: Over | Close) -> None:
        if isinstance(effect, Over):
            self._to_client.over(effect.stream)
        elif effect.stream:  # stream 0 ends with the server's process or the client
            self._to_server.close_stream(effect.stream)

    async def ask_client(self, round: Round) -> ClientReply:
        """The gate's port: forward a pushed request and wait for the client's reply. A wait that is cancelled cancels
        the request.

        A round may call this again. A reply to one forward never answers another.
        """
        # if the round was withdrawn before it began, there is nothing left to forward
        await anyio.lowlevel.checkpoint_if_cancelled()
        running = self._rounds[round.id]
        running.ask_anew()
        self.carry_out(self.session.forward(round.id))
        taken = False
        try:
            await running.replied.wait()
            taken = True
        finally:
            if not taken:
                self.carry_out(self.session.unforward(round.id, "the gate is no longer waiting for the answer"))
        assert running.reply is not None
        return running.reply

    def tokens(self, round: str, count: int) -> None:
        """The gate's port: a round's model has written ``count`` tokens. A progress notification now and then keeps the
        peers' timers alive (R101)."""
        running, now = self._rounds.get(round), self.clock()
        if running is not None and now - running.last_progress >= TOKEN_PROGRESS_INTERVAL:
            running.last_progress = now
            self._progress(round, count)

    def wait_long(self, round: str, nonce: bytes) -> None:
        """The gate's port: a round waits for a reviewer, so its calls may become tasks."""
        self.guarded("request.failed", lambda: self.session.wait_long(round, nonce), round=round, door="push")

    async def beside(self, task: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a background task. If it raises, the error is logged and ends nothing else."""
        try:
            await task()
        except Exception:
            self.note(Note("warm.failed", {"exc_info": True}))

    def start(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Start a task that ends with the conversation."""
        assert self._group is not None
        self._group.start_soon(task, *args)

    async def _round(self, round: Round, running: RunningRound) -> None:
        with running.scope:
            try:
                conclusion = await self._conclusion(round)
            finally:
                self._rounds.pop(round.id, None)
            if not self._release(round, conclusion):
                self._release(round, _unanswered(round))

    async def _conclusion(self, round: Round) -> Conclusion:
        try:
            return await self._run_round(round)
        except Exception:
            self.note(Note("request.failed", {"round": round.id, "door": round.door, "exc_info": True}))
            return _unanswered(round)

    def _release(self, round: Round, conclusion: Conclusion) -> bool:
        return self.guarded(
            "request.failed",
            lambda: self.session.round_done(round.id, conclusion, self.clock()),
            round=round.id,
            door=round.door,
        )

    def _replied(self, reply: ClientReply) -> None:
        running = self._rounds.get(reply.round)
        if running is not None:
            running.reply = reply
            running.replied.set()

    async def _later(self, later: Later) -> None:
        await anyio.sleep(later.delay)
        self.guarded("request.failed", lambda: self.session.due(later.token), round=later.token, door="input_required")

    async def _take_steps(self) -> None:
        """Carry out the waiting steps in order: what a server says of a task must not overtake what it said before."""
        try:
            while self._steps:
                step = self._steps.popleft()
                found = await self._step(step)
                go_on = partial(self.session.task_stepped, step.token, found)
                self.guarded("request.failed", go_on, round=step.token, door="task")
        finally:
            self._stepping = False

    async def _step(self, step: TaskStep) -> TaskRecord | str | None:
        try:
            return None if self._tasks is None else await self._tasks(step)
        except Unavailable as problem:
            self.note(Note("tasks.failed", {"problem": str(problem)}))
            return "the store of tasks could not be used; see the log"
        except Exception:
            self.note(Note("tasks.failed", {"exc_info": True}))
            return "internal error in the gate; see the log"

    async def _report_progress(self) -> None:
        while True:
            await anyio.sleep(self._beat)
            for round in list(self._rounds):
                self._progress(round)

    def _progress(self, round: str, tokens: int = 0) -> None:
        self.guarded("progress.failed", lambda: self.session.round_progress(round, tokens), round=round)


def _raw(line: bytes | Frame) -> bytes:
    return line.raw if isinstance(line, Frame) else line


def _unanswered(round: Round) -> Settled:
    """Conclusion of a round that failed with an error of the gate, so that its requests are answered. The log has the
    error under the round's id."""
    outcome = Unanswered(Reason.ERROR, detail="internal error in the gate; see the log")
    return Settled({key: Release(outcome, round.id) for key in round.items})


MIN_CHECK_INTERVAL: Final = 0.01  # minimum seconds between two checks of the requests in flight


async def enforce_timeouts(start: float, call: float, silent: Callable[[], None], relay: Relay) -> None:
    """Enforce a server's timeouts, in seconds, until its side ends: ``start`` for its first answer, ``call`` for each
    later one (0: none).

    Requests in flight are checked periodically. A request that arrives after a check cannot time out before the next
    one, so no frame has to set a timer. ``silent`` is called once, before the server is ended because of ``start``.
    """
    while not relay.server_gone.is_set():
        state, now = relay.session.state, relay.clock()
        waits = []
        opening = state.inflight.oldest_opening(answered=state.answered)
        if opening is not None and now - opening >= start:
            silent()
            relay.give_up(
                f"the server did not answer its first request within {duration_text(start)} (setting start_timeout)"
            )
            return
        if opening is not None or not state.answered:
            waits.append(start if opening is None else opening + start - now)
        if call:
            relay.guarded("request.failed", partial(relay.session.overdue, now, call))
            oldest = state.inflight.oldest_wait()
            waits.append(call if oldest is None else oldest + call - now)
        if not waits:
            return
        await anyio.sleep(max(min(waits), MIN_CHECK_INTERVAL))
