"""Reviews through a real daemon whose store fails, and one that is killed, ended or loaded anew while people are
asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from samplegate.core.review.review import Filter, Verdict
from samplegate.store.engine import PATIENCE
from samplegate.store.reviews import Reviews
from tests.daemon.gate import ASK_FORM, ASK_SAMPLE, FORM, Client, Gate, asking, client, serving
from tests.daemon.reviewing import POLICY, TOKEN, People, settings
from tests.daemon.test_reviews import ACCEPTED, retry
from tests.store.samples import review as plain

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
T = TypeVar("T")
SLOW = 40.0  # seconds: the bound of what must not hang, on a machine that does nine other things


@asynccontextmanager
async def daemon(
    folder: Path, eras: str = "legacy+modern", *, set_also: dict[str, Any] | None = None, **wanted: Any
) -> AsyncIterator[Gate]:
    """A daemon with a page, and with these settings too."""
    arguments = settings(folder, **wanted)
    told = {**json.loads((folder / "settings.yaml").read_text()), **(set_also or {})}
    (folder / "settings.yaml").write_text(json.dumps(told))
    async with serving(folder, *arguments, "--", *asking(eras)) as gate:
        await gate.said("reviews on")
        yield gate


class Person(People):
    """One who also sees the page, the events, and what is not taken."""

    def __init__(self, gate: Gate, http: aiohttp.ClientSession) -> None:
        super().__init__(gate, http)
        self._at, self._own = gate.reviews, http

    async def refused(self, review: dict[str, Any]) -> int:
        """The status of a verdict that is not taken."""
        body = {"digest": review["digest"], "verdict": "reject"}
        async with self._own.post(f"{self._at}/v1/reviews/{review['id']}/verdict", json=body) as response:
            assert response.status >= 400
            return response.status

    async def sign_in(self) -> None:
        async with self._own.post(
            f"{self._at}/reviews/sign-in", data={"token": TOKEN}, headers={"origin": self._at}
        ) as response:
            assert response.status == 200, await response.text()

    async def page(self, path: str) -> str:
        async with self._own.get(self._at + path) as response:
            assert response.status == 200
            return await response.text()

    @asynccontextmanager
    async def events(self) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        """The next event of the stream, each time it is called."""
        async with self._own.get(f"{self._at}/v1/reviews/events") as stream:

            async def next_event() -> str:
                return (await stream.content.readuntil(b"\n\n")).decode()

            yield next_event

    @asynccontextmanager
    async def told(self, what: str, number: int) -> AsyncIterator[None]:
        """Until this has happened to so many reviews, from here on."""
        async with self.events() as next_event, asyncio.timeout(400):
            await next_event()  # it listens
            yield
            while number > 0:
                number -= f'"what": "{what}"' in await next_event()


@asynccontextmanager
async def people(gate: Gate) -> AsyncIterator[Person]:
    """A person who may decide, at the page too."""
    jar = aiohttp.CookieJar(unsafe=True)  # for cookies of an address
    timeout = aiohttp.ClientTimeout(total=400)  # for what hangs
    async with aiohttp.ClientSession(
        headers={"authorization": f"Bearer {TOKEN}"}, timeout=timeout, cookie_jar=jar
    ) as http:
        yield Person(gate, http)


@asynccontextmanager
async def crowd_of(gate: Gate) -> AsyncIterator[Client]:
    """A client with as many connections as it likes."""
    timeout = aiohttp.ClientTimeout(total=600)  # for what hangs
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        yield Client(http, f"{gate.url}/mcp")


def form(number: int) -> dict[str, Any]:
    """A call whose form is like no other."""
    return {"ask": {"method": "elicitation/create", "params": {**FORM, "message": f"sure of {number}?"}}}


def file_of(folder: Path) -> Path:
    return folder / "state" / "reviews.db"


@contextlib.contextmanager
def store(folder: Path) -> Iterator[Reviews]:
    """The same store, as another process has it."""
    opened = Reviews(f"sqlite:{file_of(folder)}")
    try:
        yield opened
    finally:
        opened.close()


def lapse(folder: Path) -> None:
    """As if the leases of what died had run out."""
    with contextlib.closing(sqlite3.connect(file_of(folder), timeout=10)) as db, db:
        db.execute("UPDATE reviews SET held_until = 0")


def answer_all(folder: Path) -> int:
    """A person's verdict on everything that waits; how many that was."""
    with store(folder) as opened:
        count = 0
        while found := opened.list(Filter(states=("pending",), limit=500)):
            for one in found:
                opened.decide(one.id, Verdict(word="answer", result=ACCEPTED), who="ana", door="cli", now=time.time())
                count += 1
        return count


