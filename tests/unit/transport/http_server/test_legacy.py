"""Legacy sessions: how they begin, who may use them, the response to each message, and how they end."""

from __future__ import annotations

import asyncio
import json
import string

import pytest

from samplegate.protocol.frames import Frame
from samplegate.transport.http_server.http import ConversationRefused, HttpBounds
from tests.fakes.http_front import LEGACY, Conversation, Front, Served, agrees, error, initialize, note, result, silent

pytestmark = pytest.mark.anyio


async def test_initialize_begins_a_session_with_an_id_that_nobody_guesses() -> None:
    front = Front()
    calls = [await front.post(initialize()).done() for _ in range(20)]
    ids = {call.headers["mcp-session-id"] for call in calls}
    assert (20, 20, 20) == (len(ids), front.sessions.open, len(front.served.begun))
    assert all(len(id) >= 32 and set(id) <= set(string.ascii_letters + string.digits + "-_") for id in ids)
    assert calls[0].json["result"] == {"protocolVersion": LEGACY}


async def test_an_initialize_that_fails_begins_none() -> None:
    front = Front(Served(opens=lambda c, stream, f: c.streams[stream].send(error(f.id, -32602), True)))
    call = await front.post(initialize()).done()
    assert (200, -32602) == (call.status, call.json["error"]["code"])
    assert "mcp-session-id" not in call.headers
    [conversation] = front.served.begun
    await conversation.until(lambda: conversation.over)
    assert 0 == front.sessions.open


async def test_what_comes_before_initialize_is_answered_goes_with_the_answer() -> None:
    def opens(conversation: Conversation, stream: int, frame: Frame) -> None:
        conversation.streams[stream].send(note("early"), False)
        agrees(LEGACY)(conversation, stream, frame)

    call = await Front(Served(opens=opens)).post(initialize()).done()
    assert (True, True, 2) == (call.is_stream, "mcp-session-id" in call.headers, len(call.data))


async def test_a_client_that_goes_before_it_has_its_id_leaves_no_session() -> None:
    front = Front(Served(opens=silent))
    call = front.post(initialize())
    await asyncio.sleep(0)
    call.disconnect()
    await call.done()
    [conversation] = front.served.begun
    await conversation.until(lambda: conversation.over)
    assert 0 == front.sessions.open


async def test_a_server_that_never_opens_is_given_up() -> None:
    front = Front(Served(opens=silent), bounds=HttpBounds(opening=0.01))
    call = await front.post(initialize()).done()
    assert (504, "opening") == (call.status, front.access_log[0].reason)
    [conversation] = front.served.begun
    await conversation.until(lambda: conversation.over)


async def test_what_the_gate_refuses_has_its_status_and_takes_no_place() -> None:
    front = Front(bounds=HttpBounds(sessions=1))
    front.served.refuses = ConversationRefused(502, "the server does not start")
    assert 502 == (await front.post(initialize()).done()).status
    front.served.refuses = None
    assert 200 == (await front.post(initialize()).done()).status


# -- who may use it
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["POST", "GET", "DELETE"])
async def test_a_session_that_is_not_the_callers_is_unknown(kind: str) -> None:
    front = Front()
    session = await front.opened(caller="ann")
    other = Front(Served(name="other"), sessions=front.sessions)
    body = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"} if kind == "POST" else None
    calls = [
        front.call(kind, body, "bob", mcp_session_id=session.id),
        front.call(kind, body, "", mcp_session_id=session.id),
        other.call(kind, body, "ann", mcp_session_id=session.id),
        front.call(kind, body, "ann", mcp_session_id=session.id[:-1]),
        front.call(kind, body, "ann", mcp_session_id=session.id.swapcase()),
        front.call(kind, body, "ann", mcp_session_id="x" * 10_000),
    ]
    assert [404] * 6 == [(await call.done()).status for call in calls]
    assert {3 if kind == "POST" else None} == {call.json["id"] for call in calls}
    assert (1, False) == (front.sessions.open, session.conversation.over)
    assert 1 == len(session.conversation.got), "only initialize"


