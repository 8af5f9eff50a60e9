"""The legacy protocol versions over HTTP: the session, the order of frames, streams and their resumption."""

from __future__ import annotations

import asyncio
import json

import pytest

from samplegate.transport.http_client import streams
from tests.fakes.scripted_http_server import Asked, connected_server, plain

pytestmark = pytest.mark.anyio


async def test_a_session_begins_and_is_named_in_every_later_request() -> None:
    async with connected_server(headers={"Authorization": "Bearer ours", "Accept": "no", "mcp-session-id": "no"}) as w:
        await w.begin()
        w.request(2, name="add")
        assert [{"jsonrpc": "2.0", "id": 2, "result": {"did": "tools/call"}}] == await w.heard.of(2)
        first, *later = [one for one in w.server.asked if one.verb == "POST"]
        assert first.header("mcp-session-id") is None
        assert first.header("mcp-protocol-version") is None
        for one in later:
            assert "session-1" == one.header("mcp-session-id")
            assert "2025-11-25" == one.header("mcp-protocol-version")
        for one in w.server.asked:
            assert "Bearer ours" == one.header("authorization")
            assert one.header("cookie") is None
        assert "application/json, text/event-stream" == first.header("accept")
        assert "application/json" == first.header("content-type")
        assert "/mcp?key=secret" == first.path


async def test_the_end_of_the_link_ends_the_session() -> None:
    async with connected_server() as w:
        await w.begin()
        await w.remote.aclose()
        (deleted,) = await w.server.until(1, "DELETE")
        assert "session-1" == deleted.header("mcp-session-id")


async def test_the_standalone_stream_is_opened_after_initialized_and_is_stream_zero() -> None:
    async def get(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage"})
        await asked.left()

    async with connected_server() as w:
        w.server.on["GET"] = get
        await w.begin()
        assert "s1" == (await w.heard.of(0))[0]["id"]
        (asked,) = w.server.of("GET")
        assert "session-1" == asked.header("mcp-session-id")
        assert "text/event-stream" == asked.header("accept")


async def test_frames_of_a_posts_stream_come_on_its_stream_in_their_order() -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        await asked.event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}})
        await w.server.until(4, "POST")
        await asked.event({"jsonrpc": "2.0", "id": asked.frame["id"], "result": {}})
        await asked.end()

    async with connected_server() as w:
        w.server.on["POST tools/call"] = call
        await w.begin()
        w.request(7, name="ask")
        asks = (await w.heard.of(7, 2))[1]
        w.remote.send(7, b'{"jsonrpc":"2.0","id":"q","result":{"action":"decline"}}')
        await w.heard.of(7, 3)
        assert "elicitation/create" == asks["method"]
        assert [None, "q", 7] == [frame.get("id") for frame in w.heard.frames(7)]
        assert {"action": "decline"} == w.server.asked[-1].frame["result"]
        assert "session-1" == w.server.asked[-1].header("mcp-session-id")


async def test_what_follows_initialize_waits_for_its_answer_and_what_follows_a_notification_for_its_acceptance() -> (
    None
):
    answer, accept = asyncio.Event(), asyncio.Event()

    async def slow(asked: Asked) -> None:
        await (answer if asked.method == "initialize" else accept).wait()
        await plain(asked)

    async with connected_server() as w:
        w.server.on |= {"POST initialize": slow, "POST notifications/initialized": slow}
        w.request(1, "initialize")
        w.notify("notifications/initialized")
        w.request(2, name="early")
        await w.server.until(1)
        answer.set()
        await w.server.until(2)
        assert ["initialize", "notifications/initialized"] == [one.method for one in w.server.asked]
        accept.set()
        await w.heard.of(2)
        assert "session-1" == w.server.of("POST tools/call")[0].header("mcp-session-id")


async def test_a_cancellation_goes_out_after_the_request_that_it_names_was_accepted() -> None:
    accept = asyncio.Event()

    async def call(asked: Asked) -> None:
        await accept.wait()
        await asked.stream()
        await asked.left()

    async with connected_server() as w:
        w.server.on["POST tools/call"] = call
        await w.begin()
        w.request(2)
        w.notify("notifications/cancelled", requestId=2)
        await w.server.until(1, "POST tools/call")
        assert [] == w.server.of("POST notifications/cancelled")
        accept.set()
        await w.server.until(1, "POST notifications/cancelled")


async def test_a_cancellation_does_not_wait_for_a_server_that_answers_in_one_piece() -> None:
    answer = asyncio.Event()

    async def call(asked: Asked) -> None:
        await answer.wait()
        await plain(asked)

    async with connected_server() as w:
        w.server.on["POST tools/call"] = call
        await w.begin()
        w.request(2)
        w.notify("notifications/cancelled", requestId=2)
        await w.server.until(1, "POST notifications/cancelled")
        answer.set()
        await w.heard.of(2)


