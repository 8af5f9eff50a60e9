"""Faults of a remote server: each is one error for the affected request, without secrets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from samplegate.transport.http_client import connection as remote_module
from samplegate.transport.http_client.connection import RemoteConnection, pool
from tests.fakes.loops import BOTH_LOOPS
from tests.fakes.scripted_http_server import Asked, ConnectedServer, Heard, connected_server, plain

pytestmark = pytest.mark.anyio

ERAS = ["legacy", "modern"]


def ask(w: ConnectedServer, era: str, stream: int, method: str = "prompts/get", **params: Any) -> None:
    w.modern(stream, method, **params) if era == "modern" else w.request(stream, method, **params)


def whole(
    status: int, body: bytes = b"", kind: str = "application/json", **more: str
) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        await asked.answer(status, body.replace(b"ID", json.dumps(asked.frame["id"]).encode()), kind, **more)

    return handler


def raw(data: bytes) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        await asked.write(data)
        asked.cut()

    return handler


def streamed(*events: bytes, end: bool = True) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        await asked.stream()
        for event in events:
            await asked.chunk(event.replace(b"ID", json.dumps(asked.frame["id"]).encode()))
        await asked.end() if end else asked.cut()

    return handler


FAULTS = [
    pytest.param(
        whole(401, b'{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"bad token"}}'),
        "HTTP 401: it rejected the gate's credentials",
        id="401",
    ),
    pytest.param(whole(403, b"no", "text/plain"), "HTTP 403: it denied the gate", id="403"),
    pytest.param(whole(404), "HTTP 404: not found; check the URL", id="404"),
    pytest.param(whole(404, b"<html>", "text/html"), "HTTP 404: not found; check the URL", id="404 in HTML"),
    pytest.param(whole(405), "HTTP 405: method not allowed at this URL", id="405"),
    pytest.param(whole(429, Retry_After="9"), "HTTP 429: rate limit exceeded", id="429"),
    pytest.param(whole(500, b"<html>secret</html>", "text/html"), "HTTP 500: it failed", id="500"),
    pytest.param(whole(500, b'{"error":"secret"}'), "HTTP 500: it failed", id="500 in JSON that is no JSON-RPC"),
    pytest.param(whole(418, b"{" * 100), "HTTP 418: unexpected status", id="418"),
    pytest.param(
        whole(400, b'{"jsonrpc":"2.0","id":ID,"result":{}}'),
        "HTTP 400: it rejected the request",
        id="400 with a result",
    ),
    pytest.param(whole(202), "HTTP 202: its response has no answer", id="202"),
    pytest.param(whole(204), "HTTP 204: its response has no answer", id="204"),
    pytest.param(whole(302, Location="/other"), "HTTP 302: it redirected the request", id="302"),
    pytest.param(
        whole(307, Location="http://127.0.0.2:1/"), "HTTP 307: it redirected to another origin", id="another origin"
    ),
    pytest.param(
        whole(307, Location="//evil@127.0.0.1/"),
        "HTTP 307: it redirected to another origin",
        id="a user in the redirect",
    ),
    pytest.param(whole(308), "HTTP 308: its redirect has no valid Location", id="nowhere"),
    pytest.param(whole(307, Location="/mcp"), "HTTP 307: it redirected more than 3 times", id="round and round"),
    pytest.param(whole(200, b"<html>secret</html>", "text/html"), "HTTP 200: its response is neither JSON", id="HTML"),
    pytest.param(whole(200, b"{}"), "its answer cannot be parsed", id="no JSON-RPC"),
    pytest.param(whole(200, b"not JSON"), "its answer cannot be parsed", id="no JSON"),
    pytest.param(
        whole(200, b'{"jsonrpc":"2.0","id":ID,"id":ID,"result":{}}'), "its answer cannot be parsed", id="two readings"
    ),
    pytest.param(
        whole(200, b'{"jsonrpc":"2.0","id":ID,"result":"a\nb"}'),
        "its answer cannot be parsed",
        id="a line end in a string",
    ),
    pytest.param(
        whole(200, b'{"jsonrpc":"2.0","method":"n"}'), "it answered with a request or notification", id="a notification"
    ),
    pytest.param(
        whole(200, b'{"jsonrpc":"2.0","id":"other","result":{}}'),
        "it sent a response to a different request",
        id="another's answer",
    ),
    pytest.param(
        whole(200, b'{"jsonrpc":"2.0","id":ID,"result":{}}', Content_Encoding="gzip"),
        "its response is compressed",
        id="compressed",
    ),
    pytest.param(whole(200, b" " * 5000), "its response has 5000 bytes; the limit is 4096", id="a large body"),
    pytest.param(
        raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1400\r\n"
            + b"x" * 5120
        ),
        "its response is larger than 4096 bytes",
        id="a large body of unknown size",
    ),
    pytest.param(
        raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"),
        "its response was cut off",
        id="half a body",
    ),
    pytest.param(raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000), "its response is not valid HTTP", id="large headers"),
    pytest.param(raw(b"220 smtp.example.com ready\r\n\r\n"), "its response is not valid HTTP", id="no HTTP"),
    pytest.param(raw(b""), "it closed the connection before", id="nothing at all"),
    pytest.param(streamed(), "its stream ended without an answer", id="an empty stream"),
    pytest.param(
        streamed(b'data: {"jsonrpc":"2.0","id":"other","result":{}}\n\n'),
        "ended without an answer",
        id="a stream for another",
    ),
    pytest.param(
        streamed(b'data: {"jsonrpc":"2.0","id":ID,"result":{}}\n'),
        "ended without an answer",
        id="an event whose end never came",
    ),
    pytest.param(
        streamed(b"event: ping\ndata: x\n\n", end=False), "its response was cut off", id="a stream that breaks"
    ),
    pytest.param(
        streamed(b'data: {"jsonrpc":"2.0","id":ID,"result":' + b"1" * 9000),
        "its answer is larger than 4096 bytes",
        id="a large event",
    ),
    pytest.param(
        streamed(b'data: {"jsonrpc":"2.0","id":ID,"id":ID,"result":1}\n\n'),
        "its answer cannot be parsed",
        id="an event of two readings",
    ),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("handler", "word"), FAULTS)
async def test_a_fault_is_one_error_for_its_request_and_the_link_goes_on(
    era: str, handler: Callable[[Asked], Awaitable[None]], word: str
) -> None:
    async with connected_server(max_frame=4096, headers={"Authorization": "Bearer secret"}) as w:
        w.server.on["POST prompts/get"] = handler
        ask(w, era, 2, id="call")
        (error,) = await w.heard.of(2)
        assert "call" == error["id"]
        assert word in error["error"]["message"]
        assert -32603 == error["error"]["code"]
        ask(w, era, 3, "prompts/list")
        assert "result" in (await w.heard.of(3))[0]
        assert 2 == len(w.heard.lines)
        assert "secret" not in repr((w.heard.lines, w.notes))
        assert "remote.failed" in w.said()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [200, 400, 404, 500])
@pytest.mark.parametrize("id", ["server-error", None])
async def test_an_error_of_json_rpc_passes_under_the_requests_own_id(era: str, status: int, id: str | None) -> None:
    async def refuse(asked: Asked) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "m", "data": {"x": 1.0}}})
        await asked.answer(status, body.encode())

    async with connected_server() as w:
        w.server.on["POST prompts/get"] = refuse
        ask(w, era, 2, id="call")
        await w.heard.of(2)
        assert b'"x": 1.0' in w.heard.lines[0][1]
        assert {
            "jsonrpc": "2.0",
            "id": "call",
            "error": {"code": -32601, "message": "m", "data": {"x": 1.0}},
        } == w.heard.frames(2)[0]
        assert [] == w.said()


@pytest.mark.parametrize("era", ERAS)
async def test_a_redirect_within_the_origin_is_followed(era: str) -> None:
    async def move(asked: Asked) -> None:
        if asked.path == "/mcp/":
            await plain(asked)
        else:
            await asked.answer(307, Location="/mcp/")

    async with connected_server() as w:
        w.server.on["POST"] = move
        ask(w, era, 2, name="x")
        assert "result" in (await w.heard.of(2))[0]
        assert w.server.asked[0].body == w.server.asked[1].body


@pytest.mark.parametrize("era", ERAS)
async def test_no_cookie_is_kept(era: str) -> None:
    async with connected_server() as w:
        w.server.on["POST prompts/list"] = whole(200, b'{"jsonrpc":"2.0","id":ID,"result":{}}', Set_Cookie="a=b")
        ask(w, era, 2, "prompts/list")
        await w.heard.of(2)
        ask(w, era, 3, "prompts/list")
        await w.heard.of(3)
        assert [None, None] == [one.header("cookie") for one in w.server.asked]


@pytest.mark.parametrize("era", ERAS)
async def test_json_over_several_lines_becomes_one_line(era: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"a": "\n\ud800"}}, indent=2).encode()
    events = b"".join(b"data: " + line + b"\n" for line in body.replace(b"2,", b"3,").split(b"\n")) + b"\n"
    async with connected_server() as w:
        w.server.on |= {"POST prompts/list": whole(200, body), "POST tools/list": streamed(events)}
        ask(w, era, 2, "prompts/list")
        await w.heard.of(2)
        ask(w, era, 3, "tools/list")
        await w.heard.of(3)
        assert {"a": "\n\ud800"} == w.heard.frames(3)[0]["result"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_cannot_be_read_on_a_stream_and_is_no_answer_is_left_out(era: str) -> None:
    events = [b"data: not JSON\n\n", b'data: {"jsonrpc":"2.0"}\n\n', b'data: {"jsonrpc":"2.0","id":ID,"result":{}}\n\n']
    async with connected_server() as w:
        w.server.on["POST prompts/list"] = streamed(*events)
        ask(w, era, 2, "prompts/list")
        assert "result" in (await w.heard.of(2))[0]
        assert [("frame.refused", "server")] * 2 == [(note.event, note.fields["side"]) for note in w.notes]


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_notification_on_a_stream_is_told_and_the_stream_goes_on(era: str) -> None:
    large = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":"' + b"x" * 5000 + b'"}\n\n'
    async with connected_server(max_frame=4096) as w:
        w.server.on["POST prompts/list"] = streamed(large, b'data: {"jsonrpc":"2.0","id":ID,"result":{}}\n\n')
        ask(w, era, 2, "prompts/list")
        assert "result" in (await w.heard.of(2))[0]
        assert [(2, True)] == [(stream, size > 4096) for stream, size, _ in w.heard.oversizes]
        assert w.heard.oversizes[0][2].startswith(b'{"jsonrpc":"2.0","method"')


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_without_an_id_on_a_stream_is_the_requests_own(era: str) -> None:
    async with connected_server() as w:
        w.server.on["POST prompts/list"] = streamed(
            b'data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}\n\n'
        )
        ask(w, era, 2, "prompts/list")
        assert 2 == (await w.heard.of(2))[0]["id"]


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        heard = Heard()
        async with pool() as http:
            remote = RemoteConnection(
                f"http://127.0.0.1:{free.getsockname()[1]}/x?token=secret", heard, http=http, note=lambda _: None
            )
            remote.send(4, b'{"jsonrpc":"2.0","id":"a","method":"initialize"}')
            (error,) = await heard.of(4)
            await remote.aclose()
    assert "it cannot be reached: connection refused" in error["error"]["message"]
    assert {"transport": "unreachable"} == error["error"]["data"]
    assert "secret" not in json.dumps(error)


async def test_a_server_whose_name_is_nobodys_is_an_error() -> None:
    heard = Heard()
    async with pool() as http:
        remote = RemoteConnection("http://nobody.invalid/", heard, http=http, note=lambda _: None)
        remote.send(4, b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
        (error,) = await heard.of(4)
        await remote.aclose()
    assert "its host name cannot be resolved" in error["error"]["message"]


async def test_a_server_without_tls_is_an_error() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example.com ready\r\n")
        await reader.read()
        writer.close()

    heard, listening = Heard(), await asyncio.start_server(greet, "127.0.0.1", 0)
    async with pool() as http:
        remote = RemoteConnection(
            f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/", heard, http=http, note=lambda _: None
        )
        remote.send(4, b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
        (error,) = await heard.of(4)
        await remote.aclose()
    listening.close()
    assert "the TLS handshake failed" in error["error"]["message"]


async def test_too_many_requests_in_flight_are_refused_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "MAX_CALLS", 2)
    go = asyncio.Event()

    async def wait(asked: Asked) -> None:
        await go.wait()
        await plain(asked)

    async with connected_server() as w:
        w.server.on["POST"] = wait
        for stream in (2, 3, 4):
            w.request(stream)
        assert "2 requests to it are already in flight" in (await w.heard.of(4))[0]["error"]["message"]
        go.set()
        assert "result" in (await w.heard.of(2))[0]
        assert "result" in (await w.heard.of(3))[0]
        for stream in range(5, 100):  # a slot is free only once the response stream has ended too
            w.request(stream)
            if "result" in (await w.heard.of(stream))[0]:
                return
        pytest.fail("no place has become free")


@BOTH_LOOPS
async def test_a_server_that_takes_no_input_is_pressed_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "MAX_UNSENT", 40_000_000)
    pressed: list[bool] = []
    async with connected_server() as w:
        w.remote.pressure = pressed.append

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        listening = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1000)
        heard = Heard()
        async with pool() as http:
            remote = RemoteConnection(
                f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/", heard, http=http, note=lambda _: None
            )
            remote.pressure = pressed.append
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"x": "x" * 30_000_000}}).encode()
            remote.send(1, line)
            assert [True] == pressed
            assert remote.buffered == len(line)
            remote.send(2, line)
            assert "it is not reading its input" in (await heard.of(2))[0]["error"]["message"]
            await remote.aclose()
            assert [True, False] == pressed
            assert 0 == remote.buffered
        listening.close()
        for writer in writers:
            writer.close()


@BOTH_LOOPS
async def test_a_large_request_arrives_whole() -> None:
    async with connected_server() as w:
        w.request(2, x="x" * 5_000_000)
        await w.heard.of(2)
        assert 5_000_000 == len(w.server.asked[0].frame["params"]["x"])
        assert 0 == w.remote.buffered


@BOTH_LOOPS
async def test_the_end_does_not_wait_for_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.5 == remote_module.END
    monkeypatch.setattr(remote_module, "END", 0.05)

    async def silent(asked: Asked) -> None:
        await asked.left()

    async with connected_server() as w:
        await w.begin()
        w.server.on |= {"POST": silent, "DELETE": silent}
        w.request(2)
        w.modern(3)
        w.notify("notifications/x")
        await w.server.until(2, "POST tools")
        lines = len(w.heard.lines)
        began = asyncio.get_running_loop().time()
        await w.remote.aclose()
        await w.remote.aclose()
        assert asyncio.get_running_loop().time() - began < 5  # takes 0.1 s; a wait for the server takes forever
        assert lines == len(w.heard.lines)
        w.request(4)
        assert lines == len(w.heard.lines)


async def test_notifications_that_the_server_does_not_take_are_logged_and_hold_up_nothing() -> None:
    async with connected_server() as w:
        w.server.on["POST notifications/x"] = _fails
        await w.begin()
        w.notify("notifications/x")
        w.request(2)
        await w.heard.of(2)
        assert ["remote.untold"] == w.said()


async def _fails(asked: Asked) -> None:
    await asked.answer(500)


async def test_a_line_that_cannot_be_read_is_refused_and_not_sent() -> None:
    async with connected_server() as w:
        w.remote.send(2, b'{"jsonrpc":"2.0","id":5,"method":"x","method":"y"}')
        assert 5 == (await w.heard.of(2))[0]["id"]
        assert [] == w.server.asked


async def test_a_fault_of_the_gates_own_ends_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected_server() as w:
        monkeypatch.setattr(w.remote._legacy, "headers", lambda: 1 / 0)
        w.request(2)
        assert "internal error in the gate; see the log" in (await w.heard.of(2))[0]["error"]["message"]
        assert "remote.failed" in w.said()
