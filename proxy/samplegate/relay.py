"""The shell around one session: lines from the links go in, effects are carried out, rounds run as tasks. It holds no rule of its own.

Lines are handled where they arrive, in the event loop's callback: a passed-through frame costs no task switch. Only rounds are tasks. A fault
in the session or the gate ends what it happened in, unanswered, and nothing else: the other calls of this process go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, assert_never

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from samplegate.backpressure import Link, Outlet, outlets
from samplegate.core.decisions import Reason, Unanswered
from samplegate.core.session.rounds import (
    Close,
    Conclusion,
    Effect,
    Later,
    Note,
    Open,
    Release,
    Reply,
    Round,
    Settled,
    Side,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.core.session.session import Session

TOKENS: Final = 1.0  # seconds between two that a model's tokens cause
BEAT: Final = 5.0  # seconds between two progress notifications of a round: well under any peer's patience, and rare
Effects = list[Effect]


class Receiver(msgspec.Struct, eq=False):
    """What a link calls for its side."""

    relay: Relay
    side: Side

    def received(self, line: bytes) -> None:
        """One line came. The gate's fault with it is never an allow: the line is gone, and whoever waits for it is told."""
        relay = self.relay
        if relay.first_call is not None and self.side == "client" and b"tools/call" in line:
            relay.start(relay.beside, relay.first_call)
            relay.first_call = None
        try:
            relay.carry_out(relay.session.frame(self.side, 0, line, relay.clock()), self.side)
        except Exception:
            relay.note(Note("frame.failed", {"side": self.side, "exc_info": True}))
            relay.guarded("frame.failed", lambda: relay.session.lost(self.side, 0, line, "it met a fault of the gate"), side=self.side)

    def oversized(self, size: int, head: bytes) -> None:
        """A line over the bound was thrown away; its head may say who waits for it."""
        relay = self.relay
        relay.note(Note("frame.oversized", {"side": self.side, "size": size}))
        relay.guarded("frame.failed", lambda: relay.session.lost(self.side, 0, head, f"it is a line of {size} bytes or more"), side=self.side)

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Such a line is over; some writers put the id last."""
        relay = self.relay
        relay.guarded("frame.failed", lambda: relay.session.lost_end(self.side, 0, head, tail), side=self.side)

    def ended(self) -> None:
        """Nothing more comes from this side."""
        self.relay.ended(self.side)


class Waiting(msgspec.Struct, eq=False):
    """A round that runs: its scope, and the client's reply that it waits for."""

    scope: anyio.CancelScope
    replied: anyio.Event = msgspec.field(default_factory=anyio.Event)
    reply: Reply | None = None
    told: float = float("-inf")
    """When the peers were last told of tokens."""

    def ask_anew(self) -> None:
        """Whatever was answered before answers nothing from here on."""
        self.replied, self.reply = anyio.Event(), None


