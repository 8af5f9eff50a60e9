"""A crowd at a real daemon: a thousand requests that wait for people at once, and ten thousand reviews that wait in the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from samplegate.store import rows
from samplegate.store.schema import REVIEWS
from tests.daemon.gate import ASK_FORM, Client, Gate, admin, client
from tests.daemon.test_reviews import ACCEPTED
from tests.daemon.test_reviews_faults import SLOW, Person, answer_all, crowd_of, daemon, file_of, form, people, said, store, timed
from tests.store.samples import review as plain

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


def resident(gate: Gate) -> int:
    """Bytes of the daemon's memory."""
    pages = Path(f"/proc/{gate.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_thousand_that_wait_in_one_daemon_are_all_answered_and_nobody_else_waits_for_them(tmp_path: Path) -> None:
    async with daemon(tmp_path, patience="10m") as gate, crowd_of(gate) as c, client(gate) as other, people(gate) as person:
        await other.begin()
        alone = [(await timed(other.call("legacy", n)))[0] for n in range(20)]
        took, memory, passed = list[float](), list[float](), list[float]()
        for first, number in ((0, 100), (100, 900)):
            began, before = time.monotonic(), resident(gate)
            async with person.told("opened", number):
                calls = [asyncio.ensure_future(c.call("modern", n, **form(n))) for n in range(first, first + number)]
                beside = asyncio.ensure_future(probed(other, 1000 * (first + 1)))
            memory.append((resident(gate) - before) / number)
            assert number == await asyncio.to_thread(answer_all, tmp_path)
            answers = await asyncio.wait_for(asyncio.gather(*calls), 120)
            took.append((time.monotonic() - began) / number)
            beside.cancel()
            assert {"accept"} == {said(answer)["action"] for answer in answers}
            passed = await beside
        lag = await lagging(gate)
        assert took[1] < 5 * took[0] + 0.05  # each of many costs no more than each of few
        assert memory[1] < 200 * 1024
        assert median(passed) < 100 * median(alone) + 1.0
        assert lag < 0.5


async def probed(c: Client, first: int) -> list[float]:
    """How long calls take that nobody needs to be asked for, one after the other until it is cancelled."""
    took: list[float] = []
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            took.append((await timed(c.call("legacy", first + len(took))))[0])
    return took


async def lagging(gate: Gate) -> float:
    """Mean seconds by which the daemon's loop woke late."""
    text = (await admin(gate, "/metrics"))[1]
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("samplegate_event_loop_lag_seconds_"))
    return float(values["samplegate_event_loop_lag_seconds_sum"]) / max(float(values["samplegate_event_loop_lag_seconds_count"]), 1.0)


def fill(folder: Path, number: int) -> None:
    """As many reviews that wait, all of one reviewer."""
    now = time.time()
    one = rows.row(plain(created=now, expires=now + 3000), announced=False)
    file_of(folder).parent.mkdir(mode=0o700)
    with store(folder) as opened, opened.database.writing() as db:
        db.execute(insert(REVIEWS), [{**one, "id": f"rv_{n:024}", "lookup": f"l{n}", "created": now - n / 1000} for n in range(number)])


async def test_ten_thousand_that_wait_in_the_store_slow_nothing_down(tmp_path: Path) -> None:
    measured = []
    for number in (10, 10_000):
        folder = tmp_path / str(number)
        folder.mkdir()
        fill(folder, number)
        async with daemon(folder, set_also={"max_pending_reviews": 20_000}) as gate, client(gate) as c, people(gate) as person:
            measured.append(await looked_at(gate, c, person))
            assert number == await pending_by_metric(gate)
    for few, many in zip(*measured, strict=True):
        assert many < 10 * few + 1.0


async def looked_at(gate: Gate, c: Client, person: Person) -> list[float]:
    """How long a list, the page's list, the metrics, a new review and its first event, and its verdict take."""
    await person.sign_in()
    listing = min([(await timed(person.get("/reviews?state=pending")))[0] for _ in range(3)])
    page = min([(await timed(person.page("/reviews")))[0] for _ in range(3)])
    metrics = min([(await timed(admin(gate, "/metrics")))[0] for _ in range(3)])
    asking_took, call = await timed(opened_by(c, person))
    verdict, answer = await timed(answered_by(call, person))
    assert ACCEPTED == said(answer)
    return [listing, page, metrics, asking_took, verdict]


async def opened_by(c: Client, person: Person) -> asyncio.Future[dict[str, Any]]:
    async with person.events() as next_event:
        call = asyncio.ensure_future(c.call("modern", 1, **ASK_FORM))
        while "opened" not in await next_event():
            pass
        return call


async def answered_by(call: asyncio.Future[dict[str, Any]], person: Person) -> dict[str, Any]:
    await person.decide(verdict="answer", **ACCEPTED)
    return await call


async def pending_by_metric(gate: Gate) -> float:
    """The gauge, as soon as it tells of all."""
    async with asyncio.timeout(SLOW):
        while not (lines := [line for line in (await admin(gate, "/metrics"))[1].splitlines() if line.startswith("samplegate_reviews_pending{")]):
            pass
    return float(lines[0].rsplit(" ", 1)[1])