async def test_a_session_id_that_came_with_an_error_is_nobodys() -> None:
    async def refuse(asked: Asked) -> None:
        await asked.answer(400, asked.error(-32600, id="server-error"), Mcp_Session_Id="session-1")

    async with connected_server() as w:
        w.server.on["POST initialize"] = refuse
        w.request(1, "initialize")
        assert {"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "no"}} == (await w.heard.of(1))[0]
        w.request(2)
        await w.heard.of(2)
        assert w.server.asked[-1].header("mcp-session-id") is None


@pytest.mark.parametrize("id", ["with blank", "x" * 1025, "caf\xe9"])
async def test_a_session_id_that_no_header_may_hold_is_refused(id: str) -> None:
    async def begin(asked: Asked) -> None:
        await asked.result({"protocolVersion": "2025-11-25"}, Mcp_Session_Id=id)

    async with connected_server() as w:
        w.server.on["POST initialize"] = begin
        w.request(1, "initialize")
        assert "its Mcp-Session-Id header must be one value" in (await w.heard.of(1))[0]["error"]["message"]


@pytest.mark.parametrize(
    ("revision", "named"), [("2025-03-26", None), ("2025-06-18", "2025-06-18"), ("2025\r\nX: y", None)]
)
async def test_the_revision_is_named_as_it_was_negotiated_from_2025_06_18_on(revision: str, named: str | None) -> None:
    async def begin(asked: Asked) -> None:
        await asked.result({"protocolVersion": revision})

    async with connected_server() as w:
        w.server.on["POST initialize"] = begin
        await w.begin()
        w.request(2)
        await w.heard.of(2)
        assert named == w.server.asked[-1].header("mcp-protocol-version")


async def test_a_session_that_the_server_has_forgotten_ends_once_and_every_request_has_its_error() -> None:
    async def forgotten(asked: Asked) -> None:
        await asked.answer(404, asked.error(-32600))

    async with connected_server() as w:
        await w.begin()
        w.server.on["POST tools/call"] = forgotten
        w.request(2)
        w.request(3)
        await w.heard.of(2)
        await w.heard.of(3)
        w.request(4)
        assert "its session has ended" in (await w.heard.of(4))[0]["error"]["message"]
        assert 404 == w.heard.frames(2)[0]["error"]["data"]["httpStatus"]
        assert 1 == w.heard.ends
        await w.remote.aclose()
        assert [] == w.server.of("DELETE")


async def test_a_second_handshake_begins_a_new_session_and_ends_the_old() -> None:
    async with connected_server() as w:
        await w.begin()
        w.request(2, "initialize")
        await w.heard.of(2)
        (deleted,) = await w.server.until(1, "DELETE")
        assert "session-1" == deleted.header("mcp-session-id")
        assert w.server.of("POST initialize")[1].header("mcp-session-id") is None


async def test_a_stream_that_the_server_closes_is_taken_up_again_where_it_was() -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event(id="e1", retry=50)
        await asked.event({"jsonrpc": "2.0", "method": "n1"}, id="e2")
        await asked.end()

    async def again(asked: Asked) -> None:
        if asked.header("last-event-id") is None:
            await asked.answer(405)
        elif asked.header("last-event-id") == "e2":
            await asked.stream()
            await asked.event({"jsonrpc": "2.0", "method": "n2"}, id="e3")
            asked.cut()
        else:
            await asked.stream()
            await asked.event({"jsonrpc": "2.0", "id": 2, "result": {}}, id="e4")
            await asked.end()

    async with connected_server() as w:
        w.server.on |= {"POST tools/call": call, "GET": again}
        await w.begin()
        w.request(2)
        await w.heard.of(2, 3)
        assert ["n1", "n2", None] == [frame.get("method") for frame in w.heard.frames(2)]
        resumed = [one for one in w.server.of("GET") if one.header("last-event-id")]
        assert ["e2", "e3"] == [one.header("last-event-id") for one in resumed]
        assert all(one.header("mcp-session-id") == "session-1" for one in resumed)


async def test_the_servers_time_is_waited_for_before_a_stream_is_taken_up() -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event(id="e1", retry=400)
        await asked.end()
        times.append(asyncio.get_running_loop().time())

    async def again(asked: Asked) -> None:
        times.append(asyncio.get_running_loop().time())
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "id": 2, "result": {}})
        await asked.end()

    times: list[float] = []
    async with connected_server() as w:
        w.server.on |= {"POST tools/call": call, "GET": again}
        w.request(2)
        await w.heard.of(2)
        assert 0.39 <= times[1] - times[0]


