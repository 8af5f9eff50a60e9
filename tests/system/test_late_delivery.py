"""Requests to a client over HTTP that are sent later than their stream was chosen: its call is over, its connection is
gone, or there is none."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.daemon.gate import BOUND, Gate
from tests.system import rounds
from tests.system.rounds import Client

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
LATE = [sys.executable, str(Path(__file__).parent / "programs" / "late.py")]


@asynccontextmanager
async def talking(folder: Path, *, standalone: bool) -> AsyncIterator[tuple[Gate, Client]]:
    async with (
        rounds.daemon(folder, LATE) as gate,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=BOUND)) as http,
    ):
        client = Client(http, gate.url + rounds.PATH)
        await client.open()
        async with client.listening() if standalone else contextlib.nullcontext():
            yield gate, client


async def holding(client: Client) -> asyncio.Task[str]:
    """A call that the server has, and does not answer."""
    held = asyncio.ensure_future(client.call("held", "hold"))
    for number in range(1000):
        if await client.call(f"count-{number}", "count") == "1 held":
            return held
    raise AssertionError("the server never got the call")


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_request_reaches_the_client_though_the_oldest_call_ends_at_the_same_moment(
    tmp_path: Path, standalone: bool
) -> None:
    async with talking(tmp_path, standalone=standalone) as (_, client), asyncio.timeout(BOUND):
        held = await holding(client)
        assert "answered" == await client.call("asking", "ask_and_end_the_held_call")
        assert "done" == await held


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_request_reaches_the_client_though_it_has_left_its_oldest_call(
    tmp_path: Path, standalone: bool
) -> None:
    async with talking(tmp_path, standalone=standalone) as (_, client), asyncio.timeout(BOUND):
        held = await holding(client)
        held.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await held
        assert "answered" == await client.call("asking", "ask")


async def test_a_request_for_which_no_stream_is_open_goes_on_the_next_one(tmp_path: Path) -> None:
    async with talking(tmp_path, standalone=False) as (_, client), asyncio.timeout(BOUND):
        assert "done" == await client.call("over", "ask_after_the_end")
        assert "answered" == await client.call("held", "hold")


@pytest.mark.parametrize(("times", "count", "size"), [(15, 1, 5), (1, 4, 5), (1, 12, 2)])
async def test_a_client_that_reads_as_fast_as_it_can_loses_nothing_of_large_notifications(
    tmp_path: Path, times: int, count: int, size: int
) -> None:
    """``times`` calls, each with ``count`` notifications of ``size`` MiB right before its answer."""
    async with talking(tmp_path, standalone=False) as (_, client):
        for time in range(times):
            async with asyncio.timeout(BOUND):
                assert "done" == await client.call(f"call-{time}", f"tell-{count}-{size * 1024 * 1024}")
    assert [size * 1024 * 1024] * count * times == [len(said["params"]["data"]) for said in client.told]


@pytest.mark.parametrize("standalone", [False, True])
async def test_no_request_is_lost_in_a_hundred_rounds_of_five_calls_at_once(tmp_path: Path, standalone: bool) -> None:
    async with rounds.daemon(tmp_path) as gate:
        tally = await rounds.run(gate, 100, standalone=standalone)
    assert tally.good, tally
