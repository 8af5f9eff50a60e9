"""Rules for requests of all protocol versions: what is refused before it is read, and its access log."""

from __future__ import annotations

import gc
import json

import pytest

from samplegate.transport.http_server.http import METHODS, REASONS, HttpBounds
from samplegate.transport.http_server.stream import HttpExchange, StreamReader
from tests.fakes.http_front import Call, Front, Served, initialize

pytestmark = pytest.mark.anyio
ASK = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/jsonp", "application/json; charset=utf-16"])
async def test_a_body_that_is_not_said_to_be_json_is_not_read(content_type: str) -> None:
    assert 415 == (await Front().post(initialize(), content_type=content_type).done()).status


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_may_say_that_it_is_utf_8(content_type: str) -> None:
    assert 200 == (await Front().post(initialize(), content_type=content_type).done()).status


@pytest.mark.parametrize(
    "accept",
    ["application/json", "text/event-stream", "text/html", "application/json, text/event-stream;q=0", "x" * 900],
)
async def test_a_client_that_does_not_take_both_forms_of_an_answer_is_refused(accept: str) -> None:
    assert 406 == (await Front().post(initialize(), accept=accept).done()).status


@pytest.mark.parametrize("accept", ["", "*/*", "text/event-stream;q=0.5,application/*", "APPLICATION/JSON , text/*"])
async def test_wildcards_and_silence_take_both(accept: str) -> None:
    assert 200 == (await Front().post(initialize(), accept=accept).done()).status


async def test_two_accept_headers_count_together() -> None:
    headers = [("content-type", "application/json"), ("accept", "application/json"), ("accept", "text/event-stream")]
    assert 200 == (await Call(Front().app, "POST", headers, json.dumps(initialize()).encode()).done()).status


@pytest.mark.parametrize("header", ["content-type", "mcp-session-id", "last-event-id"])
async def test_a_header_that_stands_twice_is_refused(header: str) -> None:
    headers = [("content-type", "application/json"), ("accept", "*/*"), (header, "a"), (header, "b")]
    assert 400 == (await Call(Front().app, "POST", headers, json.dumps(initialize()).encode()).done()).status


@pytest.mark.parametrize("announced", ["11", "99999999999999999999999", "-1", "ten"])
async def test_a_body_announced_as_too_large_is_not_read(announced: str) -> None:
    call = await Front(bounds=HttpBounds(body=10)).post(initialize(), content_length=announced).done()
    assert (413, "close") == (call.status, call.headers["connection"])


@pytest.mark.parametrize("chunks", [1, 3])
async def test_a_body_that_grows_too_large_is_refused(chunks: int) -> None:
    front = Front(bounds=HttpBounds(body=10))
    call = front.post(initialize())
    pieces = [b"12345678901"] if chunks == 1 else [b"1234", b"5678", b"901"]
    call.incoming = [{"type": "http.request", "body": piece, "more_body": piece != pieces[-1]} for piece in pieces]
    assert (413, "body_size") == ((await call.done()).status, front.access_log[0].reason)


async def test_a_body_in_pieces_is_put_together() -> None:
    front = Front()
    call = front.post(initialize())
    whole = json.dumps(initialize()).encode()
    call.incoming = [
        {"type": "http.request", "body": whole[:9], "more_body": True},
        {"type": "http.request", "body": whole[9:]},
    ]
    assert 200 == (await call.done()).status


async def test_a_body_that_never_ends_is_given_up() -> None:
    call = Front(bounds=HttpBounds(body_time=0.01)).post(initialize())
    call.incoming = [{"type": "http.request", "body": b"{", "more_body": True}]
    await call.done()
    assert (408, "close") == (call.status, call.headers["connection"])


async def test_a_client_that_goes_while_it_sends_gets_nothing_and_harms_nobody() -> None:
    front = Front()
    call = front.post(initialize())
    call.incoming = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    await call.done()
    assert ([], 0, "gone") == (call.sent, front.access_log[0].status, front.access_log[0].end)


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"<html>", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"7", -32600, None),
        (b'{"jsonrpc":"1.0","id":4,"method":"x"}', -32600, 4),
        (b'{"jsonrpc":"2.0","id":4,"id":5,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"Method":"x","method":"y"}', -32600, 1),
        (b'[{"jsonrpc":"2.0","method":"x"}]', -32600, None),
    ],
)
async def test_what_is_not_one_frame_is_refused_by_its_code(body: bytes, code: int, id: int | None) -> None:
    call = await Front().call("POST", body=body).done()
    assert (400, code) == (call.status, call.json["error"]["code"])
    assert call.json["id"] == id or body.count(b'"id"') == 2


