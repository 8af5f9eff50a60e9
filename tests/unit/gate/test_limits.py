"""The gate with limits: what is reserved before anything is spent, what stays charged afterwards, and what is left for
the next model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from samplegate.policy.ledger import SCALE, Draw, Refused, Reserved
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered
from samplegate.protocol.rounds import ForwardRound, Open, Settled
from tests.fakes.dialogue import modern, one, result, sample
from tests.fakes.gate_ports import FakePorts, asked, pushed

pytestmark = pytest.mark.anyio

DOLLAR = SCALE["usd"]
MODELS: list[dict[str, Any]] = [
    {"name": "cheap", "model": "openai/cheap", "price": {"input": 1, "output": 2}, "max_tokens": 50},
    {"name": "dear", "model": "openai/dear", "price": {"input": 100, "output": 200}},
]
LIMITS: dict[str, Any] = {
    "day": {"usd": 1, "per": "day", "tz": "UTC"},
    "rate": {"requests": 2, "per": "1m"},
    "loop": {"requests": 2, "per": "call"},
    "room": {"concurrent": 1},
}
POLICY: dict[str, Any] = {"models": MODELS, "limits": LIMITS}
TEXT = ({"type": "text", "text": "hi"},)


def allow(*limits: str, models: tuple[str, ...] = ("cheap",), **more: Any) -> dict[str, Any]:
    return {
        "name": "models",
        "match": {"kind": "sampling"},
        "effect": "allow",
        "with": {"models": list(models)},
        "limits": list(limits),
        **more,
    }


def dollars(input_tokens: int, output_tokens: int, model: Mapping[str, Any]) -> int:
    price: dict[str, int] = model["price"]
    return (input_tokens * price["input"] + output_tokens * price["output"]) * DOLLAR // 10**6


async def test_what_a_model_really_came_to_stands_in_the_account_and_the_record() -> None:
    ports = FakePorts(Sampled(TEXT, "gpt", "endTurn", 30, 40))
    d, round = pushed(allow("day", "rate"), policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Answered)
    cost = dollars(30, 40, MODELS[0])
    assert cost == ports.limits.drawn("day")
    assert SCALE["requests"] == ports.limits.drawn("rate")
    (record,) = ports.records
    assert cost == record.usd
    assert ("day", "rate") == record.limits


async def test_while_the_model_is_asked_the_worst_case_is_reserved() -> None:
    seen: list[int] = []

    async def look(_: SampleRequest) -> SampleResult:
        seen.append(ports.limits.drawn("day"))
        return Sampled(TEXT, "gpt", "endTurn", 1, 1)

    ports = FakePorts(look)
    d, round = pushed(allow("day"), policy=POLICY)
    await ports.settled(d, round)
    assert dollars(0, 50, MODELS[0]) < seen[0]
    assert dollars(1, 1, MODELS[0]) == ports.limits.drawn("day")


@pytest.mark.parametrize(
    ("failure", "stands"),
    [
        (SampleFailed("bad_key", "401", free=True), "nothing"),
        (SampleFailed("unreachable", "503"), "worst"),
        (SampleFailed("empty", "no text", started=True, input_tokens=5, output_tokens=7), "truth"),
    ],
    ids=["refused with a 4xx", "failed", "answered nothing of use"],
)
async def test_a_failure_is_given_back_only_where_nothing_can_have_been_charged(
    failure: SampleFailed, stands: str
) -> None:
    ports = FakePorts(failure)
    d, round = pushed(allow("day", "rate"), policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    if stands == "worst":
        assert dollars(0, 50, MODELS[0]) < ports.limits.drawn("day")
    else:
        assert (0 if stands == "nothing" else dollars(5, 7, MODELS[0])) == ports.limits.drawn("day")
    assert SCALE["requests"] == ports.limits.drawn("rate"), "a request that was made counts"


async def test_missing_usage_is_the_worst_case() -> None:
    ports = FakePorts(Sampled(TEXT, "gpt", "endTurn", None, None))
    d, round = pushed(allow("day"), policy=POLICY)
    await ports.settled(d, round)
    assert dollars(0, 50, MODELS[0]) < ports.limits.drawn("day")


async def test_an_overrun_is_booked() -> None:
    ports = FakePorts(Sampled(TEXT, "gpt", "endTurn", 10**6, 10))
    d, round = pushed(allow("day"), policy=POLICY)
    await ports.settled(d, round)
    assert dollars(10**6, 10, MODELS[0]) == ports.limits.drawn("day")


@pytest.mark.parametrize(
    ("on_limit", "expected", "reason"),
    [("unanswered", Unanswered, Reason.LIMIT), ("deny", Denied, Reason.LIMIT), ("next", Answered, None)],
)
async def test_a_limit_without_room_is_followed_as_the_rule_says(
    on_limit: str, expected: type, reason: Reason | None
) -> None:
    ports = FakePorts()
    canned = {"name": "canned", "match": {"kind": "sampling"}, "effect": "answer", "content": "later"}
    rules = (allow("rate", on_limit=on_limit), canned)
    ports.limits.out = Refused("rate", "full", 12.0)
    d, round = pushed(*rules, policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, expected)
    if isinstance(outcome, Denied | Unanswered):
        assert reason is outcome.reason
    assert not ports.asked
    (record,) = ports.records
    assert "rate" == record.refused_by
    assert "rate" in (record.detail or "") + " ".join(record.tried)


async def test_a_fault_while_a_limit_is_asked_leaves_the_request_unanswered() -> None:
    async def breaks(draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        raise RuntimeError("a bug")

    ports = FakePorts()
    ports.limits.reserve = breaks  # type: ignore[method-assign]
    d, round = pushed(allow("rate"), policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.ERROR is outcome.reason
    assert not ports.asked
    assert 1 == len(ports.records)


@pytest.mark.parametrize("full", [False, True])
async def test_the_rule_after_one_that_timed_out_draws_on_its_own_limits(full: bool) -> None:
    async def late(request: SampleRequest) -> SampleResult:
        if request.model == "cheap":
            await anyio.sleep_forever()
        return Sampled(TEXT, "gpt", "endTurn", 1, 1)

    ports = FakePorts(late)
    ports.limits.out = Refused("rate", "full") if full else None
    first = {**allow(on_timeout="next"), "with": {"models": ["cheap"], "timeout": "10ms"}}
    d, round = pushed(first, {**allow("rate", models=("dear",)), "name": "second"}, policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered if full else Answered)
    assert (["cheap"] if full else ["cheap", "dear"]) == [request.model for request in ports.asked]
    assert (0 if full else SCALE["requests"]) == ports.limits.drawn("rate")


async def test_a_rule_that_waits_gives_the_store_the_time_that_is_left() -> None:
    ports = FakePorts()
    d, round = pushed({**allow("rate", on_limit="wait"), "with": {"models": ["cheap"], "timeout": "7s"}}, policy=POLICY)
    await ports.settled(d, round)
    assert [7.0] == ports.limits.waits


async def test_a_slot_is_free_again_whatever_came_of_it() -> None:
    for answer in (Sampled(TEXT, "gpt", "endTurn", 1, 1), SampleFailed("error", "no")):
        ports = FakePorts(answer)
        d, round = pushed(allow("room"), policy=POLICY)
        await ports.settled(d, round)
        assert 0 == ports.limits.taken("room")


async def test_a_withdrawn_request_keeps_its_worst_case_and_frees_its_slot() -> None:
    begun = anyio.Event()

    async def never(_: SampleRequest) -> SampleResult:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    ports = FakePorts(never)
    d, round = pushed(allow("day", "room"), policy=POLICY)
    async with anyio.create_task_group() as group:
        group.start_soon(ports.gate(d).run, round)
        with anyio.fail_after(5):
            await begun.wait()
        group.cancel_scope.cancel()
    assert 0 == ports.limits.taken("room")
    assert dollars(0, 50, MODELS[0]) < ports.limits.drawn("day")
    (record,) = ports.records
    assert "withdrawn" == record.outcome
    assert ["cancelled"] == [attempt.result for attempt in record.attempts]


async def test_a_model_that_fails_before_its_first_token_is_followed_by_the_next_and_each_is_paid_for_by_itself() -> (
    None
):
    async def second(request: SampleRequest) -> SampleResult:
        return (
            SampleFailed("unreachable", "503", free=True)
            if request.model == "cheap"
            else Sampled(TEXT, "gpt", "endTurn", 10, 10)
        )

    ports = FakePorts(second)
    d, round = pushed(allow("day", "rate", "room", models=("cheap", "dear")), policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Answered)
    assert ["cheap", "dear"] == [request.model for request in ports.asked]
    assert [50, 100] == [request.params["maxTokens"] for request in ports.asked], "each within its own bounds"
    assert dollars(10, 10, MODELS[1]) == ports.limits.drawn("day")
    assert SCALE["requests"] == ports.limits.drawn("rate"), "one request, however many models"
    assert 0 == ports.limits.taken("room")
    (record,) = ports.records
    assert [("cheap", "unreachable"), ("dear", "ok")] == [
        (attempt.model, attempt.result) for attempt in record.attempts
    ]
    assert ["model.fallback"] == [note.event for note in ports.notes]


@pytest.mark.parametrize(
    "failure",
    [
        SampleFailed("unreachable", "cut", started=True),
        SampleFailed("refused", "content policy"),
        SampleFailed("timeout", "late"),
    ],
    ids=lambda failure: failure.failure,
)
async def test_no_other_model_is_asked_once_one_has_begun_or_has_refused(failure: SampleFailed) -> None:
    ports = FakePorts(failure)
    d, round = pushed(allow(models=("cheap", "dear")), policy=POLICY)
    assert isinstance((await ports.settled(d, round))[""].outcome, Unanswered)
    assert ["cheap"] == [request.model for request in ports.asked]


async def test_without_fallback_one_model_is_asked() -> None:
    ports = FakePorts(SampleFailed("unreachable", "503"))
    d, round = pushed({**allow(), "with": {"models": ["cheap", "dear"], "fallback": False}}, policy=POLICY)
    await ports.settled(d, round)
    assert ["cheap"] == [request.model for request in ports.asked]


async def test_a_fallback_that_the_limit_has_no_room_for_is_not_asked() -> None:
    ports = FakePorts(SampleFailed("unreachable", "503"))
    tight = {**POLICY, "limits": {"day": {"usd": 0.0015, "per": "day", "tz": "UTC"}}}
    d, round = pushed(allow("day", models=("cheap", "dear")), policy=tight)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.LIMIT is outcome.reason
    assert ["cheap"] == [request.model for request in ports.asked]


async def test_a_round_that_one_key_ends_spends_and_draws_nothing() -> None:
    ports = FakePorts()
    deny = {"name": "never", "match": {"kind": "sampling", "text": "secret"}, "effect": "deny"}
    d, round = asked(deny, allow("day", "rate", "room"), policy=POLICY, a=sample("fine"), b=sample("secret"))
    await ports.settled(d, round)
    assert not ports.asked
    assert (0, 0, 0) == (ports.limits.drawn("day"), ports.limits.drawn("rate"), ports.limits.taken("room"))


async def test_a_round_of_which_one_key_has_no_room_gives_back_what_the_others_reserved() -> None:
    ports = FakePorts()
    policy = {**POLICY, "limits": {**LIMITS, "one": {"requests": 1, "per": "1m"}}}
    d, round = asked(allow("day", "one", "room"), policy={**policy}, a=sample("first"), b=sample("second"))
    await ports.settled(d, round)
    assert not ports.asked
    assert (0, 0, 0) == (ports.limits.drawn("day"), ports.limits.drawn("one"), ports.limits.taken("room"))


async def test_at_a_modern_forward_local_reservations_are_given_back_and_taken_again_at_the_return() -> None:
    forward = {"name": "client", "match": {"kind": "elicitation"}, "effect": "forward", "limits": ["rate"]}
    params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
    ports = FakePorts(Sampled(TEXT, "gpt", "endTurn", 10, 10))
    capabilities: dict[str, Any] = {"elicitation": {}}
    d, round = asked(allow("day", "room"), forward, capabilities=capabilities, policy=POLICY, a=sample(), b=params)
    gate = ports.gate(d)
    conclusion = await gate.run(round)
    assert isinstance(conclusion, ForwardRound)
    assert (0, 0) == (ports.limits.drawn("day"), ports.limits.taken("room"))
    assert SCALE["requests"] == ports.limits.drawn("rate")
    out = d.done(round, conclusion)
    state = json.loads(out[-1].line)["result"]["requestState"]
    back = modern(2, "tools/call", capabilities, name="x")
    back["params"] |= {"requestState": state, "inputResponses": {"b": {"action": "decline"}}}
    returned = one(d.client(back), Open).round
    assert round.call_ids == returned.call_ids
    settled = await gate.run(returned)
    assert isinstance(settled, Settled)
    assert dollars(10, 10, MODELS[0]) == ports.limits.drawn("day")
    assert SCALE["requests"] == ports.limits.drawn("rate"), "the client was asked once"


async def test_per_call_counts_over_all_rounds_of_a_call() -> None:
    ports = FakePorts()
    d, round = asked(allow("loop"), policy=POLICY, a=sample())
    gate = ports.gate(d)
    for left in (True, True, False):
        settled = await gate.run(round)
        assert isinstance(settled, Settled)
        outcome = settled.releases["a"].outcome
        assert left is isinstance(outcome, Answered)
        if not left:
            assert isinstance(outcome, Unanswered)
            assert Reason.LIMIT is outcome.reason
            return
        (again,) = (json_of(effect.line) for effect in d.done(round, settled))
        asks = result(
            again["id"],
            resultType="input_required",
            inputRequests={"a": {"method": "sampling/createMessage", "params": sample()}},
        )
        round = one(d.server(asks), Open).round


def json_of(line: bytes) -> Any:
    return json.loads(line)


async def test_a_brake_leaves_a_server_that_repeats_itself_unanswered_for_a_while() -> None:
    ports = FakePorts()
    d, round = pushed(allow(), policy={**POLICY, "brakes": {"repeats": 3, "cooling": "10s"}})
    gate = ports.gate(d)
    outcomes = []
    for _ in range(4):
        settled = await gate.run(round)
        assert isinstance(settled, Settled)
        outcomes.append(settled.releases[""].outcome)
    assert [True, True, False, False] == [isinstance(outcome, Answered) for outcome in outcomes]
    assert isinstance(outcomes[2], Unanswered)
    assert Reason.BRAKE is outcomes[2].reason
    assert ["brake.tripped"] == [note.event for note in ports.notes]
    ports.now = 11.0
    settled = await gate.run(round)
    assert isinstance(settled, Settled)
    assert isinstance(settled.releases[""].outcome, Answered)


async def test_a_brake_on_one_callers_questions_leaves_the_others_alone() -> None:
    ports = FakePorts()
    d, round = pushed(allow(), policy={**POLICY, "brakes": {"repeats": 2, "cooling": "10s"}})
    gate = ports.gate(d)
    other = msgspec.structs.replace(round, origin=msgspec.structs.replace(round.origin, caller="bob"))
    outcomes = []
    for one_round in (round, round, other):
        settled = await gate.run(one_round)
        assert isinstance(settled, Settled)
        outcomes.append(settled.releases[""].outcome)
    assert [Answered, Unanswered, Answered] == [type(outcome) for outcome in outcomes]


@pytest.mark.parametrize(("where", "outcome"), [("redact", Answered), ("stop", Unanswered)])
async def test_a_secret_in_an_answer_is_blotted_out_or_ends_it(where: str, outcome: type) -> None:
    ports = FakePorts(Sampled(({"type": "text", "text": "it is EMP-123456"},), "gpt", "endTurn", 1, 1))
    rule = {**allow(), "with": {"models": ["cheap"], "secrets": {"answer": where}}}
    d, round = pushed(rule, policy={**POLICY, "secrets": {"employee": "EMP-[0-9]{6}"}})
    found = (await ports.settled(d, round))[""].outcome
    assert isinstance(found, outcome)
    if isinstance(found, Answered):
        assert b"EMP" not in found.result
        assert b"[secret:employee]" in found.result
    elif isinstance(found, Unanswered):
        assert Reason.CONTENT is found.reason
    assert {"employee": 1} == dict(ports.records[0].redacted)


async def test_an_answer_over_the_rules_size_is_withheld() -> None:
    ports = FakePorts(Sampled(({"type": "text", "text": "x" * 100},), "gpt", "endTurn", 1, 1))
    d, round = pushed({**allow(), "with": {"models": ["cheap"], "max_answer": 50}}, policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.CONTENT is outcome.reason


async def test_the_peers_are_told_how_many_tokens_have_come() -> None:
    ports = FakePorts()
    d, round = pushed(allow(), policy=POLICY)
    await ports.settled(d, round)
    assert [1] == ports.heard


USE = {"type": "tool_use", "id": "u1", "name": "look", "input": {}}


@pytest.mark.parametrize(
    ("choice", "blocks", "outcome"),
    [
        ({"mode": "required"}, TEXT, Unanswered),
        ({"mode": "required"}, (USE,), Answered),
        ({"mode": "auto"}, TEXT, Answered),
        ({"mode": "auto"}, ({**USE, "name": "other"},), Unanswered),
        ({"mode": "none"}, (USE,), Unanswered),
        (None, (USE,), Answered),
    ],
)
async def test_an_answer_that_does_not_keep_to_the_tool_choice_is_withheld(
    choice: Any, blocks: Any, outcome: type
) -> None:
    ports = FakePorts(Sampled(blocks, "gpt", "toolUse", 1, 1))
    tools = {
        "tools": [{"name": "look", "inputSchema": {"type": "object"}}],
        **({} if choice is None else {"toolChoice": choice}),
    }
    able = {**POLICY, "models": [{**MODELS[0], "accepts": ["tools"]}]}
    d, round = pushed(allow(), policy=able, params=sample(**tools))
    found = (await ports.settled(d, round))[""].outcome
    assert isinstance(found, outcome)
    if isinstance(found, Unanswered):
        assert Reason.MODEL is found.reason


async def test_a_call_that_ran_out_of_time_before_it_was_sent_is_given_back() -> None:
    async def slow_to_start(request: SampleRequest) -> SampleResult:
        await anyio.sleep(request.timeout)
        return SampleFailed("timeout", "model cheap: the worker was still starting", free=True)

    ports = FakePorts(slow_to_start)
    d, round = pushed({**allow("day"), "with": {"models": ["cheap"], "timeout": "20ms"}}, policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.TIMEOUT is outcome.reason
    assert 0 == ports.limits.drawn("day")


async def test_a_request_that_is_withdrawn_while_it_waits_for_room_is_on_record_and_has_drawn_nothing() -> None:
    ports = FakePorts()
    waiting = anyio.Event()

    async def forever(*_: object) -> Any:
        waiting.set()
        await anyio.sleep_forever()

    d, round = pushed(allow("rate", on_limit="wait"), policy=POLICY)
    ports.limits.reserve = forever  # type: ignore[method-assign,assignment]
    async with anyio.create_task_group() as group:
        group.start_soon(ports.gate(d).run, round)
        with anyio.fail_after(5):
            await waiting.wait()
        group.cancel_scope.cancel()
    (record,) = ports.records
    assert ("withdrawn", ()) == (record.outcome, record.limits)


async def test_the_rules_time_includes_the_wait_for_room_and_so_does_the_records() -> None:
    ports = FakePorts()
    reserve = ports.limits.reserve

    async def later(draws: Any, wait: float | None) -> Any:
        ports.now += 3.0
        return await reserve(draws, wait)

    ports.limits.reserve = later  # type: ignore[method-assign]
    d, round = pushed({**allow("rate", on_limit="wait"), "with": {"models": ["cheap"], "timeout": "7s"}}, policy=POLICY)
    await ports.settled(d, round)
    assert pytest.approx(4.0) == ports.asked[0].timeout
    assert pytest.approx(3000.0) == ports.records[0].duration_ms


async def test_where_no_later_rule_takes_it_the_limit_is_the_reason() -> None:
    ports = FakePorts()
    ports.limits.out = Refused("rate", "full", 12.0)
    d, round = pushed(allow("rate", on_limit="next"), policy=POLICY)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Unanswered)
    assert Reason.LIMIT is outcome.reason
    assert "no later rule matched" in outcome.detail


async def test_a_stand_in_that_has_no_room_is_passed_over_for_a_cheaper_one() -> None:
    async def last(request: SampleRequest) -> SampleResult:
        return Sampled(TEXT, "gpt", "endTurn", 1, 1) if request.model == "third" else SampleFailed("unreachable", "503")

    third = {**MODELS[0], "name": "third", "max_tokens": 1}
    tight = {"models": [*MODELS, third], "limits": {"day": {"usd": 0.0015, "per": "day", "tz": "UTC"}}}
    ports = FakePorts(last)
    d, round = pushed(allow("day", models=("cheap", "dear", "third")), policy=tight)
    outcome = (await ports.settled(d, round))[""].outcome
    assert isinstance(outcome, Answered)
    assert ["cheap", "third"] == [request.model for request in ports.asked]


async def test_what_a_provider_says_about_waiting_is_in_the_record() -> None:
    ports = FakePorts(
        SampleFailed("rate_limited", "model cheap: the provider's rate limit is exceeded", retry_after=17.0, free=True)
    )
    d, round = pushed(allow(), policy=POLICY)
    await ports.settled(d, round)
    assert "17s" in ports.records[0].detail
    assert 1 == ports.records[0].detail.count("model cheap")


@pytest.mark.parametrize(
    ("seconds", "duration"), [(0.25, "0.25s"), (12.0, "12s"), (600.0, "10m"), (68_500.0, "19h1m40s")]
)
async def test_how_long_a_limit_is_full_is_said_in_words_of_its_size(seconds: float, duration: str) -> None:
    ports = FakePorts()
    ports.limits.out = Refused("rate", "full", seconds, "limit rate: 2 requests of 2 are drawn")
    d, round = pushed(allow("rate"), policy=POLICY)
    await ports.settled(d, round)
    detail = ports.records[0].detail
    assert duration in detail
    assert 1 == detail.count("limit rate")
