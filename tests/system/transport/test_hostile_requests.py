"""Slow, silent and hostile clients over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from samplegate.transport.http_server.http import HttpBounds
from tests.fakes.loops import BOTH_LOOPS
from tests.fakes.raw_http import (
    BOUND,
    END,
    OFFER,
    ONE,
    App,
    exchanged,
    listening,
    post,
)

pytestmark = pytest.mark.anyio

HALF: dict[str, tuple[bytes, list[int], list[str]]] = {
    "nothing": (b"", [], []),
    "half a head": (post()[:20], [], []),
    "half a body": (post()[:-1], [], ["POST /mcp gone"]),
    "a request": (post(), [], [ONE]),
}


@BOTH_LOOPS
@pytest.mark.parametrize("name", HALF)
async def test_a_client_that_closes_its_side_ends_the_connection(name: str) -> None:
    sent, statuses, seen = HALF[name]
    app = App()
    async with listening(app, HttpBounds()) as port:
        found, _ = await exchanged(port, [sent] if sent else [], half=True)
        await app.until(lambda: seen == app.seen)
    # whether a whole request was answered before its connection ended depends on timing
    assert found in (statuses, [202])


SLOW: dict[str, tuple[list[bytes], list[int]]] = {
    "nothing": ([], []),
    "half a head": ([post()[:20]], []),
    "a head byte by byte": ([post()[:20], *[b"x"] * 1000], []),
    "a second head": ([post(), b"GET /mcp HTTP/1.1\r\nX-Slow: "], [202]),
    "a second head byte by byte": ([post(), b"GET /mcp HTTP/1.1\r\nX-Slow: ", *[b"x"] * 1000], [202]),
    "a head behind a request": ([post() + b"GET /mcp HTTP/1.1\r\nX-Slow: ", *[b"x"] * 1000], [202]),
    "the head of an upgrade": ([post(*OFFER, b"Upgrade: h2c", body=b"")[:-6], *[b"x"] * 1000], []),
}


@pytest.mark.parametrize("name", SLOW)
async def test_a_head_that_does_not_come_is_not_waited_for(name: str) -> None:
    pieces, statuses = SLOW[name]
    async with listening(App(), HttpBounds(head_time=0.2)) as port:
        found, _ = await exchanged(port, pieces, pause=0.01)
    assert found in (statuses, [])  # a second head may end the connection before the first was answered


@pytest.mark.parametrize("before", [b"", post()[:-1]], ids=["a request", "the end of a body"])
async def test_a_request_does_not_wait_for_the_head_behind_it(before: bytes) -> None:
    async with listening(App(), HttpBounds()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if before:
            writer.write(before)
            await asyncio.sleep(0.02)
        writer.write(post()[len(before) :] + END[:20])
        async with asyncio.timeout(BOUND):
            assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(END[20:])
            assert 1 == (await reader.read()).count(b" 202 ")
        writer.close()


async def test_connections_without_a_request_make_room() -> None:
    async with listening(App(), HttpBounds(head_time=0.05, connections=64)) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        async with asyncio.timeout(BOUND):
            assert [b""] * 64 == [await reader.read() for reader, _ in idle]
        assert [202] == (await exchanged(port, [END]))[0]
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "pieces", [[post()], [post(target=b"/unread")], [post(), b"\r\n"]], ids=["idle", "unread", "line ends"]
)
async def test_a_connection_that_asks_no_more_is_ended(pieces: list[bytes]) -> None:
    async with listening(App(), HttpBounds(head_time=1), keep_alive=1) as port:
        assert [202] == (await exchanged(port, pieces))[0]


@BOTH_LOOPS
async def test_a_connection_whose_body_ends_after_its_answer_is_ended() -> None:
    """Otherwise silent connections could fill the listener."""
    async with listening(App(), HttpBounds(connection_idle=0.1, stalled=0.2)) as port:
        assert [202] == (await exchanged(port, [post(target=b"/unread")[:-1], b"}"], pause=0.2))[0]


async def test_a_connection_that_asks_again_in_time_goes_on() -> None:
    pieces = [part for _ in range(5) for part in (post()[:20], post()[20:])]
    async with listening(App(), HttpBounds(connection_idle=1), keep_alive=1) as port:
        assert [202] * 6 == (await exchanged(port, [*pieces, END], pause=0.2))[0]


TARGETS = [b"http://127.0.0.1:99999/", b"http://127.0.0.1", b"/\xc3\xa9"]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_that_cannot_be_read_is_not_answered_in_place_of_an_earlier_request(target: bytes) -> None:
    host = target.removeprefix(b"http://").rstrip(b"/") if target.startswith(b"http") else b"x"
    bad = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, host)
    async with listening(App(), HttpBounds()) as port:
        assert [400] == (await exchanged(port, [bad]))[0]
        assert 400 not in (await exchanged(port, [post() + bad]))[0]