async def test_line_ends_between_tokens_do_not_become_frames() -> None:
    front = Front()
    await front.call("POST", body=json.dumps(initialize(), indent=1).replace("\n", "\r\n").encode()).done()
    [(_, line)] = front.served.begun[0].got
    assert b"\n" not in line
    assert b"\r" not in line
    assert initialize() == json.loads(line)


@pytest.mark.parametrize("method", ["PUT", "HEAD", "OPTIONS", "PATCH"])
async def test_other_methods_are_not_served(method: str) -> None:
    front = Front()
    call = await front.call(method).done()
    assert (405, "POST, GET, DELETE") == (call.status, call.headers["allow"])
    assert "other" == front.access_log[0].http


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_without_a_session_there_is_only_post(method: str) -> None:
    assert 405 == (await Front().call(method).done()).status
    assert 405 == (await Front().call(method, mcp_protocol_version="2026-07-28").done()).status


async def test_a_fault_of_ours_is_a_fixed_sentence_to_the_client_and_whole_in_the_log() -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("secret words")

    front = Front(Served(fails))
    call = await front.modern("tools/list").done()
    assert 500 == call.status
    assert b"secret" not in call.body
    assert ["http.failed"] == [note.event for note in front.notes]


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TRACE, TRACE),
        (TRACE.upper(), ""),
        ("ff" + TRACE[2:], ""),
        ("00-" + "0" * 32 + TRACE[35:], ""),
        ("x\n" + TRACE, ""),
        (TRACE + "-" + "y" * 999, ""),
    ],
)
async def test_a_trace_context_is_told_if_its_form_is_right(value: str, expected: str) -> None:
    front = Front()
    await front.modern("tools/list", traceparent=value).done()
    assert expected == front.access_log[0].traceparent


@pytest.mark.parametrize("modern", [True, False])
async def test_a_trace_context_in_the_body_is_told_too(modern: bool) -> None:
    front = Front()
    if modern:
        meta = {
            "traceparent": TRACE,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {**ASK, "params": {"_meta": meta}}
        await front.post(message, mcp_protocol_version="2026-07-28", mcp_method="tools/list").done()
    else:
        await (await front.opened()).post({**ASK, "params": {"_meta": {"traceparent": TRACE}}}).done()
    assert TRACE == front.access_log[-1].traceparent


async def test_each_request_is_told_once_with_labels_of_ours() -> None:
    front = Front()
    session = await front.opened(caller="ann")
    await session.ask(method="acme/" + "x" * 1000).done()
    await front.modern("tools/list", caller="bob").done()
    await front.post(ASK).done()
    expected = [(one.caller, one.era, one.method, one.status, one.form, one.reason) for one in front.access_log]
    assert [
        ("ann", "legacy", "initialize", 200, "json", ""),
        ("ann", "legacy", "other", 200, "json", ""),
        ("bob", "modern", "tools/list", 200, "json", ""),
        ("local", "legacy", "tools/list", 400, "json", "session"),
    ] == expected
    assert front.access_log[0].session == front.access_log[1].session != ""
    assert all(one.session not in session.id and session.id not in repr(one) for one in front.access_log if one.session)
    assert {one.reason for one in front.access_log} <= REASONS | {""}
    assert {one.method for one in front.access_log} <= METHODS | {"other"}


async def test_an_answered_request_leaves_nothing_for_the_collector() -> None:
    front = Front()
    session = await front.opened()
    gc.collect()  # what is there before is in another generation
    gc.disable()
    try:
        await session.ask().done()
        await front.modern("tools/list").done()
        assert [] == [each for each in gc.get_objects(generation=0) if isinstance(each, HttpExchange | StreamReader)]
    finally:
        gc.enable()


async def test_only_http_is_served() -> None:
    with pytest.raises(RuntimeError, match="websocket"):
        await Front().app({"type": "websocket"}, None, None)  # type: ignore[arg-type]
