"""The gate: the outcome of a round, with fakes for its ports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from samplegate.audit.record import Record
from samplegate.policy.prompt import SampleFailed, SampleRequest, SampleResult
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.rounds import ClientReply, ForwardRound, Open, Settled
from tests.fakes.dialogue import (
    ALLOW,
    ANSWER,
    DENY,
    FORWARD,
    Dialogue,
    form,
    modern,
    one,
    request,
    sample,
    to_client,
    to_server,
)
from tests.fakes.gate_ports import SAMPLED, FakePorts, asked, pushed

pytestmark = pytest.mark.anyio


async def test_an_allowed_request_is_answered_by_the_model_and_recorded() -> None:
    ports = FakePorts()
    d, round = pushed(ALLOW)
    releases = await ports.settled(d, round)
    outcome = releases[""].outcome
    assert isinstance(outcome, Answered)
    assert {
        "role": "assistant",
        "content": {"type": "text", "text": "hi"},
        "model": "gpt",
        "stopReason": "endTurn",
    } == json.loads(outcome.result)
    (record,) = ports.records
    assert ("allow", "models", "answered", "policy", "gpt", 3, 4, "hash") == (
        record.effect,
        record.rule,
        record.outcome,
        record.decided_by,
        record.model,
        record.input_tokens,
        record.output_tokens,
        record.policy_hash,
    )
    assert record.decision_id == releases[""].decision_id


async def test_a_model_that_fails_leaves_it_unanswered_and_says_why_only_to_the_log() -> None:
    ports = FakePorts(SampleFailed("bad_key", "model m: key refused"))
    d, round = pushed(ALLOW)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.MODEL is outcome.reason
    assert "key refused" in ports.records[0].detail


@pytest.mark.parametrize(("on_timeout", "expected"), [("unanswered", Unanswered), ("deny", Denied), ("next", Answered)])
async def test_a_model_that_is_late_is_ended_and_on_timeout_says_what_follows(on_timeout: str, expected: type) -> None:
    async def never(_: SampleRequest) -> SampleResult:
        await anyio.sleep_forever()
        raise AssertionError

    ports = FakePorts(never)
    canned = {"name": "canned", "match": {"kind": "sampling"}, "effect": "answer", "content": "later"}
    d, round = pushed({**ALLOW, "with": {"models": ["m"], "timeout": "10ms"}, "on_timeout": on_timeout}, canned)
    assert isinstance((await ports.settled(d, round))[""].outcome, expected)


async def test_the_time_that_the_peers_leave_bounds_the_model() -> None:
    ports = FakePorts()
    d = Dialogue(ALLOW, client={"peer_timeout": "60s"}, servers={"default": {"peer_timeout": "30s"}})
    d.open_legacy()
    d.client(request(1, "tools/call", name="x"))
    d.now = 40.0
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    ports.now = 41.0
    await ports.settled(d, round)
    assert pytest.approx(60 - 5 - 41) == ports.asked[0].timeout
    ports.now = 70.0
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert outcome.reason is Reason.TIMEOUT


async def test_an_elicitation_is_answered_with_the_operators_words() -> None:
    ports = FakePorts()
    d, round = pushed(ANSWER, method="elicitation/create")
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Answered)
    assert {"action": "accept", "content": {"confirm": True}} == json.loads(outcome.result)
    assert "accept" == ports.records[0].action


async def test_no_rule_is_unanswered() -> None:
    d, round = pushed({**ALLOW, "match": {"kind": "sampling", "text": "something else"}})
    outcome = (await FakePorts().settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert outcome.reason is Reason.NO_RULE
    assert outcome.code == -1


@pytest.mark.parametrize("params", [{"messages": "no"}, sample(maxTokens=True), {}])
async def test_a_malformed_request_is_bad_params_and_recorded(params: Mapping[str, Any]) -> None:
    ports = FakePorts()
    d, round = pushed(ALLOW, params=params or {"x": 1})
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert (Reason.MALFORMED, -32602) == (outcome.reason, outcome.code)
    assert "malformed" == ports.records[0].reason


async def test_a_record_that_cannot_be_written_releases_nothing() -> None:
    ports = FakePorts(broken_log=True)
    d, round = pushed(ALLOW)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert outcome.reason is Reason.RECORDS


async def test_a_fault_of_ours_is_unanswered_and_logged_whole() -> None:
    async def broken(_: SampleRequest) -> SampleResult:
        raise RuntimeError("the text of the fault")

    ports = FakePorts(broken)
    d, round = pushed(ALLOW)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert outcome.reason is Reason.ERROR
    assert "the text of the fault" not in outcome.detail
    assert ["request.failed"] == [event for event, fields in ports.log.events if fields.get("exc_info")]


class TestForwarded:
    REPLY = b'{"action":"accept","content":{"confirm":true}}'

    async def test_the_clients_result_is_released_as_it_came(self) -> None:
        ports = FakePorts(reply=ClientReply("r", "", True, self.REPLY))
        d, round = pushed(FORWARD, method="elicitation/create", elicitation={})
        assert Answered(self.REPLY, "client") == (await ports.settled(d, round))[""].outcome
        assert (True, "client", "accept") == (
            ports.records[0].fits,
            ports.records[0].decided_by,
            ports.records[0].action,
        )

    async def test_what_does_not_fit_is_recorded_and_passes_unless_verify(self) -> None:
        wrong = b'{"action":"accept","content":{"confirm":"yes"}}'
        for verify, expected in ((False, Answered), (True, Unanswered)):
            ports = FakePorts(reply=ClientReply("r", "", True, wrong))
            d, round = pushed({**FORWARD, "verify": verify}, method="elicitation/create", elicitation={})
            assert isinstance((await ports.settled(d, round))[""].outcome, expected)
            assert ports.records[0].fits is False

    @pytest.mark.parametrize(("code", "expected"), [(-1, Denied), (-32603, Unanswered)])
    async def test_error_minus_1_is_a_refusal_and_any_other_nobody(self, code: int, expected: type) -> None:
        error = json.dumps({"code": code, "message": "m", "data": 1.0}).encode()
        ports = FakePorts(reply=ClientReply("r", "", False, error))
        d, round = pushed(FORWARD, sampling={})
        outcome = (await ports.settled(d, round))[""].outcome
        assert isinstance(outcome, expected)
        assert error == getattr(outcome, "error", None)

    async def test_a_client_that_is_late_is_given_up_where_the_rule_says_when(self) -> None:
        d, round = pushed({**FORWARD, "timeout": "10ms"}, sampling={})
        outcome = (await FakePorts().settled(d, round))[""].outcome
        assert isinstance(outcome, Unanswered)
        assert outcome.reason is Reason.TIMEOUT

    async def test_a_withdrawn_round_is_recorded_as_withdrawn(self) -> None:
        ports = FakePorts()
        d, round = pushed(FORWARD, sampling={})
        with anyio.move_on_after(0.01):
            await ports.gate(d).run(round)
        assert ["withdrawn"] == [record.outcome for record in ports.records]


class TestModernRounds:
    async def test_nothing_is_spent_on_a_round_whose_other_half_is_refused(self) -> None:
        ports = FakePorts()
        deny = {"name": "no poems", "match": {"kind": "sampling", "text": "poem"}, "effect": "deny"}
        d, round = asked(deny, ALLOW, a=sample(), b=sample("a poem"))
        releases = await ports.settled(d, round)
        assert [] == ports.asked
        assert (Withdrawn, Denied) == (type(releases["a"].outcome), type(releases["b"].outcome))
        assert [("a", "withdrawn"), ("b", "denied")] == [(record.key, record.outcome) for record in ports.records]
        (ended,) = to_client(d.done(round, Settled(releases)))
        assert ended["result"]["isError"]
        assert ended["id"] == 1

    async def test_the_first_failure_takes_the_siblings_back(self) -> None:
        async def one_fails(request: SampleRequest) -> SampleResult:
            if "fails" in json.dumps(request.params):
                return SampleFailed("unreachable", "no route")
            await anyio.sleep_forever()
            raise AssertionError

        ports = FakePorts(one_fails)
        d, round = asked(ALLOW, a=sample("waits"), b=sample("fails"))
        with anyio.fail_after(5):
            releases = await ports.settled(d, round)
        assert (Withdrawn, Unanswered) == (type(releases["a"].outcome), type(releases["b"].outcome))

    async def test_an_elicitation_that_nobody_answers_does_not_end_the_call(self) -> None:
        cannot = {**ANSWER, "otherwise": "unanswered"}
        # `true` is not an integer, so the rule cannot be applied
        d, round = asked(cannot, f=form(confirm={"type": "integer"}))
        releases = await FakePorts().settled(d, round)
        assert isinstance(releases["f"].outcome, Unanswered)
        (retry,) = to_server(d.done(round, Settled(releases)))
        assert {"f": {"action": "cancel"}} == retry["params"]["inputResponses"]

    async def test_forwarded_keys_go_first_and_local_keys_wait_for_the_return(self) -> None:
        ports = FakePorts()
        d, round = asked(ALLOW, FORWARD, capabilities={"elicitation": {}}, a=sample(), b=form())
        conclusion = await ports.gate(d).run(round)
        assert isinstance(conclusion, ForwardRound)
        assert ({"b"}, []) == (set(conclusion.keys), ports.asked)
        assert [("b", "forwarded")] == [(record.key, record.outcome) for record in ports.records]
        (handed,) = to_client(d.done(round, conclusion))
        back = {"inputResponses": {"b": {"action": "decline"}}, "requestState": handed["result"]["requestState"]}
        again = one(d.client(modern(2, "tools/call", {"elicitation": {}}, name="x", **back)), Open).round
        releases = await ports.settled(d, again)
        assert 1 == len(ports.asked)
        assert conclusion.seen["b"].decision_id == releases["b"].decision_id
        assert ["forwarded", "answered", "answered"] == [record.outcome for record in ports.records]

    async def test_answers_that_nobody_asked_for_are_on_record_before_they_go_on(self) -> None:
        ports = FakePorts()
        d = Dialogue(FORWARD)
        line = modern(1, "tools/call", {"elicitation": {}}, name="x", inputResponses={"k": {"action": "accept"}})
        round = one(d.client(line), Open).round
        releases = await ports.settled(d, round)
        assert [line] == to_server(d.done(round, Settled(releases)))
        (record,) = ports.records
        assert ("unasked", "elicitation", "forward", "answered", "accept", "client") == (
            record.door,
            record.kind,
            record.effect,
            record.outcome,
            record.action,
            record.decided_by,
        )

    async def test_a_rule_that_denies_meanwhile_wins_over_what_was_sealed(self) -> None:
        ports = FakePorts()
        d, round = asked(FORWARD, capabilities={"elicitation": {}}, b=form())
        conclusion = await ports.gate(d).run(round)
        assert isinstance(conclusion, ForwardRound)
        (handed,) = to_client(d.done(round, conclusion))
        back = {
            "inputResponses": {"b": {"action": "accept", "content": {"confirm": True}}},
            "requestState": handed["result"]["requestState"],
        }
        again = one(d.client(modern(2, "tools/call", {"elicitation": {}}, name="x", **back)), Open).round
        releases = await ports.settled(Dialogue(DENY), again)
        assert isinstance(releases["b"].outcome, Denied)


async def test_a_forward_that_was_to_be_verified_is_verified_at_the_return_whatever_the_client_declares_then() -> None:
    ports = FakePorts()
    d, round = asked(
        {**FORWARD, "verify": True, "otherwise": "next"}, ANSWER, capabilities={"elicitation": {}}, b=form()
    )
    conclusion = await ports.gate(d).run(round)
    assert isinstance(conclusion, ForwardRound)
    (handed,) = to_client(d.done(round, conclusion))
    back = {
        "inputResponses": {"b": {"action": "accept", "content": {"evil": 1}}},
        "requestState": handed["result"]["requestState"],
    }
    again = one(d.client(modern(2, "tools/call", {}, name="x", **back)), Open).round
    outcome = (await ports.settled(d, again))["b"].outcome
    assert not isinstance(outcome, Answered)


@pytest.mark.parametrize(
    "result", [b'{"action":"accept","action":"x"}', b'{"a":{"b":1,"b":2}}', b"[" * 3000 + b"]" * 3000, b'{"a":NaN}']
)
async def test_a_reply_of_two_readings_is_nobodys_consent(result: bytes) -> None:
    ports = FakePorts(reply=ClientReply("r", "", True, result))
    d, round = pushed(FORWARD, method="elicitation/create", elicitation={})
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert (Reason.CLIENT, False) == (outcome.reason, ports.records[0].fits)


async def test_a_client_that_comes_back_after_the_rules_time_is_late_in_the_modern_era_too() -> None:
    for on_timeout, expected in (("unanswered", Unanswered), ("deny", Denied), ("next", Answered)):
        ports = FakePorts()
        d, round = asked(
            {**FORWARD, "timeout": "10s", "on_timeout": on_timeout}, ANSWER, capabilities={"elicitation": {}}, b=form()
        )
        conclusion = await ports.gate(d).run(round)
        assert isinstance(conclusion, ForwardRound)
        (handed,) = to_client(d.done(round, conclusion))
        d.now = 11.0
        back = {
            "inputResponses": {"b": {"action": "accept", "content": {"confirm": False}}},
            "requestState": handed["result"]["requestState"],
        }
        again = one(d.client(modern(2, "tools/call", {"elicitation": {}}, name="x", **back)), Open).round
        outcome = (await ports.settled(d, again))["b"].outcome
        assert isinstance(outcome, expected)
        assert b"false" not in getattr(outcome, "result", b"")


async def test_what_was_tried_before_is_on_record() -> None:
    ports = FakePorts()
    canned = {"name": "canned", "match": {"kind": "sampling"}, "effect": "answer", "content": "later"}
    d, round = pushed({**FORWARD, "timeout": "10ms", "on_timeout": "next"}, canned, sampling={})
    await ports.settled(d, round)
    assert ("canned", ("client: the client did not answer within 0.01s",)) == (
        ports.records[0].rule,
        ports.records[0].tried,
    )


async def test_what_came_of_the_siblings_of_a_key_that_ends_the_call_is_not_released() -> None:
    failed = anyio.Event()

    async def second_fails(request: SampleRequest) -> SampleResult:
        if "fails" not in json.dumps(request.params):
            failed.set()
            return SAMPLED
        await failed.wait()
        return SampleFailed("unreachable", "no route")

    ports = FakePorts(second_fails)
    d, round = asked(ALLOW, a=sample("works"), b=sample("fails"))
    await ports.settled(d, round)
    assert [("withdrawn", "gpt"), ("unanswered", None)] == [
        (r.outcome, r.model if r.outcome == "withdrawn" else None) for r in ports.records
    ]


async def test_a_log_that_fails_in_a_way_nobody_foresaw_releases_nothing() -> None:
    class Broken(FakePorts):
        async def record(self, record: Record) -> None:
            raise RuntimeError("can't start new thread")

    d, round = pushed(ALLOW)
    outcome = (await Broken().settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.RECORDS is outcome.reason


async def test_a_round_withdrawn_while_it_is_recorded_stands_in_the_log() -> None:
    entered = anyio.Event()

    class Slow(FakePorts):
        async def record(self, record: Record) -> None:
            entered.set()
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            self.records.append(record)

    ports = Slow()
    d, round = asked(ALLOW, a=sample(), b=sample())
    async with anyio.create_task_group() as group:
        group.start_soon(ports.gate(d).run, round)
        await entered.wait()
        group.cancel_scope.cancel()
    assert ["a", "b"] == [record.key for record in ports.records]


async def test_rounds_beyond_the_cap_are_recorded_and_end_the_call() -> None:
    ports = FakePorts()
    d, round = asked(ALLOW, ANSWER, f=form())
    over = msgspec.structs.replace(
        round, items={k: msgspec.structs.replace(i, refused=Reason.ROUNDS) for k, i in round.items.items()}
    )
    releases = await ports.settled(d, over)
    assert ["rounds"] == [record.reason for record in ports.records]
    assert to_client(d.done(round, Settled(releases)))[0]["result"]["isError"]


async def test_a_late_client_is_not_asked_again_by_the_next_rule() -> None:
    ports = FakePorts()
    second = {**FORWARD, "name": "second"}
    d, round = asked(
        {**FORWARD, "timeout": "10s", "on_timeout": "next"}, second, capabilities={"elicitation": {}}, b=form()
    )
    conclusion = await ports.gate(d).run(round)
    assert isinstance(conclusion, ForwardRound)
    (handed,) = to_client(d.done(round, conclusion))
    d.now = 11.0
    back = {"inputResponses": {"b": {"action": "decline"}}, "requestState": handed["result"]["requestState"]}
    again = one(d.client(modern(2, "tools/call", {"elicitation": {}}, name="x", **back)), Open).round
    await ports.settled(d, again)
    assert ("second", Reason.CANNOT) == (ports.records[-1].rule, ports.records[-1].reason)
