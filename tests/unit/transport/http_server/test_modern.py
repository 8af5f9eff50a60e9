"""Requests of 2026-07-28: their envelope and headers, the status of each response, and the meaning of a disconnect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from samplegate.protocol.frames import Frame
from samplegate.transport.http_server.http import ConversationRefused, HttpBounds
from samplegate.transport.http_server.stream import GRACE
from tests.fakes.http_front import META, MODERN, Call, Conversation, Front, Served, error, note, result, silent

pytestmark = pytest.mark.anyio
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
VERSION = "io.modelcontextprotocol/protocolVersion"


async def test_an_answer_that_comes_first_is_json() -> None:
    front = Front()
    call = await front.modern("tools/list", id="a").done()
    assert (200, "application/json") == (call.status, call.headers["content-type"])
    assert {"jsonrpc": "2.0", "id": "a", "result": {"echo": "tools/list"}} == call.json
    assert "mcp-session-id" not in call.headers
    assert len(call.body) == int(call.headers["content-length"])


async def test_the_frame_reaches_the_gate_as_it_came() -> None:
    front = Front()
    body = (
        b'{ "params": {"_meta":%s, "vendor" : 1.0}, "method":"tools/list", "id": 1, "jsonrpc":"2.0"}'
        % json.dumps(META).encode()
    )
    assert (
        200 == (await front.call("POST", body=body, mcp_protocol_version=MODERN, mcp_method="tools/list").done()).status
    )
    assert [(1, body)] == front.served.shared["local"].got


async def test_callers_do_not_share_a_conversation() -> None:
    front = Front()
    await front.modern("tools/list", caller="ann").done()
    await front.modern("tools/list", caller="bob").done()
    await front.modern("tools/list", caller="ann").done()
    assert {"ann": 2, "bob": 1} == {caller: len(one.got) for caller, one in front.served.shared.items()}


STATUSES = {-32601: 404, -32020: 400, -32021: 400, -32022: 400, -32602: 400, -32600: 400, -32603: 200, -1: 200, 17: 200}


@pytest.mark.parametrize(("code", "status"), STATUSES.items())
async def test_an_error_has_the_status_of_its_code(code: int, status: int) -> None:
    call = (
        await Front(Served(lambda c, stream, f: c.streams[stream].send(error(f.id, code), True)))
        .modern("tools/list")
        .done()
    )
    assert (status, code) == (call.status, call.json["error"]["code"])


async def test_a_result_that_speaks_of_errors_is_none() -> None:
    value = {"error": {"code": -32601}}
    assert (
        200
        == (
            await Front(Served(lambda c, stream, f: c.streams[stream].send(result(f.id, value), True)))
            .modern("tools/list")
            .done()
        ).status
    )


async def test_what_comes_before_the_answer_makes_it_a_stream() -> None:
    def answers(conversation: Conversation, stream: int, frame: Frame) -> None:
        conversation.streams[stream].send(note("one"), False)
        conversation.streams[stream].send(error(frame.id, -32601), True)

    call = await Front(Served(answers)).modern("tools/call", {"name": "t"}, mcp_name="t").done()
    assert (200, True, True) == (call.status, call.is_stream, call.complete)
    assert [json.loads(note("one")), json.loads(error(1, -32601))] == call.data
    assert "no" == call.headers["x-accel-buffering"]
    assert [None, None] == [event.id for event in call.events], "nobody can come back for a modern stream"


async def test_a_long_silence_makes_it_a_stream_that_is_kept_open_by_comments() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, keep_alive=0.01))
    call = await front.modern("tools/list").begun()
    await call.until(lambda call: call.body.count(b": \n\n") >= 2)
    front.served.shared["local"].streams[1].send(result(1, {}), True)
    await call.done()
    assert [json.loads(result(1, {}))] == call.data


@pytest.mark.parametrize("commit", [0.02, 0.06, 2.2 * GRACE])
async def test_a_stream_begins_when_its_time_has_come_and_not_before(commit: float) -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=commit))
    began = asyncio.get_running_loop().time()
    call = await front.modern("tools/list").begun()
    assert asyncio.get_running_loop().time() - began > commit - 0.005  # uvloop counts in milliseconds
    assert call.is_stream
    call.disconnect()
    await call.done()


async def test_two_streams_at_once_each_have_their_own_frames() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0))
    first, second = await front.modern("tools/list", id=1).begun(), await front.modern("tools/list", id=1).begun()
    streams = front.served.shared["local"].streams
    streams[2].send(note("second"), False)
    streams[1].send(result(1, "first"), True)
    streams[2].send(result(1, "second"), True)
    await asyncio.gather(first.done(), second.done())
    assert [json.loads(result(1, "first"))] == first.data
    assert [json.loads(note("second")), json.loads(result(1, "second"))] == second.data


@pytest.mark.parametrize("commit", [0.0, 60.0])
async def test_a_disconnect_closes_the_stream(commit: float) -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=commit))
    call = front.modern("tools/list")
    await asyncio.sleep(0)
    call.disconnect()
    await call.done()
    assert [1] == front.served.shared["local"].closed
    assert "gone" == front.access_log[0].end


async def test_a_stream_is_closed_once_its_request_is_answered() -> None:
    front = Front()
    await front.modern("tools/list").done()
    assert [1] == front.served.shared["local"].closed


async def test_a_request_that_is_over_without_an_answer_ends_as_an_empty_stream() -> None:
    call = await Front(Served(lambda c, stream, _: c.streams[stream].over())).modern("tools/list").done()
    assert (200, True, True, b"") == (call.status, call.is_stream, call.complete, call.body)


async def test_a_conversation_that_ends_ends_its_streams() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0))
    call = await front.modern("tools/list").begun()
    stream = front.served.shared["local"].streams[1]
    stream.send(error(1, -32603), True)
    stream.close()
    assert [json.loads(error(1, -32603))] == (await call.done()).data


async def test_a_frame_with_line_ends_is_one_event() -> None:
    line = b'{"jsonrpc":"2.0",\r"id":1,\r\n"result":{}}'
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0))
    call = await front.modern("tools/list").begun()
    front.served.shared["local"].streams[1].send(line, True)
    await call.done()
    assert [json.loads(line)] == call.data


# -- subscriptions
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_subscription_streams_until_its_end() -> None:
    front = Front(Served(lambda c, stream, _: c.streams[stream].send(note("acknowledged"), False)))
    call = await front.modern("subscriptions/listen", id="s").begun()
    stream = front.served.shared["local"].streams[1]
    for n in range(3):
        stream.send(note(str(n)), False)
        await call.heard(n + 2)
    stream.send(result("s", {}), True)
    await call.done()
    assert 5 == len(call.data)


async def test_a_subscription_that_is_refused_has_the_errors_status() -> None:
    call = (
        await Front(Served(lambda c, stream, f: c.streams[stream].send(error(f.id, -32601), True)))
        .modern("subscriptions/listen")
        .done()
    )
    assert (404, -32601) == (call.status, call.json["error"]["code"])


async def test_a_subscription_ended_by_a_notification_is_a_stream() -> None:
    call = (
        await Front(Served(lambda c, stream, _: c.streams[stream].send(note("cancelled"), True)))
        .modern("subscriptions/listen")
        .done()
    )
    assert (True, [json.loads(note("cancelled"))]) == (call.is_stream, call.data)


# -- notifications and what else a client may post
# -----------------------------------------------------------------------------------------


async def test_a_notification_is_taken_without_an_answer() -> None:
    front = Front()
    call = await front.post({"jsonrpc": "2.0", "method": "notifications/acme"}, mcp_protocol_version=MODERN).done()
    assert (202, b"") == (call.status, call.body)
    assert (1, [1]) == (len(front.served.shared["local"].got), front.served.shared["local"].closed)


async def test_a_clients_answer_is_refused() -> None:
    call = await Front().post({"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_protocol_version=MODERN).done()
    assert (400, -32600) == (call.status, call.json["error"]["code"])


async def test_a_batch_is_refused() -> None:
    call = (
        await Front().call("POST", body=b'[{"jsonrpc":"2.0","id":1,"method":"x"}]', mcp_protocol_version=MODERN).done()
    )
    assert (400, -32600) == (call.status, call.json["error"]["code"])


async def test_a_session_id_is_ignored() -> None:
    front = Front()
    assert 200 == (await front.modern("tools/list", mcp_session_id="made-up").done()).status
    assert [] == front.served.begun


async def test_the_handshake_is_no_method_here_and_reaches_nobody() -> None:
    front = Front()
    call = await front.modern("initialize").done()
    assert (404, -32601, 1) == (call.status, call.json["error"]["code"], call.json["id"])
    assert {} == front.served.shared


# -- what is wrong with it
# -----------------------------------------------------------------------------------------------------------------


def ask(front: Front, meta: dict[str, Any], method: str = "tools/list", **headers: str) -> Call:
    params: dict[str, Any] = {"_meta": meta}
    return front.post({"jsonrpc": "2.0", "id": 5, "method": method, "params": params}, **headers)


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {VERSION: MODERN},
        {CAPABILITIES: {}},
        {VERSION: 20260728, CAPABILITIES: {}},
        {VERSION: MODERN, CAPABILITIES: []},
        "none",
        None,
        7,
    ],
)
async def test_a_request_without_its_envelope_is_refused(meta: Any) -> None:
    call = await ask(Front(), meta, mcp_protocol_version=MODERN, mcp_method="tools/list").done()
    assert (400, -32602, 5) == (call.status, call.json["error"]["code"], call.json["id"])


async def test_a_client_need_not_name_itself() -> None:
    assert 200 == (await Front().modern("tools/list").done()).status


async def test_an_unknown_version_is_answered_with_those_there_are() -> None:
    front = Front()
    call = await ask(front, META | {VERSION: "v999"}, mcp_protocol_version="v999", mcp_method="tools/list").done()
    assert (400, -32022, {"supported": [MODERN], "requested": "v999"}) == (
        call.status,
        call.json["error"]["code"],
        call.json["error"]["data"],
    )
    assert {} == front.served.shared


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_a_version_that_differs_between_header_and_body_is_a_mismatch_first(method: str) -> None:
    call = await ask(Front(), META | {VERSION: "v999"}, method, mcp_protocol_version=MODERN, mcp_method=method).done()
    assert (400, -32020, 5) == (call.status, call.json["error"]["code"], call.json["id"])


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp_protocol_version": "", "mcp_method": "tools/call", "mcp_name": "t"},
        {"mcp_protocol_version": "2025-11-25", "mcp_method": "tools/call", "mcp_name": "t"},
        {"mcp_method": "", "mcp_name": "t"},
        {"mcp_method": "TOOLS/CALL", "mcp_name": "t"},
        {"mcp_method": "tools/list", "mcp_name": "t"},
        {"mcp_name": ""},
        {"mcp_name": "T"},
        {"mcp_name": "=?base64?dQ==?="},
        {"mcp_name": "=?base64?!!?="},
    ],
)
async def test_headers_that_do_not_mirror_the_body_are_refused(headers: dict[str, str]) -> None:
    front = Front()
    call = await front.modern("tools/call", {"name": "t"}, **headers).done()
    assert (400, -32020, 1) == (call.status, call.json["error"]["code"], call.json["id"])
    assert {} == front.served.shared


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("t", "t"),
        ("t", "  t  "),
        ("t", "=?base64?dA==?="),
        ("say \"hi\"", 'say "hi"'),
        ("größe", "=?base64?Z3LDtsOfZQ==?="),
        ("a/b", "a/b"),
        ("=?x", "=?x"),
    ],
)  # fmt: skip
async def test_headers_that_mirror_the_body_in_any_right_way_pass(name: str, header: str) -> None:
    front = Front()
    assert 200 == (await front.modern("tools/call", {"name": name}, mcp_name=header).done()).status
    assert 200 == (await front.modern("resources/read", {"uri": name}, mcp_name=header).done()).status


async def test_a_header_that_stands_twice_is_a_mismatch_even_if_both_are_right() -> None:
    front = Front()
    pairs = [
        ("content-type", "application/json"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/list"),
        ("mcp-method", "tools/list"),
    ]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
    call = await Call(front.app, "POST", pairs, body).done()
    assert (400, -32020) == (call.status, call.json["error"]["code"])


async def test_two_readings_of_the_era_are_none() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"%s":"%s"},"_meta":{}}}' % (
        VERSION.encode(),
        MODERN.encode(),
    )
    call = await Front().call("POST", body=body).done()
    assert (400, -32600, 1) == (call.status, call.json["error"]["code"], call.json["id"])


# -- whether there is room
# -----------------------------------------------------------------------------------------------------------------


async def test_what_the_gate_refuses_has_its_status() -> None:
    served = Served()
    served.refuses = ConversationRefused(503, "the server does not start", 7)
    call = await Front(served).modern("tools/list").done()
    assert (503, "7", "the server does not start") == (
        call.status,
        call.headers["retry-after"],
        call.json["error"]["message"],
    )


async def test_a_caller_has_so_many_requests_in_flight_and_others_theirs() -> None:
    front = Front(Served(silent), bounds=HttpBounds(requests_per_caller=2, commit=0.0))
    first = await front.modern("tools/list", caller="ann").begun()
    await front.modern("tools/list", caller="ann").begun()
    refused = await front.modern("tools/list", caller="ann").done()
    assert (429, True) == (refused.status, int(refused.headers["retry-after"]) > 0)
    await front.modern("tools/list", caller="bob").begun()
    first.disconnect()
    await first.done()
    assert 200 == (await front.modern("tools/list", caller="ann").begun()).status
