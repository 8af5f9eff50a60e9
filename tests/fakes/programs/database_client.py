"""A process that uses a shared database, and prints a line of JSON for each thing that it does. ``program()`` is forked
(``tests.fakes.forked``). ``database_client MODE URL ...``; it ends with its stdin, or by itself.

``open``: connects once, which creates the tables. ``spend CENTS SECONDS``: draws from a dollar a day until there is no
room: each reservation is two cents, and what it is settled at is one. ``hold SECONDS``: takes a slot of two, keeps it
for so long, says when it was lost, and takes the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import alembic.command
import alembic.runtime.environment  # noqa: F401 - imported once, not in each process
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

from samplegate.limits import ledger_thread, postgres_ledger  # noqa: F401
from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Refused
from samplegate.postgres.connection import PostgresConnection
from samplegate.reviews import sql_store  # noqa: F401
from tests.fakes.limits import Log, slot, slots

CENT = SCALE["usd"] // 100
DOLLAR = LimitSpec("dollar", "usd", SCALE["usd"], "day", shared=True)


def say(**what: Any) -> None:
    os.write(1, json.dumps({**what, "at": time.monotonic()}).encode() + b"\n")


def open_once(url: str) -> None:
    connection = PostgresConnection(url)
    with connection.transaction(lambda: 60.0):
        say(what="open")
    connection.close()


def cents(number: int) -> list[Draw]:
    return [Draw("dollar", "[]", number * CENT)]


async def spend(url: str, least: str, seconds: str) -> None:
    """``least``: cents after which it ends if there is still room. ``seconds``: it ends after so long."""
    log = Log()
    limits = Limiter({"dollar": DOLLAR}, state=Path("/nonexistent"), clock=time.time, log=log, database=url)
    end, spent = time.monotonic() + float(seconds), 0
    full = 0
    while time.monotonic() < end and spent < int(least) and full < 3:
        begun = time.monotonic()
        say(what="asks")
        got = await limits.reserve(cents(2), None)
        took = time.monotonic() - begun
        if isinstance(got, Refused):
            say(what="refused", why=got.why, detail=got.detail, took=took)
            full = full + 1 if got.why == "full" else 0
            await asyncio.sleep(0.05)
            continue
        say(what="answered", took=took)
        spent += 1
        await limits.settle(got, cents(1))
    say(what="ends", spent=spent, log=[name for name, _ in log.events])
    await limits.aclose()


async def hold(url: str, seconds: str, rounds: str) -> None:
    spec = slots("slots", 2, shared=True)
    limits = Limiter({"slots": spec}, state=Path("/nonexistent"), clock=time.time, log=Log(), database=url)
    for _ in range(int(rounds)):
        got = await limits.reserve([slot("slots")], 60.0)
        if isinstance(got, Refused):
            say(what="refused", why=got.why, detail=got.detail)
            continue
        lost = asyncio.Event()
        limits.when_lost(got, lost.set)
        say(what="held", id=got.id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(seconds)):
                await lost.wait()
        say(what="lost" if lost.is_set() else "free", id=got.id)
        await limits.settle(got, [])
    await limits.aclose()


def program() -> int | None:
    mode, *arguments = sys.argv[1:]
    if mode == "open":
        open_once(*arguments)
    else:
        asyncio.run({"spend": spend, "hold": hold}[mode](*arguments))
    return None