def said(answer: dict[str, Any]) -> Any:
    """What the server was answered."""
    return answer["result"]["structuredContent"]["result"]


async def timed(what: Awaitable[T]) -> tuple[float, T]:
    began = time.monotonic()
    async with asyncio.timeout(SLOW):
        found = await what
    return time.monotonic() - began, found


# -- the store fails
# ----------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another process writes and does not end."""
    with contextlib.closing(sqlite3.connect(file_of(folder), isolation_level=None, timeout=10)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def files(folder: Path) -> list[Path]:
    """The store's own files. Beside them is a folder that says which processes hold reviews."""
    return [file for file in file_of(folder).parent.glob("reviews.db*") if file.is_file()]


@contextlib.contextmanager
def gone(folder: Path) -> Iterator[None]:
    """Somebody deletes it."""
    for file in files(folder):
        file.unlink()
    yield


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[None]:
    """Another store stands in its place: an older one, say, with other reviews in it."""
    with contextlib.closing(Reviews(f"sqlite:{folder / 'other.db'}")) as other:
        other.open(plain("rv_other", created=time.time(), expires=time.time() + 900), announce=False, most=9)
    for file in files(folder):
        file.unlink()
    (folder / "other.db").replace(file_of(folder))
    yield


@contextlib.contextmanager
def garbage(folder: Path) -> Iterator[None]:
    """What stands in its place is no database, for a while."""
    path, away = file_of(folder), folder / "away"
    away.mkdir()
    for file in files(folder):
        file.rename(away / file.name)
    path.write_text("no database\n" * 1000)
    yield
    for file in files(folder):
        file.unlink()
    for file in away.iterdir():
        file.rename(path.parent / file.name)


async def waiting(c: Client, person: Person) -> tuple[asyncio.Future[dict[str, Any]], dict[str, Any]]:
    """A legacy call that waits for a person."""
    await c.begin()
    call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
    return call, await person.pending()


async def test_a_store_that_is_locked_leaves_new_requests_unanswered_and_those_that_wait_waiting(
    tmp_path: Path,
) -> None:
    async with daemon(tmp_path) as gate, client(gate) as c, client(gate) as other, people(gate) as person:
        call, review = await waiting(c, person)
        with locked(tmp_path):
            new = asyncio.ensure_future(other.call("modern", 1, **form(2)))
            assert "x" == (await timed(other.call("modern", 2)))[1]["result"]["content"][0]["text"]
            took, answer = await timed(new)
            assert ("cancel", True) == (said(answer)["action"], took >= PATIENCE / 2)
            assert 503 == (await person.refused(review))
        assert not call.done()
        status, problem = await person.say(review, verdict="answer", **ACCEPTED)
        assert 200 == status, problem
        assert ACCEPTED.items() <= said((await timed(call))[1]).items()
        await gate.said("store")  # the log tells the operator


@pytest.mark.parametrize("away", [gone, replaced])
async def test_a_store_that_goes_away_approves_nothing_and_another_in_its_place_is_used(
    tmp_path: Path, away: Any
) -> None:
    async with daemon(tmp_path) as gate, client(gate) as c, client(gate) as other, people(gate) as person:
        call, review = await waiting(c, person)
        with away(tmp_path):
            assert "cancel" == said((await timed(call))[1])["action"]
            assert "x" == (await timed(other.call("modern", 2)))[1]["result"]["content"][0]["text"]
        new = asyncio.ensure_future(other.call("modern", 1, **form(2)))
        fresh = await person.pending(server="default")
        assert fresh["id"] != review["id"]
        assert 200 == (await person.say(fresh, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED == said((await timed(new))[1])


async def test_a_store_that_is_no_database_for_a_while_stops_nothing_but_reviews_and_they_go_on(tmp_path: Path) -> None:
    async with daemon(tmp_path) as gate, client(gate) as c, client(gate) as other, people(gate) as person:
        call, review = await waiting(c, person)
        with garbage(tmp_path):
            assert "cancel" == said((await timed(other.call("modern", 1, **form(2))))[1])["action"]
            assert "x" == (await timed(other.call("modern", 2)))[1]["result"]["content"][0]["text"]
            assert (503, False) == (await person.refused(review), call.done())
            await gate.said("review.store_failed")
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED.items() <= said((await timed(call))[1]).items()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the size of another process's files can be bounded on Linux only"
)
async def test_a_store_that_can_grow_no_more_approves_nothing_and_recovers(tmp_path: Path) -> None:
    resource: Any = pytest.importorskip("resource")
    async with daemon(tmp_path) as gate, client(gate) as c, client(gate) as other, people(gate) as person:
        call, review = await waiting(c, person)
        before = resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        refused = await person.refused(review)
        assert "cancel" == said((await timed(other.call("modern", 1, **form(2))))[1])["action"]
        assert "x" == (await timed(other.call("modern", 2)))[1]["result"]["content"][0]["text"]
        resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, before)
        assert (503, False) == (refused, call.done())
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED.items() <= said((await timed(call))[1]).items()


# -- the daemon goes
# ----------------------------------------------------------------------------------------------------------------------


async def test_two_hundred_that_wait_in_a_killed_daemon_are_finished_by_the_next(tmp_path: Path) -> None:
    wanted = [form(number) for number in range(200)]
    async with daemon(tmp_path, "modern") as gate, crowd_of(gate) as c, people(gate) as person:
        async with person.told("opened", 200):
            calls = [asyncio.ensure_future(c.call("modern", n, **one)) for n, one in enumerate(wanted)]
        await gate.end(signal.SIGKILL)
        await asyncio.gather(*calls, return_exceptions=True)
    with store(tmp_path) as opened:
        found = opened.list(Filter(limit=1000))
        assert (200, {"pending"}) == (len(found), {one.state for one in found})
        for one in found[::2]:  # half of them while nobody is there
            opened.decide(one.id, Verdict(word="answer", result=ACCEPTED), who="ana", door="cli", now=time.time())
    lapse(tmp_path)
    async with daemon(tmp_path, "modern") as gate, crowd_of(gate) as c, people(gate) as person:
        async with person.told("joined", 100):
            calls = [asyncio.ensure_future(c.call("modern", n, **one)) for n, one in enumerate(wanted)]
        assert 100 == await asyncio.to_thread(answer_all, tmp_path)
        answers = await asyncio.wait_for(asyncio.gather(*calls), 60)
    assert {"accept"} == {said(answer)["action"] for answer in answers}
    with store(tmp_path) as opened:
        found = opened.list(Filter(limit=1000))
        assert (200, 200) == (len(found), len({one.used_by for one in found}))


async def test_a_modern_call_that_waits_is_put_off_at_once_when_its_daemon_ends_and_another_finishes_it(
    tmp_path: Path,
) -> None:
    async with daemon(tmp_path, "modern") as gate, client(gate) as c, people(gate) as person:
        call = asyncio.ensure_future(c.call("modern", 1, **ASK_FORM))
        review = await person.pending()
        gate.process.send_signal(signal.SIGTERM)
        gate.ending = True
        parked = (await timed(call))[1]["result"]
        assert ("input_required", False) == (parked["resultType"], "inputRequests" in parked)
        assert 0 == await gate.end()
        assert any("all that was under way was answered" in line for line in gate.lines)
    async with daemon(tmp_path, "modern") as gate, client(gate) as c, people(gate) as person:
        again = asyncio.ensure_future(retry(c, 2, parked["requestState"]))
        status, problem = await person.say(await person.pending(id=review["id"]), verdict="answer", **ACCEPTED)
        assert 200 == status, problem
        assert ACCEPTED == said((await timed(again))[1])
        assert 1 == len((await person.get("/reviews"))["reviews"])


async def test_a_legacy_call_that_waits_is_answered_if_the_verdict_comes_before_the_drain_is_over(
    tmp_path: Path,
) -> None:
    async with (
        daemon(tmp_path, "legacy", set_also={"drain_timeout": 40}) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        call, review = await waiting(c, person)
        gate.process.send_signal(signal.SIGTERM)
        gate.ending = True
        await gate.said("drain.began")
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED.items() <= said((await timed(call))[1]).items()
        assert 0 == await gate.end()
        assert any("all that was under way was answered" in line for line in gate.lines)


async def test_a_legacy_call_without_a_verdict_by_the_end_of_the_drain_leaves_its_review_to_the_next_daemon(
    tmp_path: Path,
) -> None:
    async with (
        daemon(tmp_path, "legacy", set_also={"drain_timeout": 1}) as gate,
        client(gate) as c,
        people(gate) as person,
    ):
        call, review = await waiting(c, person)
        assert 0 == await gate.end()
        answer: dict[str, Any] | BaseException = (await asyncio.gather(call, return_exceptions=True))[0]
        assert not isinstance(answer, dict) or "structuredContent" not in answer.get("result", {}), answer
    with store(tmp_path) as opened:
        (kept,) = opened.list(Filter())
        assert (review["id"], "pending", None) == (kept.id, kept.state, kept.waiter)
    async with daemon(tmp_path, "legacy") as gate, client(gate) as c, people(gate) as person:
        await c.begin()
        async with person.told("joined", 1):
            call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
        await person.decide(verdict="answer", **ACCEPTED)
        assert ACCEPTED.items() <= said((await timed(call))[1]).items()


NEVER = "version: 1\nrules:\n  - {name: never, effect: deny, match: {kind: sampling}}\n"
DENIES_FORMS = "rules:\n  - {name: forms, effect: deny, match: {kind: elicitation}}"
STILL = POLICY.replace("TIMEOUT", "20m").replace("PATIENCE", "60s").replace("rules:", DENIES_FORMS)


@asynccontextmanager
async def loaded_anew(
    folder: Path, policy: str, status: int
) -> AsyncIterator[tuple[asyncio.Future[dict[str, Any]], Client]]:
    """A call whose review somebody approves once another policy is in force, with this status; and a client that comes
    later."""
    async with (
        daemon(folder, set_also={"watch": False}) as gate,
        client(gate) as c,
        client(gate) as other,
        people(gate) as person,
    ):
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **ASK_SAMPLE))
        review, before = await person.pending(), len(gate.lines)
        (folder / "policy.yaml").write_text(policy)
        gate.process.send_signal(signal.SIGHUP)
        assert "changed" in await gate.said("reload.taken", before)
        assert status == (await person.say(review, verdict="approve"))[0]
        await other.begin()
        yield call, other


async def test_a_review_that_waits_ends_as_it_began_under_another_policy_that_asks_the_same(tmp_path: Path) -> None:
    async with loaded_anew(tmp_path, STILL, 200) as (call, other):
        assert "from a model" == said((await timed(call))[1])["content"]["text"]
        assert "error" in (await timed(other.call("legacy", 1, **ASK_FORM)))[1]["result"]["structuredContent"]


async def test_a_verdict_that_the_policy_in_force_would_not_ask_for_is_not_carried_out(tmp_path: Path) -> None:
    async with loaded_anew(tmp_path, NEVER, 409) as (call, other):
        for answer in ((await timed(call))[1], (await timed(other.call("legacy", 1, **ASK_SAMPLE)))[1]):
            assert "error" in answer["result"]["structuredContent"]
