"""The shell around one session: lines from the links go in, effects are carried out, rounds run as tasks. It holds no rule of its own.

Lines are handled where they arrive, in the event loop's callback: a passed-through frame costs no task switch. Only rounds are tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, assert_never

import anyio
import anyio.abc
import msgspec

from samplegate.core.rounds import Close, Effect, Later, Note, Open, Reply, Round, Side, ToClient, ToServer, Verdict, Withdraw
from samplegate.core.session import Session

BEAT: Final = 5.0  # seconds between two progress notifications of a round: well under any peer's patience, and rare


class Link(Protocol):
    """One side's connection, as ``links`` makes them."""

    @property
    def send(self) -> Callable[[bytes], None]: ...
    @property
    def pressure(self) -> Callable[[bool], None]: ...
    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Receiver(msgspec.Struct, eq=False):
    """What a link calls for its side."""

    relay: Relay
    side: Side

    def received(self, line: bytes) -> None:
        """One line came."""
        relay = self.relay
        try:
            relay.carry_out(relay.session.frame(self.side, 0, line, relay.clock()))
        except Exception:
            relay.note(Note("frame.failed", {"side": self.side, "exc_info": True}))  # the frame is gone: an error in the gate is never an allow

    def oversized(self, size: int) -> None:
        """A line over the bound was thrown away; whoever waits for it is not known."""
        self.relay.note(Note("frame.oversized", {"side": self.side, "size": size}))

    def ended(self) -> None:
        """Nothing more comes from this side."""
        self.relay.ended(self.side)


class Waiting(msgspec.Struct, eq=False):
    """A round that runs: its scope, and the client's reply it may wait for."""

    scope: anyio.CancelScope
    replied: anyio.Event = msgspec.field(default_factory=anyio.Event)
    reply: Reply | None = None


class Relay:
    """Carries one session between a client link and a server link."""

    def __init__(
        self, session: Session, run_round: Callable[[Round], Awaitable[Verdict]], *, clock: Callable[[], float], note: Callable[[Note], None]
    ) -> None:
        self.session = session
        self.clock = clock
        self.note = note
        self.client = Receiver(self, "client")
        self.server = Receiver(self, "server")
        self.client_gone = anyio.Event()
        self.server_gone = anyio.Event()
        self._run_round = run_round
        self._rounds: dict[str, Waiting] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._to_client: Callable[[bytes], None] = _nowhere
        self._to_server: Callable[[bytes], None] = _nowhere

    def connect(self, client: Link, server: Link) -> None:
        """Both links are there: each side is read only as fast as the other takes it."""
        self._to_client, self._to_server = client.send, server.send
        server.pressure = lambda over: client.pause_reading() if over else client.resume_reading()
        client.pressure = lambda over: server.pause_reading() if over else server.resume_reading()

    async def run(self, until: Callable[[], Awaitable[None]]) -> None:
        """Run rounds until ``until`` returns; those still open are withdrawn then."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._beats)
            await until()
            group.cancel_scope.cancel()

    def ended(self, side: Side) -> None:
        """A side has gone."""
        self.carry_out(self.session.eof(side))
        (self.client_gone if side == "client" else self.server_gone).set()

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry effects out, in their order."""
        for effect in effects:
            match effect:
                case ToClient(_, line):
                    self._to_client(line)
                case ToServer(_, line):
                    self._to_server(line)
                case Open(round):
                    self._rounds[round.id] = Waiting(anyio.CancelScope())
                    self._start(self._round, round, self._rounds[round.id])
                case Withdraw(round):
                    waiting = self._rounds.pop(round, None)
                    if waiting is not None:
                        waiting.scope.cancel()
                case Reply():
                    self._replied(effect)
                case Later():
                    self._start(self._later, effect)
                case Note():
                    self.note(effect)
                case Close():
                    pass  # stdio has one lane a side, and it ends with its process
                case _:
                    assert_never(effect)

    async def ask_client(self, round: Round) -> Reply:
        """The gate's port: forward a pushed request and wait for the client; told off if nobody waits any more."""
        waiting = self._rounds[round.id]
        self.carry_out(self.session.forward(round.id))
        try:
            await waiting.replied.wait()
        finally:
            if waiting.reply is None:
                self.carry_out(self.session.unforward(round.id, "nobody waits for the answer any more"))
        assert waiting.reply is not None
        return waiting.reply

    def _start(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        assert self._group is not None
        self._group.start_soon(task, *args)

    async def _round(self, round: Round, waiting: Waiting) -> None:
        with waiting.scope:
            try:
                verdict = await self._run_round(round)
            finally:
                self._rounds.pop(round.id, None)
            self.carry_out(self.session.round_done(round.id, verdict, self.clock()))

    def _replied(self, reply: Reply) -> None:
        waiting = self._rounds.get(reply.round)
        if waiting is not None:
            waiting.reply = reply
            waiting.replied.set()

    async def _later(self, later: Later) -> None:
        await anyio.sleep(later.delay)
        self.carry_out(self.session.due(later.token))

    async def _beats(self) -> None:
        while True:
            await anyio.sleep(BEAT)
            for round in list(self._rounds):
                self.carry_out(self.session.round_progress(round))


def _nowhere(line: bytes) -> None:
    """Before a link is there nothing can be sent: lines come only from links."""
