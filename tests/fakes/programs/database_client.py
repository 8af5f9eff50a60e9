"""A process that uses a shared database, and prints a line of JSON with the monotonic time for each thing that it does.
``program()`` is forked (``tests.fakes.forked``): ``database_client MODE URL ...``.

- ``open``: connects once, which creates the tables.
- ``spend SECONDS``: draws from a dollar a day until there is no room: it reserves two cents, and settles one.
- ``freeze``: locks the account of the dollar, and stops itself (SIGSTOP) before it commits.
- ``hold SECONDS ROUNDS``: takes one of two slots, keeps it for so long, says if it was lost, and takes another.
- ``wait ROUNDS``: looks for the verdict on each of so many requests, and uses it.
- ``lease SECONDS``: leases the verdict on a request for so long, and uses it after a line on stdin.
- ``write ROUNDS``: opens and rejects reviews.
- ``clock``: opens a review, looks for expired ones and another's verdict, and draws from the dollar.
- ``outbox HOOK NUMBER``: runs the outbox of a gate with this number, until it is killed.

``LEASE`` in the environment replaces the seconds of a lease of slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alembic.command
import alembic.runtime.environment  # noqa: F401 - imported once, not in each process
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

from samplegate.limits import ledger_thread, postgres_ledger  # noqa: F401
from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Refused
from samplegate.postgres.connection import PostgresConnection
from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.review import Verdict
from samplegate.reviews.service import pause
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.limits import Log, slot, slots
from tests.fakes.outbox import Outside
from tests.fakes.stored_reviews import review

CENT = SCALE["usd"] // 100
DOLLAR = LimitSpec("dollar", "usd", SCALE["usd"], "day", shared=True)
NOWHERE = Path("/nonexistent")


def say(what: str, **more: Any) -> None:
    os.write(1, json.dumps({"what": what, **more, "at": time.monotonic()}).encode() + b"\n")


def cents(number: int) -> list[Draw]:
    return [Draw("dollar", "[]", number * CENT)]


def limiter(url: str, spec: LimitSpec) -> tuple[Limiter, Log]:
    log = Log()
    return Limiter({spec.name: spec}, state=NOWHERE, clock=time.time, log=log, database=url), log


def open_once(url: str) -> None:
    connection = PostgresConnection(url)
    with connection.transaction(lambda: 60.0):
        say("open")
    connection.close()


async def spend(url: str, seconds: str) -> None:
    limits, log = limiter(url, DOLLAR)
    end, full = time.monotonic() + float(seconds), 0
    while time.monotonic() < end and full < 3:
        begun = time.monotonic()
        got = await limits.reserve(cents(2), None)
        took = time.monotonic() - begun
        if isinstance(got, Refused):
            say("refused", why=got.why, detail=got.detail, took=took)
            full = full + 1 if got.why == "full" else 0
            await asyncio.sleep(0.05)
            continue
        say("answered", took=took)
        await limits.settle(got, cents(1))
    say("ends", log=[name for name, _ in log.events])
    await limits.aclose()


async def freeze(url: str) -> None:
    rows: Any = postgres_ledger._SharedRows
    lock = rows.lock

    def stop(self: Any, *arguments: Any) -> None:
        lock(self, *arguments)
        say("locked")
        # This thread is stopped before it goes on; a signal to the process might stop another one first.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    rows.lock = stop
    limits, _ = limiter(url, DOLLAR)
    got = await limits.reserve(cents(50), None)
    say("refused" if isinstance(got, Refused) else "answered", detail=getattr(got, "detail", ""))
    rows.lock = lock
    await limits.aclose()


async def hold(url: str, seconds: str, rounds: str) -> None:
    limits, _ = limiter(url, slots("slots", 2, shared=True))
    for _ in range(int(rounds)):
        got = await limits.reserve([slot("slots")], 60.0)
        if isinstance(got, Refused):
            say("refused", why=got.why, detail=got.detail)
            continue
        lost = asyncio.Event()
        limits.when_lost(got, lost.set)
        say("held", id=got.id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(seconds)):
                await lost.wait()
        say("lost" if lost.is_set() else "free", id=got.id)
        await limits.settle(got, [])
    await limits.aclose()


def wait(url: str, rounds: str) -> None:
    store, name = SqlReviewStore(url), f"{os.getpid():032}w"
    say("ready")
    sys.stdin.readline()
    for number in range(int(rounds)):
        found = store.seek(f"l{number}", stage="request", waiter=name, seconds=10.0)
        if found is not None and found.state == "approved" and store.use([(found.id, name, f"d{os.getpid()}")]):
            say("released", round=number)
    say("ends")


def lease(url: str, seconds: str) -> None:
    store, name = SqlReviewStore(url), f"{os.getpid():032}w"
    say("ready")
    while (found := store.seek("l0", stage="request", waiter=name, seconds=float(seconds))) is None:
        time.sleep(0.05)
    say("leased")
    sys.stdin.readline()
    say("used", used=store.use([(found.id, name, f"d{os.getpid()}")]))


def write(url: str, rounds: str) -> None:
    store = SqlReviewStore(url)
    for number in range(int(rounds)):
        id = f"rv_{os.getpid()}_{number}"
        assert store.open(review(id), announce=False, most=10_000)
        assert store.decide(id, Verdict(word="reject"), who="ana", door="cli")
    say("ends")


async def clock(url: str) -> None:
    store = SqlReviewStore(url)
    before = time.time()
    opened = store.open(review("rv_of_clock"), announce=False, most=9)
    assert opened is not None
    stolen = store.seek("l0", stage="request", waiter="another", seconds=9.0)
    say("opened", created=opened.created, wall=store.wall(), own=before, stolen=stolen is not None)
    say("expired", ids=[one.id for one in store.expire()])
    limits, _ = limiter(url, DOLLAR)
    got = await limits.reserve(cents(2), None)
    say("refused" if isinstance(got, Refused) else "answered", time=getattr(got, "at", 0.0))
    await limits.aclose()


async def outbox(url: str, hook: str, number: str) -> None:
    out = Outside(NOWHERE)
    out.tell_at(hook)
    tag = bytes([int(number)])
    say("ready", taker=f"outbox_{(tag * 8).hex()}")
    await out.outbox(
        store=AsyncReviewStore(url), wall=time.time, clock=time.monotonic, pause=pause, random=lambda size: tag * size
    ).run()


def program() -> int | None:
    mode, *arguments = sys.argv[1:]
    if "LEASE" in os.environ:
        postgres_ledger.LEASE = float(os.environ["LEASE"])  # type: ignore[misc]
        postgres_ledger.PostgresAccounts.lease = postgres_ledger.LEASE
    modes: dict[str, Callable[..., Any]] = {
        "open": open_once,
        "spend": spend,
        "freeze": freeze,
        "hold": hold,
        "wait": wait,
        "lease": lease,
        "write": write,
        "clock": clock,
        "outbox": outbox,
    }
    done = modes[mode](*arguments)
    if done is not None:
        asyncio.run(done)
    return None


if __name__ == "__main__":
    sys.exit(program())
