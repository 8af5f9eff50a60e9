"""Graceful shutdown: no new requests, requests in flight are answered, the rest is dropped at a deadline."""

from __future__ import annotations

import asyncio
import json

import pytest

from samplegate.transport.http_server.http import HttpBounds
from tests.fakes.http_front import Front, Served, initialize, note, result, silent

pytestmark = pytest.mark.anyio
NOW = HttpBounds(commit=0.0)


async def draining(front: Front) -> asyncio.Task[bool]:
    task = asyncio.ensure_future(front.sessions.drain(30))
    await asyncio.sleep(0)
    return task


async def test_a_drain_with_nothing_in_hand_is_over_at_once() -> None:
    front = Front()
    session = await front.opened()
    assert await front.sessions.drain(30)
    assert (True, 0) == (session.conversation.over, front.sessions.open)


async def test_what_is_in_flight_is_answered_and_nothing_new_is_taken() -> None:
    front = Front(Served(silent), bounds=NOW)
    session = await front.opened()
    legacy, modern = await session.ask().begun(), await front.modern("tools/list").begun()
    listening = await session.get().begun()
    task = await draining(front)
    refused = [
        session.ask(2),
        front.modern("tools/call", {"name": "do"}, mcp_name="do"),
        front.post(initialize()),
        session.get(),
    ]
    assert [503] * 4 == [(await call.done()).status for call in refused]
    assert all(int(call.headers["retry-after"]) > 0 for call in refused)
    assert not session.conversation.over
    assert 202 == (await session.post({"jsonrpc": "2.0", "id": "asked", "result": {}}).done()).status, (
        "an answer may be what a call waits for"
    )
    session.conversation.streams[session.conversation.got[1][0]].send(result(1, {}), True)
    front.served.shared["local"].streams[1].send(result(1, {}), True)
    await asyncio.gather(legacy.done(), modern.done(), listening.done())
    assert await task
    assert [json.loads(result(1, {}))] == legacy.data == modern.data
    assert (True, True) == (listening.complete, session.conversation.over)


async def test_at_the_deadline_the_rest_is_let_go() -> None:
    front = Front(Served(silent), bounds=NOW)
    session = await front.opened()
    calls = [await session.ask().begun(), await front.modern("tools/list").begun(), await session.get().begun()]
    assert not await front.sessions.drain(0.01)
    for call in calls:
        assert (await call.done()).complete
    assert session.conversation.over


async def test_a_request_whose_answer_had_not_begun_is_told_to_come_again() -> None:
    front = Front(Served(silent))
    call = front.modern("tools/list")
    await asyncio.sleep(0)
    await front.sessions.drain(0.01)
    await call.done()
    assert (503, 1) == (call.status, call.json["id"])


async def test_subscriptions_end_at_once_as_their_server_would_end_them() -> None:
    front = Front(Served(lambda c, stream, _: c.streams[stream].send(note("first"), False)), bounds=NOW)
    call, other = await front.modern("subscriptions/listen", id="s").begun(), await front.modern("tools/list").begun()
    await call.heard(1)
    task = await draining(front)
    await call.done()
    assert {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": "s"}} == call.data[-1][
        "result"
    ]
    assert ([1], False) == (front.served.shared["local"].closed, task.done())
    front.served.shared["local"].streams[2].send(result(1, {}), True)
    await other.done()
    assert await task


async def test_a_stuck_conversation_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samplegate.transport.http_server.sessions.LAST", 0.01)
    front = Front()
    session = await front.opened()

    async def stuck() -> None:
        await asyncio.Event().wait()

    session.conversation.aclose = stuck  # type: ignore[method-assign]
    await front.sessions.drain(0.01)
