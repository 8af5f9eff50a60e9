"""Resumption of broken streams by their clients (R95)."""

from __future__ import annotations

import asyncio
import json

import pytest

from samplegate.transport.http_server.http import HttpBounds
from tests.fakes.http_front import LEGACY, Call, Front, Legacy, Served, error, note, result, silent

pytestmark = pytest.mark.anyio
NOW = HttpBounds(commit=0.0)


async def streaming(session: Legacy, id: object = 1) -> tuple[Call, int]:
    """A call that is answered with a stream, and its stream."""
    call = await session.ask(id).begun()
    return call, session.conversation.got[-1][0]


def say(session: Legacy, stream: int, *texts: str) -> None:
    for text in texts:
        session.conversation.streams[stream].send(note(text), False)


def texts(call: Call) -> list[str]:
    return [event["params"]["data"] if "params" in event else "answer" for event in call.data]


def last_id(call: Call) -> str:
    return [event.id for event in call.events if event.id][-1].decode()


async def test_a_stream_begins_with_an_event_to_come_back_with() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(commit=0.0, retry=250)).opened()
    call, stream = await streaming(session)
    await call.until(lambda call: bool(call.events))
    [event] = call.events
    assert (b"", 250) == (event.data, event.retry)
    assert event.id
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
async def test_clients_that_do_not_take_an_event_without_data_get_none(revision: str) -> None:
    session = await Front(Served(silent, revision=revision), bounds=NOW).opened(revision=revision)
    call, stream = await streaming(session)
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()
    assert [True] == [bool(event.data) for event in call.events]
    assert last_id(call)


async def test_no_two_events_of_a_session_have_one_id() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    (one, a), (two, b) = await streaming(session, 1), await streaming(session, 2)
    listening = await session.get().begun()
    for stream in (a, b, 0):
        say(session, stream, "x", "y")
    for call in (one, two, listening):
        await call.heard(2)
    ids = [event.id for call in (one, two, listening) for event in call.events]
    assert 9 == len(set(ids)) == len(ids)


@pytest.mark.parametrize("revision", [LEGACY, "2025-06-18"])
async def test_a_client_that_comes_back_gets_what_it_has_not_had_and_the_answer(revision: str) -> None:
    session = await Front(Served(silent, revision=revision), bounds=NOW).opened(revision=revision)
    call, stream = await streaming(session)
    say(session, stream, "one", "two")
    await call.heard(2)
    first = next(event.id for event in call.events if b"one" in event.data)
    call.disconnect()
    await call.done()
    assert stream not in session.conversation.closed, "a disconnect is no cancel (T35)"
    say(session, stream, "three")
    back = await session.get(last_event_id=(first or b"").decode()).begun()
    assert ["two", "three"] == [event["params"]["data"] for event in [json.loads(e.data) for e in await back.heard(2)]]
    say(session, stream, "four")
    session.conversation.streams[stream].send(result(1, {}), True)
    await back.done()
    assert (["two", "three", "four", "answer"], True) == (texts(back), back.complete)


async def test_an_answer_that_came_meanwhile_is_there_and_stays_there() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    call, stream = await streaming(session)
    await call.until(lambda call: bool(call.events))
    place = last_id(call)
    call.disconnect()
    await call.done()
    session.conversation.streams[stream].send(result(1, {}), True)
    for _ in range(2):
        assert ["answer"] == texts(await session.get(last_event_id=place).done())


async def test_a_stream_that_was_heard_whole_can_be_asked_for_again() -> None:
    """The connection may have broken before the last bytes arrived."""
    session = await Front(Served(silent), bounds=NOW).opened()
    call, stream = await streaming(session)
    say(session, stream, "one")
    await call.heard(1)
    place = last_id(call)
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()
    assert ["answer"] == texts(await session.get(last_event_id=place).done())


async def test_only_the_stream_that_broke_is_heard_again() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    (one, a), (two, b) = await streaming(session, 1), await streaming(session, 2)
    say(session, a, "one")
    say(session, b, "two")
    await one.heard(1)
    await two.heard(1)
    place = one.events[0].id
    assert place is not None
    one.disconnect()
    await one.done()
    say(session, 0, "standalone")
    session.conversation.streams[a].send(result(1, {}), True)
    back = await session.get(last_event_id=place.decode()).done()
    assert ["one", "answer"] == texts(back)
    assert ["two"] == texts(two)


