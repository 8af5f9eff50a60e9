"""The relay: faults in the gate or the session, backpressure, and forwarded requests that end as their answer
arrives."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from samplegate.protocol.frames import Frame
from samplegate.protocol.outcomes import Answered
from samplegate.protocol.rounds import ClientReply, Conclusion, Effect, Note, Release, Round, Settled, Side
from samplegate.protocol.session import Session
from samplegate.runtime.flow import MAX_ANSWERS
from samplegate.runtime.relay import Relay
from tests.fakes.dialogue import DENY, FORWARD, Dialogue, form, modern, request, result
from tests.fakes.relay import FakeLink

pytestmark = pytest.mark.anyio
BOUND = 20.0
PUSH = request(7, "elicitation/create", **form())
ACCEPT = {"action": "accept", "content": {"confirm": True}}


class Faulty(Session):
    """A session whose named methods fail, once each."""

    faults: tuple[str, ...] = ()

    def _fault(self, name: str) -> None:
        if name in self.faults:
            self.faults = tuple(fault for fault in self.faults if fault != name)
            raise RuntimeError("a bug")

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> list[Effect]:
        self._fault("frame")
        return super().frame(side, stream, line, now)

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> list[Effect]:
        self._fault("round_done")
        return super().round_done(round, conclusion, now)

    def round_progress(self, round: str, tokens: int = 0) -> list[Effect]:
        self._fault("round_progress")
        return super().round_progress(round, tokens)

    def due(self, token: str) -> list[Effect]:
        self._fault("due")
        return super().due(token)

    def eof(self, side: Side) -> list[Effect]:
        self._fault("eof")
        return super().eof(side)


class ConnectedRelay:
    """A relay between two fake links, with a legacy client that declared all capabilities."""

    def __init__(
        self,
        run_round: Callable[[Round], Awaitable[Conclusion]],
        *faults: str,
        rule: Mapping[str, Any] = FORWARD,
        beat: float = 60.0,
    ) -> None:
        self._changed = anyio.Event()
        self.now = 0.0
        self.notes: list[Note] = []
        self.session = Faulty(Dialogue(rule).session.state)
        self.relay = Relay(self.session, run_round, clock=lambda: self.now, note=self._note, beat=beat)
        self.client, self.server = FakeLink(self._change), FakeLink(self._change)
        self.relay.connect(self.client, self.server)
        self.says(
            "client",
            request(
                0,
                "initialize",
                protocolVersion="2025-11-25",
                capabilities={"elicitation": {}, "sampling": {}},
                clientInfo={},
            ),
        )
        self.says("server", result(0, protocolVersion="2025-11-25", capabilities={}, serverInfo={}))
        self.client.sent.clear()
        self.server.sent.clear()
        self.session.faults = faults

    def says(self, side: Side, frame: Mapping[str, Any]) -> None:
        getattr(self.relay, side).received(json.dumps(frame).encode())

    def _note(self, note: Note) -> None:
        self.notes.append(note)
        self._change()

    def _change(self) -> None:
        self._changed.set()

    async def until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(BOUND):
            while not true():
                self._changed = anyio.Event()
                await self._changed.wait()

    def noted(self, event: str) -> bool:
        return any(note.event == event for note in self.notes)

    async def run(self, conversation: Callable[[], Awaitable[None]]) -> None:
        with anyio.fail_after(BOUND):
            await self.relay.run(conversation)


async def broken(_: Round) -> Conclusion:
    raise RuntimeError("a bug")


async def never(_: Round) -> Conclusion:
    await anyio.sleep_forever()
    raise AssertionError


async def answering(round: Round) -> Conclusion:
    return Settled({key: Release(Answered(json.dumps(ACCEPT).encode(), "policy"), "d") for key in round.items})


@pytest.mark.parametrize(
    ("run_round", "faults"),
    [pytest.param(broken, (), id="in the gate"), pytest.param(answering, ("round_done",), id="in the session")],
)
async def test_a_fault_leaves_the_request_unanswered_and_the_gate_goes_on(
    run_round: Callable[[Round], Awaitable[Conclusion]], faults: tuple[str, ...]
) -> None:
    ports = ConnectedRelay(run_round, *faults)

    async def conversation() -> None:
        ports.says("server", PUSH)
        await ports.until(lambda: ports.server.sent)
        ports.says("client", request(1, "tools/call", name="t"))
        await ports.until(lambda: len(ports.server.sent) > 1)

    await ports.run(conversation)
    first, second = ports.server.frames
    assert (7, "cancel") == (first["id"], first["result"]["action"])
    assert "tools/call" == second["method"]
    assert ["request.failed"] == [note.event for note in ports.notes]
    assert "push" == ports.notes[0].fields["door"]


async def test_a_fault_with_what_runs_beside_the_first_call_ends_nothing_else() -> None:
    ports = ConnectedRelay(answering)

    async def faulty() -> None:
        raise RuntimeError("a bug")

    async def conversation() -> None:
        ports.relay.first_call = faulty
        ports.says("client", request(1, "tools/call", name="t"))
        await ports.until(lambda: ports.noted("warm.failed"))
        ports.says("server", PUSH)
        await ports.until(lambda: len(ports.server.sent) > 1)

    await ports.run(conversation)
    assert ["tools/call", 7] == [ports.server.frames[0]["method"], ports.server.frames[1]["id"]]


async def test_a_fault_with_a_frame_tells_whoever_waits_for_it() -> None:
    ports = ConnectedRelay(never, "frame")

    async def conversation() -> None:
        ports.says("client", request("q", "tools/call", name="t"))

    await ports.run(conversation)
    assert ["frame.failed"] == [note.event for note in ports.notes]
    assert [("q", -32603)] == [(frame["id"], frame["error"]["code"]) for frame in ports.client.frames]
    assert [] == ports.server.sent


async def test_a_fault_with_a_beat_or_a_pause_ends_nothing() -> None:
    ports = ConnectedRelay(never, "round_progress", "due", beat=0.001)

    async def conversation() -> None:
        ports.says("server", PUSH)
        await ports.until(lambda: ports.noted("progress.failed"))
        ports.says("client", modern(3, "tools/call", name="t"))
        ports.says("server", result(3, resultType="input_required", requestState="later"))
        await ports.until(lambda: ports.noted("request.failed"))
        ports.says("client", request(4, "tools/call", name="t"))
        await ports.until(lambda: ports.server.frames[-1]["id"] == 4)

    await ports.run(conversation)


async def test_a_side_has_gone_whatever_the_session_says_to_it() -> None:
    ports = ConnectedRelay(never, "eof")

    async def conversation() -> None:
        ports.relay.client.ended()
        await ports.relay.client_gone.wait()

    await ports.run(conversation)
    assert ports.noted("side.failed")


async def test_an_answer_that_comes_as_the_forward_ends_answers_no_other_forward() -> None:
    replies: list[ClientReply] = []

    async def twice(round: Round) -> Conclusion:
        with anyio.CancelScope() as time_out:
            async with anyio.create_task_group() as group:

                async def reply() -> None:
                    await ports.until(lambda: ports.client.sent)
                    time_out.cancel()
                    ports.says("client", result(ports.client.frames[0]["id"], action="decline"))

                group.start_soon(reply)
                await ports.relay.ask_client(round)
        replies.append(await ports.relay.ask_client(round))
        return await answering(round)

    ports = ConnectedRelay(twice)

    async def conversation() -> None:
        ports.says("server", PUSH)
        await ports.until(lambda: len(ports.client.sent) > 1)
        ports.says("client", result(ports.client.frames[1]["id"], **ACCEPT))
        await ports.until(lambda: ports.server.sent)

    await ports.run(conversation)
    assert [ACCEPT] == [json.loads(reply.payload) for reply in replies]
    assert ["elicitation/create"] * 2 == [frame["method"] for frame in ports.client.frames]


async def test_a_forward_that_nobody_waits_for_is_taken_back() -> None:
    async def briefly(round: Round) -> Conclusion:
        with anyio.CancelScope() as time_out:
            async with anyio.create_task_group() as group:
                group.start_soon(ending, time_out)
                await ports.relay.ask_client(round)
        return await answering(round)

    async def ending(scope: anyio.CancelScope) -> None:
        await ports.until(lambda: ports.client.sent)
        scope.cancel()

    ports = ConnectedRelay(briefly)

    async def conversation() -> None:
        ports.says("server", PUSH)
        await ports.until(lambda: ports.server.sent)

    await ports.run(conversation)
    assert ["elicitation/create", "notifications/cancelled"] == [frame["method"] for frame in ports.client.frames]


async def test_a_round_that_is_withdrawn_before_it_runs_asks_nobody() -> None:
    seen: list[str] = []

    async def forwarding(round: Round) -> Conclusion:
        try:
            await ports.relay.ask_client(round)
        except anyio.get_cancelled_exc_class():
            seen.append("cancelled")
            raise
        raise AssertionError

    ports = ConnectedRelay(forwarding)

    async def conversation() -> None:
        ports.says("server", PUSH)
        ports.says("server", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    await ports.run(conversation)
    assert (["cancelled"], [], []) == (seen, ports.client.sent, ports.notes)


@contextmanager
def relay_and_links(side: Side) -> Iterator[tuple[ConnectedRelay, FakeLink, FakeLink]]:
    """A relay, the link of ``side`` and the other link."""
    ports = ConnectedRelay(never, rule=DENY)
    yield (ports, ports.client, ports.server) if side == "client" else (ports, ports.server, ports.client)


REFUSED = b'{"jsonrpc":"2.0","id":"%s%d","method":"a","result":1}'
"""No frame that could be meant: the session answers it at once."""


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_side_that_takes_none_of_our_own_answers_is_not_read_until_it_has(side: Side) -> None:
    with relay_and_links(side) as (ports, link, other):
        count = 0
        while link.reading:
            getattr(ports.relay, side).received(REFUSED % (b"p" * 900, count))
            count += 1
            assert link.backlog.size < 2 * MAX_ANSWERS
        assert MAX_ANSWERS < link.backlog.size
        assert not other.reading
        link.take()
        assert (True, True) == (link.reading, other.reading)
        getattr(ports.relay, side).received(REFUSED % (b"p", count))
        assert link.reading


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_side_is_read_however_much_of_the_other_side_waits_for_it(side: Side) -> None:
    """A server writes before it reads on, while one large request for it waits. If neither side were read, both would
    wait forever."""
    with relay_and_links(side) as (ports, link, other):
        big = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "x" * (2 * MAX_ANSWERS)}}
        ports.says("server" if side == "client" else "client", big)
        assert MAX_ANSWERS < link.backlog.size
        assert (True, False) == (link.reading, other.reading)
        getattr(ports.relay, side).received(REFUSED % (b"p", 1))
        assert link.reading


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_side_that_is_held_twice_is_read_when_both_reasons_are_gone(side: Side) -> None:
    with relay_and_links(side) as (ports, link, other):
        while link.reading:
            getattr(ports.relay, side).received(REFUSED % (b"p" * 900, 1))
        getattr(ports.relay, side).received(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "x" * 500_000}}).encode()
        )
        link.take()
        assert (False, True) == (link.reading, other.reading)
        other.take()
        assert link.reading


async def test_an_answer_over_the_bound_ends_the_call_it_was_for() -> None:
    ports = ConnectedRelay(never)

    async def conversation() -> None:
        ports.says("client", request(5, "tools/call", name="x"))
        ports.relay.server.oversized(
            300 << 20, b'{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"xxx'
        )

    await ports.run(conversation)
    assert [("frame.oversized", {"side": "server", "size": 300 << 20})] == [
        (note.event, note.fields) for note in ports.notes
    ][:1]
    assert [5] == [frame["id"] for frame in ports.client.frames if "error" in frame]


async def test_a_models_tokens_are_told_at_most_once_a_second_and_as_counts() -> None:
    ports = ConnectedRelay(never)

    async def conversation() -> None:
        params = {**form(), "_meta": {"progressToken": "t"}}
        ports.says("server", request(7, "elicitation/create", **params))
        (round,) = ports.relay._rounds
        for now, tokens in ((0.0, 3), (0.4, 8), (0.9, 20), (1.1, 31), (1.2, 40)):
            ports.now = now
            ports.relay.tokens(round, tokens)
        ports.relay.tokens("no such round", 1)

    await ports.run(conversation)
    told = [
        frame["params"] for frame in map(json.loads, ports.server.sent) if frame["method"] == "notifications/progress"
    ]
    assert [{"progressToken": "t", "progress": 3}, {"progressToken": "t", "progress": 31}] == told
