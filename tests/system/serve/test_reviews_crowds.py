"""Many reviews in a real daemon: many requests that wait at once (a thousand in `make soak`), and ten thousand pending
reviews in the store. Their cost is measured in CPU time, which does not depend on a machine's load."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import insert

from bench.overhttp import usage
from samplegate.reviews import sql_schema
from samplegate.reviews.sql_schema import REVIEWS
from tests.fakes.daemon import Client, Gate, admin, client
from tests.fakes.daemon_reviews import (
    ACCEPTED,
    HANGS,
    People,
    answer_all,
    crowd_of,
    daemon,
    file_of,
    form,
    people,
    said,
    store,
)
from tests.fakes.stored_reviews import review as plain

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
T = TypeVar("T")


def resident(gate: Gate) -> int:
    """The daemon's memory in bytes."""
    pages = Path(f"/proc/{gate.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def cpu(gate: Gate) -> float:
    """Seconds of CPU time that the daemon and its servers have used."""
    used = usage.cpu(gate.process.pid)
    assert used is not None
    return used / 1e6


@pytest.mark.parametrize(
    "number", [pytest.param(160, id="some"), pytest.param(1000, id="a thousand", marks=pytest.mark.soak)]
)
async def test_all_of_a_crowd_that_waits_in_one_daemon_are_answered_and_nobody_else_waits_for_them(
    tmp_path: Path, number: int
) -> None:
    async with (
        daemon(tmp_path, forked=False, patience="10m") as gate,
        crowd_of(gate) as c,
        client(gate) as other,
        people(gate) as person,
    ):
        await other.begin()
        took, memory, passed = list[float](), list[float](), list[int]()
        for first, size in ((0, number // 10), (number // 10, number - number // 10)):
            began, before = cpu(gate), resident(gate)
            async with person.told("opened", size):
                calls = [
                    asyncio.ensure_future(c.call("modern", n, **form(f"sure of {n}?")))
                    for n in range(first, first + size)
                ]
            memory.append((resident(gate) - before) / size)
            took.append((cpu(gate) - began) / size)
            passed.append(await called(other, 1000 * (first + 1), 20))
            assert size == await asyncio.to_thread(answer_all, tmp_path)
            answers = await asyncio.wait_for(asyncio.gather(*calls), HANGS)
            assert {"accept"} == {said(answer)["action"] for answer in answers}
        assert took[1] < 5 * took[0] + 0.05  # each of many costs no more than each of few
        assert memory[1] < 200 * 1024
        assert [20, 20] == passed


async def called(c: Client, first: int, number: int) -> int:
    """Make this many calls that need no review while others wait for one. Returns how many were answered."""
    answers = [await asyncio.wait_for(c.call("legacy", first + n), HANGS) for n in range(number)]
    return sum("result" in answer for answer in answers)


def fill(folder: Path, number: int) -> None:
    """Add this many pending reviews, all of one reviewer."""
    now = time.time()
    one = sql_schema.row(plain(created=now, expires=now + 3000), announced=False)
    file_of(folder).parent.mkdir(mode=0o700, exist_ok=True)
    with store(folder) as opened, opened.database.writing() as db:
        db.execute(
            insert(REVIEWS),
            [
                {**one, "id": f"rv_{number:08}{n:016}", "lookup": f"{number} {n}", "created": now - n / 1000}
                for n in range(number)
            ],
        )


async def test_ten_thousand_that_wait_in_the_store_slow_nothing_down(tmp_path: Path) -> None:
    measured = []
    async with daemon(tmp_path, max_pending_reviews=20_000) as gate, client(gate) as c, people(gate) as person:
        await person.sign_in()
        for number, waiting in ((10, 10), (9_990, 10_000)):
            await asyncio.to_thread(fill, tmp_path, number)
            measured.append(await looked_at(gate, c, person, form(f"among {waiting}?")))
            await pending_by_metric(gate, waiting)
    for few, many in zip(*measured, strict=True):
        assert many < 10 * few + 1.0


async def looked_at(gate: Gate, c: Client, person: People, wanted: dict[str, Any]) -> list[float]:
    """Seconds of CPU time for the list, the page's list, the metrics, a new review and its first event, and its
    verdict."""
    listing = min([(await spent(gate, person.get("/reviews?state=pending")))[0] for _ in range(3)])
    page = min([(await spent(gate, person.page("/reviews")))[0] for _ in range(3)])
    metrics = min([(await spent(gate, admin(gate, "/metrics")))[0] for _ in range(3)])
    asking_took, call = await spent(gate, opened_by(c, person, wanted))
    verdict, answer = await spent(gate, answered_by(call, person))
    assert ACCEPTED == said(answer)
    return [listing, page, metrics, asking_took, verdict]


async def spent(gate: Gate, what: Awaitable[T]) -> tuple[float, T]:
    """The CPU time that the daemon used during ``act``, and the result of ``act``."""
    before = cpu(gate)
    found = await asyncio.wait_for(what, HANGS)
    return cpu(gate) - before, found


async def opened_by(c: Client, person: People, wanted: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
    async with person.events() as next_event:
        call = asyncio.ensure_future(c.call("modern", 1, **wanted))
        while "opened" not in await next_event():
            pass
        return call


async def answered_by(call: asyncio.Future[dict[str, Any]], person: People) -> dict[str, Any]:
    await person.decide(verdict="answer", **ACCEPTED)
    return await call


async def pending_by_metric(gate: Gate, number: int) -> None:
    """Wait until the gauge shows this number. It is updated periodically."""
    wanted = f" {float(number)}"
    async with asyncio.timeout(HANGS):
        while not any(
            line.startswith("samplegate_reviews_pending{") and line.endswith(wanted)
            for line in (await admin(gate, "/metrics"))[1].splitlines()
        ):
            pass
