"""Requests of a modern server that the policy forwards, sent to a legacy client, and the answers on their way back."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol import session_state
from samplegate.protocol.bridge.legacy_rounds import BEAT, MARGIN, MAX_ASKED, MAX_ROUNDS
from samplegate.protocol.outcomes import SealedDecision
from samplegate.protocol.request_state import LIFETIME
from samplegate.protocol.rounds import ForwardRound, Later, Note, Open, Over, ToClient
from tests.fakes.bridged import BOTH, URL, Bridge, cancel, notification
from tests.fakes.dialogue import (
    ALLOW,
    FORWARD,
    FORWARD_URLS,
    NONCE,
    ask,
    error,
    form,
    one,
    request,
    result,
    sample,
    to_client,
    to_server,
)

ROOTS = {"method": "roots/list"}
ACCEPT = {"action": "accept", "content": {"confirm": True}}
AUDIO = {"type": "audio", "data": "", "mimeType": "audio/wav"}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}


def bridge(capabilities: Any = None, revision: str = "2025-11-25", *rules: Any) -> Bridge:
    """A bridge with one tool call in flight, under a policy that forwards."""
    d = Bridge(*(rules or (FORWARD_URLS, FORWARD)))
    d.open(BOTH if capabilities is None else capabilities, revision)
    d.call(1)
    return d


def entry(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


class TestARound:
    def test_what_policy_forwards_is_asked_in_the_clients_era_and_the_call_made_again(self) -> None:
        d = bridge()
        asked = to_client(d.handed_on({"s": ask(sample()), "f": ask(form())}, requestState="server's own"))
        assert ["sampling/createMessage", "elicitation/create"] == [line["method"] for line in asked]
        assert [sample(), form()] == [line["params"] for line in asked]
        assert [] == d.client(result(asked[1]["id"], **ACCEPT))
        out = d.returned(d.client(result(asked[0]["id"], **SAID, _meta={"v": 1})))
        (retry,) = to_server(out)
        assert ("tools/call", {"n": 1}, "server's own") == (
            retry["method"],
            retry["params"]["arguments"],
            retry["params"]["requestState"],
        )
        assert {"s": {**SAID, "_meta": {"v": 1}}, "f": ACCEPT} == retry["params"]["inputResponses"]
        assert [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}] == to_client(
            d.server(result(retry["id"], resultType="complete", content=[]))
        )

    def test_the_client_sees_nothing_of_the_round_itself(self) -> None:
        d = bridge()
        for effect in d.handed_on({"s": ask(sample())}, requestState="server's own"):
            if isinstance(effect, ToClient):
                assert not any(
                    word in effect.line for word in (b"input_required", b"requestState", b"resultType", b"server's own")
                )

    def test_questions_go_on_the_stream_of_the_call(self) -> None:
        d = Bridge(FORWARD)
        d.open(BOTH)
        d.on(5, request(1, "tools/call", name="x"))
        out = d.handed_on({"s": ask(sample())})
        assert [(5, False)] == [(effect.stream, effect.last) for effect in out if isinstance(effect, ToClient)]

    def test_local_keys_wait_for_the_client(self) -> None:
        d = bridge({"elicitation": {}}, "2025-11-25", {**ALLOW}, FORWARD)
        (asked,) = to_client(d.handed_on({"s": ask(sample()), "f": ask(form())}, "f"))
        assert "elicitation/create" == asked["method"]
        (retry,) = to_server(d.returned(d.client(result(asked["id"], **ACCEPT))))
        assert {"s", "f"} == set(retry["params"]["inputResponses"])

    def test_roots_are_the_clients(self) -> None:
        d = bridge({"roots": {}})
        (asked,) = to_client(d.handed_on({"r": ROOTS}))
        assert ("roots/list", False) == (asked["method"], "params" in asked)
        (retry,) = to_server(d.returned(d.client(result(asked["id"], roots=[{"uri": "file:///a"}]))))
        assert {"r": {"roots": [{"uri": "file:///a"}]}} == retry["params"]["inputResponses"]

    def test_a_client_without_roots_is_not_asked_for_them(self) -> None:
        d = bridge()
        out = d.asks(1, {"r": ROOTS, "s": ask(sample())})
        assert [1] == [line["id"] for line in to_client(out)]
        assert not [effect for effect in out if isinstance(effect, Open)]

    @pytest.mark.parametrize(("method", "params"), [("prompts/get", {"name": "p"}), ("resources/read", {"uri": "a:b"})])
    def test_prompts_and_resources_ask_likewise(self, method: str, params: Any) -> None:
        d = Bridge(FORWARD)
        d.open(BOTH)
        d.client(request(1, method, **params))
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        (retry,) = to_server(d.returned(d.client(result(asked["id"], **SAID))))
        assert method == retry["method"]

    def test_the_client_is_asked_eight_times_in_a_call_and_no_more(self) -> None:
        d, id = bridge(), 1
        for _ in range(MAX_ROUNDS):
            (asked,) = to_client(d.handed_on({"f": ask(form())}, id=id))
            (retry,) = to_server(d.returned(d.client(result(asked["id"], **ACCEPT))))
            id = retry["id"]
        out = d.handed_on({"f": ask(form())}, id=id)
        (said,) = to_client(out)
        assert (1, True) == (said["id"], said["result"]["isError"])
        assert [] == to_server(out)


class TestShapes:
    """Each request in the form of the client's protocol version."""

    def asked(self, question: Any, revision: str, capabilities: Any = None) -> Any:
        d = bridge(
            {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}
            if capabilities is None
            else capabilities,
            revision,
        )
        sent = to_client(d.handed_on({"k": question}))
        return sent[0] if sent else None

    def test_a_url_gets_an_elicitation_id(self) -> None:
        sent = self.asked(ask(URL), "2025-11-25")
        assert {**URL, "elicitationId": sent["id"]} == sent["params"]

    def test_what_would_make_a_task_of_it_is_taken_out(self) -> None:
        meta = {"progressToken": 1, "io.modelcontextprotocol/related-task": {"taskId": "t"}, "v": 1}
        sent = self.asked(entry("sampling/createMessage", **sample(task={"ttl": 1}, _meta=meta)), "2025-11-25")
        assert sample(_meta={"v": 1}) == sent["params"]

    def test_titled_choices_of_2025_06_18(self) -> None:
        titled = {"type": "string", "title": "T", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}
        sent = self.asked(ask({**form(c=titled, d={"type": "boolean"}), "mode": "form"}), "2025-06-18")
        assert {"type": "string", "title": "T", "enum": ["a", "b"], "enumNames": ["A", "B"]} == sent["params"][
            "requestedSchema"
        ]["properties"]["c"]
        assert {"type": "boolean"} == sent["params"]["requestedSchema"]["properties"]["d"]
        assert "mode" not in sent["params"]

    def test_titled_choices_stay_for_2025_11_25(self) -> None:
        titled = {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}
        assert titled == self.asked(ask(form(c=titled)), "2025-11-25")["params"]["requestedSchema"]["properties"]["c"]

    def test_a_single_block_in_an_array_is_a_block_before_2025_11_25(self) -> None:
        block = {"type": "text", "text": "t"}
        question = entry("sampling/createMessage", messages=[{"role": "user", "content": [block]}], maxTokens=1)
        assert block == self.asked(question, "2025-06-18")["params"]["messages"][0]["content"]
        assert [block] == self.asked(question, "2025-11-25")["params"]["messages"][0]["content"]

    @pytest.mark.parametrize(
        ("question", "revision"),
        [
            (ask(form(many={"type": "array", "items": {"type": "string", "enum": ["a"]}})), "2025-06-18"),
            (ask(form(c={"type": "string", "oneOf": [{"title": "A"}]})), "2025-06-18"),
            (
                entry(
                    "sampling/createMessage",
                    messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}],
                    maxTokens=1,
                ),
                "2025-06-18",
            ),
            (
                entry(
                    "sampling/createMessage",
                    messages=[{"role": "user", "content": AUDIO}],
                    maxTokens=1,
                ),
                "2024-11-05",
            ),
        ],
    )
    def test_what_its_revision_cannot_ask_is_not_asked_and_the_gate_hears_of_it(
        self, question: Any, revision: str
    ) -> None:
        d = bridge({"sampling": {}, "elicitation": {}}, revision)
        out = d.handed_on({"k": question, "s": ask(sample())})
        assert [] == to_client(out)
        assert "question.refused" in [effect.event for effect in out if isinstance(effect, Note)]
        returned = one(out, Open).round.returned
        assert returned is not None
        assert {} == returned.replies
        (said, *_) = [*to_client(d.returned(out)), None]
        assert said is None or said["result"]["isError"]


