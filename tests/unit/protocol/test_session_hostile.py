"""Invalid or rare behavior of peers: every request still gets one response, and the gate does not crash. Each of these
once went wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.protocol import frames, rawjson
from samplegate.protocol.outcomes import Reason, Unanswered
from samplegate.protocol.rounds import ClientReply, Effect, Later, Open, Release, Settled, ToClient, ToServer, Withdraw
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    CAPABILITIES,
    DENY,
    FORWARD,
    META,
    Dialogue,
    ask,
    error,
    modern,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)


def call(id: Any = 1, capabilities: Any = None, **params: Any) -> dict[str, Any]:
    return modern(id, "tools/call", capabilities, name="x", **params)


def asks(id: Any, requests: Any = None, **more: Any) -> dict[str, Any]:
    extra = {} if requests is None else {"inputRequests": requests}
    return result(id, resultType="input_required", **extra, **more)


def test_a_modern_envelope_with_escaped_slashes_is_modern() -> None:
    d = Dialogue(DENY)
    line = (
        json.dumps(
            call(1, {"sampling": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}, inputResponses={"a": {}})
        )
        .replace("/", "\\/")
        .encode()
    )
    out = d.client(line)
    # DENY: unsolicited inputResponses are refused; sampling and the tasks extension are not advertised
    assert [] == [e for e in out if isinstance(e, ToServer)]


def test_the_answer_to_a_call_with_escaped_slashes_is_gated() -> None:
    d = Dialogue(ALLOW)
    d.client(json.dumps(call(1)).replace("/", "\\/").encode())
    assert isinstance(one(d.server(asks(1, {"k": ask(sample())})), Open), Open)


@pytest.mark.parametrize("name", ["re\u017fult", "param\u017f", "j\u017fonrpc"])
def test_an_envelope_member_that_another_parser_folds_to_ours_is_refused(name: str) -> None:
    base = {"jsonrpc": "2.0", "id": 1, "result": {}, name: {}}
    with pytest.raises(rawjson.Malformed):
        frames.read(json.dumps(base, ensure_ascii=False).encode())


def test_a_key_with_a_lone_surrogate_never_raises() -> None:
    d = Dialogue(ALLOW)
    d.client(call())
    out = d.server(
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"\\ud83d":'
        + json.dumps(ask(sample())).encode()
        + b"}}}"
    )
    if any(isinstance(effect, Open) for effect in out):
        out = d.settle(out)
    assert 1 == len([e for e in out if isinstance(e, ToClient | ToServer)])


def test_a_key_with_a_lone_surrogate_is_handed_on_or_refused() -> None:
    d = Dialogue(FORWARD)
    d.client(call(1, {"sampling": {}}))
    out = d.server(
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"\\ud83d":'
        + json.dumps(ask(sample())).encode()
        + b"}}}"
    )
    if any(isinstance(effect, Open) for effect in out):
        out = d.hand_on(out, "\ud83d")
    assert 1 == len([e for e in out if isinstance(e, ToClient)])


def test_a_whole_number_of_5000_digits_in_a_returning_call_is_answered() -> None:
    d = Dialogue(FORWARD)
    meta = json.dumps({**META, CAPABILITIES: {}}).encode()
    params = b'{"name":"x","arguments":{"n":' + b"1" * 5000 + b'},"requestState":"sg2.x","_meta":' + meta + b"}"
    (answer,) = to_client(d.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"))
    assert -32602 == answer["error"]["code"]


def test_a_whole_number_of_5000_digits_does_not_break_a_forward() -> None:
    d = Dialogue(FORWARD)
    meta = json.dumps({**META, CAPABILITIES: {"sampling": {}}}).encode()
    params = b'{"name":"x","arguments":{"n":' + b"1" * 5000 + b'},"_meta":' + meta + b"}"
    d.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}")
    assert 1 == len(to_client(d.hand_on(d.server(asks(1, {"k": ask(sample())})), "k")))


def test_any_depth_is_answered_or_refused() -> None:
    meta = json.dumps({**META, CAPABILITIES: {}}).encode()
    for depth in range(900, 1010):
        d = Dialogue(FORWARD)
        params = (
            b'{"name":"x","arguments":'
            + b"[" * depth
            + b"]" * depth
            + b',"requestState":"sg2.x","_meta":'
            + meta
            + b"}"
        )
        d.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}")


def test_a_forwarded_round_with_a_truncated_emoji_comes_back() -> None:
    d = Dialogue(FORWARD)
    d.client(call(1, {"sampling": {}}))
    back = to_client(d.hand_on(d.server(asks(1, {"k": ask(sample("half \ud83d"))})), "k"))[0]["result"]
    out = d.client(call(2, {"sampling": {}}, requestState=back["requestState"], inputResponses={"k": {}}))
    assert one(out, Open).round.returned is not None


def test_a_second_malformed_answer_while_a_round_is_open_changes_nothing() -> None:
    d = Dialogue(ALLOW)
    d.client(call())
    opened = d.server(asks(1, {"k": ask(sample())}, requestState="s"))
    assert [] == to_client(d.server(b'{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}'))
    (retry,) = to_server(d.settle(opened))
    assert [result(1, content=[])] == to_client(d.server(result(retry["id"], content=[])))


def test_nor_does_one_in_a_pause_or_behind_a_url_error() -> None:
    d = Dialogue(ALLOW)
    d.client(call())
    later = one(d.server(asks(1, requestState="s")), Later)
    first = to_client(d.server(b'{"jsonrpc":"2.0","id":1}'))
    (retry,) = to_server(d.session.due(later.token)) or [None]
    then = to_client(d.server(result(retry["id"]))) if retry else []
    assert 1 == len(first + then)

    d = Dialogue(DENY)
    d.open_legacy()
    d.client(request(1, "tools/call", name="x"))
    opened = d.server(
        error(
            1,
            -32042,
            data={"elicitations": [{"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e"}]},
        )
    )
    first = to_client(d.server(b'{"jsonrpc":"2.0","id":1}'))
    then = to_client(d.settle(opened, answers={"0": Unanswered(Reason.NOT_OFFERED)}))
    assert 1 == len(first + then)


URLS = {"elicitations": [{"mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e"}]}


def test_a_modern_call_that_failed_with_url_errors_can_be_cancelled() -> None:
    d = Dialogue(DENY)
    d.client(call())
    round = one(d.server(error(1, -32042, data=URLS)), Open).round
    out = d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert Withdraw(round.id) in out
    assert [] == d.done(round, Settled({"0": Release(Unanswered(Reason.NOT_OFFERED), "d")}))


def test_the_end_of_such_a_modern_call_says_its_result_type() -> None:
    d = Dialogue(DENY)
    d.client(call())
    out = d.settle(d.server(error(1, -32042, data=URLS)), answers={"0": Unanswered(Reason.NOT_OFFERED)})
    assert "complete" == to_client(out)[0]["result"]["resultType"]  # R52


def test_urls_of_a_modern_request_that_is_no_call_do_not_pass_either() -> None:
    d = Dialogue(DENY)
    d.client(modern(1, "tools/list"))
    out = d.server(error(1, -32042, data=URLS))
    if any(isinstance(e, Open) for e in out):
        out = d.settle(out, answers={"0": Unanswered(Reason.NOT_OFFERED)})
    assert "a.example" not in json.dumps(to_client(out))


def test_no_progress_on_a_call_that_is_finished() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(request(1, "tools/call", name="x", _meta={"progressToken": "p"}))
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    d.server(result(1, content=[]))
    assert [] == to_client(d.session.round_progress(round.id))  # R101: stop after completion


def test_a_finished_call_keeps_no_round_alive_that_its_last_candidate_left() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(request(1, "tools/call", name="x"))
    d.client(request(2, "tools/call", name="x"))
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    d.server(result(1, content=[]))
    assert Withdraw(round.id) in d.client(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    )


def test_a_malformed_reply_to_a_forwarded_request_ends_the_wait() -> None:
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    (sent,) = to_client(d.take(d.session.forward(round.id)))
    out = d.client(f'{{"jsonrpc":"2.0","id":"{sent["id"]}","result":{{}},"result":{{}}}}'.encode())
    assert not one(out, ClientReply).ok


def test_a_malformed_reply_to_the_servers_other_requests_is_told() -> None:
    d = Dialogue(FORWARD)
    d.open_legacy(roots={})
    d.server(request(7, "roots/list"))
    (told,) = to_server(d.client(b'{"jsonrpc":"2.0","id":7,"result":{},"result":{}}'))
    assert (7, True) == (told["id"], "error" in told)


def test_a_listen_that_the_server_cancelled_is_over() -> None:
    d = Dialogue(ALLOW)
    d.client(modern(1, "subscriptions/listen"))
    d.server({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert {} == d.session.state.inflight.asked
    assert 1 == len(to_server(d.client(modern(1, "subscriptions/listen"))))


def test_a_returning_round_does_not_take_another_streams_answer() -> None:
    d = Dialogue(FORWARD)

    def take(stream: int, line: dict[str, Any]) -> list[Effect]:
        return d.take(d.session.frame("client", stream, json.dumps(line).encode(), 0.0))

    take(1, call(5, {"sampling": {}}))
    state = to_client(d.hand_on(d.server(asks(5, {"k": ask(sample())})), "k"))[0]["result"]["requestState"]
    take(0, request(5, "ping"))
    opened = take(1, call(5, {"sampling": {}}, requestState=state, inputResponses={"k": {}}))
    assert isinstance(one(opened, Open), Open)
    assert [ToClient(0, b'{"jsonrpc":"2.0","id":5,"result":{}}', True)] == d.server(result(5))


def test_progress_for_a_round_whose_params_have_twins_never_raises() -> None:
    d = Dialogue(ANSWER)
    d.open_legacy()
    round = one(
        d.server(b'{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"a","message":"b"}}'), Open
    ).round
    d.session.round_progress(round.id)


@pytest.mark.parametrize("reason", [Reason.RECORDS, Reason.ERROR])
def test_a_malformed_elicitation_whose_record_failed_is_answered(reason: Reason) -> None:
    d = Dialogue(ANSWER)
    d.open_legacy()
    opened = d.server(b'{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"a","message":"b"}}')
    assert 1 == len(to_server(d.settle(opened, answers={"": Unanswered(reason)})))


def test_a_call_with_twins_in_its_params_does_not_stall_the_others_progress() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}')
    d.client(request(2, "tools/call", name="x", _meta={"progressToken": "p"}))
    line = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}'
    assert [ToClient(0, line)] == d.server(line)


def test_a_call_with_twins_in_its_params_does_not_stall_the_servers_requests() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}')
    assert [] == [e["error"] for e in to_server(d.server(request(7, "sampling/createMessage", **sample())))]


@pytest.mark.parametrize("value", [2e10, 1e16, 1e300])
def test_beats_rise_strictly_from_any_value(value: float) -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(request(1, "tools/call", name="x", _meta={"progressToken": "p"}))
    d.server(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": value}}
    )
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    (beat,) = to_client(d.session.round_progress(round.id))
    assert beat["params"]["progress"] > value


def test_a_beat_is_always_a_number() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(request(1, "tools/call", name="x", _meta={"progressToken": "p"}))
    d.server(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1e999}}')
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    assert all(
        isinstance(line["params"]["progress"], int | float) for line in to_client(d.session.round_progress(round.id))
    )


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create"])
def test_a_request_of_ours_without_an_id_does_not_reach_the_client(method: str) -> None:
    d = Dialogue(DENY)
    d.open_legacy(sampling={}, elicitation={})
    assert [] == to_client(d.server({"jsonrpc": "2.0", "method": method, "params": sample()}))


def test_an_id_in_our_own_form_is_nobody_elses() -> None:
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    d.server(request("sg:t:2", "roots/list"))  # a server that knows the token predicts the id of the forwarded request
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    (sent,) = to_client(d.take(d.session.forward(round.id)))
    out = d.client(result(sent["id"], role="assistant"))
    assert [] == to_server(out)
    assert one(out, ClientReply).ok


@pytest.mark.parametrize("member", ["inputResponses", "requestState", "InputResponses", "reque\u017ftState"])
def test_a_call_without_the_modern_envelope_brings_no_answers_along(member: str) -> None:
    for legacy in (True, False):
        d = Dialogue(FORWARD)
        if legacy:
            d.open_legacy()
        out = d.client(request(5, "tools/call", name="x", **{member: {"k": {"action": "accept"}}}))
        assert ([], [5]) == (to_server(out), [line["id"] for line in to_client(out)])


def test_a_revision_that_is_no_date_fails_the_handshake() -> None:
    d = Dialogue(ALLOW)
    d.client(request(0, "initialize", protocolVersion="2025-11-25", capabilities={}))
    out = d.server(result(0, protocolVersion="x" * 100_000, capabilities={}))
    assert [(0, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
    assert d.session.state.revision == ""


@pytest.mark.parametrize("legacy", [True, False])
def test_a_task_that_asks_is_never_told_of(legacy: bool) -> None:
    d = Dialogue(DENY)
    if legacy:
        d.open_legacy()
    asking = {
        "jsonrpc": "2.0",
        "method": "notifications/tasks",
        "params": {"taskId": "t", "inputRequests": {"k": ask(sample())}},
    }
    assert [] == to_client(d.server(asking))


def test_a_state_that_is_not_utf_8_fails_the_call() -> None:
    d = Dialogue(FORWARD)
    d.client(call(1, {"sampling": {}}))
    asked = b'{"k":' + json.dumps(ask(sample())).encode() + b"}"
    out = d.server(
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":'
        + asked
        + b',"requestState":"\xff"}}'
    )
    assert [1] == [line["id"] for line in to_client(out)]


@pytest.mark.parametrize("entry", [{"Method": "x"}, {"Params": {}}, {"param\u017f": {}}])
def test_an_entry_that_another_parser_reads_otherwise_fails_the_call(entry: dict[str, Any]) -> None:
    d = Dialogue(ALLOW)
    d.client(call(1))
    out = d.server(asks(1, {"k": {**ask(sample()), **entry}}))
    assert [1] == [line["id"] for line in to_client(out)]


def test_a_line_that_could_not_be_taken_fails_the_call_it_would_have_answered() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    d.client(request(3, "tools/call", name="x"))
    out = d.session.lost("server", 0, b'{"jsonrpc":"2.0","id":3,"result":{"content":[{"te', "it is longer than allowed")
    assert [(3, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
    d.client(request(4, "tools/call", name="x"))
    out = d.server(b'{"jsonrpc":"2.0","id":4,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert [(4, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_python_writes_for_no_number_passes_in_frames_that_are_not_ours(word: str) -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    line = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"NaN","arguments":{{"n":{word},"s":"Infinity"}}}}}}'.encode()  # noqa: E501
    assert [ToServer(0, line)] == d.client(line)
    line = f'{{"jsonrpc":"2.0","id":1,"result":{{"structuredContent":{{"mean":{word}}},"content":[]}}}}'.encode()
    assert [ToClient(0, line, True)] == d.server(line)


def test_but_not_in_a_request_that_is_decided() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    line = b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"temperature":NaN}}'  # noqa: E501
    assert -32602 == getattr(one(d.server(line), Open).round.items[""].request, "code", None)


@pytest.mark.parametrize("id", [b"3", b'"3"'])
def test_an_id_that_stands_last_is_found_too(id: bytes) -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    asked = json.loads(id)
    d.client(request(asked, "tools/call", name="x"))
    tail = b'xxx"}]},"jsonrpc":"2.0","id":' + id + b"}"
    out = d.take(d.session.lost_end("server", 0, b'{"result":{"content":[{"type":"text","text":"xx', tail))
    assert [(asked, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]
    d.client(request(asked, "tools/call", name="x"))
    out = d.server(b'{"result":' + b"[" * 100_000 + b"]" * 100_000 + b',"jsonrpc":"2.0","id":' + id + b"}")
    assert [(asked, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]


def test_the_end_of_a_line_tells_nobody_again() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    assert [] == d.session.lost_end(
        "client", 0, b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"x', b'x"},"jsonrpc":"2.0","id":3}'
    )


@pytest.mark.parametrize(
    "answer",
    ['{"action":"accept","content":{"a":1,"a":2}}', '{"action":"accept","action":"decline"}', "1", "null", '{"a":NaN}'],
)
def test_an_early_answer_of_two_readings_does_not_go_on(answer: str) -> None:
    d = Dialogue(FORWARD)
    params = json.dumps({"name": "x", "_meta": {**META, CAPABILITIES: {"elicitation": {}, "sampling": {}}}})[:-1]
    line = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params},"inputResponses":{{"k":{answer}}}}}}}'.encode()  # noqa: E501
    out = d.client(line)
    assert ([], [1]) == (to_server(out), [frame["id"] for frame in to_client(out)])
