"""Modern clients with a legacy server, as transcripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from samplegate.policy.capabilities import can_forward
from samplegate.policy.decide import decide
from samplegate.policy.decisions import Situation
from samplegate.protocol.bridge.modern_client import ModernClient
from samplegate.protocol.identity import static
from samplegate.protocol.outcomes import Denied, Reason, Unanswered
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import ClientReply, Close, Open, Over, ToClient, ToServer, Withdraw
from tests.fakes.dialogue import ALLOW, ANSWER, FORWARD, FORWARD_URLS, error, form, one, request, result, sample
from tests.fakes.streams import (
    ALL,
    CAPABILITIES,
    CLIENT,
    ENVELOPE,
    INFO,
    LEVEL,
    SERVER,
    SUBSCRIPTION,
    VERSION,
    Streams,
    asks,
    bridge,
    heard,
    notes,
    sent,
    tells,
    timer,
)

COMPLETE: dict[str, Any] = {"resultType": "complete", "_meta": {SERVER: INFO}}
UNCACHED: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private"}


def unopened(*rules: Any) -> Streams:
    return Streams(ModernClient, *rules)


def opened(d: Streams, id: Any, **more: Any) -> list[Any]:
    return d.server(result(id, **{"protocolVersion": "2025-11-25", "capabilities": ALL, "serverInfo": INFO, **more}))


class TestOpening:
    def test_the_first_frame_of_a_client_opens_the_server_in_the_newest_legacy_revision(self) -> None:
        d = unopened(ALLOW, ANSWER)
        (hello,) = sent(d.client(1, asks(1, "tools/list", {CLIENT: {"name": "c", "version": "9"}})))
        assert "initialize" == hello["method"]
        assert "2025-11-25" == hello["params"]["protocolVersion"]
        assert {"name": "c", "version": "9"} == hello["params"]["clientInfo"]

    def test_what_the_policy_answers_is_declared_and_nothing_of_the_clients(self) -> None:
        d = unopened(ALLOW, ANSWER)
        (hello,) = sent(d.client(1, asks(1, "tools/list", {CAPABILITIES: {"roots": {}, "elicitation": {"url": {}}}})))
        assert {"sampling": {}, "elicitation": {"form": {}}} == hello["params"]["capabilities"]

    def test_what_only_a_forward_could_answer_is_not_declared(self) -> None:
        d = unopened(FORWARD)
        (hello,) = sent(d.client(1, asks(1, "tools/list", {CAPABILITIES: {"sampling": {}, "elicitation": {}}})))
        assert {} == hello["params"]["capabilities"]

    @pytest.mark.parametrize("info", [5, "x", {"name": "n" * 20_000}])
    def test_a_client_info_that_is_none_is_not_shown(self, info: Any) -> None:
        (hello,) = sent(unopened().client(1, asks(1, "tools/list", {CLIENT: info})))
        assert "samplegate" == hello["params"]["clientInfo"]["name"]

    def test_what_comes_meanwhile_goes_on_in_its_order_once_the_server_is_open(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks(1, "tools/call", name="a")))
        assert [] == sent(d.client(2, asks(1, "tools/call", name="b")))
        assert [] == sent(d.client(1, tells("notifications/vendor", x=1)))
        out = sent(opened(d, hello["id"]))
        assert ["notifications/initialized", "tools/call", "tools/call", "notifications/vendor"] == [
            line["method"] for line in out
        ]
        assert ["a", "b"] == [line["params"]["name"] for line in out[1:3]]

    def test_a_server_that_refuses_fails_those_who_wait_and_is_asked_again_by_the_next(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks(1, "tools/list")))
        ((stream, answer, last),) = heard(d.server(error(hello["id"], -32000, "no room")))
        assert (1, 1, -32603, True) == (stream, answer["id"], answer["error"]["code"], last)
        assert {"initialize": {"code": -32000, "message": "no room"}} == answer["error"]["data"]
        (again,) = sent(d.client(1, asks(2, "tools/list")))
        assert "initialize" == again["method"]
        assert hello["id"] != again["id"]

    @pytest.mark.parametrize("said", [{"capabilities": 5}, {"capabilities": {}, "protocolVersion": "x"}, {}])
    def test_a_server_whose_answer_is_no_initialize_result_is_not_open(self, said: dict[str, Any]) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks(1, "tools/list")))
        ((_, answer, _),) = heard(d.server(result(hello["id"], **said)))
        assert -32603 == answer["error"]["code"]

    def test_a_server_that_does_not_answer_in_time_fails_those_who_wait_and_may_still_open_later(self) -> None:
        d = unopened()
        out = d.client(1, asks(1, "tools/list"))
        assert 60.0 == timer(out).delay
        assert [(1, -32603)] == [
            (stream, said["error"]["code"]) for stream, said, _ in heard(d.take(d.session.due(timer(out).token)))
        ]
        again = d.client(1, asks(2, "tools/list"))
        assert [] == sent(again)
        assert [] == d.session.due(timer(out).token)
        assert ["notifications/initialized", "tools/list"] == [
            line["method"] for line in sent(opened(d, sent(out)[0]["id"]))
        ]
        assert [] == d.session.due(timer(again).token)

    def test_who_is_cancelled_or_leaves_while_waiting_is_not_sent_on(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks(1, "tools/list")))
        d.client(2, asks(1, "tools/call", name="b"))
        d.client(0, asks("x", "tools/call", name="c"))
        assert [] == d.session.stream_closed("client", 2)
        assert [Over(0)] == d.client(0, tells("notifications/cancelled", requestId="x"))
        assert ["notifications/initialized", "tools/list"] == [line["method"] for line in sent(opened(d, hello["id"]))]

    def test_frames_that_wait_are_bounded(self) -> None:
        d = unopened()
        for number in range(1000):
            assert [] == heard(d.client(1, asks(number, "tools/list")))
        ((_, refused, last),) = heard(d.client(1, asks(1000, "tools/list")))
        assert (-32603, True) == (refused["error"]["code"], last)
        assert ["frame.unasked"] == notes(d.client(1, tells("notifications/vendor")))

    def test_what_is_hostile_is_refused_before_it_waits(self) -> None:
        d = unopened()
        refused = d.client(1, asks(1, "tools/call", name="x", inputresponses={}))
        assert ([], [(1, -32600)]) == (
            sent(refused),
            [(said["id"], said["error"]["code"]) for _, said, _ in heard(refused)],
        )
        (hello,) = sent(d.client(1, asks(2, "tools/list")))
        out = opened(d, hello["id"])
        assert ["notifications/initialized", "tools/list"] == [line["method"] for line in sent(out)]

    def test_bytes_that_wait_are_bounded(self) -> None:
        d = unopened()
        out = [
            heard(d.client(1, asks(number, "tools/call", name="x", arguments={"a": "b" * 10_000_000})))
            for number in range(4)
        ]
        assert [0, 0, 0, 1] == [len(one) for one in out]


class TestEnvelope:
    @pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
    def test_a_request_without_what_every_request_bears_is_bad_params(self, missing: str) -> None:
        meta = {name: value for name, value in ENVELOPE.items() if name != missing}
        ((_, said, last),) = heard(bridge().client(3, request(1, "tools/list", _meta=meta)))
        assert (-32602, True) == (said["error"]["code"], last)
        assert missing in said["error"]["message"]

    @pytest.mark.parametrize(
        "params",
        [
            None,
            [],
            {},
            {"_meta": 5},
            {"_meta": {VERSION: 5, CAPABILITIES: {}}},
            {"_meta": {**ENVELOPE, CAPABILITIES: []}},
        ],
    )
    def test_an_envelope_of_another_shape_is_bad_params(self, params: Any) -> None:
        line = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", **({} if params is None else {"params": params})}
        ((_, said, _),) = heard(bridge().client(3, line))
        assert -32602 == said["error"]["code"]

    @pytest.mark.parametrize("version", ["2025-11-25", "v999.0.0", "2027-01-01"])
    def test_another_version_is_answered_with_those_that_are_spoken(self, version: str) -> None:
        ((_, said, _),) = heard(bridge().client(3, asks(1, "tools/list", {VERSION: version})))
        assert (-32022, {"supported": ["2026-07-28"], "requested": version}) == (
            said["error"]["code"],
            said["error"]["data"],
        )

    def test_a_level_that_is_none_is_bad_params(self) -> None:
        ((_, said, _),) = heard(bridge().client(3, asks(1, "tools/list", {LEVEL: "loud"})))
        assert -32602 == said["error"]["code"]

    @pytest.mark.parametrize(
        "method",
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/get"],
    )
    def test_what_the_modern_era_has_no_more_is_not_found_and_the_versions_are_named(self, method: str) -> None:
        out = bridge().client(3, asks(1, method))
        ((_, said, _),) = heard(out)
        assert (-32601, ["2026-07-28"]) == (said["error"]["code"], said["error"]["data"]["supported"])
        assert [] == sent(out)

    def test_a_bad_request_opens_no_server(self) -> None:
        assert [] == sent(unopened().client(3, request(1, "tools/list")))

    def test_the_server_sees_the_request_without_its_envelope_and_all_else_byte_for_byte(self) -> None:
        d = bridge()
        meta = (
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b' "a":1.0,"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}'
        )
        line = (
            b'{"jsonrpc":"2.0", "id":1,"method":"x/y","params":{ "n":1.0,"_meta":'
            + meta
            + b',"u":"\\u00e9"},"extra":[true]}'
        )
        seen = one(d.client(3, line), ToServer).line
        head, _, tail = seen.partition(b'"id":')
        assert b'{"jsonrpc":"2.0", ' == head
        assert tail.endswith(b',"method":"x/y","params":{ "n":1.0,"_meta":{"a":1.0},"u":"\\u00e9"},"extra":[true]}')

    def test_a_meta_that_is_nothing_but_the_envelope_goes_whole(self) -> None:
        (seen,) = sent(bridge().client(3, asks(1, "tools/list", {CLIENT: INFO, LEVEL: "error"}))[-1:])
        assert {} == seen["params"]

    def test_a_spelling_that_a_lenient_server_takes_for_the_envelope_is_refused(self) -> None:
        out = bridge().client(3, asks(1, "tools/list", {VERSION.upper(): "x"}))
        assert ([], [(1, -32600)]) == (sent(out), [(said["id"], said["error"]["code"]) for _, said, _ in heard(out)])

    def test_a_state_that_was_never_given_out_is_bad_params(self) -> None:
        out = bridge().client(3, asks(1, "tools/call", name="x", requestState="s"))
        ((_, said, _),) = heard(out)
        assert -32602 == said["error"]["code"]
        assert [] == sent(out)

    def test_answers_that_nobody_asked_for_and_tasks_are_taken_out(self) -> None:
        out = bridge().client(
            3,
            asks(
                1,
                "tools/call",
                name="x",
                inputResponses={"k": {"action": "accept"}},
                requestState=None,
                task={"ttl": 1},
            ),
        )
        assert [{"name": "x"}] == [line["params"] for line in sent(out)]
        assert ["answers.unsolicited"] == notes(out)

    @pytest.mark.parametrize("name", ["inputresponses", "RequestState"])
    def test_a_spelling_of_answers_that_another_parser_folds_is_refused(self, name: str) -> None:
        out = bridge().client(3, asks(1, "tools/call", name="x", **{name: {}}))
        assert [-32600] == [said["error"]["code"] for _, said, _ in heard(out)]
        assert [] == sent(out)


class TestAnswers:
    def test_discover_is_answered_from_what_the_server_said_of_itself(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks("d", "server/discover")))
        capabilities = {
            **ALL,
            "tasks": {"list": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}, "vendor/x": {}},
        }
        out = opened(d, hello["id"], capabilities=capabilities, instructions="read \u00e9")
        wanted = {**ALL, "extensions": {"vendor/x": {}}}
        body = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": wanted,
            "instructions": "read \u00e9",
            **COMPLETE,
            **UNCACHED,
        }
        assert [(1, result("d", **body), True)] == heard(out)
        assert [(2, result(1, **body), True)] == heard(d.client(2, asks(1, "server/discover")))

    @pytest.mark.parametrize(
        ("method", "more"),
        [
            ("tools/list", UNCACHED),
            ("prompts/list", UNCACHED),
            ("resources/list", UNCACHED),
            ("resources/templates/list", UNCACHED),
            ("resources/read", UNCACHED),
            ("tools/call", {}),
            ("prompts/get", {}),
            ("completion/complete", {}),
            ("vendor/x", {}),
        ],
    )
    def test_a_result_is_complete_and_says_how_long_it_holds_where_it_must(
        self, method: str, more: dict[str, Any]
    ) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks("a", method, name="x", uri="u")))
        out = d.server(result(seen["id"], vendor=1, _meta={"v": 2}))
        assert [(3, result("a", vendor=1, **more, resultType="complete", _meta={"v": 2, SERVER: INFO}), True)] == heard(
            out
        )

    def test_the_rest_of_a_result_stays_byte_for_byte(self) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        out = one(
            d.server(
                f'{{"jsonrpc":"2.0","id":"{seen["id"]}","result":{{ "n": 1.0,"u":"\\u00e9"}},"extra":[1.0]}}'.encode()
            ),
            ToClient,
        )
        head = (
            b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":'
        )
        assert head + b'{"name":"s","version":"1"}}, "n": 1.0,"u":"\\u00e9"},"extra":[1.0]}' == out.line

    @pytest.mark.parametrize(
        "said",
        [
            {},
            {"resultType": "task", "task": {}},
            {"_meta": 5, "ttlMs": -1},
        ],
    )
    def test_what_means_something_only_in_the_modern_era_means_nothing_in_a_legacy_result(
        self, said: dict[str, Any]
    ) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "resources/read", uri="u")))
        ((_, answer, _),) = heard(d.server(result(seen["id"], contents=[], **said)))
        assert {"contents": [], **COMPLETE, **UNCACHED} == {
            name: value for name, value in answer["result"].items() if name != "task"
        }

    @pytest.mark.parametrize(
        "payload",
        [
            b"5",
            b"[]",
            b'{"resulttype":"x"}',
            b'{"ttlms":9}',
            b'{"requeststate":1}',
            b'{"resulttype":"input_required"}',
            b'{"a":1,"a":2}',
            b'{"resultType":"input_required"}',
        ],
    )
    def test_a_result_that_cannot_be_one_fails_its_call(self, payload: bytes) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        out = d.server(b'{"jsonrpc":"2.0","id":"' + seen["id"].encode() + b'","result":' + payload + b"}")
        assert [(3, 1, -32603, True)] == [
            (stream, said["id"], said["error"]["code"], last) for stream, said, last in heard(out)
        ]

    def test_a_server_that_says_nothing_of_itself_is_not_named(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks("d", "server/discover")))
        d.server(result(hello["id"], protocolVersion="2024-11-05", capabilities={}, serverInfo="s"))
        (seen,) = sent(d.client(1, asks(1, "tools/list")))
        assert [(1, result(1, resultType="complete", **UNCACHED), True)] == heard(d.server(result(seen["id"])))

    @pytest.mark.parametrize(
        "said", [{"resultType": 5}, {"inputRequests": {"k": {}}, "requestState": "s"}, {"requestState": "s"}]
    )
    def test_a_legacy_result_with_which_a_modern_server_would_ask_for_input_is_refused(
        self, said: dict[str, Any]
    ) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "resources/read", uri="u")))
        ((_, answer, _),) = heard(d.server(result(seen["id"], contents=[], **said)))
        assert -32603 == answer["error"]["code"]

    @pytest.mark.parametrize("payload", [b'{"code":-320020,"message":1.0}', b'{"code":7.0}'])
    def test_an_error_of_any_other_code_stays_byte_for_byte(self, payload: bytes) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        out = one(d.server(b'{"jsonrpc":"2.0","id":"' + seen["id"].encode() + b'","error":' + payload + b"}"), ToClient)
        assert b'{"jsonrpc":"2.0","id":1,"error":' + payload + b"}" == out.line

    @pytest.mark.parametrize(
        ("code", "wanted"), [(-32002.0, -32602), (-32002, -32602), (-32601, -32601), (-32000, -32000), (7, 7)]
    )
    def test_an_error_goes_on_as_it_came_but_for_the_code_that_the_era_renamed(self, code: float, wanted: int) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "resources/read", uri="u")))
        assert [(3, error(1, wanted, "no", data={"uri": "u"}), True)] == heard(
            d.server(
                {"jsonrpc": "2.0", "id": seen["id"], "error": {"code": code, "message": "no", "data": {"uri": "u"}}}
            )
        )

    def test_the_same_id_on_two_streams_is_two_requests(self) -> None:
        d = bridge()
        first, second = (sent(d.client(stream, asks(1, "tools/call", name="x")))[0]["id"] for stream in (1, 2))
        assert first != second
        assert [2] == [stream for stream, _, _ in heard(d.server(result(second)))]
        assert [1] == [stream for stream, _, _ in heard(d.server(result(first)))]
        assert [] == heard(d.server(result(first)))

    def test_an_id_may_be_used_again_when_its_request_is_over_and_the_server_never_sees_it_twice(self) -> None:
        d = bridge()
        seen = []
        for _ in range(3):
            seen += [line["id"] for line in sent(d.client(0, asks(1, "tools/list")))]
            d.server(result(seen[-1]))
        assert 3 == len(set(seen))

    def test_an_id_that_is_in_flight_is_refused_and_its_request_goes_on(self) -> None:
        d = bridge()
        (seen,) = sent(d.client(0, asks(1, "resources/read", uri="u")))
        assert [-32600] == [said["error"]["code"] for _, said, _ in heard(d.client(0, asks(1, "tools/list")))]
        assert [-32600] == [
            said["error"]["code"] for _, said, _ in heard(d.client(0, b'{"jsonrpc":"2.0","id":1,"method":5}'))
        ]
        ((_, answer, _),) = heard(d.server(result(seen["id"], contents=[])))
        assert 0 == answer["result"]["ttlMs"]


class TestServerAsks:
    def test_a_pushed_request_is_a_round_and_its_outcome_goes_to_the_server(self) -> None:
        d = bridge(ALLOW)
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        out = d.server(request(5, "sampling/createMessage", **sample()))
        assert ("tools/call", "x") == (
            one(out, Open).round.origin.calls[0].method,
            one(out, Open).round.origin.calls[0].tool,
        )
        (answer,) = sent(d.settle(out))
        assert (5, "m") == (answer["id"], answer["result"]["model"])
        assert [3] == [stream for stream, _, _ in heard(d.server(result(seen["id"], content=[])))]

    @pytest.mark.parametrize("params", [sample(), form()])
    def test_forward_is_not_reachable_and_the_server_gets_the_specifications_error(
        self, params: dict[str, Any]
    ) -> None:
        d = bridge(FORWARD)
        d.client(3, asks(1, "tools/call", {CAPABILITIES: {"sampling": {}, "elicitation": {}}}, name="x"))
        method = "sampling/createMessage" if "messages" in params else "elicitation/create"
        out = d.server(request(5, method, **params))
        round = one(out, Open).round
        item = round.items[""]
        assert not isinstance(item.request, BadRequest)
        assert (False, False) == (item.offered, can_forward(item.request, round.client))
        assert "none" == decide(d.compiled, item.request, Situation(can_forward(item.request, round.client))).effect
        (answer,) = sent(d.settle(out, all=Unanswered(Reason.NOT_OFFERED, code=-32602)))
        assert (5, -32602) == (answer["id"], answer["error"]["code"])

    def test_what_the_server_waits_for_itself_is_not_put_off(self) -> None:
        """The server's own timeout runs on in one session, and between two tries of the client there is no request to
        notify or cancel."""
        d = bridge(ALLOW)
        d.client(3, asks(1, "tools/call", name="x", arguments={"n": 1}))
        round = one(d.server(request(5, "sampling/createMessage", **sample())), Open).round
        assert 0 == round.parks
        assert {"name": "x", "arguments": {"n": 1}} == json.loads(round.arguments or b"null")

    def test_a_forward_that_is_tried_all_the_same_is_an_error_at_once_and_reaches_no_client(self) -> None:
        d = bridge(FORWARD)
        d.client(3, asks(1, "tools/call", name="x"))
        round = one(d.server(request(5, "sampling/createMessage", **sample())), Open).round
        (reply,) = d.session.forward(round.id)
        assert isinstance(reply, ClientReply)
        assert (round.id, False) == (reply.round, reply.ok)
        assert [] == d.session.unforward(round.id, "late")

    def test_an_error_that_asks_for_urls_ends_the_call_without_them(self) -> None:
        d = bridge(FORWARD_URLS)
        (seen,) = sent(d.client(3, asks(1, "tools/call", {CAPABILITIES: {"elicitation": {"url": {}}}}, name="x")))
        urls = {
            "elicitations": [{"mode": "url", "message": "m", "url": "https://a.example/secret", "elicitationId": "e"}]
        }
        out = d.server(error(seen["id"], -32042, "open it", data=urls))
        (item,) = one(out, Open).round.items.values()
        assert not item.offered
        done = d.settle(out, all=Denied(Reason.RULE))
        ((stream, answer, last),) = heard(done)
        assert (3, 1, True, "complete", True) == (
            stream,
            answer["id"],
            last,
            answer["result"]["resultType"],
            answer["result"]["isError"],
        )
        assert b"secret" not in one(done, ToClient).line

    @pytest.mark.parametrize(
        ("method", "answer"), [("ping", {"result": {}}), ("roots/list", -32601), ("vendor/x", -32601)]
    )
    def test_what_else_a_server_asks_is_answered_here(self, method: str, answer: Any) -> None:
        d = bridge()
        for line in (request("p", method), [request("p", method)]):
            out = (bridge(revision="2025-03-26") if isinstance(line, list) else d).server(line)
            assert [] == heard(out)
            (said,) = sent(out)
            assert "p" == said["id"]
            assert answer == (said["error"]["code"] if "error" in said else {"result": said["result"]})

    def test_a_server_that_pings_without_end_in_batches_is_always_answered(self) -> None:
        d = bridge(revision="2025-03-26")
        for first in range(0, 12_000, 1000):
            assert 1000 == len(sent(d.server([request(first + number, "ping") for number in range(1000)])))


class TestNotifications:
    def test_progress_goes_to_the_stream_and_under_the_token_of_its_request(self) -> None:
        d = bridge()
        tokens = [
            sent(d.client(stream, asks(1, "tools/call", {"progressToken": 7}, name="x")))[0]["params"]["_meta"][
                "progressToken"
            ]
            for stream in (1, 2)
        ]
        assert 2 == len(set(tokens))
        out = d.server(tells("notifications/progress", progressToken=tokens[1], progress=1))
        assert [(2, tells("notifications/progress", progressToken=7, progress=1), False)] == heard(out)
        assert [] == heard(d.server(tells("notifications/progress", progressToken="nobody's", progress=1)))

    def test_a_round_keeps_the_clients_timer_alive(self) -> None:
        d = bridge(ALLOW)
        d.client(3, asks(1, "tools/call", {"progressToken": 7}, name="x"))
        round = one(d.server(request(5, "sampling/createMessage", **sample())), Open).round
        ((stream, beat, last),) = heard(d.session.round_progress(round.id))
        assert (3, 7, False) == (stream, beat["params"]["progressToken"], last)

    @pytest.mark.parametrize(
        "method",
        ["notifications/elicitation/complete", "notifications/tasks/status", "notifications/vendor", "notifications/x"],
    )
    def test_what_cannot_be_attributed_is_dropped_and_counted(self, method: str) -> None:
        d = bridge()
        d.client(3, asks(1, "tools/call", name="x"))
        out = d.server(tells(method, a=1))
        assert ([], ["notification.unattributed"]) == (heard(out), notes(out))

    def test_what_came_on_the_stream_of_a_request_goes_to_its_stream(self) -> None:
        d = bridge(streams=True)
        d.client(3, asks(1, "tools/call", name="x"))
        number = one(d.client(4, asks(1, "tools/call", name="y")), ToServer).stream
        assert [(4, tells("notifications/vendor", a=1), False)] == heard(
            d.server(tells("notifications/vendor", a=1), number)
        )
        assert [] == heard(d.server(tells("notifications/elicitation/complete", elicitationId="e"), number))

    def test_a_server_that_cancels_what_a_client_asked_is_not_heard(self) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        assert [] == heard(d.server(tells("notifications/cancelled", requestId=seen["id"])))
        assert [3] == [stream for stream, _, _ in heard(d.server(result(seen["id"])))]

    @pytest.mark.parametrize(
        "method", ["notifications/initialized", "notifications/roots/list_changed", "notifications/progress"]
    )
    def test_what_a_modern_client_has_no_more_goes_nowhere(self, method: str) -> None:
        assert [] == sent(bridge().client(3, tells(method, _meta=ENVELOPE)))

    def test_other_notifications_of_a_client_go_on_without_an_envelope(self) -> None:
        d = bridge()
        assert [tells("notifications/vendor", a=1)] == sent(
            d.client(3, tells("notifications/vendor", a=1, _meta=ENVELOPE))
        )
        for line in (
            b'{"jsonrpc":"2.0","method":"notifications/vendor"}',
            b'{"jsonrpc":"2.0","method":"notifications/vendor","params":{"_meta":{"a": 1}}}',
        ):
            assert [ToServer(0, line)] == d.client(3, line)

    def test_an_error_that_names_no_request_is_nobodys(self) -> None:
        out = bridge().server({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
        assert ([], 1) == (heard(out), len(notes(out)))


class TestLogging:
    def test_the_level_of_a_request_is_set_before_it_and_messages_of_that_level_go_to_its_stream(self) -> None:
        d = bridge()
        out = sent(d.client(3, asks(1, "tools/call", {LEVEL: "warning"}, name="x")))
        assert [("logging/setLevel", {"level": "warning"}), ("tools/call", {"name": "x"})] == [
            (line["method"], line["params"]) for line in out
        ]
        assert [] == heard(d.server(result(out[0]["id"])))
        message = tells("notifications/message", level="error", data="d")
        assert [(3, message, False)] == heard(d.server(message))
        assert [] == heard(d.server(tells("notifications/message", level="info", data="d")))
        assert [] == heard(d.server(tells("notifications/message", level="loud", data="d")))

    def test_the_most_talkative_in_flight_counts(self) -> None:
        d = bridge()

        def levels(stream: int, level: str) -> list[str]:
            return [
                line["params"]["level"]
                for line in sent(d.client(stream, asks(1, "tools/call", {LEVEL: level}, name="x")))
                if "level" in line["params"]
            ]

        assert ["error"] == levels(1, "error")
        assert ["debug"] == levels(2, "debug")
        assert [] == levels(3, "info")
        message = tells("notifications/message", level="info", data="d")
        assert [2, 3] == [stream for stream, _, _ in heard(d.server(message))]
        for stream in (2, 3):
            d.session.stream_closed("client", stream)
        assert [] == heard(d.server(message))
        assert ["warning"] == levels(4, "warning")

    def test_no_message_goes_to_who_asked_for_none(self) -> None:
        d = bridge()
        d.client(3, asks(1, "tools/call", name="x"))
        out = d.server(tells("notifications/message", level="emergency", data="d"))
        assert ([], ["notification.unattributed"]) == (heard(out), notes(out))

    def test_progress_on_what_we_asked_ourselves_is_no_clients(self) -> None:
        d = bridge(streams=True)
        own = one(d.client(3, listens(1, resourceSubscriptions=["u"])), ToServer).stream
        assert [] == heard(d.server(tells("notifications/progress", progressToken="p", progress=1), own))
        assert [] == heard(d.server(tells("notifications/vendor"), own))

    def test_a_message_on_the_stream_of_a_request_is_that_requests(self) -> None:
        d = bridge(streams=True)
        d.client(3, asks(1, "tools/call", {LEVEL: "debug"}, name="x"))
        quiet = one(d.client(4, asks(1, "tools/call", name="x")), ToServer).stream
        loud = d.client(5, asks(1, "tools/call", {LEVEL: "debug"}, name="x"))[-1]
        assert isinstance(loud, ToServer)
        message = tells("notifications/message", level="info", data="d")
        assert [] == heard(d.server(message, quiet))
        assert [5] == [stream for stream, _, _ in heard(d.server(message, loud.stream))]

    def test_a_message_that_may_be_another_callers_goes_to_nobody(self) -> None:
        d = bridge()
        d.state.identities = {3: static("ann"), 4: static("bob")}
        d.client(3, asks(1, "tools/call", {LEVEL: "debug"}, name="x"))
        d.client(4, asks(1, "tools/call", name="x"))
        assert [] == heard(d.server(tells("notifications/message", level="error", data="d")))

    def test_a_server_without_a_log_is_not_asked_to_set_a_level(self) -> None:
        d = bridge(capabilities={})
        assert ["tools/call"] == [
            line["method"] for line in sent(d.client(3, asks(1, "tools/call", {LEVEL: "debug"}, name="x")))
        ]


def listens(id: Any, **filter: Any) -> dict[str, Any]:
    return asks(id, "subscriptions/listen", notifications=filter)


class TestListens:
    def test_a_listen_is_acknowledged_first_with_what_the_server_can_tell(self) -> None:
        d = bridge(capabilities={"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}})
        out = d.client(
            3,
            listens(
                "L",
                toolsListChanged=True,
                promptsListChanged=True,
                resourcesListChanged=True,
                resourceSubscriptions=["a:b"],
            ),
        )
        wanted = {
            "_meta": {SUBSCRIPTION: "L"},
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]},
        }
        assert [(3, tells("notifications/subscriptions/acknowledged", **wanted), False)] == heard(out[:1])
        assert [("resources/subscribe", {"uri": "a:b"})] == [(line["method"], line["params"]) for line in sent(out)]

    @pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
    def test_changes_go_to_every_listen_that_wants_them_under_its_own_id(self, kind: str) -> None:
        d = bridge()
        d.client(3, listens(1, **{f"{kind}ListChanged": True}))
        d.client(4, listens("1", **{f"{kind}ListChanged": True}))
        d.client(5, listens(2, **{f"{kind}ListChanged": False}))
        out = d.server(f'{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}'.encode())
        assert [(3, 1), (4, "1")] == [(stream, said["params"]["_meta"][SUBSCRIPTION]) for stream, said, _ in heard(out)]
        assert not any(last for _, _, last in heard(out))

    def test_two_listens_on_one_stream_each_get_theirs(self) -> None:
        d = bridge()
        d.client(0, listens(1, toolsListChanged=True))
        d.client(0, listens(2, toolsListChanged=True))
        out = d.server(tells("notifications/tools/list_changed", _meta={SUBSCRIPTION: "forged", "v": 1}))
        assert [{SUBSCRIPTION: 1, "v": 1}, {SUBSCRIPTION: 2, "v": 1}] == [
            said["params"]["_meta"] for _, said, _ in heard(out)
        ]

    def test_an_update_goes_to_those_who_watch_the_resource_or_what_it_is_a_part_of(self) -> None:
        d = bridge()
        d.client(3, listens(1, resourceSubscriptions=["file:///a", "file:///b"]))
        d.client(4, listens(1, resourceSubscriptions=["file:///a/c"]))
        assert [3, 4] == sorted(
            stream for stream, _, _ in heard(d.server(tells("notifications/resources/updated", uri="file:///a/c")))
        )
        assert [3] == [
            stream for stream, _, _ in heard(d.server(tells("notifications/resources/updated", uri="file:///b")))
        ]
        assert [] == heard(d.server(tells("notifications/resources/updated", uri="file:///bc")))
        assert [] == heard(d.server(tells("notifications/resources/updated", uri=5)))

    def test_the_server_is_subscribed_once_however_many_watch_and_unsubscribed_by_the_last(self) -> None:
        d = bridge()
        assert ["resources/subscribe"] == [
            line["method"] for line in sent(d.client(3, listens(1, resourceSubscriptions=["u", "u"])))
        ]
        assert [] == sent(d.client(4, listens(1, resourceSubscriptions=["u"])))
        assert [Over(3)] == d.client(3, tells("notifications/cancelled", requestId=1))
        (last,) = sent(d.session.stream_closed("client", 4))
        assert ("resources/unsubscribe", {"uri": "u"}) == (last["method"], last["params"])
        assert [] == heard(d.server(tells("notifications/resources/updated", uri="u")))

    def test_a_server_that_refuses_a_subscription_is_noted_and_no_client_hears_of_it(self) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, listens(1, resourceSubscriptions=["u"])))
        out = d.server(error(seen["id"], -32602))
        assert ([], ["bridge.refused"]) == (heard(out), notes(out))

    def test_the_end_of_the_server_ends_listens_with_a_result_and_calls_with_an_error(self) -> None:
        d = bridge()
        d.client(3, listens("L", toolsListChanged=True))
        d.client(4, asks(1, "tools/call", name="x"))
        out = d.take(d.session.eof("server"))
        assert (3, result("L", resultType="complete", _meta={SUBSCRIPTION: "L"}), True) in heard(out)
        assert [(4, 1)] == [(stream, said["id"]) for stream, said, last in heard(out) if "error" in said and last]
        assert [-32603] == [said["error"]["code"] for _, said, _ in heard(d.client(5, asks(1, "tools/list")))]
        assert [] == heard(d.session.eof("server"))

    def test_an_update_of_two_readings_goes_to_nobody(self) -> None:
        d = bridge()
        d.client(3, listens(1, resourceSubscriptions=["u"]))
        out = d.server(b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u","uri":"v"}}')
        assert ([], ["frame.refused"]) == (heard(out), notes(out))

    def test_a_part_of_a_resource_is_found_by_a_bounded_search(self) -> None:
        d = bridge()
        d.client(3, listens(1, resourceSubscriptions=["a:/", "a:" + "/x" * 100]))
        assert [3] == [
            stream for stream, _, _ in heard(d.server(tells("notifications/resources/updated", uri="a:" + "/x" * 4000)))
        ]
        assert [] == heard(d.server(tells("notifications/resources/updated", uri="b:" + "/" * 100_000)))

    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"notifications": 5},
            {"notifications": {"resourceSubscriptions": "u"}},
            {"notifications": {"resourceSubscriptions": [5]}},
            {"notifications": {"resourceSubscriptions": [f"u{number}" for number in range(257)]}},
            {"notifications": {"resourceSubscriptions": ["u" * 9000]}},
        ],
    )
    def test_a_filter_that_is_none_or_too_large_is_bad_params(self, params: dict[str, Any]) -> None:
        out = bridge().client(3, asks(1, "subscriptions/listen", **params))
        assert [-32602] == [said["error"]["code"] for _, said, _ in heard(out)]
        assert [] == sent(out)

    def test_listens_are_bounded_on_a_stream_and_in_all(self) -> None:
        d = bridge()
        taken = [heard(d.client(0, listens(number, toolsListChanged=True)))[0][1] for number in range(40)]
        assert 32 == sum("error" not in said for said in taken)
        taken = [heard(d.client(stream, listens(1, toolsListChanged=True)))[0][1] for stream in range(1, 1001)]
        assert 1000 - 32 == sum("error" not in said for said in taken)

    def test_watched_resources_are_bounded_in_all_and_room_comes_back(self) -> None:
        d = bridge()

        def listen(stream: int) -> bool:
            return (
                "error"
                not in heard(
                    d.client(stream, listens(1, resourceSubscriptions=[f"u{stream}.{number}" for number in range(250)]))
                )[0][1]
            )

        assert 40 == sum(listen(stream) for stream in range(45))
        d.session.stream_closed("client", 0)
        assert listen(50)


class TestTakenBack:
    def test_a_cancel_goes_to_the_server_under_its_own_id_and_the_rounds_are_withdrawn(self) -> None:
        d = bridge(ALLOW)
        (seen,) = sent(d.client(0, asks(1, "tools/call", name="x")))
        round = one(d.server(request(5, "sampling/createMessage", **sample())), Open).round
        out = d.client(0, tells("notifications/cancelled", requestId=1, reason="why", _meta=ENVELOPE))
        assert [tells("notifications/cancelled", requestId=seen["id"], reason="why")] == sent(out)
        assert Withdraw(round.id) in out
        assert [Over(0)] == [effect for effect in out if isinstance(effect, Over)]
        assert [] == heard(d.server(result(seen["id"])))

    def test_a_stream_that_closes_takes_back_all_that_came_on_it_and_nothing_else(self) -> None:
        d = bridge()
        (mine,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        (other,) = sent(d.client(4, asks(1, "tools/call", name="x")))
        assert [tells("notifications/cancelled", requestId=mine["id"])] == sent(d.session.stream_closed("client", 3))
        assert [4] == [stream for stream, _, _ in heard(d.server(result(other["id"])))]
        assert [] == d.session.stream_closed("client", 3)

    @pytest.mark.parametrize("id", [9, {}, None, "sg:t:1"])
    def test_a_cancel_of_nothing_goes_nowhere(self, id: Any) -> None:
        d = bridge()
        d.client(0, asks(1, "tools/call", name="x"))
        assert [] == sent(d.client(0, tells("notifications/cancelled", requestId=id)))

    def test_a_cancel_on_another_stream_takes_nothing_back(self) -> None:
        d = bridge()
        d.client(1, asks(1, "tools/call", name="x"))
        assert [] == sent(d.client(2, tells("notifications/cancelled", requestId=1)))

    def test_the_clients_end_withdraws_all_and_closes_the_server(self) -> None:
        d = bridge(ALLOW)
        d.client(0, asks(1, "tools/call", name="x"))
        round = one(d.server(request(5, "sampling/createMessage", **sample())), Open).round
        out = d.session.eof("client")
        assert [Withdraw(round.id), Close(0)] == out


class TestHostile:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"x",
            b"[]",
            b"\xff",
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":"sg:t:1","result":{}}',
        ],
    )
    def test_what_is_no_request_or_answers_nobody_goes_nowhere(self, line: bytes) -> None:
        out = bridge(ALLOW).client(3, line)
        assert ([], []) == (sent(out), heard(out))

    def test_a_batch_of_a_client_passes_no_revision_that_has_batches(self) -> None:
        d = bridge(revision="2025-03-26")
        out = d.client(3, b'[{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{}}]')
        assert ([], [(3, 1, -32600)]) == (
            sent(out),
            [(stream, said["id"], said["error"]["code"]) for stream, said, _ in heard(out)],
        )

    def test_an_id_of_our_own_form_is_refused(self) -> None:
        assert [-32600] == [
            said["error"]["code"] for _, said, _ in heard(bridge().client(3, asks("sg:t:1", "tools/list")))
        ]

    def test_a_line_that_was_lost_fails_whoever_waits_for_it(self) -> None:
        d = bridge()
        (seen,) = sent(d.client(3, asks(1, "tools/call", name="x")))
        out = d.session.lost(
            "server", 0, f'{{"jsonrpc":"2.0","id":"{seen["id"]}","result":{{"a'.encode(), "it is too long"
        )
        assert [(3, 1, -32603)] == [(stream, said["id"], said["error"]["code"]) for stream, said, _ in heard(out)]
        (seen,) = sent(d.client(4, asks(1, "tools/call", name="x")))
        line = f'{{"result":{{}},"jsonrpc":"2.0","id":"{seen["id"]}"}}'.encode()
        assert [4] == [stream for stream, _, _ in heard(d.session.lost_end("server", 0, line[:12], line[12:]))]
        out = d.session.lost(
            "client", 3, b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a', "it is too long"
        )
        assert [(3, 7, -32603)] == [(stream, said["id"], said["error"]["code"]) for stream, said, _ in heard(out)]

    def test_a_lost_answer_to_initialize_fails_those_who_wait(self) -> None:
        d = unopened()
        (hello,) = sent(d.client(1, asks(1, "tools/list")))
        out = d.session.lost(
            "server", 0, f'{{"jsonrpc":"2.0","id":"{hello["id"]}","result":{{"a'.encode(), "it is too long"
        )
        assert [(1, 1)] == [(stream, said["id"]) for stream, said, _ in heard(out)]

    def test_a_server_that_never_answers_what_we_ask_is_asked_only_so_often(self) -> None:
        d = bridge()
        seen = 0
        for _ in range(30):
            seen += len(sent(d.client(3, listens(1, resourceSubscriptions=[f"u{number}" for number in range(200)]))))
            seen += len(sent(d.client(3, tells("notifications/cancelled", requestId=1))))
        assert 10_000 == seen
