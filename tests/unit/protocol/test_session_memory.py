"""Memory for open requests is bounded in bytes; a request counts until it is over and no longer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.protocol import server_requests, session_state
from samplegate.protocol.rounds import Note, Open, ToClient, ToServer
from tests.fakes.dialogue import ANSWER, CAPABILITIES, FORWARD, META, Dialogue, one, request, result

TEXT = "x" * (15 * session_state.MIB // 16)
FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}}}


@pytest.fixture(autouse=True)
def _sixteenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of the bounds, because large texts take time."""
    for name in ("MAX_CALL_BYTES", "MAX_PUSH_BYTES", "SMALL"):
        monkeypatch.setattr(session_state, name, getattr(session_state, name) // 16)


def _call(id: int, text: str = "", **more: Any) -> dict[str, Any]:
    meta = {**META, CAPABILITIES: {"elicitation": {"form": {}}}}
    return request(id, "tools/call", name="t", arguments={"text": text}, _meta=meta, **more)


def _refusals(effects: list[Any], code: int) -> list[str]:
    lines = [json.loads(effect.line) for effect in effects if isinstance(effect, (ToClient, ToServer))]
    return [line["error"]["message"] for line in lines if line.get("error", {}).get("code") == code]


def test_modern_calls_in_flight_are_refused_beyond_the_bound_and_counted_until_they_are_over() -> None:
    d = Dialogue(ANSWER)
    for id in range(8):
        assert [] == _refusals(d.client(_call(id, TEXT)), -32603)
    out = d.client(_call(8, TEXT))
    assert [session_state.CALLS_FULL] == _refusals(out, -32603)
    assert "call.failed" == one(out, Note).event
    assert [] == _refusals(d.client(_call(9)), -32603)
    for id in (*range(8), 9):
        d.server(result(id, content=[], resultType="complete"))
    assert 0 == d.session.state.held


def test_only_calls_keep_their_params() -> None:
    d = Dialogue(ANSWER)
    for id in range(20):
        assert [] == _refusals(d.client(request(id, "tools/list", cursor=TEXT, _meta=META)), -32603)


@pytest.mark.parametrize("member", ["requestState", "inputRequests"])
def test_a_call_ends_where_there_is_no_room_for_what_its_server_sends_in_it(member: str) -> None:
    d = Dialogue(ANSWER)
    large = (
        {"requestState": TEXT}
        if member == "requestState"
        else {"inputRequests": {"a": {"method": "elicitation/create", "params": {**FORM, "x": TEXT}}}}
    )
    ended = 0
    for id in range(12):
        d.client(_call(id))
        ended += len(_refusals(d.server(result(id, resultType="input_required", **large)), -32603))
    assert 0 < ended < 12
    assert d.session.state.held <= session_state.MAX_CALL_BYTES


def test_a_round_is_counted_until_its_call_goes_on() -> None:
    d = Dialogue(ANSWER)
    d.client(_call(1))
    before = d.session.state.held
    asked = {"a": {"method": "elicitation/create", "params": {**FORM, "x": "y" * 100_000}}}
    out = d.server(result(1, resultType="input_required", inputRequests=asked))
    assert 200_000 < d.session.state.held - before
    d.settle(out)
    assert before == d.session.state.held


def test_open_urls_of_an_error_are_counted_until_they_are_decided() -> None:
    d = Dialogue(FORWARD)
    d.open_legacy(elicitation={"url": {}})
    d.client(request(1, "tools/call", name="t"))
    data = {
        "elicitations": [{"mode": "url", "elicitationId": "e", "url": "https://a.example/", "message": "m" * 100_000}]
    }
    out = d.server({"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "", "data": data}})
    assert 200_000 < d.session.state.held
    one(out, Open)
    d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert 0 == d.session.state.held


def test_pushed_requests_are_refused_beyond_the_bound_and_counted_until_they_are_answered() -> None:
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    refused: list[str] = []
    for id in range(4):
        message = {"role": "user", "content": {"type": "text", "text": TEXT}}
        out = d.server(request(f"p{id}", "sampling/createMessage", messages=[message], maxTokens=5))
        refused += _refusals(out, -1)
    assert [session_state.PUSHES_FULL] * 2 == refused
    for id in range(2):
        d.server({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"p{id}"}})
    assert 0 == d.session.state.held


def test_the_params_of_calls_count_with_each_request_that_may_belong_to_them() -> None:
    """They live as long as it does, although the calls may end before it."""
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    message = {"role": "user", "content": {"type": "text", "text": "?"}}
    for id in (1, 2):
        d.client(request(id, "tools/call", name="t", arguments={"text": TEXT[:500_000]}))
    refused: list[str] = []
    for id in range(6):
        out = d.server(request(f"p{id}", "sampling/createMessage", messages=[message], maxTokens=5))
        refused += _refusals(out, -1)
    for id in (1, 2):
        d.server(result(id, content=[]))
    assert 3_900_000 < d.session.state.held <= session_state.MAX_PUSH_BYTES
    assert [session_state.PUSHES_FULL] * 2 == refused


@pytest.mark.parametrize(("calls", "size", "kept"), [(2, 10, True), (65, 10, False), (3, 40_000, False)])
def test_the_params_of_very_many_or_very_large_calls_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, calls: int, size: int, kept: bool
) -> None:
    monkeypatch.setattr(server_requests, "MAX_PARAMS", 100_000)
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    for id in range(calls):
        d.client(request(id, "tools/call", name="t", arguments={"text": TEXT[:size], "id": id}))
    message = {"role": "user", "content": {"type": "text", "text": "?"}}
    opened = one(d.server(request("p", "sampling/createMessage", messages=[message], maxTokens=5)), Open)
    assert (calls,) * kept == tuple(map(len, opened.round.origin.params))


def test_where_others_fill_the_process_only_small_calls_go_on() -> None:
    d = Dialogue(ANSWER)
    d.session.state.process_bytes = lambda: session_state.MAX_TOTAL_BYTES
    assert [] == _refusals(d.client(_call(1, "x" * 1000)), -32603)
    assert [session_state.ALL_FULL] == _refusals(d.client(_call(2, "x" * session_state.SMALL)), -32603)


def test_a_batch_is_not_taken_apart_beyond_a_number_of_elements() -> None:
    d = Dialogue(ANSWER)
    d.open_legacy("2025-03-26")
    out = d.client(b"[" + b"{}," * 1_000_000 + b"{}]")
    assert "a list has more than 20000 elements" == one(out, Note).fields["fault"]
