"""Limits on sessions and streams: their number, their idle time, and clients that do not read."""

from __future__ import annotations

import asyncio
import json

import pytest

from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.stream import SLOW, HttpStream, StreamMemory, StreamReader
from tests.fakes.http_front import Call, Front, Served, initialize, note, result, silent

pytestmark = pytest.mark.anyio


class Connection:
    """A fake connection of the server, with the attributes that a request uses."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.cuts = 0
        self.stalled = False
        self.left = 0

    def complete(self) -> bool:
        return True

    def gone(self) -> bool:
        return False

    def unsent(self) -> int:
        return self.left

    def cut(self) -> None:
        self.cuts += 1
        self.call.disconnect()


def connected(call: Call) -> Connection:
    connection = Connection(call)
    call.scope["samplegate.connection"] = connection
    return connection


async def test_sessions_are_bounded_and_a_place_is_free_again_after_one() -> None:
    front = Front(bounds=HttpBounds(sessions=2))
    session = await front.opened()
    await front.opened()
    full = await front.post(initialize()).done()
    assert (503, True, 0) == (full.status, int(full.headers["retry-after"]) > 0, full.json["id"])
    assert 2 == len(front.served.begun), "no server was started for it"
    await session.delete().done()
    assert 200 == (await front.post(initialize()).done()).status


async def test_a_caller_has_so_many_sessions_and_others_theirs() -> None:
    front = Front(bounds=HttpBounds(sessions_per_caller=1))
    session = await front.opened(caller="ann")
    assert 429 == (await front.post(initialize(), caller="ann").done()).status
    await front.opened(caller="bob")
    await front.call("DELETE", None, "ann", mcp_session_id=session.id).done()
    await front.served.begun[0].until(lambda: front.served.begun[0].over)
    await front.opened(caller="ann")


async def test_servers_share_the_bound() -> None:
    front = Front(bounds=HttpBounds(sessions=1))
    await front.opened()
    assert 503 == (await Front(Served(name="other"), sessions=front.sessions).post(initialize()).done()).status


async def test_requests_and_streams_of_a_session_are_bounded() -> None:
    front = Front(Served(silent), bounds=HttpBounds(streams=2, commit=0.0))
    session = await front.opened()
    first = await session.ask(1).begun()
    await session.get().begun()
    assert [429, 429] == [(await call.done()).status for call in (session.ask(2), session.get())]
    assert 202 == (await session.post({"jsonrpc": "2.0", "method": "notifications/cancelled"}).done()).status
    session.conversation.streams[session.conversation.got[1][0]].send(result(1, {}), True)
    await first.done()
    assert 200 == (await session.ask(3).begun()).status


async def test_requests_that_go_on_without_their_client_count_too() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(streams=2, commit=0.0)).opened()
    for id in (1, 2):
        call = await session.ask(id).begun()
        call.disconnect()
        await call.done()
    assert 429 == (await session.ask(3).done()).status


async def test_an_idle_session_ends() -> None:
    front = Front(bounds=HttpBounds(idle=100))
    session = await front.opened()
    front.now = 90
    await session.ask().done()
    front.now = 189
    front.sessions.sweep()
    assert 1 == front.sessions.open
    front.now = 190
    front.sessions.sweep()
    assert 404 == (await session.ask().done()).status
    await session.conversation.until(lambda: session.conversation.over)
    assert ["session.idle"] == [note.event for note in front.notes]


async def test_a_session_is_not_idle_while_somebody_listens() -> None:
    front = Front(bounds=HttpBounds(idle=100))
    session = await front.opened()
    listening = await session.get().begun()
    front.now = 5000
    front.sessions.sweep()
    assert 1 == front.sessions.open
    listening.disconnect()
    await listening.done()
    front.now = 5100
    front.sessions.sweep()
    assert 0 == front.sessions.open


async def test_what_goes_on_without_its_client_keeps_a_session_longer() -> None:
    front = Front(Served(silent), bounds=HttpBounds(idle=100, detached=1000, commit=0.0))
    session = await front.opened()
    call = await session.ask().begun()
    call.disconnect()
    await call.done()
    front.now = 999
    front.sessions.sweep()
    assert 1 == front.sessions.open
    front.now = 1000
    front.sessions.sweep()
    assert 0 == front.sessions.open


async def test_the_sweep_comes_by_itself() -> None:
    front = Front(bounds=HttpBounds(idle=0.01, resume=0.01))
    session = await front.opened()
    front.now = 1
    await session.conversation.until(lambda: session.conversation.over)


# -- clients that take nothing
# -------------------------------------------------------------------------------------------------------------


async def test_a_modern_client_that_falls_too_far_behind_is_cut_off_and_its_call_cancelled() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, event_bytes=2000))
    call = front.modern("tools/list")
    connection = connected(call)
    await call.begun()
    call.stuck = True
    stream = front.served.shared["local"].streams[1]
    for n in range(100):
        stream.send(note("x" * 100 + str(n)), False)
        await asyncio.sleep(0)
    await call.done()
    assert (1, [1], "slow") == (connection.cuts, front.served.shared["local"].closed, front.access_log[0].end)
    assert 0 == front.sessions.held.total


async def test_a_legacy_client_that_falls_too_far_behind_is_cut_off_and_can_come_back() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, event_bytes=2000))
    session = await front.opened()
    call = session.ask()
    connection = connected(call)
    await call.until(lambda call: bool(call.events))
    place = (call.events[0].id or b"").decode()
    call.stuck = True
    stream = session.conversation.streams[session.conversation.got[1][0]]
    for n in range(100):
        stream.send(note("x" * 100 + str(n)), False)
        await asyncio.sleep(0)
    await call.done()
    assert (1, "slow") == (connection.cuts, front.access_log[-1].end)
    stream.send(result(1, {}), True)
    back = await session.get(last_event_id=place).done()
    assert json.loads(result(1, {})) == back.data[-1], "what was kept, the answer with it"
    assert 1 < len(back.data) < 20


async def test_a_stream_whose_bytes_stay_in_the_buffer_is_cut_off() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, keep_alive=0.01))
    call = front.modern("tools/list")
    connection = connected(call)
    connection.left = 5
    await call.done()
    assert (1, "slow") == (connection.cuts, front.access_log[0].end)


async def test_one_large_event_is_no_falling_behind() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, event_bytes=1000, held_bytes=1000))
    call = await front.modern("tools/list").begun()
    front.served.shared["local"].streams[1].send(result(1, "x" * 100_000), True)
    assert 100_000 == len((await call.done()).data[0]["result"])


async def test_what_comes_right_behind_a_large_event_is_no_falling_behind() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(commit=0.0, event_bytes=1000)).opened()
    call = await session.ask().begun()
    stream = session.conversation.streams[session.conversation.got[1][0]]
    stream.send(note("x" * 100_000), False)
    stream.send(result(1, {}), True)
    assert ["params", "result"] == [list(event)[-1] for event in (await call.done()).data]


def test_a_client_that_takes_bytes_while_more_come_is_not_stalled_and_one_that_takes_none_is() -> None:
    held = StreamMemory(100_000)
    stream = HttpStream(held, HttpBounds(event_bytes=1000), awaited=None, keep=False)
    unsent = 0
    reader = StreamReader(stream, unsent=lambda: unsent)
    stream.send(b"x" * 10_000, False)
    reader.take()
    for left in range(9_000, 0, -1_000):  # bytes left of the event that is being sent
        unsent = left
        stream.send(b"y" * 900, False)
    assert ("", 9) == (reader.stopped, len(stream.events))
    for _ in range(3):
        stream.send(b"z" * 900, False)
    assert SLOW == reader.stopped
    assert stream.size < 2_500


def test_over_the_bound_of_all_streams_a_client_gives_way_though_it_takes_bytes() -> None:
    stream = HttpStream(StreamMemory(5_000), HttpBounds(event_bytes=1000), awaited=None, keep=False)
    unsent = 20_000
    reader = StreamReader(stream, unsent=lambda: unsent)
    for _ in range(10):
        unsent -= 1_000
        stream.send(b"x" * 900, False)
    assert SLOW == reader.stopped


async def test_a_burst_that_the_client_takes_at_once_is_no_falling_behind() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, events=10))
    session = await front.opened()
    call = await session.ask().begun()
    stream = session.conversation.streams[session.conversation.got[1][0]]
    for n in range(5000):
        stream.send(note(str(n)), False)
    stream.send(result(1, {}), True)
    assert 5001 == len((await call.done()).data)


async def test_over_the_bound_of_all_streams_the_largest_gives_way_and_no_other() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, held_bytes=5000))
    small, large = await front.opened(), await front.opened()
    (first, second) = front.served.begun
    first.streams[0].send(note("small"), False)
    for n in range(100):
        second.streams[0].send(note(str(n) * 100), False)
    assert front.sessions.held.total <= 5000
    one, two = await small.get().begun(), await large.get().begun()
    await one.heard(1)
    await two.heard(1)
    assert ["small"] == [event["params"]["data"] for event in one.data]
    assert "99" * 100 == two.data[-1]["params"]["data"]


async def test_nothing_is_held_once_all_is_over() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0))
    session = await front.opened()
    listening, call = await session.get().begun(), await session.ask().begun()
    for stream in session.conversation.streams.values():
        stream.send(note("x"), False)
    await call.heard(1)
    assert front.sessions.held.total > 0
    await session.delete().done()
    await asyncio.gather(listening.done(), call.done())
    assert (0, set(), set()) == (front.sessions.held.total, front.sessions.held.streams, front.sessions.visits)
