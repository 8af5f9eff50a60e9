"""Any interleaving of rounds through the real gate and the real limits: the charges never exceed a limit, and at the
end nothing is reserved.

Beside the limits runs a count of their own: which model was asked, what that may have cost at worst, and what it cost
in the end.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import anyio
import hypothesis.strategies as st
from hypothesis import given

from samplegate.gate.gate import Gate
from samplegate.limits.limiter import Limiter
from samplegate.limits.sqlite_ledger import FILE, SqliteLedger
from samplegate.policy import cost
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.protocol.rounds import Round
from tests.fakes.dialogue import Dialogue, sample
from tests.fakes.gate_ports import FakePorts, asked, pushed
from tests.fakes.limits import Clock, Log, Timers, all_blocked

MODELS: Final[list[dict[str, Any]]] = [
    {"name": "cheap", "model": "openai/cheap", "price": {"input": 1, "output": 2}},
    {"name": "dear", "model": "openai/dear", "price": {"input": 10, "output": 20}},
    {"name": "last", "model": "openai/last", "price": {"input": 2, "output": 2}},
]
ASKED: Final = ("usd", "requests", "room", "pace")
TEXT: Final = ({"type": "text", "text": "hi"},)
ANSWERS: Final[dict[str, SampleResult]] = {
    "little": Sampled(TEXT, "m", "endTurn", 3, 4),
    "all": Sampled(TEXT, "m", "endTurn", 10, 100),
    "too much": Sampled(TEXT, "m", "endTurn", 5000, 300),
    "uncounted": Sampled(TEXT, "m", "endTurn"),
    "free": SampleFailed("rate_limited", "429", free=True),
    "spent": SampleFailed("unreachable", "503"),
    "begun": SampleFailed("unreachable", "cut", started=True),
    "late": SampleFailed("timeout", "late"),
    "counted": SampleFailed("empty", "nothing", started=True, input_tokens=5, output_tokens=6),
}
Store = Literal["memory", "file"]


def policy(
    store: Store, usd: int, requests: int, room: int, on_limit: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rules and limits. Only ``pace`` refills gradually, so that all other sums are exact."""
    per: dict[str, Any] = {"per": "day", "tz": "UTC"} if store == "file" else {"per": "process"}
    limits = {
        "usd": {"usd": usd / 10_000, **per},
        "requests": {"requests": requests, **per},
        "room": {"concurrent": room},
        "pace": {"requests": 6, "per": "20s"},
    }
    rule = {"match": {"kind": "sampling"}, "effect": "allow", "limits": list(ASKED), "on_limit": on_limit}
    first = {**rule, "name": "first", "with": {"models": ["cheap", "dear"]}, "on_timeout": "next"}
    return [first, {**rule, "name": "second", "with": {"models": ["last"]}}], {"models": MODELS, "limits": limits}


class Call:
    """A call of a model, in flight or completed."""

    def __init__(self, request: SampleRequest, worst: int) -> None:
        self.request, self.worst = request, worst
        self.answer: asyncio.Future[SampleResult] = asyncio.get_running_loop().create_future()
        self.over = False
        self.came_to = worst
        """What it cost: the worst until more is known."""

    @property
    def drew(self) -> tuple[str, str]:
        """The request of the call, once for each rule."""
        return self.request.params["messages"][0]["content"][
            "text"
        ], "second" if self.request.model == "last" else "first"


