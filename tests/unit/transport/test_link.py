"""A link over pipes and sockets: order, size, backpressure, and peers that disconnect."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import pytest

from samplegate.transport import fd_streams, stdio
from samplegate.transport.fd_streams import READ_SIZE, HangUp
from samplegate.transport.lines import HEAD, HIGH_WATER, LOW_WATER, MAX_LINE
from samplegate.transport.stdio import LineLink, connect
from tests.fakes.loops import BOTH_LOOPS
from tests.fakes.recorder import BOUND, Recorder

pytestmark = [pytest.mark.anyio, BOTH_LOOPS]
MIB = 1 << 20
POLL = 0.02


@pytest.fixture(autouse=True)
def poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests wait less between two checks than the gate does."""
    for module in (fd_streams, stdio):
        monkeypatch.setattr(module, "HANG_UP_POLL", POLL)


@dataclass
class Peer:
    """The other ends: bytes written to ``write`` are received, bytes sent are read from ``read``."""

    theirs: tuple[int, int]
    read: int
    write: int
    kind: str

    def link(self, recorder: Recorder, max_line: int = MAX_LINE) -> LineLink:
        blocking = self.theirs if self.kind == "threads" else ()
        together = self.kind == "together"
        return connect(*self.theirs, recorder, max_line=max_line, blocking=blocking, together=together)


