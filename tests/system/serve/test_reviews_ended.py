"""Reviews of daemons that end or are killed while they are pending: the next daemon completes each exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.request_state import FOREIGN
from samplegate.reviews.review import Filter
from tests.fakes.daemon import HURRIED, Gate, client
from tests.fakes.daemon_reviews import (
    ACCEPTED,
    POLICY,
    answer,
    answer_all,
    crowd_of,
    daemon,
    form,
    people,
    reload,
    retry,
    reviews_of,
    said,
    store,
    timed,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
CROWD: Final = 40
LATER: Final = form("put off?")
UNRELEASED: Final = form("decided, and not released?")
PATIENT: Final = POLICY.replace("TIMEOUT", "15m").replace("PATIENCE", "60s")


def waiting(number: int) -> dict[str, Any]:
    """One call of many."""
    return form(f"waits, {number}?")


# -- killed
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose second daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a daemon was killed. `parked` has the state of the call that it had put off."""
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
async def second(left: Path) -> AsyncIterator[Gate]:
    """The daemon after one that was killed: a call was put off, many were waiting, and one verdict was not released."""
    async with daemon(left, patience="200ms", watch=False) as first, crowd_of(first) as c, people(first) as person:
        (left / "parked").write_text((await c.call("modern", 1, **LATER))["result"]["requestState"])
        await reload(first, left, PATIENT)
        async with person.told("opened", CROWD + 1):
            calls = [asyncio.ensure_future(c.call("modern", n, **waiting(n))) for n in range(CROWD)]
            calls.append(asyncio.ensure_future(c.call("modern", CROWD, **UNRELEASED)))
        await decided_while_stopped(first, left, reviews_of(left, "not released")[0].id)
        first.process.send_signal(signal.SIGKILL)
        first.ending = True
        await asyncio.gather(*calls, return_exceptions=True)
    assert [(CROWD, {"pending"}), (1, {"pending"}), (1, {"answered"})] == [
        (len(found), {one.state for one in found})
        for found in (reviews_of(left, text) for text in ("waits", "put off", "not released"))
    ]
    for review in reviews_of(left, "waits")[::2]:  # half of them while no daemon runs
        answer(left, review.id)
    async with daemon(left, watch=False) as gate:
        yield gate


async def decided_while_stopped(gate: Gate, folder: Path, id: str) -> None:
    """Decide through another door while the daemon is stopped. A daemon stopped within a transaction first completes
    it."""
    for _ in range(20):
        gate.process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(Unavailable):
            return await asyncio.to_thread(answer, folder, id)
        gate.process.send_signal(signal.SIGCONT)
    pytest.fail("the daemon was within a transaction each time")


async def test_the_review_of_a_call_that_a_killed_one_had_put_off_is_that_of_the_same_call_to_another_daemon(
    second: Gate, left: Path
) -> None:
    """The retry is refused, because the state in it is of the killed daemon's server."""
    async with client(second) as c, people(second) as person:
        refused = await retry(c, 2, (left / "parked").read_text(), LATER)
        assert (-32602, FOREIGN) == (refused["error"]["code"], refused["error"]["message"])
        async with person.told("joined", 1):
            again = asyncio.ensure_future(c.call("modern", 3, **LATER))
        (review,) = reviews_of(left, "put off")
        status, problem = await person.say(await person.pending(id=review.id), verdict="answer", **ACCEPTED)
        assert 200 == status, problem
        assert ACCEPTED == said(await timed(again))
        (review,) = reviews_of(left, "put off")
        assert review.used_by is not None


async def test_a_verdict_whose_daemon_is_killed_before_the_release_answers_the_next_same_request_once(
    second: Gate, left: Path
) -> None:
    async with client(second) as c, people(second) as person:
        assert ACCEPTED == said(await c.call("modern", 1, **UNRELEASED))
        (review,) = reviews_of(left, "not released")
        assert review.used_by is not None
        async with person.told("opened", 1):
            again = asyncio.ensure_future(c.call("modern", 2, **UNRELEASED))
        fresh, _ = reviews_of(left, "not released")
        assert fresh.id != review.id
        assert 200 == (await person.say(await person.pending(id=fresh.id), verdict="reject"))[0]
        assert "decline" == said(await timed(again))["action"]


async def test_the_many_that_waited_in_a_killed_daemon_are_finished_by_the_next(second: Gate, left: Path) -> None:
    async with crowd_of(second) as c, people(second) as person:
        async with person.told("joined", CROWD // 2):
            calls = [asyncio.ensure_future(c.call("modern", n, **waiting(n))) for n in range(CROWD)]
        await asyncio.to_thread(answer_all, left)
        answers = await timed(asyncio.gather(*calls))
    assert {"accept"} == {said(answer)["action"] for answer in answers}
    found = reviews_of(left, "waits")
    assert (CROWD, CROWD) == (len(found), len({one.used_by for one in found}))


# -- regular end
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_daemon_that_ends_puts_modern_calls_off_at_once_and_answers_legacy_ones_in_time(tmp_path: Path) -> None:
    """Reviews that are not decided by the end of the drain are left to the next daemon: three of them, one after
    another."""
    async with daemon(tmp_path, drain_timeout=40, program=[HURRIED]) as gate, client(gate) as c, client(gate) as other:
        async with people(gate) as person:
            await c.begin()
            call = asyncio.ensure_future(c.call("legacy", 1, **form("in time?")))
            review = await person.pending()
            async with person.told("opened", 1):
                modern = asyncio.ensure_future(other.call("modern", 1, **LATER))
            gate.process.send_signal(signal.SIGTERM)
            gate.ending = True
            parked = (await timed(modern))["result"]
            assert ("input_required", False) == (parked["resultType"], "inputRequests" in parked)
            await gate.said("drain.began")
            assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
            assert ACCEPTED.items() <= said(await timed(call)).items()
        assert 0 == await gate.end()
        assert any("all calls in flight were answered" in line for line in gate.lines)
    async with daemon(tmp_path, drain_timeout=0) as gate, client(gate) as c, people(gate) as person:
        assert FOREIGN == (await retry(c, 2, parked["requestState"], LATER))["error"]["message"]
        async with person.told("joined", 1):
            again = asyncio.ensure_future(c.call("modern", 4, **LATER))
        status, problem = await person.say(await person.pending(), verdict="answer", **ACCEPTED)
        assert 200 == status, problem
        assert ACCEPTED == said(await timed(again))
        assert 2 == len((await person.get("/reviews"))["reviews"])
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 3, **form("too late?")))
        review = await person.pending()
        assert 0 == await gate.end()
        cut: dict[str, Any] | BaseException = (await asyncio.gather(call, return_exceptions=True))[0]
        assert not isinstance(cut, dict) or "structuredContent" not in cut.get("result", {}), cut
    with store(tmp_path) as opened:
        (kept,) = opened.list(Filter(states=("pending",)))
        assert (review["id"], None) == (kept.id, kept.waiter)
    async with daemon(tmp_path) as gate, client(gate) as c, people(gate) as person:
        await c.begin()
        async with person.told("joined", 1):
            call = asyncio.ensure_future(c.call("legacy", 1, **form("too late?")))
        await person.decide(verdict="answer", **ACCEPTED)
        assert ACCEPTED.items() <= said(await timed(call)).items()