class Machine:
    """The gate, its limits, and an independent count of the charges."""

    def __init__(self, store: Store, folder: Path, rules: list[dict[str, Any]], more: dict[str, Any]) -> None:
        self.store, self.folder, self.rules, self.more = store, folder, rules, more
        self.compiled = Dialogue(*self.rules, **self.more).compiled
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.admission = Limiter(
            self.compiled.limit_specs, state=folder, clock=self.clock, log=Log(), later=self.timers
        )
        self.calls: list[Call] = []
        self.running: list[asyncio.Task[Any]] = []
        self.scopes: list[anyio.CancelScope] = []
        self.broken: list[str] = []
        ports = FakePorts(self.answered)
        ports.limits.reserve = self.admission.reserve  # type: ignore[method-assign]
        ports.limits.settle = self.admission.settle  # type: ignore[method-assign]
        self.gate: Gate = ports.gate(Dialogue(*self.rules, **self.more))

    async def answered(self, request: SampleRequest) -> SampleResult:
        model = self.compiled.model(request.model)
        worst = cost.worst(model, self.compiled.catalogue[request.model], request.params).usd
        assert worst is not None
        call = Call(request, worst)
        self.calls.append(call)
        self.look()
        try:
            answer = await call.answer
        finally:
            call.over = True
        if isinstance(answer, SampleFailed) and answer.free:
            call.came_to = 0
        elif answer.input_tokens is not None:
            facts = self.compiled.catalogue[request.model]
            call.came_to = cost.actual(model, facts, request.params, answer.input_tokens, answer.output_tokens).usd or 0
        return answer

    def look(self) -> None:
        """Check that charges and reservations are within the limits, except for costs above the upper bound."""
        overruns = sum(max(0, call.came_to - call.worst) for call in self.calls)
        within = {
            "usd": sum(call.came_to for call in self.calls) - overruns,
            "requests": len({call.drew for call in self.calls}) * SCALE["requests"],
            "room": sum(not call.over for call in self.calls),
        }
        self.broken += [
            f"{name}: {drawn}" for name, drawn in within.items() if drawn > self.compiled.limit_specs[name].max_units
        ]

    def start(self, keys: int) -> None:
        name = str(len(self.running))
        params = {f"k{key}": sample(f"{name}-{key}") for key in range(keys)}
        round: Round
        if keys == 1:
            _, round = pushed(*self.rules, policy=self.more, params=params["k0"])
        else:
            _, round = asked(*self.rules, policy=self.more, **params)
        self.scopes.append(scope := anyio.CancelScope())
        self.running.append(asyncio.get_running_loop().create_task(self._run(round, scope)))

    async def _run(self, round: Round, scope: anyio.CancelScope) -> None:
        with scope:
            await self.gate.run(round)

    async def rest(self) -> None:
        """Run until every task waits."""
        for _ in range(4):
            await all_blocked()
            threads = self.admission._ledger._thread
            if threads is not None:
                await asyncio.wrap_future(threads.run(lambda _deadline: None, 0.0))
        await all_blocked()

    @property
    def open(self) -> list[Call]:
        return [call for call in self.calls if not call.answer.done()]

    def drawn(self, limit: str) -> int:
        return self._asked("SELECT total(level) FROM accounts WHERE limit_name LIKE ?", f'["{limit}"%')

    def slots(self) -> int:
        return self._asked("SELECT count(*) FROM slots")

    def _asked(self, query: str, *values: str) -> int:
        if self.store == "memory":
            backend = self.admission._ledger._backend
            return (
                int(backend._memory.db.execute(query, values).fetchone()[0]) if isinstance(backend, SqliteLedger) else 0
            )
        if not (self.folder / FILE).exists():
            return 0
        with closing(sqlite3.connect(self.folder / FILE)) as db:
            return int(db.execute(query, values).fetchone()[0])


Step = tuple[str, Any, int]
GO_ON: Final = ("free", "spent", "late")  # another model is asked then, or another rule applies


def some_steps(random: Random) -> list[Step]:
    """Steps that are likely to interact. Each sequence is random."""
    steps: list[Step] = []
    for _ in range(random.randint(5, 40)):
        match random.choice(["start", "start", "answer", "answer", "answer", "go on", "cancel", "pass", "rest"]):
            case "start":
                steps.append(("start", random.choice([1, 1, 2, 2, 3]), 0))
            case "answer":
                steps.append(("answer", random.choice(sorted(ANSWERS)), random.randrange(10)))
            case "go on":
                steps.append(("answer", random.choice(GO_ON), random.randrange(10)))
            case "cancel":
                steps.append(("cancel", random.randrange(20), 0))
            case "pass":
                steps.append(("pass", random.choice([0.5, 7.0, 30.0]), 0))
            case what:
                steps.append((what, 0, 0))
    return steps


async def run(machine: Machine, steps: list[Step]) -> None:
    for what, which, at in steps:
        if what == "start":
            machine.start(which)
        elif what == "answer" and machine.open:
            machine.open[at % len(machine.open)].answer.set_result(ANSWERS[which])
        elif what == "cancel" and machine.running:
            machine.scopes[which % len(machine.running)].cancel()
        elif what == "pass":
            await machine.timers.pass_(which)
        elif what == "rest":
            await machine.rest()
        await all_blocked()
        machine.look()
    for scope in machine.scopes:
        scope.cancel()
    await asyncio.gather(*machine.running)
    await machine.rest()
    machine.look()


def check(store: Store, random: Random) -> None:
    steps, on_limit = some_steps(random), random.choice(["unanswered", "next", "deny", "wait", "wait", "wait"])
    usd, requests, room = random.choice([4, 25, 60, 500, 500]), random.choice([1, 5, 50, 50]), random.randint(1, 4)

    async def whole(folder: Path) -> None:
        machine = Machine(store, folder, *policy(store, usd, requests, room, on_limit))
        await run(machine, steps)
        try:
            assert [] == machine.broken
            assert {} == machine.admission._held, "a reservation was neither settled nor given back"
            assert not machine.admission._queue._at, "somebody still waits"
            assert not machine.slots(), "a slot is taken"
            assert sum(call.came_to for call in machine.calls) == machine.drawn("usd")
            assert len({call.drew for call in machine.calls}) * SCALE["requests"] == machine.drawn("requests")
        finally:
            await machine.admission.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(whole(Path(folder)))


@given(st.randoms(use_true_random=False))
def test_no_interleaving_passes_a_limit_or_leaves_anything_held_in_memory(random: Random) -> None:
    check("memory", random)


@given(st.randoms(use_true_random=False))
def test_nor_in_a_file(random: Random) -> None:
    check("file", random)
