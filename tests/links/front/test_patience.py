"""How long a client is waited for that takes nothing: as long as bytes go, however slowly."""

from __future__ import annotations

import asyncio

import pytest

from samplegate.links.front.bounds import Bounds
from samplegate.links.front.patience import Patience
from samplegate.links.front.replies import Receive, Reply, Scope, Send, deliver
from samplegate.links.front.stream import SLOW, Held, Reader, Stream
from samplegate.links.front.visit import CONNECTION, Visit
from tests.links.front.wires import Clock, Wire

pytestmark = pytest.mark.anyio


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    await deliver(send, Reply(202))


@pytest.mark.parametrize(("left", "ends"), [([900, 800, 700, 1], False), ([1000], True), ([900, 900], True), ([999, 998, 998], True)])
def test_it_ends_when_nothing_has_gone_for_so_long(left: list[int], ends: bool) -> None:
    clock, now, ended = Clock(), [1000], [0]

    def end() -> None:
        ended[0] += 1

    patience = Patience(clock, 30.0, lambda: now[0], end)
    for bytes_left in left:
        assert [0] == ended
        now[0] = bytes_left
        clock.turn(30)
    assert [int(ends)] == ended
    patience.over()
    assert [] == clock.running


@pytest.mark.parametrize(("left", "cut"), [([900, 800, 700], False), ([1000], True), ([900, 900], True)])
async def test_a_connection_is_cut_only_when_its_client_takes_nothing(left: list[int], cut: bool) -> None:
    wire = Wire(answers, Bounds(stalled=30, head_time=10_000))
    wire.transport.unsent = 1000
    wire.connection.pause_writing()
    for unsent in left:
        assert not wire.transport.aborted
        wire.transport.unsent = unsent
        wire.clock.turn(30)
    assert cut == wire.transport.aborted
    wire.connection.connection_lost(None)
    assert [] == wire.clock.running


class Slow:
    """A connection whose client takes one of ``left`` bytes whenever somebody looks; when none is left a send goes on."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.taken = asyncio.Event()

    def unsent(self) -> int:
        self.left -= 1
        if self.left <= 0:
            self.taken.set()
        return max(0, self.left)


class Deaf(Slow):
    def unsent(self) -> int:
        return self.left


@pytest.mark.parametrize(("kind", "stopped"), [(Slow, ""), (Deaf, SLOW)])
async def test_an_event_is_waited_for_as_long_as_bytes_of_it_go(kind: type[Slow], stopped: str) -> None:
    connection = kind(10)

    async def send(message: object) -> None:
        await connection.taken.wait()

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    bounds = Bounds()
    visit = Visit({"method": "GET", CONNECTION: connection}, receive, send, "one", 0.0)
    reader = Reader(Stream(Held(bounds.held_bytes), bounds, awaited=None, keep=False))
    async with asyncio.timeout(10):
        await visit.put(b"x", reader, 0.01)
    assert stopped == reader.stopped
