"""Closed streams: a conversation is notified once of each, never while it sends. Traces: the trace that its requests
belong to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from samplegate.protocol.frames import Frame
from samplegate.transport.http_server.http import HttpBounds
from tests.fakes.http_front import LEGACY, Conversation, Front, Legacy, Served, initialize, note, result, silent

pytestmark = pytest.mark.anyio
NOW = HttpBounds(commit=0.0)
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


async def assert_closed_once(conversation: Conversation, *streams: int) -> None:
    """Wait until the conversation was notified of these streams; check that it was notified of each once, and of no
    other."""
    await conversation.until(lambda: set(streams) <= set(conversation.closed))
    for _ in range(5):
        await asyncio.sleep(0)  # time for a second notification
    assert sorted(streams) == sorted(conversation.closed)


def answer(session: Legacy, stream: int) -> None:
    session.conversation.streams[stream].send(result(1, {}), True)


async def streaming(session: Legacy) -> tuple[int, str]:
    """A stream that began and broke off, and the event id to resume from."""
    call = await session.ask().begun()
    await call.until(lambda call: bool(call.events))
    call.disconnect()
    await call.done()
    return session.conversation.got[-1][0], (call.events[-1].id or b"").decode()


async def test_the_gate_is_told_once_and_not_while_it_sends() -> None:
    while_sending: list[list[int]] = []

    def answers(conversation: Conversation, stream: int, frame: Frame) -> None:
        conversation.streams[stream].send(result(frame.id, {}), True)
        while_sending.append(list(conversation.closed))

    session = await Front(Served(answers, opens=None)).opened()
    for _ in range(3):
        await session.ask().done()
    streams = [stream for stream, _ in session.conversation.got]
    await assert_closed_once(session.conversation, *streams)
    assert [streams[:1], streams[:2], streams[:3]] == while_sending


async def test_the_stream_of_a_session_that_does_not_come_about_is_not_told_twice() -> None:
    front = Front(Served(opens=lambda c, stream, f: c.streams[stream].over()))
    await front.post(initialize()).done()
    conversation = front.served.begun[0]
    await conversation.until(lambda: conversation.over)
    assert len(conversation.closed) <= 1


async def test_a_stream_is_over_with_its_last_answer() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    call = await session.ask().begun()
    stream = session.conversation.got[-1][0]
    session.conversation.streams[stream].send(note("first"), False)
    await call.heard(1)
    assert stream not in session.conversation.closed
    answer(session, stream)
    await call.done()
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


async def test_a_batch_is_over_with_the_last_of_its_answers() -> None:
    session = await Front(Served(silent, revision="2025-03-26"), bounds=NOW).opened(revision="2025-03-26")
    call = await session.post([{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(2)]).begun()
    stream = session.conversation.got[-1][0]
    session.conversation.streams[stream].over()
    await asyncio.sleep(0)
    assert stream not in session.conversation.closed
    answer(session, stream)
    await call.done()
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


async def test_a_stream_whose_client_went_is_over_with_its_answer() -> None:
    session = await Front(Served(silent)).opened()
    call = session.ask()
    await session.conversation.until(lambda: len(session.conversation.got) == 2)
    call.disconnect()
    await call.done()
    stream = session.conversation.got[-1][0]
    assert stream not in session.conversation.closed
    answer(session, stream)
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_client_that_comes_back_for_an_answer_again_and_again_ends_its_stream_once(times: int) -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    stream, place = await streaming(session)
    answer(session, stream)
    for _ in range(times):
        await session.get(last_event_id=place).done()
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


async def test_a_client_that_is_back_before_the_answer_ends_the_stream_once() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    stream, place = await streaming(session)
    first = await session.get(last_event_id=place).begun()
    second = await session.get(last_event_id=place).begun()
    answer(session, stream)
    await asyncio.gather(first.done(), second.done())
    assert [json.loads(result(1, {}))] == second.data
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


async def test_a_client_that_is_back_and_goes_again_leaves_a_stream_that_ends_with_its_answer() -> None:
    session = await Front(Served(silent), bounds=NOW).opened()
    stream, place = await streaming(session)
    back = await session.get(last_event_id=place).begun()
    back.disconnect()
    await back.done()
    assert stream not in session.conversation.closed
    answer(session, stream)
    await assert_closed_once(session.conversation, session.conversation.got[0][0], stream)


async def test_a_conversation_that_is_over_when_a_stream_is_opened_leaves_nothing_asked() -> None:
    front = Front(Served(silent))
    session = await front.opened()
    opened = session.conversation.open_stream

    def closing(stream: object, **more: Any) -> int:
        number = opened(stream, **more)  # type: ignore[arg-type]
        session.conversation.streams[number].close()
        return number

    session.conversation.open_stream = closing  # type: ignore[method-assign]
    await session.ask().done()
    found = front.sessions.find(session.id, "docs", "local")
    assert found is not None
    assert ([], 0) == (list(found.asking), found.visits)
    await assert_closed_once(session.conversation, *(stream for stream, _ in session.conversation.got))


# -- traces
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [TRACE, ""])
async def test_a_posts_stream_bears_the_trace_of_its_request(value: str) -> None:
    front = Front()
    await front.modern("tools/list", traceparent=value).done()
    session = await front.opened(revision=LEGACY)
    await session.ask(traceparent=value).done()
    stream = session.conversation.got[-1][0]
    assert (value, value) == (front.served.shared["local"].traces[1], session.conversation.traces[stream])


async def test_a_trace_that_is_none_by_its_form_is_nobodys() -> None:
    front = Front()
    await front.modern("tools/list", traceparent="00-x\x7f").done()
    assert "" == front.served.shared["local"].traces[1]


async def test_the_stream_of_initialize_and_of_a_modern_notification_bear_theirs() -> None:
    front = Front()
    await front.post(initialize(), traceparent=TRACE).done()
    message = {"jsonrpc": "2.0", "method": "notifications/x", "params": {}}
    assert (
        202
        == (
            await front.post(
                message, mcp_protocol_version="2026-07-28", mcp_method="notifications/x", traceparent=TRACE
            ).done()
        ).status
    )
    assert (TRACE, TRACE) == (
        front.served.begun[0].traces[front.served.begun[0].got[0][0]],
        front.served.shared["local"].traces[1],
    )
