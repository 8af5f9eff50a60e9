"""Frames for a stream that its client does not read: they go to another stream of the session or wait for one, and
every request is answered."""

from __future__ import annotations

import json

import pytest

from samplegate.transport.http_server.http import HttpBounds
from tests.fakes.http_front import Call, Front, Legacy, Served, note, result, silent
from tests.unit.transport.http_server.test_resumption import last_id, streaming

pytestmark = pytest.mark.anyio
NOW = HttpBounds(commit=0.0)


def server_request(id: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}}).encode()


def cancelling(id: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).encode()


def asked(call: Call) -> list[str]:
    return [event["id"] for event in call.data if "method" in event and "id" in event]


async def opened(bounds: HttpBounds = NOW) -> Legacy:
    return await Front(Served(silent), bounds=bounds).opened()


async def gone(session: Legacy, id: int) -> int:
    """The stream of a call whose client has closed its connection."""
    call, stream = await streaming(session, id)
    await call.until(lambda call: bool(call.events))
    call.disconnect()
    await call.done()
    return stream


async def test_a_request_goes_to_another_call_where_its_own_was_left() -> None:
    session = await opened()
    stream = await gone(session, 1)
    call, _ = await streaming(session, 2)
    session.conversation.streams[stream].ask("q", server_request("q"))
    await call.heard(1)
    assert ["q"] == asked(call)


async def test_a_request_goes_to_the_listener_before_it_goes_to_another_call() -> None:
    session = await opened()
    stream = await gone(session, 1)
    listener = await session.get().begun()
    call, _ = await streaming(session, 2)
    session.conversation.streams[stream].ask("q", server_request("q"))
    await listener.heard(1)
    assert (["q"], []) == (asked(listener), asked(call))


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_request_that_waits_goes_on_the_next_stream_and_on_no_other(resumed: bool) -> None:
    session = await opened()
    call, stream = await streaming(session, 1)
    await call.until(lambda call: bool(call.events))
    call.disconnect()
    await call.done()
    session.conversation.streams[stream].ask("q", server_request("q"))
    session.conversation.streams[0].send(note("news"), False)
    chosen = await session.get(last_event_id=last_id(call)).begun() if resumed else (await streaming(session, 2))[0]
    await chosen.heard(1)
    listener = await session.get().begun()
    await listener.heard(1)
    assert (["q"], []) == (asked(chosen), asked(listener))
    assert [json.loads(note("news"))] == listener.data, "what else waits stays with the standalone stream"


async def test_a_request_that_its_connection_was_not_handed_goes_to_another() -> None:
    session = await opened()
    call, stream = await streaming(session, 1)
    await call.until(lambda call: bool(call.events))
    call.disconnect()
    session.conversation.streams[stream].ask("q", server_request("q"))  # the gate has not seen the disconnect
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()
    back = await session.get(last_event_id=last_id(call)).done()
    listener = await session.get().begun()
    await listener.heard(1)
    assert (["q"], [json.loads(result(1, {}))]) == (asked(listener), back.data)


async def test_a_request_that_no_stream_takes_in_time_is_given_back() -> None:
    session = await opened(HttpBounds(commit=0.0, unread=0.01))
    session.conversation.streams[0].ask("q", server_request("q"))
    await session.conversation.until(lambda: session.conversation.unreached == ["q"])
    listener = await session.get().begun()
    session.conversation.streams[0].send(note("news"), False)
    await listener.heard(1)
    assert [] == asked(listener)


async def test_a_request_for_which_there_is_no_room_is_given_back() -> None:
    session = await opened(HttpBounds(event_bytes=1000))
    ids = [f"q{number}" for number in range(5)]
    for id in ids:
        session.conversation.streams[0].ask(id, server_request(id) + b" " * 400)
    await session.conversation.until(lambda: bool(session.conversation.unreached))
    listener = await session.get().begun()
    await listener.heard(5 - len(session.conversation.unreached))
    assert ids == session.conversation.unreached + asked(listener)


async def test_a_request_that_is_cancelled_while_it_waits_never_reaches_the_client() -> None:
    session = await opened()
    for id in ("q1", "q2"):
        session.conversation.streams[0].ask(id, server_request(id))
    session.conversation.streams[0].cancel("q1", cancelling("q1"))
    listener = await session.get().begun()
    await listener.heard(1)
    assert ["sampling/createMessage"] == [event["method"] for event in listener.data]
    assert ["q2"] == asked(listener)


async def test_a_cancellation_follows_its_request_where_the_call_was_answered_between() -> None:
    session = await opened()
    call, stream = await streaming(session, 1)
    session.conversation.streams[stream].ask("q", server_request("q"))
    session.conversation.streams[stream].send(result(1, {}), True)
    session.conversation.streams[stream].cancel("q", cancelling("q"))
    await call.done()
    listener = await session.get().begun()
    await listener.heard(1)
    assert (["q"], [json.loads(cancelling("q"))]) == (asked(call), listener.data)


async def test_a_notification_for_an_answered_call_waits_for_the_listener() -> None:
    session = await opened()
    call, stream = await streaming(session, 1)
    session.conversation.streams[stream].send(result(1, {}), True)
    session.conversation.streams[stream].send(note("late"), False)
    await call.done()
    listener = await session.get().begun()
    await listener.heard(1)
    assert [json.loads(note("late"))] == listener.data


async def test_nothing_of_a_session_that_is_over_is_kept() -> None:
    session = await opened()
    stream = await gone(session, 1)
    for at in (0, stream):
        session.conversation.streams[at].ask(f"q{at}", server_request("q"))
    await session.delete().done()
    await session.conversation.until(lambda: session.conversation.over)
    for at in (0, stream):
        session.conversation.streams[at].ask("q", server_request("q"))
        session.conversation.streams[at].cancel("q", cancelling("q"))
        session.conversation.streams[at].send(note("late"), False)
    assert 0 == session.front.sessions.held.total
    assert [] == session.conversation.unreached
