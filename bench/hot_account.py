"""One account that many gates draw on: `python -m bench.hot_account [--seconds N]`.

Each gate is a process with the ledger in PostgreSQL, which makes one transaction of all draws that are due. Beside it
are a bare `UPDATE ... RETURNING` for each draw from as many clients, and the ledger in SQLite. Needs Debian's
`postgresql`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
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
SPECS: Final = {SPEC.name: SPEC}
RESERVED, SPENT = 100, 50
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
    """What one gate measured: seconds of each reservation until its commit, and the draws of each transaction."""

    waits: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` reservations a second of each gate at random times, or as many as it can (0), for ``seconds``."""

    rate: float
    accounts: int
    seconds: float


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
        results = self._ledger.batch(calls, time.monotonic() + 60)
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
        until = time.monotonic() + 60
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


def _gate(results: Queue[Lap], method: Method, place: str, load: Load, start: Barrier) -> None:
    results.put(gate(method, place, load, start))


def measure(method: Method, place: str, gates: int, load: Load) -> str:
    """A line of the table."""
    if method != "SQLite":
        with psycopg.connect(place, autocommit=True) as db:
            db.execute(TABLE)
            db.execute(FILL, (load.accounts - 1,))
    context = multiprocessing.get_context("spawn")
    results: Queue[Lap] = context.Queue()
    given = (results, method, place, load, context.Barrier(gates))
    processes = [context.Process(target=_gate, args=given) for _ in range(gates)]
    for process in processes:
        process.start()
    laps = [results.get() for _ in processes]
    for process in processes:
        process.join()
    waits, batches = sorted(wait for lap in laps for wait in lap.waits), [size for lap in laps for size in lap.batches]
    wanted = f"{load.rate:g} samples/s each" if load.rate else "as many as possible"
    return (
        f"| {method} | {gates} | {load.accounts:,} | {wanted} | {sum(batches) / load.seconds:,.0f}"
        f" | {waits[len(waits) // 2] * 1e3:.1f} ms | {waits[len(waits) * 99 // 100] * 1e3:.1f} ms"
        f" | {statistics.mean(batches):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each row (default: 6)")
    seconds = parser.parse_args().seconds
    print("| method | gates | accounts | load | draws/s | reservation p50 | p99 | draws by transaction |")
    print("|---|---|---|---|---|---|---|---|")
    with postgresql() as place:
        for accounts in (1, 1_000):
            full, usual = Load(0.0, accounts, seconds), Load(SAMPLES, accounts, seconds)
            for gates in (1, 5, 20):
                print(measure("bare", place, gates, full), flush=True)
                print(measure("batched", place, gates, full), flush=True)
                print(measure("batched", place, gates, usual), flush=True)
    for gates in (1, 5, 20):
        with tempfile.TemporaryDirectory() as state:
            print(measure("SQLite", state, gates, Load(0.0, 1, seconds)), flush=True)


if __name__ == "__main__":
    main()