async def test_a_request_without_a_session_is_refused() -> None:
    call = await Front().post({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).done()
    assert (400, -32600, 3) == (call.status, call.json["error"]["code"], call.json["id"])


@pytest.mark.parametrize(
    ("version", "status"), [("", 200), (LEGACY, 200), ("2025-03-26", 200), ("v999", 400), ("2025-11-26", 400)]
)
async def test_the_version_header_names_a_revision_that_there_is(version: str, status: int) -> None:
    session = await Front().opened()
    assert status == (await session.ask(mcp_protocol_version=version).done()).status
    if status == 400:
        assert 400 == (await session.get(mcp_protocol_version=version).done()).status


async def test_a_revision_that_was_negotiated_is_one() -> None:
    session = await Front(Served(revision="2025-12-24")).opened()
    assert 200 == (await session.ask(mcp_protocol_version="2025-12-24").done()).status


# -- requests
# ----------------------------------------------------------------------------------------------------------------------


async def test_an_answer_that_comes_first_is_json_whatever_it_is() -> None:
    front = Front(Served(lambda c, stream, f: c.streams[stream].send(error(f.id, -32601), True)))
    call = await (await front.opened()).ask(id="x").done()
    assert (200, json.loads(error("x", -32601))) == (call.status, call.json)


@pytest.mark.parametrize(
    "message",
    [{"method": "notifications/initialized"}, {"id": 3, "result": {}}, {"id": 3, "error": {"code": 1, "message": "x"}}],
)
async def test_notifications_and_answers_are_taken_without_an_answer(message: dict[str, object]) -> None:
    session = await Front().opened()
    call = await session.post({"jsonrpc": "2.0", **message}).done()
    assert (202, b"") == (call.status, call.body)
    assert {"jsonrpc": "2.0", **message} == json.loads(session.conversation.got[-1][1])


async def test_requests_in_flight_are_answered_each_on_its_own_stream() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(commit=0.0)).opened()
    first, second = await session.ask(1).begun(), await session.ask(2).begun()
    streams = session.conversation.streams
    (one, _), (two, _) = session.conversation.got[1:]
    streams[two].send(note("two"), False)
    streams[two].send(result(2, {}), True)
    streams[one].send(note("one"), False)
    streams[one].send(result(1, {}), True)
    await asyncio.gather(first.done(), second.done())
    assert [json.loads(note("one")), json.loads(result(1, {}))] == first.data
    assert [json.loads(note("two")), json.loads(result(2, {}))] == second.data
    await session.conversation.until(lambda: {one, two} <= set(session.conversation.closed))


async def test_a_disconnect_is_no_cancel() -> None:
    session = await Front(Served(silent)).opened()
    call = session.ask()
    await session.conversation.until(lambda: len(session.conversation.got) == 2)
    call.disconnect()
    await call.done()
    stream = session.conversation.got[1][0]
    assert stream not in session.conversation.closed
    session.conversation.streams[stream].send(result(1, {}), True)
    await session.conversation.until(lambda: stream in session.conversation.closed)


async def test_what_a_lost_calls_server_asks_goes_to_the_standalone_stream() -> None:
    """The client left before its stream had begun, so it has no event id to resume from."""
    session = await Front(Served(silent)).opened()
    call = session.ask()
    await session.conversation.until(lambda: len(session.conversation.got) == 2)
    stream = session.conversation.streams[session.conversation.got[1][0]]
    call.disconnect()
    await call.done()
    listening = await session.get().begun()
    stream.send(note("asked"), False)
    stream.send(result(1, {}), True)
    session.conversation.streams[0].send(note("other"), False)
    await listening.heard(2)
    assert [json.loads(note("asked")), json.loads(note("other"))] == listening.data


async def test_a_request_that_is_cancelled_before_anything_was_said_ends_as_an_empty_stream() -> None:
    session = await Front(Served(lambda c, stream, _: c.streams[stream].over())).opened()
    call = await session.ask().done()
    assert (200, True, b"") == (call.status, call.is_stream, call.body)