@pytest.mark.parametrize(
    "place", ["", "9-9", "0-99999", "1-1-1", "x", "-1-1", "1-x", "٣-1", "9" * 30 + "-1", "0-" + "9" * 5000]
)
async def test_an_event_that_is_not_kept_or_never_was_is_refused(place: str) -> None:
    session = await Front().opened()
    call = (
        session.get(last_event_id=place)
        if place.isascii()
        else Call(session.front.app, "GET", [("mcp-session-id", session.id)])
    )
    if not place.isascii():
        call.scope["headers"].append((b"last-event-id", place.encode()))
    if place == "":
        assert 200 == (await call.begun()).status
        return
    assert 400 == (await call.done()).status


async def test_one_sessions_event_says_nothing_in_another() -> None:
    front = Front(Served(silent), bounds=NOW)
    ann, bob = await front.opened(caller="ann"), await front.opened(caller="bob")
    front.served.begun.reverse()  # `conversation` is the newest, now ann's
    call, _stream = await streaming(ann)
    await call.until(lambda call: bool(call.events))
    assert 400 == (await bob.get(last_event_id=last_id(call)).done()).status


async def test_a_stream_is_forgotten_when_nobody_came_back_in_time() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, resume=100))
    session = await front.opened()
    call, stream = await streaming(session)
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()
    front.now = 99
    front.sessions.sweep()
    assert 200 == (await session.get(last_event_id=last_id(call)).done()).status
    front.now = 300
    front.sessions.sweep()
    assert 400 == (await session.get(last_event_id=last_id(call)).done()).status
    assert 0 == front.sessions.held.total


async def test_of_streams_that_are_over_only_the_newest_are_kept() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, finished=2))
    session = await front.opened()
    places = []
    for id in range(4):
        call, stream = await streaming(session, id)
        session.conversation.streams[stream].send(result(id, {}), True)
        places.append((await call.done()).events[0].id or b"")
    assert [400, 400, 200, 200] == [(await session.get(last_event_id=place.decode()).done()).status for place in places]


async def test_of_a_streams_events_only_so_many_are_kept_for_a_return() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(commit=0.0, events=3)).opened()
    call, stream = await streaming(session)
    for text in "abcdef":
        say(session, stream, text)
        await call.until(lambda call, text=text: text in texts(call))  # type: ignore[misc]
    place = call.events[0].id or b""
    session.conversation.streams[stream].send(result(1, {}), True)
    await call.done()
    assert ["e", "f", "answer"] == texts(await session.get(last_event_id=place.decode()).done())


async def test_a_stream_goes_on_at_the_newest_connection_and_ends_at_the_older() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    call, stream = await streaming(session)
    await call.until(lambda call: bool(call.events))
    back = await session.get(last_event_id=last_id(call)).begun()
    await call.done()
    assert call.complete
    say(session, stream, "one")
    session.conversation.streams[stream].send(result(1, {}), True)
    await back.done()
    assert ([], ["one", "answer"]) == (texts(call), texts(back))


# -- the standalone stream
# -----------------------------------------------------------------------------------------------------------------


async def test_what_belongs_to_no_request_waits_for_the_standalone_stream() -> None:
    session = await Front().opened()
    say(session, 0, "early")
    call = await session.get().begun()
    await call.heard(1)
    say(session, 0, "late")
    await call.heard(2)
    assert ["early", "late"] == texts(call)


async def test_a_second_listener_takes_the_stream_over() -> None:
    """The first listener may be a dead connection that has not been noticed. If the second were refused, the client
    would receive nothing."""
    session = await Front().opened()
    first = await session.get().begun()
    say(session, 0, "one")
    await first.heard(1)
    second = await session.get().begun()
    await first.done()
    say(session, 0, "two")
    await second.heard(1)
    assert (["one"], True, ["two"]) == (texts(first), first.complete, texts(second))


async def test_a_listener_that_comes_back_gets_what_it_missed() -> None:
    session = await Front().opened()
    call = await session.get().begun()
    say(session, 0, "one")
    await call.heard(1)
    place = last_id(call)
    call.disconnect()
    await call.done()
    say(session, 0, "two")
    back = await session.get(last_event_id=place).begun()
    await back.heard(1)
    assert ["two"] == texts(back)


async def test_a_quiet_listener_is_kept_open_by_comments() -> None:
    session = await Front(bounds=HttpBounds(keep_alive=0.01)).opened()
    call = await session.get().begun()
    await call.until(lambda call: call.body.count(b": \n\n") >= 2)


async def test_a_listener_must_take_streams() -> None:
    session = await Front().opened()
    assert 406 == (await session.get(accept="application/json").done()).status


async def test_an_error_for_nobody_is_heard_by_the_listener() -> None:
    session = await Front().opened()
    call = await session.get().begun()
    session.conversation.streams[0].send(error(None, -32700), False)
    await asyncio.wait_for(call.heard(1), 10)
    assert [json.loads(error(None, -32700))] == call.data
