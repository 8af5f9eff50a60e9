"""The charges of a request: which accounts it draws on, as an upper bound and as the actual amount."""

from __future__ import annotations

import json
from typing import Final

import pytest

from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import (
    MAX_ACCOUNTS,
    Claimant,
    actual_draws,
    charges_of,
    limit_specs,
    needs_state,
    unreserved_draws,
)
from samplegate.policy.ledger import SCALE, Draw, LimitSpec
from samplegate.policy.schema import Limit, Policy
from samplegate.protocol.requests import Call, Origin

ONE: Final = SCALE["requests"]
MOST: Final = Worst(1000, 200, 5 * 10**9)


def of(**limits: Limit) -> Policy:
    return Policy(version=1, limits=limits)


def claimant(
    *calls: Call, ids: tuple[str, ...] = ("c1",), model: str | None = "smart", server: str = "docs"
) -> Claimant:
    return Claimant(Origin(server, "local", "legacy", "2025-11-25", calls), ids, "s1", "a rule", model)


def tool(name: str) -> Call:
    return Call("tools/call", name)


def drawn(limit: Limit, claimant: Claimant, most: Worst | None = MOST) -> list[tuple[str, int]]:
    answer = charges_of(["l"], limit_specs(of(l=limit)), claimant, most)
    assert not isinstance(answer, str)
    return [(draw.key, draw.amount) for draw in answer]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit(requests=10, per="1m"), LimitSpec("l", "requests", 10 * ONE, "bucket", 60.0)),
        (
            Limit(input_tokens=10, per="1.5s", warn_at=0.5),
            LimitSpec("l", "input_tokens", 10 * ONE, "bucket", 1.5, warn_at=0.5),
        ),
        (
            Limit(usd=5.1, per="day", tz="Europe/Berlin"),
            LimitSpec("l", "usd", 51 * 10**11, "day", tz="Europe/Berlin", shared=True),
        ),
        (
            Limit(output_tokens=7, per="call", by=["rule"]),
            LimitSpec("l", "output_tokens", 7 * ONE, "call", by=("rule",)),
        ),
        (Limit(usd=0.1, per="process"), LimitSpec("l", "usd", 10**11, "process")),
        (Limit(concurrent=3, by=["server"]), LimitSpec("l", "concurrent", 3, "slots", by=("server",))),
    ],
)
def test_a_limit_becomes_terms_in_whole_units(limit: Limit, expected: LimitSpec) -> None:
    assert {"l": expected} == limit_specs(of(l=limit))


@pytest.mark.parametrize(
    ("limit", "needed"),
    [
        (Limit(requests=1, per="59m"), False),
        (Limit(requests=1, per="60m"), True),
        (Limit(requests=1, per="day", tz="UTC"), True),
        (Limit(requests=1, per="month", tz="UTC"), True),
        (Limit(usd=1, per="1s"), True),
        (Limit(usd=1, per="call"), False),
        (Limit(usd=1, per="process"), False),
        (Limit(concurrent=1), False),
    ],
)
def test_dollars_and_hours_need_a_state(limit: Limit, needed: bool) -> None:
    assert needed is needs_state(of(l=limit))


def test_once_a_state_is_needed_all_that_can_be_shared_is() -> None:
    policy = of(
        money=Limit(usd=1, per="day", tz="UTC"),
        short=Limit(requests=1, per="1s"),
        slots=Limit(concurrent=1),
        call=Limit(usd=1, per="call"),
        process=Limit(requests=1, per="process"),
    )
    assert {"money": True, "short": True, "slots": True, "call": False, "process": False} == {
        n: t.shared for n, t in limit_specs(policy).items()
    }


@pytest.mark.parametrize(
    ("limit", "amount"),
    [
        (Limit(requests=10, per="1m"), ONE),
        (Limit(concurrent=10), 1),
        (Limit(input_tokens=10, per="1m"), 1000 * ONE),
        (Limit(output_tokens=10, per="1m"), 200 * ONE),
        (Limit(usd=10, per="1m"), 5 * 10**9),
    ],
)
def test_a_request_draws_one_of_what_is_counted_and_the_worst_of_what_is_spent(limit: Limit, amount: int) -> None:
    assert [("[]", amount)] == drawn(limit, claimant())


def test_where_no_model_is_asked_nothing_is_spent() -> None:
    assert [("[]", 0)] == drawn(Limit(usd=10, per="1m"), claimant(model=None), None)
    assert [('["none"]', ONE)] == drawn(Limit(requests=10, per="1m", by=["model"]), claimant(model=None), None)


def test_an_unknown_price_under_a_dollar_limit_is_a_sentence_and_no_draw() -> None:
    policy = of(rate=Limit(requests=1, per="1m"), money=Limit(usd=1, per="1m"))
    assert (
        "limit money: the price of model smart is unknown; add `price: {input: , output: }` to the model"
        == charges_of(["rate", "money"], limit_specs(policy), claimant(), Worst(1, 1, None))
    )
    assert isinstance(charges_of(["rate"], limit_specs(policy), claimant(), Worst(1, 1, None)), tuple)


def test_a_limit_that_is_not_known_is_a_sentence() -> None:
    assert "limit gone: the policy has no limit with this name" == charges_of(["gone"], {}, claimant(), MOST)


