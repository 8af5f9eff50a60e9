"""The session in the legacy protocol versions, as transcripts."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from samplegate.policy.decisions import Forwarded
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.rounds import ClientReply, Note, Open, Over, Release, Settled, ToClient, ToServer, Withdraw
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    DENY,
    FORWARD,
    FORWARD_URLS,
    Dialogue,
    error,
    form,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)


def call(id: Any = 1, name: str = "x", **meta: Any) -> dict[str, Any]:
    return request(id, "tools/call", name=name, **({"_meta": meta} if meta else {}))


class TestCapabilities:
    def test_what_the_policy_answers_is_declared_for_a_client_that_has_neither(self) -> None:
        assert {"sampling": {}, "elicitation": {"form": {}}} == Dialogue(ALLOW, ANSWER).open_legacy()

    def test_what_is_denied_is_not_declared_though_the_client_has_it(self) -> None:
        assert {"roots": {}} == Dialogue(DENY).open_legacy(sampling={}, elicitation={}, roots={})

    def test_what_is_forwarded_is_declared_where_the_client_has_it(self) -> None:
        assert {"sampling": {"tools": {}}, "elicitation": {"form": {}}} == Dialogue(FORWARD).open_legacy(
            sampling={"tools": {}}, elicitation={"form": {}}
        )
        assert {} == Dialogue(FORWARD).open_legacy()

    def test_urls_are_declared_only_where_a_rule_says_url_and_the_client_takes_them(self) -> None:
        assert {"elicitation": {"form": {}}} == Dialogue(FORWARD).open_legacy(elicitation={"form": {}, "url": {}})
        assert {"elicitation": {"url": {}}} == Dialogue(FORWARD_URLS).open_legacy(elicitation={"form": {}, "url": {}})
        assert {} == Dialogue(FORWARD_URLS).open_legacy(elicitation={})

    def test_older_revisions_get_no_sub_capabilities(self) -> None:
        assert {"sampling": {}, "elicitation": {}} == Dialogue(ALLOW, ANSWER).open_legacy("2025-06-18")
        assert {"sampling": {}} == Dialogue(ALLOW, ANSWER).open_legacy("2025-03-26")

    def test_requests_borne_by_tasks_are_not_declared(self) -> None:
        tasks: dict[str, Any] = {
            "list": {},
            "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}, "other": {}},
        }
        assert {"list": {}, "requests": {"other": {}}} == Dialogue(ALLOW).open_legacy(tasks=tasks)["tasks"]

    def test_everything_else_of_the_handshake_stays_byte_for_byte(self) -> None:
        d = Dialogue(ALLOW)
        params = b'{"x":1.0, "capabilities" : {"experimental": {"a":1e3}},"protocolVersion":"2025-11-25"}'
        line = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":' + params + b"}"
        wanted = line.replace(b'{"a":1e3}}', b'{"a":1e3},"sampling":{}}')
        assert [ToServer(0, wanted)] == d.client(line)

    def test_what_the_client_declared_and_is_not_offered_is_said(self) -> None:
        d = Dialogue(DENY)
        hello = request(0, "initialize", protocolVersion="2025-11-25", capabilities={"sampling": {}})
        assert Note(
            "capability.withheld", {"server": "default", "capabilities": ["sampling"], "denied_by": ["never"]}
        ) == one(d.client(hello), Note)


class TestPassing:
    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":1.0,"u":"\\u00e9"}}}',
            b' { "jsonrpc" : "2.0", "id" : "1", "method" : "ping" } ',
            b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
            b'{"jsonrpc":"2.0","id":7,"method":"completion/complete","params":{"vendor":{"a":[1,2]}}}',
            b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"half":"\\ud83d"},"extra":[true]}',
        ],
    )
    def test_a_client_frame_that_is_not_ours_leaves_as_it_came(self, line: bytes) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        assert [ToServer(0, line)] == d.client(line)

    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":9,"method":"roots/list"}',
            b'{"jsonrpc":"2.0","id":9,"method":"ping"}',
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"n":1.0}}}',
            b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
            b'{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}',
            b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}',
        ],
    )
    def test_a_server_frame_that_is_not_ours_leaves_as_it_came(self, line: bytes) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        assert [(0, line)] == [
            (effect.stream, effect.line) for effect in d.server(line) if isinstance(effect, ToClient)
        ]

    def test_ids_1_and_quoted_1_are_two_ids(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(request(1, "ping"))
        assert [request("1", "ping")] == to_server(d.client(request("1", "ping")))
        assert [result("1", a=1)] == to_client(d.server(result("1", a=1)))
        assert [result(1, a=2)] == to_client(d.server(result(1, a=2)))

    def test_an_answer_that_nobody_waits_for_goes_nowhere(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        assert [Note("frame.unasked", {"side": "server"})] == d.server(result(99))
        assert [Note("frame.unasked", {"side": "client"})] == d.client(result(99))

    def test_the_clients_answer_to_roots_goes_back_once(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy(roots={})
        d.server(request(5, "roots/list"))
        assert [result(5, roots=[])] == to_server(d.client(result(5, roots=[])))
        assert [] == to_server(d.client(result(5, roots=[])))


class TestPushed:
    def test_a_request_with_the_clients_own_id_is_answered_and_both_get_theirs(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        opened = d.server(request(1, "sampling/createMessage", **sample()))
        (answer,) = to_server(d.settle(opened))
        assert (1, "m") == (answer["id"], answer["result"]["model"])
        assert {"decided_by": "policy", "decision_id": "d-"} == answer["result"]["_meta"]["samplegate/provenance"]
        assert [result(1, content=[])] == to_client(d.server(result(1, content=[])))

    def test_an_early_answer_of_the_client_to_a_request_it_never_saw_is_dropped(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy(sampling={})
        d.server(request(7, "sampling/createMessage", **sample()))
        assert [Note("frame.unasked", {"side": "client"})] == d.client(result(7, role="assistant"))

    def test_a_forwarded_request_has_an_id_of_ours_and_its_reply_goes_back_verbatim(self) -> None:
        d = Dialogue(FORWARD)
        d.open_legacy(sampling={})
        opened = d.server(request(7, "sampling/createMessage", **sample(vendor=1.0)))
        round = one(opened, Open).round
        assert isinstance(d.decide(opened)[""].act, Forwarded)
        (sent,) = to_client(d.take(d.session.forward(round.id)))
        assert sent["id"].startswith("sg:")
        assert sent["params"] == sample(vendor=1.0)
        reply = one(d.client(f'{{"jsonrpc":"2.0","id":"{sent["id"]}","result":{{"n": 1.0}}}}'.encode()), ClientReply)
        assert (True, b'{"n": 1.0}') == (reply.ok, reply.payload)
        out = d.done(round, Settled({"": Release(Answered(reply.payload, "client"), "d")}))
        assert [ToServer(0, b'{"jsonrpc":"2.0","id":7,"result":{"n": 1.0}}')] == out

    def test_a_forwarded_request_is_no_task(self) -> None:
        d = Dialogue(FORWARD)
        d.open_legacy(sampling={})
        round = one(d.server(request(7, "sampling/createMessage", **sample(task={"ttl": 1}))), Open).round
        assert "task" not in to_client(d.session.forward(round.id))[0]["params"]

    def test_denied_sampling_is_error_minus_1_that_names_no_rule(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        out = d.settle(
            d.server(request(7, "sampling/createMessage", **sample())),
            answers={"": Denied(Reason.RULE, detail="rule secret-name")},
        )
        (answer,) = to_server(out)
        assert -1 == answer["error"]["code"]
        assert {"kind": "sampling", "reason": "rule", "decision_id": "d-"} == answer["error"]["data"]
        assert "secret-name" not in json.dumps(answer)

    @pytest.mark.parametrize(
        ("outcome", "action"),
        [
            (Denied(Reason.RULE, "decline"), "decline"),
            (Denied(Reason.RULE), "cancel"),
            (Unanswered(Reason.TIMEOUT), "cancel"),
        ],
    )
    def test_an_elicitation_that_is_not_answered_is_never_accepted(
        self, outcome: Denied | Unanswered, action: str
    ) -> None:
        d = Dialogue(ANSWER)
        d.open_legacy()
        (answer,) = to_server(d.settle(d.server(request(7, "elicitation/create", **form())), answers={"": outcome}))
        assert action == answer["result"]["action"]

    def test_a_kind_that_was_not_declared_is_bad_params(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        round = one(d.server(request(7, "elicitation/create", **form())), Open).round
        assert not round.items[""].offered
        out = d.done(round, Settled({"": Release(Unanswered(Reason.NOT_OFFERED, code=-32602), "d")}))
        assert -32602 == to_server(out)[0]["error"]["code"]

    def test_nothing_is_offered_before_initialize(self) -> None:
        d = Dialogue(ALLOW)
        assert not one(d.server(request(7, "sampling/createMessage", **sample())), Open).round.items[""].offered

    def test_an_id_that_is_in_flight_is_refused(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.server(request(7, "sampling/createMessage", **sample()))
        assert -32600 == to_server(d.server(request(7, "sampling/createMessage", **sample())))[0]["error"]["code"]
        d.client(call(3))
        assert -32600 == to_client(d.client(call(3)))[0]["error"]["code"]

    def test_our_answer_carries_the_task_of_its_request(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        task = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
        (answer,) = to_server(d.settle(d.server(request(7, "sampling/createMessage", **sample(_meta=task)))))
        assert {"taskId": "t"} == answer["result"]["_meta"]["io.modelcontextprotocol/related-task"]

    def test_the_call_in_flight_is_known_where_there_is_one(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1, "a"))
        d.client(request(2, "tools/list"))
        origin = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round.origin
        assert ["a"] == [c.tool for c in origin.calls]
        d.client(call(3, "b"))
        origin = one(d.server(request(8, "sampling/createMessage", **sample())), Open).round.origin
        assert ["a", "b"] == [c.tool for c in origin.calls]

    def test_a_flood_of_requests_is_bounded(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        for number in range(1000):
            d.server(request(number, "sampling/createMessage", **sample()))
        assert -1 == to_server(d.server(request("more", "sampling/createMessage", **sample())))[0]["error"]["code"]


class TestCancellation:
    def test_a_cancelled_call_takes_its_round_along_and_the_server_is_told(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
        cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
        assert [Withdraw(round.id), ToServer(0, cancel), Over(0)] == d.client(cancel)
        assert [] == d.done(round, Settled({"": Release(Answered(b"{}", "policy"), "d")}))

    def test_of_two_candidates_one_is_not_enough(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        d.client(call(2))
        round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
        cancelled = [
            d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            for id in (1, 2)
        ]
        assert [False, True] == [Withdraw(round.id) in out for out in cancelled]

    def test_a_server_takes_a_forwarded_request_back_and_the_client_is_told_under_our_id(self) -> None:
        d = Dialogue(FORWARD)
        d.open_legacy(sampling={})
        round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
        (sent,) = to_client(d.session.forward(round.id))
        out = d.server({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        assert Withdraw(round.id) in out
        assert sent["id"] == to_client(out)[0]["params"]["requestId"]

    def test_a_late_answer_to_a_cancelled_call_is_dropped(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        d.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert [] == to_client(d.server(result(1)))

    def test_the_end_of_the_client_withdraws_everything(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
        assert Withdraw(round.id) in d.session.eof("client")


class TestUrlErrors:
    URLS: ClassVar = [{"mode": "url", "message": "log in", "url": "https://a.example/x", "elicitationId": "e1"}]

    def test_an_error_whose_urls_are_forwarded_is_relayed_as_it_came(self) -> None:
        d = Dialogue(FORWARD_URLS)
        d.open_legacy(elicitation={"url": {}})
        d.client(call(1))
        line = json.dumps(error(1, -32042, data={"elicitations": self.URLS, "x": 1.0})).encode()
        opened = d.server(line)
        assert isinstance(d.decide(opened)["0"].act, Forwarded)
        assert [ToClient(0, line, True)] == d.settle(opened, answers={"0": Answered(b"{}", "client")})

    def test_an_error_whose_urls_are_refused_ends_the_call_without_them(self) -> None:
        d = Dialogue(DENY)
        d.open_legacy()
        d.client(call(1))
        opened = d.server(error(1, -32042, data={"elicitations": self.URLS}))
        out = d.settle(opened, answers={"0": Unanswered(Reason.NOT_OFFERED)})
        assert to_client(out)[0]["result"]["isError"]
        assert "a.example" not in json.dumps(to_client(out))

    def test_of_two_urls_one_refused_ends_the_call_and_the_other_is_withdrawn(self) -> None:
        d = Dialogue(FORWARD_URLS)
        d.open_legacy(elicitation={"url": {}})
        d.client(call(1))
        opened = d.server(error(1, -32042, data={"elicitations": self.URLS * 2}))
        out = d.settle(opened, answers={"0": Withdrawn(), "1": Denied(Reason.RULE)})
        assert [(1, True)] == [(line["id"], line["result"]["isError"]) for line in to_client(out)]

    def test_urls_for_no_request_do_not_pass(self) -> None:
        d = Dialogue(DENY)
        d.open_legacy()
        line = {"jsonrpc": "2.0", "error": {"code": -32042, "message": "", "data": {"elicitations": self.URLS}}}
        assert [] == to_client(d.server(line))

    @pytest.mark.parametrize("code", [b"-32042", b"-3.2042e4", b"-32042.0"])
    def test_every_spelling_of_the_code_is_that_code(self, code: bytes) -> None:
        d = Dialogue(DENY)
        d.open_legacy()
        d.client(call(1))
        opened = d.server(
            b'{"jsonrpc":"2.0","id":1,"error":{"code":' + code + b',"message":"","data":{"elicitations":[]}}}'
        )
        assert "url_error" == one(opened, Open).round.door

    def test_any_other_error_passes(self) -> None:
        d = Dialogue(DENY)
        d.open_legacy()
        d.client(call(1))
        assert [error(1, -32000)] == to_client(d.server(error(1, -32000)))


class TestBatches:
    def test_a_batch_is_split_and_every_element_gated_where_the_revision_has_batches(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy("2025-03-26")
        batch = [request(1, "ping"), request(2, "ping"), {"jsonrpc": "2.0", "method": "n"}]
        assert batch == to_server(d.client(batch))
        assert [result(1), result(2)] == to_client(d.server([result(1), result(2)]))
        assert "push" == one(d.server([request(7, "sampling/createMessage", **sample())]), Open).round.door

    @pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
    def test_elsewhere_a_batch_is_refused(self, revision: str) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy(revision)
        assert [] == to_server(d.client([request(1, "ping")]))


class TestRefused:
    def test_garbage_is_survived_on_either_side(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        for line in (
            b"Listening on port 3000",
            b"{",
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"jsonrpc":"2.0"}',
            b"null",
            b'{"a":NaN}',
        ):
            assert [] == to_client(d.server(line)), line[:20]
            assert [] == to_server(d.client(line)), line[:20]

    def test_a_server_answer_of_two_readings_fails_the_call_rather_than_hang_it(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        out = d.server(b'{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}')
        assert [Note("frame.refused", {"side": "server", "fault": "duplicate member 'result'"})] == [
            e for e in out if isinstance(e, Note)
        ]
        assert [(1, -32603)] == [(line["id"], line["error"]["code"]) for line in to_client(out)]

    def test_input_required_in_a_legacy_session_never_reaches_the_client(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1))
        for spelled in (b'"resultType"', b'"result\\u0054ype"'):
            out = d.server(b'{"jsonrpc":"2.0","id":1,"result":{' + spelled + b':"input_required","inputRequests":{}}}')
            assert -32603 == to_client(out)[0]["error"]["code"]
            d.client(call(1))


class TestProgress:
    def test_progress_passes_untouched_until_a_beat_stands_before_it(self) -> None:
        d = Dialogue(ALLOW)
        d.open_legacy()
        d.client(call(1, progressToken="p"))
        first = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0,"message":"one"}}'  # noqa: E501
        assert [ToClient(0, first)] == d.server(first)
        round = one(d.server(request(7, "sampling/createMessage", **sample(_meta={"progressToken": 5}))), Open).round
        beat = d.session.round_progress(round.id)
        assert [{"progressToken": 5, "progress": 1}] == [line["params"] for line in to_server(beat)]
        (value,) = [line["params"]["progress"] for line in to_client(beat)]
        assert 1 < value < 1.01
        assert [] == d.server(first)
        assert [ToClient(0, first.replace(b"1.0", b"2.0"))] == d.server(first.replace(b"1.0", b"2.0"))
