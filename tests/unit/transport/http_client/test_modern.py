"""2026-07-28 over HTTP: requests are independent, headers mirror each request, and closing its stream cancels it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from samplegate.transport.http_client import headers
from tests.fakes.scripted_http_server import META, MODERN, Asked, ConnectedServer, connected_server, plain

pytestmark = pytest.mark.anyio

REGION = {
    "name": "query",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}}
PLAIN = {"name": "plain", "inputSchema": {"type": "object"}}


def lists(*pages: list[dict[str, Any]]) -> Any:
    """A handler for tools/list with several pages."""

    async def handler(asked: Asked) -> None:
        number = int(asked.frame["params"].get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
        await asked.result({"resultType": "complete", "tools": pages[number], **more})

    return handler


async def test_a_request_is_mirrored_in_its_headers_and_names_no_session() -> None:
    async with connected_server(headers={"Mcp-Name": "no", "X-Api-Key": "ours"}) as w:
        w.modern(2, "resources/read", uri="file:///caf\u00e9")
        assert "result" in (await w.heard.of(2))[0]
        (asked,) = w.server.asked
        assert MODERN == asked.header("mcp-protocol-version")
        assert "resources/read" == asked.header("mcp-method")
        assert "=?base64?ZmlsZTovLy9jYWbDqQ==?=" == asked.header("mcp-name")
        assert "ours" == asked.header("x-api-key")
        assert asked.header("mcp-session-id") is None
        await w.remote.aclose()
        assert 1 == len(w.server.asked)


async def test_a_call_mirrors_its_arguments_as_the_list_that_passed_says() -> None:
    async with connected_server() as w:
        w.server.on["POST tools/list"] = lists([REGION, BAD, PLAIN])
        w.modern(2, "tools/list")
        (found,) = await w.heard.of(2)
        assert ["query", "plain"] == [tool["name"] for tool in found["result"]["tools"]]
        assert ["tool.refused"] == w.said()
        w.modern(3, name="query", arguments={"region": " eu "})
        await w.heard.of(3)
        assert "=?base64?IGV1IA==?=" == w.server.asked[-1].header("mcp-param-region")
        w.modern(4, name="query", arguments={"region": None})
        await w.heard.of(4)
        assert w.server.asked[-1].header("mcp-param-region") is None
        assert 1 == len(w.server.of("POST tools/list"))


async def test_the_tools_are_asked_for_where_no_list_has_passed_and_nobody_sees_it() -> None:
    async with connected_server() as w:
        w.server.on["POST tools/list"] = lists([PLAIN], [REGION])
        for stream in (2, 3, 4):
            w.modern(stream, name="query", arguments={"region": "eu"}, meta={"progressToken": "p", "x/y": 1})
        for stream in (2, 3, 4):
            assert "result" in (await w.heard.of(stream))[0]
        pages = w.server.of("POST tools/list")
        assert [None, "1"] == [page.frame["params"].get("cursor") for page in pages]
        assert all(page.frame["params"]["_meta"] == META for page in pages)
        assert all(page.header("mcp-method") == "tools/list" for page in pages)
        assert ["eu"] * 3 == [call.header("mcp-param-region") for call in w.server.of("POST tools/call")]
        assert 3 == len(w.heard.lines)


async def test_names_that_are_on_no_list_do_not_have_it_asked_for_each_time() -> None:
    async with connected_server() as w:
        w.server.on["POST tools/list"] = lists([PLAIN])
        for stream in range(2, 12):
            w.modern(stream, name=f"odd-{stream}")
            await w.heard.of(stream)
        assert 2 >= len(w.server.of("POST tools/list"))


async def test_a_tool_that_is_on_no_list_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "FRESH", 0.0)
    async with connected_server() as w:
        w.server.on["POST tools/list"] = lists([PLAIN])
        for stream in (2, 3):
            w.modern(stream, name="other")
            await w.heard.of(stream)
        assert 1 == len(w.server.of("POST tools/list"))


@pytest.mark.parametrize("how", ["status", "error", "stream", "twins", "endless"])
async def test_a_call_goes_without_them_where_the_tools_cannot_be_had(how: str) -> None:
    async def handler(asked: Asked) -> None:
        if how == "status":
            await asked.answer(500)
        elif how == "error":
            await asked.answer(200, asked.error(-32601))
        elif how == "stream":
            await asked.stream()
            await asked.end()
        elif how == "twins":
            await asked.answer(200, b'{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[]}}')
        else:
            await asked.result({"tools": [], "nextCursor": "again"})

    async with connected_server() as w:
        w.server.on["POST tools/list"] = handler
        for stream in (2, 3):
            w.modern(stream, name="query")
            assert "result" in (await w.heard.of(stream))[0]
        assert (headers.MAX_PAGES if how == "endless" else 1) == len(w.server.of("POST tools/list"))


async def test_the_tools_may_come_on_a_stream() -> None:
    async def handler(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "notifications/message"})
        await asked.event(asked.answering({"tools": [REGION]}))
        await asked.left()

    async with connected_server() as w:
        w.server.on["POST tools/list"] = handler
        w.modern(2, name="query", arguments={"region": "eu"})
        await w.heard.of(2)
        assert "eu" == w.server.asked[-1].header("mcp-param-region")


async def changed(w: ConnectedServer, code: int) -> None:
    """The tool has got an annotation since the client last listed it."""

    async def call(asked: Asked) -> None:
        if asked.header("mcp-param-region") is None:
            await asked.answer(400, asked.error(code))
        else:
            await plain(asked)

    w.server.on |= {"POST tools/list": lists([PLAIN | {"name": "query"}]), "POST tools/call": call}
    w.modern(2, "tools/list")
    await w.heard.of(2)
    w.server.on["POST tools/list"] = lists([REGION])


async def test_a_server_that_misses_headers_is_asked_for_its_tools_again_and_the_call_is_made_once_more() -> None:
    async with connected_server() as w:
        await changed(w, -32020)
        w.modern(3, name="query", arguments={"region": "eu"})
        assert "result" in (await w.heard.of(3))[0]
        assert 2 == len(w.server.of("POST tools/call"))


async def test_a_server_that_misses_headers_for_ever_is_asked_no_third_time() -> None:
    async with connected_server() as w:
        await changed(w, -32020)
        w.modern(3, name="query", arguments={})
        assert -32020 == (await w.heard.of(3))[0]["error"]["code"]
        assert 1 == len(w.server.of("POST tools/call"))
        w.modern(4, name="query", arguments={})
        assert -32020 == (await w.heard.of(4))[0]["error"]["code"]
        assert 2 == len(w.server.of("POST tools/list"))


async def test_another_refusal_is_no_reason_to_call_again() -> None:
    async with connected_server() as w:
        await changed(w, -32021)
        w.modern(3, name="query", arguments={"region": "eu"})
        assert -32021 == (await w.heard.of(3))[0]["error"]["code"]
        assert 1 == len(w.server.of("POST tools/call"))


@pytest.mark.parametrize("how", ["stream", "notification"])
async def test_a_request_that_is_taken_back_ends_its_stream_and_no_other(how: str) -> None:
    left = asyncio.Event()

    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "notifications/progress"})
        if asked.frame["id"] == 3:
            await left.wait()
            await asked.event(asked.answering({}))
            await asked.end()
            return
        await asked.left()
        left.set()

    async with connected_server() as w:
        w.server.on["POST prompts/get"] = call
        for stream in (2, 3):
            w.modern(stream, "prompts/get")
            await w.heard.of(stream)
        w.remote.close_stream(2) if how == "stream" else w.notify("notifications/cancelled", requestId=2)
        assert "result" in (await w.heard.of(3, 2))[1]
        assert 1 == len(w.heard.frames(2))
        assert 2 == len(w.server.asked)


async def test_a_request_that_is_taken_back_before_it_was_sent_is_not_sent() -> None:
    async with connected_server() as w:
        w.modern(2, "prompts/get")
        w.remote.close_stream(2)
        w.modern(3, "prompts/list")
        await w.heard.of(3)
        assert ["prompts/list"] == [one.method for one in w.server.asked]
        assert 0 == w.remote.buffered


async def test_a_stream_that_breaks_is_not_taken_up_again() -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "method": "n"}, id="e1", retry=0)
        await asked.end()

    async with connected_server() as w:
        w.server.on["POST prompts/get"] = call
        w.modern(2, "prompts/get")
        assert "ended without an answer" in (await w.heard.of(2, 2))[1]["error"]["message"]
        assert [] == w.server.of("GET")


async def test_an_answer_for_another_request_on_a_stream_is_not_its_answer() -> None:
    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event({"jsonrpc": "2.0", "id": 3, "result": {"forged": True}})
        await asked.event(asked.answering({}))
        await asked.end()

    async with connected_server() as w:
        w.server.on["POST prompts/get"] = call
        w.modern(2, "prompts/get")
        await w.heard.of(2)
        assert [2] == [frame["id"] for frame in w.heard.frames()]
        assert ["frame.refused"] == w.said()


async def test_a_stream_that_stays_open_after_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samplegate.transport.http_client.calls.LINGER", 0.05)
    left = asyncio.Event()

    async def call(asked: Asked) -> None:
        await asked.stream()
        await asked.event(asked.answering({}))
        await asked.left()
        left.set()

    async with connected_server() as w:
        w.server.on["POST prompts/get"] = call
        w.modern(2, "prompts/get")
        await w.heard.of(2)
        async with asyncio.timeout(20):
            await left.wait()
        assert [] == w.said()


async def test_a_listen_streams_until_it_is_closed() -> None:
    async def listen(asked: Asked) -> None:
        await asked.stream()
        await asked.chunk(b":\r\n\r\n")
        for name in ("acknowledged", "changed"):
            await asked.event({"jsonrpc": "2.0", "method": name})
        await asked.left()

    async with connected_server() as w:
        w.server.on["POST subscriptions/listen"] = listen
        w.modern(2, "subscriptions/listen", notifications={})
        assert ["acknowledged", "changed"] == [frame["method"] for frame in await w.heard.of(2, 2)]


async def test_answers_are_not_sent_in_the_modern_era_and_notifications_are_mirrored() -> None:
    async with connected_server() as w:
        w.modern(2, "prompts/list")
        await w.heard.of(2)
        w.remote.send(0, b'{"jsonrpc":"2.0","id":1,"result":{}}')
        w.notify("notifications/x")
        (asked,) = await w.server.until(1, "POST notifications/x")
        assert "notifications/x" == asked.header("mcp-method")
        assert MODERN == asked.header("mcp-protocol-version")
        assert ["frame.refused"] == w.said()
        assert 2 == len(w.server.asked)


async def test_headers_larger_than_servers_take_are_an_error_and_not_sent() -> None:
    async with connected_server() as w:
        w.modern(2, "resources/read", uri="data:" + "x" * 60_000)
        assert "headers would be larger than" in (await w.heard.of(2))[0]["error"]["message"]
        assert [] == w.server.asked


async def test_a_name_with_a_line_end_adds_no_header() -> None:
    async with connected_server() as w:
        w.modern(2, "prompts/get", name="a\r\nX-Evil: 1")
        await w.heard.of(2)
        assert w.server.asked[0].header("x-evil") is None
        assert "=?base64?YQ0KWC1FdmlsOiAx?=" == w.server.asked[0].header("mcp-name")


async def test_both_eras_may_be_spoken_to_one_server() -> None:
    async with connected_server() as w:
        await w.begin()
        w.modern(5, "server/discover")
        w.request(6)
        await w.heard.of(5)
        await w.heard.of(6)
        by = {one.method: one for one in w.server.asked}
        assert by["server/discover"].header("mcp-session-id") is None
        assert "session-1" == by["tools/call"].header("mcp-session-id")
        assert by["tools/call"].header("mcp-method") is None


async def test_a_list_that_failed_is_asked_for_again_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "LIST_RETRY", 0.0)

    async def broken(asked: Asked) -> None:
        await asked.answer(500)

    async with connected_server() as w:
        w.server.on["POST tools/list"] = broken
        w.modern(2, name="query", arguments={"region": "eu"})
        await w.heard.of(2)
        w.server.on["POST tools/list"] = lists([REGION])
        w.modern(3, name="query", arguments={"region": "eu"})
        await w.heard.of(3)
        assert [None, "eu"] == [call.header("mcp-param-region") for call in w.server.of("POST tools/call")]
