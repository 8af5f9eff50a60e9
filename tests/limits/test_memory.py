"""The accounts of this process: all of the draws or none, slots, and an end to how many are kept."""

from __future__ import annotations

import time

import pytest

from samplegate.core.ledger import SKEW, Draw, Refused, Reserved, Terms
from samplegate.limits.memory import Memory
from tests.limits.desk import NOON, bucket, daily, one, per, slot, slots


def memory(*terms: Terms, most: int = 1_000) -> Memory:
    return Memory({each.name: each for each in terms}, most)


def taken(got: Reserved | Refused) -> Reserved:
    assert isinstance(got, Reserved), got
    return got


def test_all_of_the_draws_are_charged_or_none() -> None:
    kept = memory(bucket("a", 2), bucket("b", 1), slots("s", 1))
    taken(kept.reserve("1", [one("a"), one("b"), slot("s")], NOON))
    for draws in ([one("a"), one("b")], [one("a"), slot("s")]):
        assert isinstance(kept.reserve("2", draws, NOON), Refused)
    taken(kept.reserve("3", [one("a")], NOON))


def test_slots_are_held_by_key_until_they_are_settled() -> None:
    kept = memory(slots("s", 2))
    first = taken(kept.reserve("1", [slot("s")], NOON))
    taken(kept.reserve("2", [slot("s")], NOON))
    taken(kept.reserve("3", [slot("s", '["other"]')], NOON))
    refused = kept.reserve("4", [slot("s")], NOON + 1_000_000)
    assert isinstance(refused, Refused)
    assert ("s", "full", None) == (refused.limit, refused.why, refused.retry_after)
    kept.settle(first, (), NOON)
    taken(kept.reserve("4", [slot("s")], NOON))


@pytest.mark.parametrize("draws", [[Draw("s", "[]", 3)], [slot("s"), slot("s"), slot("s")]], ids=["one draw", "several draws"])
def test_more_slots_than_there_are_never_fit(draws: list[Draw]) -> None:
    refused = memory(slots("s", 2)).reserve("1", draws, NOON)
    assert isinstance(refused, Refused)
    assert ("s", "never") == (refused.limit, refused.why)


def test_what_was_undone_warns_again() -> None:
    kept = memory(daily("a", 4, warn_at=0.5))
    first = taken(kept.reserve("1", [Draw("a", "[]", 2_000_000)], NOON))
    assert ("a",) == first.warned
    kept.undo(first, NOON)
    assert () == taken(kept.reserve("2", [one("a")], NOON)).warned
    assert ("a",) == taken(kept.reserve("3", [one("a")], NOON)).warned


def test_idle_accounts_are_forgotten_while_new_ones_come() -> None:
    kept = memory(bucket("a", 1, seconds=1.0), most=10_000)
    for number in range(20_000):
        taken(kept.reserve(str(number), [one("a", f'["{number}"]')], NOON + number / 10))
    assert 250 > len(kept)  # some hundred are not idle at any time: for a second, and for as long as clocks may differ


def test_idle_accounts_are_found_among_those_that_are_not() -> None:
    kept = memory(daily("d", 1), bucket("a", 1, seconds=1.0), most=10_000)
    for number in range(3_000):
        taken(kept.reserve(str(number), [one("d", f'["{number}"]')], NOON))
    for number in range(20_000):
        taken(kept.reserve(str(number), [one("a", f'["{number}"]')], NOON + number / 100))
    assert 3_000 <= len(kept) < 5_000


def test_too_many_accounts_are_refused_until_some_are_idle() -> None:
    kept = memory(bucket("a", 1), slots("s", 1), most=100)
    for number in range(99):
        taken(kept.reserve(str(number), [one("a", f'["{number}"]')], NOON))
    held = taken(kept.reserve("slot", [slot("s")], NOON))
    for draw in (one("a", '["new"]'), slot("s", '["new"]')):
        refused = kept.reserve("new", [draw], NOON)
        assert isinstance(refused, Refused)
        assert (draw.limit, "unavailable") == (refused.limit, refused.why)
        assert "100 accounts" in refused.detail
    kept.settle(held, (), NOON)
    taken(kept.reserve("new", [slot("s", '["new"]')], NOON))
    taken(kept.reserve("new", [one("a", '["new"]')], NOON + 60 + SKEW))


def test_an_account_that_was_forgotten_can_be_settled() -> None:
    kept = memory(bucket("a", 2, seconds=1.0), per("call", "c", 1))
    held = taken(kept.reserve("1", [one("a"), one("c")], NOON))
    for number in range(10):
        kept.reserve("x", [one("a", f'["{number}"]')], NOON + 100_000)
    kept.settle(held, [one("a")], NOON + 100_000)
    assert isinstance(kept.reserve("2", [one("a"), one("c")], NOON + 100_000), Reserved)


def test_a_hundred_thousand_keys_take_seconds_at_most() -> None:
    kept = memory(daily("d", 1), most=1_000_000)
    begun = time.thread_time()
    for number in range(100_000):
        kept.reserve("x", [one("d", f'["{number}"]')], NOON)
    assert 30 > time.thread_time() - begun
    assert 100_000 == len(kept)