@pytest.fixture(params=["pipe", "socket", "threads", "together"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    if request.param != "socket":
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    else:
        (a, b), (c, d) = socket.socketpair(), socket.socketpair()
        read_in, write_in, read_out, write_out = (end.detach() for end in (a, b, c, d))
    yield Peer((read_in, write_out), read_out, write_in, request.param)
    for fd in (read_out, write_in):
        with suppress(OSError):
            os.close(fd)


def read_all(fd: int) -> bytes:
    """Blocking: for a thread."""
    parts = []
    while part := os.read(fd, MIB):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Blocking: for a thread."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def fill(fd: int, piece: bytes) -> int:
    """Write until the system accepts no more; returns the number of bytes written."""
    os.set_blocking(fd, False)
    total = 0
    with suppress(BlockingIOError):
        while True:
            total += os.write(fd, piece)
    os.set_blocking(fd, True)
    return total


async def turns(count: int = 20) -> None:
    """Let the loop poll its descriptors ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_lines_go_both_ways(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    os.write(peer.write, b"one\ntwo\r\n")
    assert [b"one", b"two"] == await recorder.until_lines(2)
    link.send(b"three")
    assert await link.drained(BOUND)
    assert b"three\n" == os.read(peer.read, 100)
    link.abort()


async def test_ten_thousand_small_lines_keep_their_order_both_ways(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    expected = [b'{"id":%d}' % n for n in range(10_000)]
    text = b"".join(line + b"\n" for line in expected)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(write_all, peer.write, text))
        read = group.create_task(asyncio.to_thread(read_all, peer.read))
        for line in expected:
            link.send(line)
        link.close_writing()
    assert text == read.result()
    assert expected == await recorder.until_lines(10_000)
    link.abort()


async def test_lines_of_twenty_mebibytes_go_both_ways(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    big = bytes(range(14, 142)) * (20 * MIB // 128)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(write_all, peer.write, big + b"\nafter\n"))
        read = group.create_task(asyncio.to_thread(read_all, peer.read))
        link.send(big)
        link.send(b"after")
        assert await link.drained(BOUND)
        link.close_writing()
    assert big + b"\nafter\n" == read.result()
    await recorder.until_lines(2)
    assert (big, b"after") == tuple(recorder.lines)
    assert 0 == link.buffered
    link.abort()


@pytest.mark.parametrize("together", [False, True])
async def test_lines_of_one_turn_are_written_together_while_the_peer_has_something_to_answer(together: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # each write is a packet
    with theirs:
        fd = ours.detach()
        recorder = Recorder()
        link = connect(fd, os.dup(fd), recorder, max_line=MAX_LINE, together=together)
        for line in (b"one", b"two", b"three"):
            link.send(line)
        assert await link.drained(BOUND)
        expected = [b"one\n", b"two\nthree\n"] if together else [b"one\n", b"two\n", b"three\n"]
        assert expected == [theirs.recv(MIB) for _ in expected]
        theirs.send(b"answer\n")
        await recorder.until_lines(1)
        link.send(b"four")
        assert 0 == link.buffered, "it is written at once"
        link.abort()


async def test_what_a_peer_does_not_read_waits_until_it_is_aborted(peer: Peer) -> None:
    link = peer.link(Recorder())
    big = b"x" * (4 * MIB)
    link.send(big)
    assert 3 * MIB < link.buffered <= len(big) + 1
    assert not await link.drained(0)
    link.abort()
    assert 0 == link.buffered


async def test_a_peer_that_reads_slowly_raises_the_pressure_until_it_has_caught_up(peer: Peer) -> None:
    link = peer.link(Recorder())
    told: list[tuple[bool, int]] = []
    link.pressure = lambda over: told.append((over, link.buffered))
    sent = 0
    while not told:
        link.send(b"x" * 999)
        sent += 1000
    assert told[0][0]
    assert HIGH_WATER < told[0][1] <= HIGH_WATER + 1000
    got = 0
    async with asyncio.timeout(BOUND):
        while got < sent:
            got += len(await asyncio.to_thread(os.read, peer.read, 5000))
    assert await link.drained(BOUND)
    assert [True, False] == [over for over, _ in told]
    assert told[1][1] <= LOW_WATER
    link.abort()


async def test_a_paused_link_leaves_the_bytes_with_the_peer(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    link.pause_reading()
    link.pause_reading()
    size = fill(peer.write, b"x" * 99 + b"\n")
    await turns()
    assert len(recorder.lines) <= (READ_SIZE // 100 if peer.kind == "threads" else 0), (
        "a thread may be in its read already"
    )
    link.resume_reading()
    link.resume_reading()
    await recorder.until_lines(size // 100)
    assert size // 100 == len(recorder.lines)
    link.abort()


async def test_a_receiver_that_pauses_gets_at_most_one_read_more(peer: Peer) -> None:
    class Pausing(Recorder):
        def received(self, line: bytes) -> None:
            super().received(line)
            link.pause_reading()

    recorder = Pausing()
    link = peer.link(recorder)
    fill(peer.write, b"x" * 99 + b"\n")
    await recorder.until_lines(1)
    await turns()
    assert len(recorder.lines) <= READ_SIZE // 100 + 1
    link.abort()


async def test_one_turn_of_the_loop_delivers_one_read_at_most(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    fill(peer.write, b"x\n" * 500)
    seen = [0]
    while not seen[-1] or len(seen) < 10:
        await asyncio.sleep(0)
        seen.append(len(recorder.lines))
    assert max(b - a for a, b in pairwise(seen)) <= READ_SIZE // 2
    link.abort()


async def test_the_end_of_input_is_told_once_and_the_rest_is_a_line(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    os.write(peer.write, b"one\nrest")
    os.close(peer.write)
    await recorder.until_ended()
    assert ([b"one", b"rest"], 1) == (recorder.lines, recorder.ends)
    link.send(b"still")
    assert await link.drained(BOUND)
    assert b"still\n" == os.read(peer.read, 100)
    link.pause_reading()
    link.resume_reading()
    link.abort()
    assert 1 == recorder.ends


async def test_a_peer_that_goes_while_it_is_not_read_is_noticed_and_heard_to_its_end(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    link.pause_reading()
    size = fill(peer.write, b"x" * 99 + b"\n")
    os.close(peer.write)
    await recorder.until_ended()
    link.pause_reading()
    link.resume_reading()
    link.abort()
    assert (size // 100, 1) == (len(recorder.lines), recorder.ends)


async def test_a_peer_that_stays_is_not_read_while_reading_is_paused(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    link.pause_reading()
    size = fill(peer.write, b"x" * 99 + b"\n")
    held = HangUp(peer.theirs[0], recorder.ended)
    held.watch()
    with suppress(TimeoutError):
        async with asyncio.timeout(5 * POLL):
            await recorder.until_ended()
    held.stop()
    assert 0 == recorder.ends
    assert len(recorder.lines) <= (READ_SIZE // 100 if peer.kind == "threads" else 0)
    link.resume_reading()
    await recorder.until_lines(size // 100)
    link.abort()


async def test_lines_for_a_peer_that_went_are_dropped_and_counted(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    os.close(peer.read)
    link.send(b"one")
    link.send(b"two")
    assert not await link.drained(BOUND)
    assert (2, 0) == (link.dropped, link.buffered)
    os.write(peer.write, b"I still talk\n")
    assert [b"I still talk"] == await recorder.until_lines(1)
    assert 0 == recorder.ends
    link.abort()


async def test_a_peer_that_goes_while_lines_wait_releases_the_pressure(peer: Peer) -> None:
    link = peer.link(Recorder())
    told: list[bool] = []
    link.pressure = told.append
    link.send(b"x" * MIB)
    link.send(b"y")
    assert [True] == told
    os.close(peer.read)
    assert not await link.drained(BOUND)
    assert [True, False] == told
    assert (2, 0) == (link.dropped, link.buffered)
    link.abort()


async def test_closing_waits_for_what_is_queued_and_takes_nothing_more(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    big = b"x" * MIB
    link.send(big)
    link.close_writing()
    link.close_writing()
    link.send(b"late")
    async with asyncio.timeout(BOUND):
        assert big + b"\n" == await asyncio.to_thread(read_all, peer.read)
    assert 1 == link.dropped
    os.write(peer.write, b"answer\n")
    assert [b"answer"] == await recorder.until_lines(1)
    link.abort()


async def test_after_an_abort_the_receiver_hears_nothing(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder)
    os.write(peer.write, b"one\n")
    link.abort()
    link.abort()
    link.send(b"x")
    await turns()
    assert ([], 0, 1) == (recorder.lines, recorder.ends, link.dropped)
    assert await link.read_out(0)


async def test_an_oversized_line_is_discarded_and_the_next_one_is_read(peer: Peer) -> None:
    recorder = Recorder()
    link = peer.link(recorder, max_line=MIB)
    async with asyncio.timeout(BOUND):
        await asyncio.to_thread(write_all, peer.write, b"head" + b"x" * (3 * MIB) + b"\nok\n")
    assert [b"ok"] == await recorder.until_lines(1)
    assert 1 == len(recorder.oversizes)
    assert MIB < recorder.oversizes[0] <= MIB + READ_SIZE + 1
    assert [b"head" + b"x" * (HEAD - 4)] == recorder.heads
    link.abort()


@pytest.mark.cpu(2)
async def test_between_a_fast_and_a_slow_peer_memory_stays_bounded(peer: Peer) -> None:
    """The relay in three lines: what one side sends goes to the other side, whose backpressure pauses the first."""
    most = 0

    class Relay(Recorder):
        def received(self, line: bytes) -> None:
            nonlocal most
            out.send(line)
            most = max(most, out.buffered)

        def ended(self) -> None:
            super().ended()
            out.close_writing()

    fast_read, fast_write = os.pipe()
    source = connect(fast_read, os.open(os.devnull, os.O_WRONLY), Relay(), max_line=MAX_LINE)
    out = peer.link(Recorder())
    pressed = asyncio.Event()

    def press(over: bool) -> None:
        pressed.set()
        source.pause_reading() if over else source.resume_reading()

    out.pressure = press

    def flood() -> None:
        write_all(fast_write, (b"x" * 999 + b"\n") * (16 * MIB // 1000))
        os.close(fast_write)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(flood))
        await pressed.wait()
        await turns()
        read = group.create_task(asyncio.to_thread(read_all, peer.read))
    assert 16 * MIB // 1000 * 1000 == len(read.result())
    assert HIGH_WATER < most <= HIGH_WATER + READ_SIZE + 1000
    source.abort()
    out.abort()