def test_the_key_has_the_values_in_the_order_of_the_limit() -> None:
    limit = Limit(requests=1, per="1m", by=["model", "server", "caller", "rule", "session", "tool"])
    assert [('["smart","docs","local","a rule","s1","t"]', ONE)] == drawn(limit, claimant(tool("t")))


@pytest.mark.parametrize(
    ("calls", "keys"),
    [
        ((), ['["none"]']),
        ((Call("prompts/get", None),), ['["prompts/get"]']),
        ((tool("a"), tool("b"), tool("a")), ['["a"]', '["b"]']),
        ((tool("a"), Call("resources/read", None)), ['["a"]', '["resources/read"]']),
    ],
    ids=["none in flight", "no tool", "each tool once", "mixed"],
)
def test_every_candidate_tool_is_charged(calls: tuple[Call, ...], keys: list[str]) -> None:
    assert keys == [key for key, _ in drawn(Limit(requests=1, per="1m", by=["tool"]), claimant(*calls))]


def test_every_candidate_call_is_charged_and_stands_last() -> None:
    limit = Limit(requests=8, per="call", by=["server"])
    assert [('["docs","c1"]', ONE), ('["docs","c2"]', ONE)] == drawn(limit, claimant(ids=("c1", "c2", "c1")))


def test_a_rule_that_names_a_limit_twice_draws_once() -> None:
    assert 1 == len(charges_of(["l", "l"], limit_specs(of(l=Limit(requests=1, per="1m"))), claimant(), MOST))


def test_too_many_candidates_are_no_draw() -> None:
    ids = tuple(f"c{number}" for number in range(MAX_ACCOUNTS + 1))
    limits = limit_specs(of(l=Limit(requests=1, per="call", by=["tool"])))
    assert isinstance(charges_of(["l"], limits, claimant(ids=ids), MOST), str)
    assert isinstance(charges_of(["l"], limits, claimant(*(tool(id) for id in ids[:100]), ids=ids[:100]), MOST), str)
    assert isinstance(charges_of(["l"], limits, claimant(ids=ids[1:]), MOST), tuple)


@pytest.mark.parametrize(
    "name",
    ["x" * 10**6, "\ud800", '"],["', "ü" * 200, "\udfff" * 500],
    ids=["long", "surrogate", "quotes", "umlauts", "long surrogates"],
)
def test_whatever_a_tool_is_called_its_key_is_short_and_its_own(name: str) -> None:
    limit = Limit(requests=1, per="1m", by=["tool"])
    ((key, _),) = drawn(limit, claimant(tool(name)))
    assert key.isascii()
    assert len(key) < 2000
    assert key != drawn(limit, claimant(tool(name + "x")))[0][0]


def test_a_tool_that_is_called_like_anothers_hash_has_an_account_of_its_own() -> None:
    limit, long = Limit(requests=1, per="1m", by=["tool"]), "x" * 1_000
    ((key, _),) = drawn(limit, claimant(tool(long)))
    (hashed,) = json.loads(key)
    assert key != drawn(limit, claimant(tool(hashed)))[0][0]


def draws(*limits: tuple[str, Limit]) -> tuple[dict[str, LimitSpec], tuple[Draw, ...]]:
    compiled = dict(limit_specs(of(**dict(limits))))
    found = charges_of(compiled, compiled, claimant(), MOST)
    assert not isinstance(found, str)
    return compiled, found


ALL: Final[tuple[tuple[str, Limit], ...]] = (
    ("rate", Limit(requests=1, per="1m")),
    ("slots", Limit(concurrent=1)),
    ("read", Limit(input_tokens=1, per="1m")),
    ("written", Limit(output_tokens=1, per="call")),
    ("money", Limit(usd=1, per="1m")),
)


@pytest.mark.parametrize(
    ("spent", "expected"),
    [
        (Worst(7, 3, 42), [ONE, 1, 7 * ONE, 3 * ONE, 42]),
        (None, [ONE, 1, 0, 0, 0]),
        (Worst(7, 3, None), [ONE, 1, 7 * ONE, 3 * ONE, 5 * 10**9]),
    ],
    ids=["real figures", "nothing spent", "unknown cost stays at worst"],
)
def test_in_truth_requests_stand_and_what_was_spent_is_what_it_came_to(
    spent: Worst | None, expected: list[int]
) -> None:
    compiled, found = draws(*ALL)
    true = actual_draws(found, compiled, spent)
    assert expected == [draw.amount for draw in true]
    assert [(draw.limit, draw.key) for draw in found] == [(draw.limit, draw.key) for draw in true]


def test_another_try_draws_tokens_and_dollars_anew_and_no_second_request() -> None:
    compiled, found = draws(*ALL)
    held = [draw for draw in found if compiled[draw.limit].quantity in ("requests", "concurrent")]
    assert ["read", "written", "money"] == [draw.limit for draw in unreserved_draws(found, held)]


def test_another_try_draws_on_the_account_of_its_own_model() -> None:
    compiled = limit_specs(of(l=Limit(requests=1, per="1m", by=["model"])))
    first, second = (charges_of(["l"], compiled, claimant(model=name), MOST) for name in ("a", "b"))
    assert not isinstance(first, str)
    assert not isinstance(second, str)
    assert second == unreserved_draws(second, first)
    assert () == unreserved_draws(first, first)


def test_a_policy_without_limits_has_no_terms() -> None:
    assert {} == limit_specs(Policy(version=1))
    assert not needs_state(Policy(version=1))
