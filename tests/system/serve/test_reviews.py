"""Reviews in one real daemon: calls that disconnect or are put off, and policies that change meanwhile. test_pairs.py
has the reviewers' decisions in each pair of protocol versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import Client, Gate, client
from tests.fakes.daemon_reviews import (
    ACCEPTED,
    POLICY,
    People,
    daemon,
    form,
    people,
    reload,
    retry,
    said,
    sample,
    timed,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
NEVER: Final = "version: 1\nrules:\n  - {name: never, effect: deny, match: {kind: sampling}}\n"
DENIES_FORMS: Final = "rules:\n  - {name: forms, effect: deny, match: {kind: elicitation}}"


def policy(*, timeout: str = "15m", patience: str = "60s") -> str:
    return POLICY.replace("TIMEOUT", timeout).replace("PATIENCE", patience)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reviews")


@pytest.fixture(scope="module")
async def gate(folder: Path) -> AsyncIterator[Gate]:
    """The daemon. Each test puts its own policy in force."""
    async with daemon(folder, watch=False) as found:
        yield found


@pytest.fixture
async def person(gate: Gate) -> AsyncIterator[People]:
    async with people(gate) as found:
        yield found


async def test_a_call_whose_client_hangs_up_takes_its_review_back(gate: Gate, folder: Path, person: People) -> None:
    await reload(gate, folder, policy())
    async with client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 1, **form("and hangs up?")))
        review = await person.pending()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await person.over(review["id"])
        status, problem = await person.say(review, verdict="reject")
        assert (409, "withdrawn") == (status, (await person.get(f"/reviews/{review['id']}"))["state"]), problem


async def test_a_modern_call_is_put_off_again_and_again_and_needs_no_open_connection(
    gate: Gate, folder: Path, person: People
) -> None:
    await reload(gate, folder, policy(patience="400ms"))
    wanted = form("later?")
    async with client(gate) as c:
        first = (await c.call("modern", 1, **wanted))["result"]
        assert ("input_required", False) == (first["resultType"], "inputRequests" in first)
        second = (await retry(c, 2, first["requestState"], wanted))["result"]
        assert "input_required" == second["resultType"]
        review = await person.pending()
        assert 200 == (await person.say(review, verdict="answer", **ACCEPTED))[0]
        assert ACCEPTED == said(await retry(c, 3, second["requestState"], wanted))
        assert "answered" == (await person.get(f"/reviews/{review['id']}"))["state"]


async def test_a_call_that_was_put_off_ends_before_the_client_gives_up(gate: Gate, folder: Path) -> None:
    await reload(gate, folder, policy(patience="100ms"))
    wanted = form("never?")
    async with client(gate) as c:
        answer, rounds = (await c.call("modern", 1, **wanted))["result"], 0
        while answer["resultType"] == "input_required":
            rounds += 1
            answer = (await retry(c, 1 + rounds, answer["requestState"], wanted))["result"]
        assert "cancel" == answer["structuredContent"]["result"]["action"]
        assert 9 == rounds  # clients stop at the tenth retry


@asynccontextmanager
async def loaded_anew(
    gate: Gate, folder: Path, person: People, *, text: str, then: str, status: int
) -> AsyncIterator[tuple[asyncio.Future[dict[str, Any]], Client]]:
    """A call whose review is approved after a reload, with this status, and a client that connects later."""
    await reload(gate, folder, policy())
    async with client(gate) as c, client(gate) as other:
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **sample(text)))
        review = await person.pending(kind="sampling")
        await reload(gate, folder, then)
        assert status == (await person.say(review, verdict="approve"))[0]
        await other.begin()
        yield call, other


async def test_a_review_that_waits_ends_as_it_began_under_another_policy_that_asks_the_same(
    gate: Gate, folder: Path, person: People
) -> None:
    then = policy(timeout="20m").replace("rules:", DENIES_FORMS)
    async with loaded_anew(gate, folder, person, text="asks the same", then=then, status=200) as (call, other):
        assert "from a model" == said(await timed(call))["content"]["text"]
        assert "error" in (await timed(other.call("legacy", 1, **form("denied?"))))["result"]["structuredContent"]


async def test_a_verdict_that_the_policy_in_force_would_not_ask_for_is_not_carried_out(
    gate: Gate, folder: Path, person: People
) -> None:
    async with loaded_anew(gate, folder, person, text="asks no more", then=NEVER, status=409) as (call, other):
        for answer in (await timed(call), await timed(other.call("legacy", 1, **sample("asks no more")))):
            assert "error" in answer["result"]["structuredContent"]
