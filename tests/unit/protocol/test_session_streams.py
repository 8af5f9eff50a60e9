"""Several streams in one session: each server frame goes to the stream it belongs to, with the ids of that stream's
client (R111)."""

from __future__ import annotations

import json
from typing import Any

from samplegate.protocol.identity import Identity, static
from samplegate.protocol.rounds import ClientReply, Close, Effect, Note, Open, Over, ToClient, ToServer
from tests.fakes.dialogue import ALLOW, DENY, FORWARD, META, Dialogue, modern, one, request, result, sample, to_server

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def call(id: Any, capabilities: Any = None) -> dict[str, Any]:
    return modern(id, "tools/call", capabilities, name="x")


def shared(*, streams: bool = False) -> Dialogue:
    d = Dialogue(ALLOW)
    d.session.state.maps_ids, d.session.state.streams = True, streams
    return d


def says(d: Dialogue, stream: int, line: dict[str, Any]) -> list[Effect]:
    return d.take(d.session.frame("client", stream, json.dumps(line).encode(), d.now))


def heard(effects: list[Effect]) -> list[tuple[int, Any, bool]]:
    return [(effect.stream, json.loads(effect.line), effect.last) for effect in effects if isinstance(effect, ToClient)]


def with_meta(line: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {**line, "params": {**line["params"], "_meta": {**line["params"].get("_meta", {}), **meta}}}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def test_the_same_id_on_two_streams_is_two_requests_and_each_gets_its_answer() -> None:
    d = shared()
    first, second = (to_server(says(d, stream, call(1)))[0] for stream in (1, 2))
    assert len({first["id"], second["id"], 1}) == 3
    assert [(2, result(1), True)] == heard(d.server(result(second["id"])))
    assert [(1, result(1), True)] == heard(d.server(result(first["id"])))


def test_the_same_progress_token_on_two_streams_is_two_series() -> None:
    d = shared()
    sent = [
        to_server(says(d, stream, with_meta(call(1), progressToken=7)))[0]["params"]["_meta"]["progressToken"]
        for stream in (1, 2)
    ]
    assert len({*sent, 7}) == 3
    out = d.server(notification("notifications/progress", progressToken=sent[1], progress=0.5, message="m"))
    assert [(2, notification("notifications/progress", progressToken=7, progress=0.5, message="m"), False)] == heard(
        out
    )


def test_a_subscriptions_notification_bears_the_id_that_its_client_gave() -> None:
    d = shared()
    says(d, 1, call(1))
    listen = to_server(says(d, 2, {**call("L"), "method": "subscriptions/listen"}))[0]["id"]
    out = d.server(notification("notifications/tools/list_changed", _meta={SUBSCRIPTION: listen}))
    assert [(2, notification("notifications/tools/list_changed", _meta={SUBSCRIPTION: "L"}), False)] == heard(out)


def test_what_belongs_to_no_request_is_dropped_and_counted() -> None:
    d = shared()
    says(d, 1, call(1))
    for line in (
        notification("notifications/tools/list_changed"),
        notification("vendor/news"),
        notification("notifications/progress", progressToken="else", progress=1),
        notification("vendor/news", _meta={SUBSCRIPTION: "nobody's"}),
    ):
        out = d.server(line)
        assert "notification.unattributed" == one(out, Note).event
        assert [] == heard(out)


def test_a_log_message_goes_to_the_one_client_that_asked_for_any() -> None:
    d = shared()
    says(d, 1, call(1))
    says(d, 2, with_meta(call(1), **{"io.modelcontextprotocol/logLevel": "info"}))
    message = notification("notifications/message", level="info", data="x")
    assert [(2, message, False)] == heard(d.server(message))


def test_a_log_message_is_nobodys_where_two_callers_have_requests_in_flight() -> None:
    d = shared()
    d.session.state.identities.update({1: static("ada"), 2: static("bob")})
    for stream in (1, 2):
        says(d, stream, with_meta(call(1), **{"io.modelcontextprotocol/logLevel": "info"}))
    assert [] == heard(d.server(notification("notifications/message", level="info", data="x")))


def test_the_stream_that_a_frame_came_on_says_whose_it_is() -> None:
    d = shared(streams=True)
    says(d, 1, call(1))
    stream = one(says(d, 2, call(1)), ToServer).stream
    line = json.dumps(notification("vendor/news")).encode()
    assert [ToClient(2, line)] == d.session.frame("server", stream, line, 0.0)


def test_over_http_a_modern_call_is_taken_back_by_ending_its_stream() -> None:
    d = shared(streams=True)
    stream = one(says(d, 3, call(1)), ToServer).stream
    assert [Close(stream), Over(3)] == d.session.stream_closed("client", 3)


def test_a_retry_stays_on_the_stream_of_its_call() -> None:
    d = shared(streams=True)
    sent = one(says(d, 3, call(1, {"sampling": {}})), ToServer)
    ask = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    answer = result(json.loads(sent.line)["id"], resultType="input_required", inputRequests={"k": ask})
    again = one(d.settle(d.take(d.session.frame("server", sent.stream, json.dumps(answer).encode(), 0.0))), ToServer)
    assert sent.stream == again.stream
    assert json.loads(sent.line)["id"] != json.loads(again.line)["id"]


def test_a_policy_sees_who_speaks_on_a_stream() -> None:
    d = Dialogue({**DENY, "match": {"caller": "bob"}}, ALLOW)
    d.session.state.maps_ids = True
    d.session.state.identities.update({1: static("ada"), 2: static("bob")})
    for stream, caller in ((1, "ada"), (2, "bob")):
        id = to_server(says(d, stream, call(1, {"sampling": {}})))[0]["id"]
        ask = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
        out = d.server(result(id, resultType="input_required", inputRequests={"k": ask}))
        assert caller == one(out, Open).round.origin.caller


def test_a_legacy_push_on_a_calls_stream_is_asked_during_that_call_alone() -> None:
    d = Dialogue(ALLOW)
    d.session.state.streams = True
    d.open_legacy()
    says(d, 1, request(1, "tools/call", name="one"))
    stream = one(says(d, 2, request(2, "tools/call", name="two")), ToServer).stream
    push = json.dumps(request("s", "sampling/createMessage", messages=[], maxTokens=5)).encode()
    assert ["two"] == [call.tool for call in one(d.session.frame("server", stream, push, 0.0), Open).round.origin.calls]


ONE = Identity("jwt:ann", frozenset({"ops"}), b'{"dept":"finance"}')
OTHER = Identity("jwt:ann", frozenset({"ops"}), b'{"dept":"hr"}')
MIXED = Identity("jwt:ann", frozenset({"ops"}))


def by_tokens(*identities: Identity, streams: bool = False) -> Dialogue:
    """A legacy session with a call in flight for each of these identities."""
    d = Dialogue(ALLOW)
    d.session.state.streams = streams
    d.session.state.identity = identities[0]
    d.open_legacy()
    for stream, identity in enumerate(identities, 1):
        d.session.state.note_identity(stream, identity)
        says(d, stream, request(stream, "tools/call", name="x"))
    return d


def who(d: Dialogue, stream: int = 0) -> tuple[Identity, ...]:
    """The identities of a request that the server pushes."""
    push = json.dumps(request("s", "sampling/createMessage", messages=[], maxTokens=5)).encode()
    return one(d.session.frame("server", stream, push, 0.0), Open).round.origin.identities


def test_a_push_is_asked_for_the_tokens_of_all_calls_that_may_have_caused_it() -> None:
    assert (ONE,) == who(by_tokens(ONE, ONE))
    assert (ONE, OTHER) == who(by_tokens(ONE, OTHER, ONE))


def test_a_push_on_a_calls_stream_is_asked_for_that_calls_token() -> None:
    d = by_tokens(ONE, OTHER, streams=True)
    assert {(ONE,), (OTHER,)} == {
        one_of
        for pending in d.session.state.inflight.calls()
        for one_of in [
            one(
                d.session.frame(
                    "server",
                    pending.number,
                    json.dumps(
                        request(f"s{pending.number}", "sampling/createMessage", messages=[], maxTokens=5)
                    ).encode(),
                    0.0,
                ),
                Open,
            ).round.origin.identities
        ]
    }


def test_without_a_call_a_push_has_what_all_tokens_of_the_session_have_in_common() -> None:
    for identities, expected in ((ONE, ONE), ONE), ((ONE, OTHER), MIXED), ((ONE, OTHER, ONE, ONE), MIXED):
        d = by_tokens(*identities)
        for stream in range(1, len(identities) + 1):
            d.server(result(stream))
        assert (expected,) == who(d)


def test_of_too_many_tokens_at_once_nothing_is_known() -> None:
    many = [Identity("jwt:ann", frozenset(), b'{"n":%d}' % number) for number in range(9)]
    assert (Identity("jwt:ann"),) == who(by_tokens(*many))
    assert tuple(many[:8]) == who(by_tokens(*many[:8]))


def test_a_modern_call_is_asked_for_the_token_that_came_with_it() -> None:
    d = shared()
    for stream, identity in (1, ONE), (2, OTHER), (3, ONE):
        d.session.state.note_identity(stream, identity)
        id = to_server(says(d, stream, call(stream, {"sampling": {}})))[0]["id"]
        ask = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
        out = d.server(result(id, resultType="input_required", inputRequests={"k": ask}))
        assert (identity,) == one(out, Open).round.origin.identities


def test_a_legacy_cancel_comes_on_a_stream_of_its_own() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    says(d, 1, request(1, "tools/call", name="one"))
    cancel = notification("notifications/cancelled", requestId=1)
    assert [ToServer(0, json.dumps(cancel).encode()), Over(1)] == says(d, 2, cancel)


def test_the_servers_own_requests_go_where_its_oldest_call_waits() -> None:
    d = Dialogue(ALLOW)
    d.open_legacy()
    assert 0 == heard(d.server(request("r0", "roots/list")))[0][0]
    says(d, 4, request(1, "tools/call", name="one"))
    says(d, 5, request(2, "tools/call", name="two"))
    assert 4 == heard(d.server(request("r1", "roots/list")))[0][0]


def pushed(d: Dialogue) -> str:
    """The name of a round that a server's request opens."""
    push = json.dumps(request("s", "sampling/createMessage", **sample())).encode()
    return one(d.take(d.session.frame("server", 0, push, 0.0)), Open).round.id


def two_calls() -> Dialogue:
    d = Dialogue(FORWARD)
    d.open_legacy(sampling={})
    for stream, id in ((4, 1), (5, 2)):
        says(d, stream, request(id, "tools/call", name="x"))
    return d


def test_a_request_is_forwarded_on_the_stream_of_a_call_that_is_still_in_flight() -> None:
    d = two_calls()
    round = pushed(d)
    d.server(result(1))
    sent = one(d.session.forward(round), ToClient)
    assert (5, json.loads(sent.line)["id"]) == (sent.stream, sent.asks)


def test_a_request_is_forwarded_on_the_standalone_stream_when_its_calls_are_over() -> None:
    d = two_calls()
    round = pushed(d)
    for id in (1, 2):
        d.server(result(id))
    says(d, 6, request(3, "tools/call", name="later"))
    assert 0 == one(d.session.forward(round), ToClient).stream


def test_a_request_is_withdrawn_on_its_stream_while_that_is_open_and_then_on_another() -> None:
    for answered, stream in (([], 4), ([2], 4), ([1], 5), ([1, 2], 0)):
        d = two_calls()
        round = pushed(d)
        sent = one(d.session.forward(round), ToClient)
        for id in answered:
            d.server(result(id))
        withdrawn = one(d.session.unforward(round, "late"), ToClient)
        assert (4, stream, sent.asks) == (sent.stream, withdrawn.stream, withdrawn.cancels)


def test_the_server_withdraws_its_other_requests_on_their_stream_while_that_is_open_and_then_on_another() -> None:
    for answered, stream in (([], 4), ([1], 5), ([1, 2], 0)):
        d = two_calls()
        assert [(4, "r")] == [
            (effect.stream, effect.asks)
            for effect in d.server(request("r", "roots/list"))
            if isinstance(effect, ToClient)
        ]
        for id in answered:
            d.server(result(id))
        withdrawn = one(d.server(notification("notifications/cancelled", requestId="r")), ToClient)
        assert (stream, "r") == (withdrawn.stream, withdrawn.cancels)


def test_a_request_that_no_stream_took_is_answered_and_logged() -> None:
    d = two_calls()
    sent = one(d.session.forward(pushed(d)), ToClient)
    assert sent.asks is not None
    out = d.session.undelivered(sent.asks)
    reply = one(out, ClientReply)
    assert ("request.undelivered", False, False) == (one(out, Note).event, reply.ok, reply.delivered)
    d.server(request("r", "roots/list"))
    out = d.session.undelivered("r")
    assert "request.undelivered" == one(out, Note).event
    assert [("r", -32603)] == [(said["id"], said["error"]["code"]) for said in to_server(out)]
    for id in ("r", sent.asks, "nobody's"):
        assert [] == d.session.undelivered(id)


def test_whoever_waits_is_told_that_the_server_has_ended() -> None:
    d = shared()
    d.session.state.outlived = True
    for stream in (1, 2):
        says(d, stream, call(stream))
    out = heard(d.session.eof("server"))
    assert [(1, 1, True), (2, 2, True)] == [(stream, line["id"], last) for stream, line, last in out]
    assert {-32603} == {line["error"]["code"] for _, line, _ in out}
    assert [] == d.session.eof("server")


def test_the_modern_meta_is_kept() -> None:
    d = shared()
    sent = to_server(says(d, 1, with_meta(call(1), progressToken="t", vendor={"a": 1})))[0]["params"]["_meta"]
    assert {**META, "vendor": {"a": 1}}.items() <= sent.items()


TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def test_a_round_bears_the_trace_context_of_its_call_and_none_of_another_form() -> None:
    d = shared()
    d.session.state.traces[3] = TRACE
    ask = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    for stream, said, wanted in ((1, TRACE, TRACE), (2, "nonsense", ""), (3, None, TRACE)):
        line = call(1, {"sampling": {}})
        id = to_server(says(d, stream, line if said is None else with_meta(line, traceparent=said)))[0]["id"]
        out = d.server(result(id, resultType="input_required", inputRequests={"k": ask}))
        assert wanted == one(out, Open).round.origin.trace
