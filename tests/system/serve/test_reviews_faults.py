"""Reviews in a real daemon whose store fails for a while, is deleted, or is replaced. The daemon waits only briefly for
leases and locks (programs/hurried.py)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.daemon import ASK_FORM, HURRIED, Client, Gate, client
from tests.fakes.daemon_reviews import ACCEPTED, People, daemon, file_of, form, people, said, timed
from tests.fakes.stored_reviews import review as plain

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
async def gate(folder: Path) -> AsyncIterator[Gate]:
    async with daemon(folder, program=[HURRIED]) as found:
        yield found


@pytest.fixture
async def person(gate: Gate) -> AsyncIterator[People]:
    async with people(gate) as found:
        yield found


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another process holds the write lock."""
    with contextlib.closing(sqlite3.connect(file_of(folder), isolation_level=None, timeout=10)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def files(folder: Path) -> list[Path]:
    """The store's own files. The folder beside them, which lists the processes that hold reviews, is not one of
    them."""
    return [file for file in file_of(folder).parent.glob("reviews.db*") if file.is_file()]


@contextlib.contextmanager
def gone(folder: Path) -> Iterator[None]:
    """The store is deleted."""
    for file in files(folder):
        file.unlink()
    yield


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[None]:
    """Another store takes its place, such as an older one with other reviews."""
    with contextlib.closing(SqlReviewStore(f"sqlite:{folder / 'other.db'}")) as other:
        other.open(plain("rv_other", created=time.time(), expires=time.time() + 900), announce=False, most=9)
    for file in files(folder):
        file.unlink()
    (folder / "other.db").replace(file_of(folder))
    yield


@contextlib.contextmanager
def garbage(folder: Path) -> Iterator[None]:
    """A file that is not a database takes its place for a while."""
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


@contextlib.contextmanager
def full(gate: Gate) -> Iterator[None]:
    """The daemon's files cannot grow for a while."""
    resource: Any = pytest.importorskip("resource")
    before = resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE, before)


@asynccontextmanager
async def waiting(
    gate: Gate, person: People, text: str
) -> AsyncIterator[tuple[asyncio.Future[dict[str, Any]], dict[str, Any], Client]]:
    """A legacy call that waits for a reviewer, its review, and another client."""
    async with client(gate) as c, client(gate) as other:
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **form(text)))
        yield call, await person.pending(server="default"), other


async def passes(c: Client) -> bool:
    """Whether a call that needs no review is answered."""
    answer = await timed(c.call("modern", 2))
    return bool("x" == answer["result"]["content"][0]["text"])


async def test_a_store_that_is_locked_leaves_new_requests_unanswered_and_those_that_wait_waiting(
    gate: Gate, folder: Path, person: People
) -> None:
    async with waiting(gate, person, "while it is locked?") as (call, review, other):
        with locked(folder):
            new = asyncio.ensure_future(other.call("modern", 1, **ASK_FORM))
            assert await passes(other)
            assert "cancel" == said(await timed(new))["action"]
            assert 503 == (await person.refused(review))
        assert not call.done()
        status, problem = await person.say(review, verdict="answer", **ACCEPTED)
        assert 200 == status, problem
        assert ACCEPTED.items() <= said(await timed(call)).items()
        await gate.said("store")  # the log tells the operator


@pytest.mark.parametrize("away", [gone, replaced])
async def test_a_store_that_goes_away_approves_nothing_and_another_in_its_place_is_used(
    gate: Gate, folder: Path, person: People, away: Any
) -> None:
    async with waiting(gate, person, f"before it is {away.__name__}?") as (call, review, other):
        with away(folder):
            assert "cancel" == said(await timed(call))["action"]
            assert await passes(other)
        new = asyncio.ensure_future(other.call("modern", 1, **form(f"after it is {away.__name__}?")))
        fresh = await person.pending(server="default")
        assert fresh["id"] != review["id"]
        assert 200 == (await person.say(fresh, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED == said(await timed(new))


async def test_a_store_that_is_no_database_for_a_while_stops_nothing_but_reviews_and_they_go_on(
    gate: Gate, folder: Path, person: People
) -> None:
    async with waiting(gate, person, "while it is none?") as (call, review, other):
        before = len(gate.lines)
        with garbage(folder):
            assert "cancel" == said(await timed(other.call("modern", 1, **ASK_FORM)))["action"]
            assert await passes(other)
            assert (503, False) == (await person.refused(review), call.done())
            await gate.said("review.store_failed", before)
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED.items() <= said(await timed(call)).items()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the size of another process's files can be bounded on Linux only"
)
async def test_a_store_that_can_grow_no_more_approves_nothing_and_recovers(gate: Gate, person: People) -> None:
    async with waiting(gate, person, "while it is full?") as (call, review, other):
        with full(gate):
            assert (503, False) == (await person.refused(review), call.done())
            assert "cancel" == said(await timed(other.call("modern", 1, **ASK_FORM)))["action"]
            assert await passes(other)
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED.items() <= said(await timed(call)).items()
