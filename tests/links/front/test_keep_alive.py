"""How long a connection without a request stays: one timer for all of its life, and the same end as with one for each request."""

from __future__ import annotations

import pytest

from samplegate.links.front.bounds import Bounds
from samplegate.links.front.replies import Receive, Reply, Scope, Send, deliver
from tests.links.front.wires import KEEP_ALIVE, Wire

pytestmark = pytest.mark.anyio

REQUEST = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    await deliver(send, Reply(202))


async def ask(wire: Wire, data: bytes = REQUEST) -> None:
    wire.come(data)
    await wire.settled()


async def test_many_requests_take_one_timer() -> None:
    wire = Wire(answers)
    await ask(wire)
    made = wire.clock.made
    for _ in range(50):
        wire.clock.turn(0.1)
        await ask(wire)
    assert (made, 51) == (wire.clock.made, wire.state.total_requests)
    assert 1 == len(wire.clock.running)


async def test_an_idle_connection_ends_its_time_after_the_last_answer() -> None:
    wire = Wire(answers)
    for _ in range(3):
        await ask(wire)
        wire.clock.turn(KEEP_ALIVE - 1)
    assert not wire.transport.closed
    wire.clock.turn(1)
    assert wire.transport.closed


async def test_a_request_in_hand_is_waited_for_and_the_time_begins_with_its_answer() -> None:
    wire = Wire(answers)
    await ask(wire)
    wire.come(REQUEST)
    wire.clock.turn(10 * KEEP_ALIVE)
    assert ([], False) == (wire.clock.running, wire.transport.closed)
    await wire.settled()
    wire.clock.turn(KEEP_ALIVE - 1)
    assert not wire.transport.closed
    wire.clock.turn(1)
    assert wire.transport.closed


async def test_a_body_that_is_awaited_is_a_request_in_hand() -> None:
    wire = Wire(lambda scope, receive, send: _read(receive, send))
    await ask(wire)
    wire.come(REQUEST[:-2])
    wire.clock.turn(2 * KEEP_ALIVE)
    assert not wire.transport.closed
    await ask(wire, b"{}")
    assert 2 == wire.transport.out.count(b"HTTP/1.1 202 ")


async def _read(receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await deliver(send, Reply(202))


async def test_a_head_that_has_begun_has_the_time_of_a_head() -> None:
    wire = Wire(answers, Bounds(head_time=20))
    await ask(wire)
    wire.clock.turn(KEEP_ALIVE - 10)
    wire.come(REQUEST[:20])
    wire.clock.turn(19)
    assert (False, False) == (wire.transport.closed, wire.transport.aborted)
    wire.clock.turn(1)
    assert wire.transport.aborted


async def test_requests_that_wait_behind_another_are_served_and_the_time_begins_with_the_last() -> None:
    wire = Wire(answers)
    await ask(wire, REQUEST * 3)
    assert (3, 1) == (wire.state.total_requests, len(wire.clock.running))
    assert not wire.connection.flow.read_paused
    wire.clock.turn(KEEP_ALIVE)
    assert wire.transport.closed


async def test_line_ends_between_requests_do_not_keep_a_connection() -> None:
    wire = Wire(answers)
    await ask(wire)
    wire.clock.turn(KEEP_ALIVE - 1)
    wire.come(b"\r\n")
    wire.clock.turn(1)
    assert wire.transport.closed


@pytest.mark.parametrize(("unsent", "closed", "aborted"), [([500, 400, 0], True, False), ([500, 500], False, True), ([500, 400, 400], False, True)])
async def test_an_answer_that_is_not_taken_has_as_long_again_while_it_becomes_less(unsent: list[int], closed: bool, aborted: bool) -> None:
    wire = Wire(answers)
    await ask(wire)
    for left in unsent:
        assert (False, False) == (wire.transport.closed, wire.transport.aborted)
        wire.transport.unsent = left
        wire.clock.turn(KEEP_ALIVE)
    assert (closed, aborted) == (wire.transport.closed, wire.transport.aborted)


async def test_what_an_earlier_answer_had_left_does_not_count_against_the_next() -> None:
    wire = Wire(answers)
    await ask(wire)
    wire.transport.unsent = 500
    wire.clock.turn(KEEP_ALIVE)
    wire.transport.unsent = 600
    await ask(wire)
    wire.clock.turn(KEEP_ALIVE)
    assert not wire.transport.aborted


@pytest.mark.parametrize("problem", [None, ConnectionResetError()])
async def test_a_connection_that_is_lost_leaves_no_timer(problem: Exception | None) -> None:
    wire = Wire(answers)
    await ask(wire)
    wire.connection.connection_lost(problem)
    assert [] == wire.clock.running


async def test_no_timer_begins_on_a_connection_that_ends_with_its_answer() -> None:
    wire = Wire(answers)
    await ask(wire, REQUEST.replace(b"Host: x", b"Connection: close"))
    assert (True, []) == (wire.transport.closed, wire.clock.running)