class TestFailure:
    @pytest.mark.parametrize(
        "answer",
        [
            {"error": {"code": -1, "message": "no"}},
            {"error": {"code": -32603, "message": "x"}},
            {"result": 5},
            {"result": None},
        ],
    )
    def test_the_first_that_fails_takes_its_siblings_back(self, answer: Any) -> None:
        d = bridge()
        sampling, elicitation = to_client(d.handed_on({"s": ask(sample()), "f": ask(form())}))
        out = d.client({"jsonrpc": "2.0", "id": sampling["id"], **answer})
        (taken,) = to_client(out)
        assert ("notifications/cancelled", elicitation["id"]) == (taken["method"], taken["params"]["requestId"])
        (said,) = to_client(d.returned(out))
        assert (1, True) == (said["id"], said["result"]["isError"])
        assert "resultType" not in said["result"]
        assert [Note("frame.unasked", {"side": "client"})] == d.client(result(elicitation["id"], **ACCEPT))

    def test_prompts_fail_with_an_error(self) -> None:
        d = Bridge(FORWARD)
        d.open(BOTH)
        d.client(request(1, "prompts/get", name="p"))
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        (said,) = to_client(d.returned(d.client(error(asked["id"], -1))))
        assert (1, -1) == (said["id"], said["error"]["code"])

    def test_an_elicitation_that_fails_is_cancelled_and_the_call_goes_on(self) -> None:
        d = bridge()
        (asked,) = to_client(d.handed_on({"f": ask(form())}))
        (retry,) = to_server(d.returned(d.client(error(asked["id"], -32603))))
        assert {"f": {"action": "cancel"}} == retry["params"]["inputResponses"]

    def test_roots_that_fail_end_the_call_and_nothing_is_spent(self) -> None:
        d = bridge({"roots": {}}, "2025-11-25", ALLOW)
        (asked,) = to_client(d.hand_on(d.asks(1, {"r": ROOTS, "s": ask(sample())})))
        out = d.client(error(asked["id"], -32603))
        assert [True] == [line["result"]["isError"] for line in to_client(out)]
        assert not [effect for effect in out if isinstance(effect, Open)]

    @pytest.mark.parametrize(
        "line",
        [b'{"jsonrpc":"2.0","id":"%s","result":{"a":1,"a":2}}', b'{"jsonrpc":"2.0","id":"%s","result":{},"Result":{}}'],
    )
    def test_an_answer_that_cannot_be_read_is_none(self, line: bytes) -> None:
        d = bridge()
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        (said,) = to_client(d.returned(d.client(line % asked["id"].encode())))
        assert said["result"]["isError"]

    def test_an_answer_that_cannot_be_taken_is_none(self) -> None:
        d = bridge()
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        out = d.take(
            d.session.lost(
                "client", 0, b'{"jsonrpc":"2.0","id":"%s","result":{' % asked["id"].encode(), "it is too long"
            )
        )
        assert to_client(d.returned(out))[0]["result"]["isError"]

    def test_a_late_or_unasked_answer_is_nobodys(self) -> None:
        d = bridge()
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        d.returned(d.client(result(asked["id"], **SAID)))
        for id in (asked["id"], "sg:t:99", 5, None):
            assert [] == [
                e
                for e in d.client({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": ""}})
                if not isinstance(e, Note)
            ]

    def test_a_cancelled_call_takes_its_questions_back(self) -> None:
        d = bridge()
        asked = to_client(d.handed_on({"s": ask(sample()), "f": ask(form())}))
        d.client(result(asked[0]["id"], **SAID))
        out = d.client(cancel(1))
        assert [asked[1]["id"]] == [line["params"]["requestId"] for line in to_client(out)]
        assert Over(0) in out
        assert [] == to_server(out)
        assert [Note("frame.unasked", {"side": "client"})] == d.client(result(asked[1]["id"], **ACCEPT))
        d.call(1)

    def test_an_end_of_the_server_takes_questions_back(self) -> None:
        d = bridge()
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        assert [asked["id"]] == [line["params"]["requestId"] for line in to_client(d.session.eof("server"))]

    def test_questions_outlive_a_server_that_is_started_again(self) -> None:
        d = bridge()
        d.session.state.outlived = True
        (asked,) = to_client(d.handed_on({"s": ask(sample())}))
        d.client(request(2, "tools/list"))
        assert [2] == [line["id"] for line in to_client(d.session.eof("server"))]
        (retry,) = to_server(d.returned(d.client(result(asked["id"], **SAID))))
        assert "tools/call" == retry["method"]

    def test_an_end_of_the_client_leaves_nothing(self) -> None:
        d = bridge()
        d.handed_on({"s": ask(sample())})
        assert [] == to_client(d.session.eof("client"))


class TestTime:
    def test_its_rounds_are_not_put_off_since_it_waits_on_one_call_all_along(self) -> None:
        d = bridge()
        opened = d.asks(1, {"s": ask(sample())})
        assert 0 == one(opened, Open).round.parks
        (asked,) = to_client(d.hand_on(opened, "s"))
        assert 0 == one(d.client(result(asked["id"], **SAID)), Open).round.parks

    def test_what_is_not_answered_in_the_rules_time_is_taken_back(self) -> None:
        d = bridge()
        round = one(d.asks(1, {"f": ask(form())}), Open).round
        out = d.done(
            round,
            ForwardRound(frozenset({"f"}), {"f": SealedDecision("d", "forward", "r", timeout=12.0)}, "hash", NONCE),
        )
        (asked,) = to_client(out)
        waits = []
        while to_client(out) != [notification("notifications/cancelled", requestId=asked["id"], reason="timed out")]:
            later = one(out, Later)
            waits.append(later.delay)
            out = d.take(d.session.due(later.token))
        assert [BEAT, BEAT, 2.0] == waits
        (retry,) = to_server(d.returned(out))
        assert {"f": {"action": "cancel"}} == retry["params"]["inputResponses"]

    def test_a_client_that_never_answers_ends_with_the_seal(self) -> None:
        d = bridge()
        out, waited = d.handed_on({"s": ask(sample())}), 0.0
        while not [effect for effect in out if isinstance(effect, Open)]:
            later = one(out, Later)
            waited += later.delay
            out = d.take(d.session.due(later.token))
        assert LIFETIME - MARGIN == waited
        assert to_client(d.returned(out))[0]["result"]["isError"]


def test_the_questions_to_one_client_are_bounded() -> None:
    d = Bridge(FORWARD)
    d.open(BOTH)
    keys = {f"k{n}": ask(sample()) for n in range(60)}
    sent = 0
    for id in range(1, 40):
        d.call(id)
        sent += sum(
            "method" in line and "createMessage" in line["method"] for line in to_client(d.handed_on(keys, id=id))
        )
    assert MAX_ASKED - 60 < sent <= MAX_ASKED


class TestMemory:
    def test_what_a_call_and_its_questions_hold_is_counted_until_it_is_over(self) -> None:
        d = bridge()
        before = d.session.state.held
        asked = to_client(d.handed_on({"s": ask(sample()), "f": ask(form())}))
        d.client(result(asked[0]["id"], **SAID, more="x" * 100_000))
        assert 90_000 < d.session.state.held - before
        d.client(cancel(1))
        assert 0 == d.session.state.held

    def test_an_answer_for_which_there_is_no_room_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        d = bridge()
        asked = to_client(d.handed_on({"s": ask(sample())}))
        monkeypatch.setattr(session_state, "MAX_CALL_BYTES", 50_000)
        out = d.client(result(asked[0]["id"], **SAID, more="x" * 100_000))
        assert session_state.CALLS_FULL == one(out, Note).fields["fault"]
        assert {} == one(out, Open).round.returned.replies  # type: ignore[union-attr]

    def test_a_call_for_which_there_is_no_room_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        d = bridge()
        monkeypatch.setattr(session_state, "MAX_CALL_BYTES", 50_000)
        (line,) = to_client(d.client(request(2, "tools/call", name="x", arguments={"text": "x" * 100_000})))
        assert (-32603, session_state.CALLS_FULL) == (line["error"]["code"], line["error"]["message"])

    def test_messages_are_counted_before_they_are_read(self) -> None:
        d = bridge(BOTH, "2025-06-18")
        messages = [{"role": "user", "content": {"type": "text", "text": ""}}] * 10_001
        out = d.handed_on({"s": ask({**sample(), "messages": messages})})
        assert "a list has more than 10000 elements" == one(out, Note).fields["fault"]