class Relay:
    """Carries one session between a client link and a server link."""

    def __init__(
        self,
        session: Session,
        run_round: Callable[[Round], Awaitable[Conclusion]],
        *,
        clock: Callable[[], float],
        note: Callable[[Note], None],
        beat: float = BEAT,
    ) -> None:
        self.session = session
        self.clock = clock
        self.note = note
        self.first_call: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Run beside the client's first tools/call; nothing is decided by it."""
        self.client = Receiver(self, "client")
        self.server = Receiver(self, "server")
        self.client_gone = anyio.Event()
        self.server_gone = anyio.Event()
        self._run_round = run_round
        self._beat = beat
        self._rounds: dict[str, Waiting] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._to_client = Outlet(_nowhere)
        self._to_server = Outlet(_nowhere)

    def connect(self, client: Link, server: Link) -> None:
        """Both links are there: each side is read only as fast as the other takes it, and as it takes its answers."""
        self._to_client, self._to_server = outlets(client, server)

    async def run(self, until: Callable[[], Awaitable[None]]) -> None:
        """Run rounds until ``until`` returns; those still open are withdrawn then."""
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._beats)
            await until()
            group.cancel_scope.cancel()

    def ended(self, side: Side) -> None:
        """A side has gone: what is open is withdrawn."""
        self.guarded("side.failed", lambda: self.session.eof(side), side=side)
        (self.client_gone if side == "client" else self.server_gone).set()

    def guarded(self, event: str, effects: Callable[[], Effects], **where: object) -> bool:
        """Carry out what the session says; False if there was a fault, which is then in the log."""
        try:
            self.carry_out(effects())
        except Exception:
            self.note(Note(event, {**where, "exc_info": True}))
            return False
        return True

    def carry_out(self, effects: Effects, source: Side | None = None) -> None:
        """Carry effects out, in their order. ``source`` is the side whose line they come of: what goes on to the other is no answer of ours."""
        for effect in effects:
            match effect:
                case ToClient(_, line):
                    self._to_client.carry(line) if source == "server" else self._to_client.answer(line)
                case ToServer(_, line):
                    self._to_server.carry(line) if source == "client" else self._to_server.answer(line)
                case Open(round):
                    self._rounds[round.id] = Waiting(anyio.CancelScope())
                    self.start(self._round, round, self._rounds[round.id])
                case Withdraw(round):
                    waiting = self._rounds.pop(round, None)
                    if waiting is not None:
                        waiting.scope.cancel()
                case Reply():
                    self._replied(effect)
                case Later():
                    self.start(self._later, effect)
                case Note():
                    self.note(effect)
                case Close():
                    pass  # stdio has one lane a side, and it ends with its process
                case _:
                    assert_never(effect)

    async def ask_client(self, round: Round) -> Reply:
        """The gate's port: forward a pushed request and wait for the client, who is told if nobody waits any more.

        May be called again in one round: what the client answers to one forward never answers another.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()  # withdrawn before it began: then there is nothing of it left to forward
        waiting = self._rounds[round.id]
        waiting.ask_anew()
        self.carry_out(self.session.forward(round.id))
        taken = False
        try:
            await waiting.replied.wait()
            taken = True
        finally:
            if not taken:
                self.carry_out(self.session.unforward(round.id, "nobody waits for the answer any more"))
        assert waiting.reply is not None
        return waiting.reply

    def tokens(self, round: str, count: int) -> None:
        """The gate's port: a round's model has written so many tokens, which keeps the peers' timers alive; told once in a while (R101)."""
        waiting, now = self._rounds.get(round), self.clock()
        if waiting is not None and now - waiting.told >= TOKENS:
            waiting.told = now
            self._progress(round, count)

    async def beside(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what nobody waits for; its fault ends nothing else."""
        try:
            await task()
        except Exception:
            self.note(Note("warm.failed", {"exc_info": True}))

    def start(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a task beside the conversation; its end ends it."""
        assert self._group is not None
        self._group.start_soon(task, *args)

    async def _round(self, round: Round, waiting: Waiting) -> None:
        with waiting.scope:
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
        return self.guarded("request.failed", lambda: self.session.round_done(round.id, conclusion, self.clock()), round=round.id, door=round.door)

    def _replied(self, reply: Reply) -> None:
        waiting = self._rounds.get(reply.round)
        if waiting is not None:
            waiting.reply = reply
            waiting.replied.set()

    async def _later(self, later: Later) -> None:
        await anyio.sleep(later.delay)
        self.guarded("request.failed", lambda: self.session.due(later.token), round=later.token, door="input_required")

    async def _beats(self) -> None:
        while True:
            await anyio.sleep(self._beat)
            for round in list(self._rounds):
                self._progress(round)

    def _progress(self, round: str, tokens: int = 0) -> None:
        self.guarded("progress.failed", lambda: self.session.round_progress(round, tokens), round=round)


def _unanswered(round: Round) -> Settled:
    """Nobody waits for ever for what a fault of ours ended. The log names the fault by the round."""
    outcome = Unanswered(Reason.ERROR, detail="a fault in the gate; the log has it")
    return Settled({key: Release(outcome, round.id) for key in round.items})


def _nowhere(line: bytes) -> None:
    """Before a link is there nothing can be sent: lines come only from links."""
