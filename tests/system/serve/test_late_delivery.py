"""Requests to a client over HTTP whose stream has gone before they are sent: the call has ended, the connection is
closed, or there was none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.fakes import rounds
from tests.fakes.daemon import ACCEPT, BOUND, Gate
from tests.fakes.rounds import Client
from tests.paths import PROGRAMS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
LATE = [sys.executable, str(PROGRAMS / "late.py")]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, because it shares one daemon."""
    return "asyncio"


@pytest.fixture(scope="module")
async def late(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gate]:
    """One daemon. Each session has its own server process."""
    async with rounds.daemon(tmp_path_factory.mktemp("late"), LATE) as gate:
        yield gate


@asynccontextmanager
async def talking(gate: Gate, *, standalone: bool) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=BOUND)) as http:
        client = Client(http, gate.url + rounds.PATH)
        await client.open()
        async with client.listening() if standalone else contextlib.nullcontext():
            yield client


async def holding(client: Client) -> asyncio.Task[str]:
    """A call that the server received and does not answer."""
    held = asyncio.ensure_future(client.call("held", "hold"))
    for number in range(1000):
        if await client.call(f"count-{number}", "count") == "1 held":
            return held
    raise AssertionError("the server never got the call")


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_request_reaches_the_client_though_the_oldest_call_ends_at_the_same_moment(
    late: Gate, standalone: bool
) -> None:
    async with talking(late, standalone=standalone) as client, asyncio.timeout(BOUND):
        held = await holding(client)
        assert "answered" == await client.call("asking", "ask_and_end_the_held_call")
        assert "done" == await held


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_request_reaches_the_client_though_it_has_left_its_oldest_call(late: Gate, standalone: bool) -> None:
    async with talking(late, standalone=standalone) as client, asyncio.timeout(BOUND):
        held = await holding(client)
        held.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await held
        assert "answered" == await client.call("asking", "ask")


async def test_a_request_for_which_no_stream_is_open_goes_on_the_next_one(late: Gate) -> None:
    async with talking(late, standalone=False) as client, asyncio.timeout(BOUND):
        assert "done" == await client.call("over", "ask_after_the_end")
        assert "answered" == await client.call("held", "hold")


@pytest.mark.parametrize(("times", "count", "size"), [(8, 1, 5), (1, 12, 2)])
async def test_a_client_that_reads_as_fast_as_it_can_loses_nothing_of_large_notifications(
    late: Gate, times: int, count: int, size: int
) -> None:
    """``times`` calls, each with ``count`` notifications of ``size`` MiB right before its answer.

    The client parses nothing before the end, and its buffer has room for everything.
    """
    told: list[int] = []
    async with talking(late, standalone=False) as client, aiohttp.ClientSession(read_bufsize=64 << 20) as http:
        for time in range(times):
            params = {"name": f"tell-{count}-{size * 1024 * 1024}", "arguments": {}}
            body = json.dumps({"jsonrpc": "2.0", "id": f"call-{time}", "method": "tools/call", "params": params})
            async with (
                asyncio.timeout(BOUND),
                http.post(client.url, data=body, headers={**ACCEPT, **client.headers}) as response,
            ):
                lines = (await response.read()).split(b"\n")
            frames = [json.loads(line[5:]) for line in lines if line.startswith(b"data:") and line[5:].strip()]
            assert ("call-" + str(time), "done") == (frames[-1]["id"], frames[-1]["result"]["content"][0]["text"])
            told += [len(frame["params"]["data"]) for frame in frames[:-1]]
    assert [size * 1024 * 1024] * count * times == told


@pytest.fixture(scope="module")
async def five(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gate]:
    async with rounds.daemon(tmp_path_factory.mktemp("five")) as gate:
        yield gate


@pytest.mark.parametrize("standalone", [False, True])
async def test_no_request_is_lost_in_forty_rounds_of_five_calls_at_once(five: Gate, standalone: bool) -> None:
    tally = await rounds.run(five, 40, standalone=standalone)
    assert tally.good, tally
