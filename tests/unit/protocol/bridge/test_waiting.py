"""Client frames that wait until the server is open."""

from __future__ import annotations

from samplegate.protocol import frames
from samplegate.protocol.bridge.calls import MAX_FRAMES, HeldFrames


def request(id: int) -> frames.Frame:
    return frames.read(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % id)


def test_what_waits_on_a_stream_that_closes_waits_no_more_and_makes_room() -> None:
    waiting = HeldFrames()
    for number in range(MAX_FRAMES):
        assert waiting.add(number % 2, request(number), 0.0)
    assert not waiting.add(1, request(MAX_FRAMES), 0.0)
    assert waiting.stream_closed(1)
    assert ({0}, waiting.size) == (
        {held.stream for held in waiting.held},
        sum(len(held.frame.raw) for held in waiting.held),
    )
    assert waiting.add(1, request(MAX_FRAMES), 0.0)


def test_a_stream_on_which_nobody_waits_closes_without_a_change() -> None:
    waiting = HeldFrames()
    assert not waiting.stream_closed(3)
    waiting.add(1, request(7), 0.0)
    assert not waiting.stream_closed(3)
    assert waiting.has(1, 7)
    assert (True, False, [], 0) == (waiting.stream_closed(1), waiting.stream_closed(1), waiting.take(), waiting.size)
