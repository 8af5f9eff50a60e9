"""Benchmark of one account that many gates draw on, and of 1,000 accounts.

Each gate is a process with the ledger in PostgreSQL, which makes one transaction of all draws that are due. Beside it
are a bare `UPDATE ... RETURNING` for each draw from as many clients, and the ledger in SQLite.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final, Literal, TypeAlias

import psycopg

from samplegate.limits.accounts import identity
from samplegate.limits.backend import Charge, Settlement
from samplegate.limits.ledger_thread import MAX_BATCH
from samplegate.limits.postgres_ledger import PostgresLedger
from samplegate.limits.sqlite_ledger import SqliteLedger
from samplegate.policy.ledger import MAX_UNITS, Draw, LimitSpec, Reserved
from tests.fakes.postgresql import postgresql, url

SAMPLES: Final = 97.0
"""Samples a second of one gate on two cores (bench/README.md). Each is a reservation and a settlement."""
SPEC: Final = LimitSpec("usd", "usd", MAX_UNITS, "day", shared=True)
RESERVED, SPENT = 100, 50
PATIENCE: Final = 60.0
"""Seconds until all gates of a lap must be ready, and for each draw."""
TABLE: Final = """
DROP TABLE IF EXISTS accounts;
CREATE TABLE accounts(
    limit_name text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, level bigint NOT NULL,
    stamp double precision NOT NULL, warned boolean NOT NULL, PRIMARY KEY(limit_name, key)
) WITH (fillfactor=50);
"""
BARE: Final = (
    "UPDATE accounts SET level = level + %s WHERE limit_name = 'usd' AND key = %s AND level + %s <= %s RETURNING level"
)
FILL: Final = "INSERT INTO accounts SELECT 'usd', 'k' || n, 0, 0, false FROM generate_series(0, %s) n"
Method: TypeAlias = Literal["batched", "bare", "SQLite"]


@dataclass(slots=True)
class Due:
    """A draw that waits: a reservation, or the settlement of one."""

    since: float
    key: str
    reserved: Reserved | None = None


@dataclass(slots=True)
class Lap:
    """What one gate measured: seconds of each reservation until its commit, the draws of each transaction, and the
    number of reservations that were due under load."""

    waits: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    due: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` reservations a second of each gate at random times, or as many as it can (0), for ``seconds``."""

    rate: float
    accounts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws a second of all gates, milliseconds of a reservation until its commit, and draws in a transaction.
    ``needed`` are the draws a second of the load, which is random; 0 for as many as possible."""

    rate: float
    p50: float
    p99: float
    batch: float
    needed: float


@dataclass(frozen=True, slots=True)
class HotAccount:
    """Figures of ``gates`` that draw on ``accounts``. The first three are as many draws as possible; ``loaded`` is
    batched, with the load of SAMPLES in each gate."""

    gates: int
    accounts: int
    batched: Draws
    bare: Draws
    sqlite: Draws | None
    loaded: Draws


class Batched:
    """The ledger in PostgreSQL: one transaction for all draws that wait."""

    cap = MAX_BATCH

    def __init__(self, place: str) -> None:
        self._limit = identity(SPEC)
        self._ledger = PostgresLedger({self._limit: SPEC}, url(place), time.time)

    def draw(self, batch: Sequence[Due]) -> list[Reserved | None]:
        """The reservations; None for a settlement."""
        calls = [
            Charge("", (Draw(self._limit, due.key, RESERVED),))
            if due.reserved is None
            else Settlement(due.reserved, (Draw(self._limit, due.key, SPENT),))
            for due in batch
        ]
        results = self._ledger.batch(calls, time.monotonic() + PATIENCE)
        return [one if isinstance(one, Reserved) else None for one in results]


class Bare:
    """One statement for each draw, which commits by itself. It knows one account and one fixed window."""

    cap = 1

    def __init__(self, place: str) -> None:
        self._db = psycopg.connect(place, autocommit=True)

    def draw(self, batch: Sequence[Due]) -> list[Reserved | None]:
        """The reservation; None for a settlement."""
        (due,) = batch
        amount = RESERVED if due.reserved is None else SPENT - RESERVED
        found = self._db.execute(BARE, (amount, due.key, amount, MAX_UNITS), prepare=True).fetchone()
        assert found is not None
        return [Reserved("", (), 0.0) if due.reserved is None else None]


class InSqlite:
    """The ledger in SQLite, which makes one transaction of each draw."""

    cap = 1

    def __init__(self, place: str) -> None:
        self._limit = identity(SPEC)
        self._ledger = SqliteLedger({self._limit: SPEC}, Path(place), time.time)

    def draw(self, batch: Sequence[Due]) -> list[Reserved | None]:
        """The reservation; None for a settlement."""
        (due,) = batch
        until = time.monotonic() + PATIENCE
        if due.reserved is not None:
            self._ledger.settle(Settlement(due.reserved, (Draw(self._limit, due.key, SPENT),)), until)
            return [None]
        reserved = self._ledger.reserve("", (Draw(self._limit, due.key, RESERVED),), until)
        assert isinstance(reserved, Reserved)
        return [reserved]


METHODS: Final[dict[Method, type[Batched | Bare | InSqlite]]] = {"batched": Batched, "bare": Bare, "SQLite": InSqlite}


def gate(method: Method, place: str, load: Load, start: Barrier) -> Lap:
    """One gate. It settles each reservation with the next draws."""
    store, lap, due = METHODS[method](place), Lap(), deque[Due]()
    chance = random.Random(start.wait())
    now = begun = time.perf_counter()
    coming = begun + (chance.expovariate(load.rate) if load.rate else 0.0)
    while now < begun + load.seconds:
        while load.rate and coming <= now:
            due.append(Due(coming, f"k{chance.randrange(load.accounts)}"))
            coming += chance.expovariate(load.rate)
            lap.due += 1
        while not load.rate and len(due) < store.cap:
            due.append(Due(now, f"k{chance.randrange(load.accounts)}"))
        batch = [due.popleft() for _ in range(min(len(due), store.cap))]
        if not batch:
            time.sleep(min(coming - now, 0.005))
        results = store.draw(batch) if batch else []
        now = time.perf_counter()
        for one, reserved in zip(batch, results, strict=True):
            if reserved is not None:
                lap.waits.append(now - one.since)
                due.append(Due(now, one.key, reserved))
        lap.batches += [len(batch)] if batch else []
    return lap


def _gate(results: Queue[Lap | str], method: Method, place: str, load: Load, start: Barrier) -> None:
    try:
        results.put(gate(method, place, load, start))
    except Exception as problem:  # else the benchmark would wait for it
        start.abort()
        results.put(f"a gate failed ({method}): {problem!r}")


def measure(gates: Sequence[int], accounts: Sequence[int], seconds: float) -> Iterator[HotAccount]:
    """Measure each number of gates with each number of accounts, for ``seconds`` a method. Raises FileNotFoundError
    without PostgreSQL."""
    with postgresql() as place:
        for number in accounts:
            full, usual = Load(0.0, number, seconds), Load(SAMPLES, number, seconds)
            for count in gates:
                bare = _drawn("bare", place, count, full)
                batched = _drawn("batched", place, count, full)
                loaded = _drawn("batched", place, count, usual)
                with tempfile.TemporaryDirectory() as state:
                    sqlite = _drawn("SQLite", state, count, full) if number == 1 else None
                yield HotAccount(count, number, batched, bare, sqlite, loaded)


def _drawn(method: Method, place: str, gates: int, load: Load) -> Draws:
    if method != "SQLite":
        with psycopg.connect(place, autocommit=True) as db:
            db.execute(TABLE)
            db.execute(FILL, (load.accounts - 1,))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    results: Queue[Lap | str] = context.Queue()
    given = (results, method, place, load, context.Barrier(gates, timeout=PATIENCE))
    processes = [context.Process(target=_gate, args=given, daemon=True) for _ in range(gates)]
    for process in processes:
        process.start()
    found = [results.get(timeout=load.seconds + 3 * PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    laps = [lap for lap in found if isinstance(lap, Lap)]
    if len(laps) < gates:
        raise RuntimeError(next(why for why in found if isinstance(why, str)))
    waits = sorted(wait for lap in laps for wait in lap.waits)
    batches = [size for lap in laps for size in lap.batches]
    return Draws(
        sum(batches) / load.seconds,
        waits[len(waits) // 2] * 1e3,
        waits[len(waits) * 99 // 100] * 1e3,
        statistics.mean(batches),
        2 * sum(lap.due for lap in laps) / load.seconds,
    )