@pytest.mark.parametrize(("revision", "code"), [(LEGACY, -32800), ("2025-06-18", None)])
async def test_a_stream_whose_request_is_cancelled_ends_so_that_nobody_comes_back_for_it(
    revision: str, code: int | None
) -> None:
    session = await Front(Served(silent, revision=revision), bounds=HttpBounds(commit=0.0)).opened(revision=revision)
    call = await session.ask(7).begun()
    session.conversation.streams[session.conversation.got[1][0]].over()
    await call.done()
    assert ([] if code is None else [(7, code)]) == [(event["id"], event["error"]["code"]) for event in call.data]


# -- batches
# ----------------------------------------------------------------------------------------------------------------------

BATCH = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(3)] + [
    {"jsonrpc": "2.0", "method": "notifications/x"}
]


async def test_a_batch_is_answered_by_one_stream_that_ends_with_the_last_answer() -> None:
    session = await Front(Served(revision="2025-03-26")).opened()
    call = await session.post(BATCH).done()
    assert (True, True, [0, 1, 2]) == (call.is_stream, call.complete, [event["id"] for event in call.data])


async def test_a_batch_of_one_request_may_be_answered_as_json() -> None:
    session = await Front(Served(revision="2025-03-26")).opened()
    assert 0 == (await session.post(BATCH[:1] + BATCH[-1:]).done()).json["id"]


async def test_a_batch_without_requests_is_taken_without_an_answer() -> None:
    session = await Front(Served(revision="2025-03-26")).opened()
    assert 202 == (await session.post(BATCH[-1:]).done()).status


@pytest.mark.parametrize(
    ("revision", "body"),
    [
        ("2025-06-18", BATCH),
        (LEGACY, BATCH),
        ("2025-03-26", []),
        ("2025-03-26", BATCH * 50),
        ("2025-03-26", [BATCH]),
        ("2025-03-26", [*BATCH, 7]),
        ("2025-03-26", [*BATCH, {"jsonrpc": "2.0", "id": None, "method": "x"}]),
    ],
)
async def test_other_batches_are_refused_whole(revision: str, body: object) -> None:
    session = await Front(Served(revision=revision)).opened()
    assert 400 == (await session.post(body).done()).status
    assert 1 == len(session.conversation.got)


async def test_a_batch_without_a_session_is_refused() -> None:
    assert 400 == (await Front().post([initialize()]).done()).status


# -- the end
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_deleted_session_is_gone_at_once() -> None:
    session = await Front().opened()
    listening = await session.get().begun()
    assert 204 == (await session.delete().done()).status
    assert [404, 404, 404] == [(await call.done()).status for call in (session.ask(), session.get(), session.delete())]
    await session.conversation.until(lambda: session.conversation.over)
    assert (await listening.done()).complete


async def test_a_conversation_that_ends_by_itself_ends_its_session_when_the_last_word_is_out() -> None:
    session = await Front(Served(silent), bounds=HttpBounds(commit=0.0)).opened()
    call, listening = await session.ask().begun(), await session.get().begun()
    stream = session.conversation.streams[session.conversation.got[1][0]]
    stream.send(error(1, -32603), True)
    await session.conversation.aclose()
    await asyncio.gather(call.done(), listening.done())
    assert [json.loads(error(1, -32603))] == call.data
    assert 404 == (await session.ask().done()).status


async def test_a_session_whose_end_fails_is_ended_all_the_same() -> None:
    front = Front(bounds=HttpBounds(sessions=1))
    session = await front.opened()

    async def fails() -> None:
        raise OSError("cannot end")

    session.conversation.aclose = fails  # type: ignore[method-assign]
    listening = await session.get().begun()
    await session.delete().done()
    await listening.done()
    assert ["session.failed"] == [note.event for note in front.notes]
    assert 200 == (await front.post(initialize()).done()).status