async def test_a_stream_that_cannot_be_taken_up_ends_in_an_error_after_some_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MAX_DELAY", 0.05)

    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event(id="e1", retry=0)
        asked.cut()

    async def busy(asked: Asked) -> None:
        await asked.answer(503)

    async with connected_server() as w:
        w.server.on |= {"POST tools/call": call, "GET": busy}
        w.request(2)
        assert "could not be resumed" in (await w.heard.of(2))[0]["error"]["message"]
        assert streams.MAX_TRIES == len(w.server.of("GET"))


@pytest.mark.parametrize(("status", "word"), [(400, "HTTP 400"), (405, "HTTP 405"), (404, "HTTP 404")])
async def test_a_stream_that_the_server_will_not_resume_ends_in_an_error(status: int, word: str) -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event(id="e1", retry=0)
        await asked.end()

    async def refuse(asked: Asked) -> None:
        await asked.answer(status)

    async with connected_server() as w:
        w.server.on |= {"POST tools/call": call, "GET": refuse}
        w.request(2)
        assert word in (await w.heard.of(2))[0]["error"]["message"]


async def test_a_standalone_stream_that_ends_is_opened_again_where_it_was() -> None:
    async def get(asked: Asked) -> None:
        await asked.stream()
        if asked.header("last-event-id") is None:
            await asked.event({"jsonrpc": "2.0", "method": "n1"}, id="e1", retry=50)
            await asked.end()
        else:
            await asked.event({"jsonrpc": "2.0", "method": "n2"})
            await asked.left()

    async with connected_server() as w:
        w.server.on["GET"] = get
        await w.begin()
        assert ["n1", "n2"] == [frame["method"] for frame in await w.heard.of(0, 2)]


async def test_a_standalone_stream_that_never_holds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_DELAY", 0.05)
    monkeypatch.setattr(streams, "RETRY", 0.0)

    async def get(asked: Asked) -> None:
        await asked.answer(500)

    async with connected_server() as w:
        w.server.on["GET"] = get
        await w.begin()
        await w.server.until(streams.MAX_TRIES, "GET")
        w.request(2)
        await w.heard.of(2)
        assert 0 == w.heard.ends


async def test_a_server_that_says_404_to_a_stream_it_never_had_keeps_its_session() -> None:
    async def get(asked: Asked) -> None:
        await asked.answer(404)

    async with connected_server() as w:
        w.server.on["GET"] = get
        await w.begin()
        await w.server.until(1, "GET")
        w.request(2)
        assert "result" in (await w.heard.of(2))[0]
        assert 0 == w.heard.ends


async def test_a_stream_that_is_closed_goes_on_in_the_legacy_eras() -> None:
    go = asyncio.Event()

    async def call(asked: Asked) -> None:
        await go.wait()
        await plain(asked)

    async with connected_server() as w:
        w.server.on["POST tools/call"] = call
        w.request(2)
        await w.server.until(1)
        w.remote.close_stream(2)
        go.set()
        assert "result" in (await w.heard.of(2))[0]


async def test_a_batch_in_a_body_goes_on_whole() -> None:
    async def call(asked: Asked) -> None:
        batch = [{"jsonrpc": "2.0", "method": "n"}, {"jsonrpc": "2.0", "id": 2, "result": {}}]
        await asked.answer(200, json.dumps(batch, indent=1).encode())

    async with connected_server() as w:
        w.server.on["POST tools/call"] = call
        w.request(2)
        await w.heard.until(lambda: bool(w.heard.lines))
        assert 2 == len(json.loads(w.heard.lines[0][1]))
        assert [] == w.said()


async def test_a_paused_link_reads_no_further_and_goes_on_when_it_is_resumed() -> None:
    event = json.dumps({"jsonrpc": "2.0", "method": "n", "params": {"x": "x" * 100_000}}).encode()

    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "n1"})
        await paused.wait()
        for number in range(200):
            await asked.event(event)
            if number == 2:
                writing.set()
        finished.set()
        await asked.event({"jsonrpc": "2.0", "id": 2, "result": {}})
        await asked.end()

    async def ping(asked: Asked) -> None:
        await writing.wait()
        await plain(asked)
        answered.set()

    paused, writing, answered, finished = (asyncio.Event() for _ in range(4))
    async with connected_server() as w:
        w.server.on |= {"POST tools/call": call, "POST ping": ping}
        w.request(2)
        await w.heard.of(2)
        w.remote.pause_reading()
        paused.set()
        w.request(3, "ping")
        await answered.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert 1 == len(w.heard.lines)
        assert not finished.is_set()  # 20 MB wait at the server
        w.remote.resume_reading()
        await w.heard.until(lambda: len(w.heard.lines) == 203)
        assert {2, 3} == {stream for stream, _ in w.heard.lines}
