"""The ledger's rules, one by one. test_ledger_histories.py checks that they hold together over any history."""

from __future__ import annotations

import tracemalloc
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
import pytest

from samplegate.policy.ledger import (
    FORGET_AFTER,
    SCALE,
    SKEW,
    Account,
    Draw,
    LimitSpec,
    Refused,
    Reserved,
    amount_text,
    idle,
)
from tests.fakes.ledger import ONE, Accounts, bucket

NOON: Final = 1_780_000_000.0
DAY: Final = 86_400.0


def day(most: int = 10, tz: str = "UTC", **more: Any) -> LimitSpec:
    return LimitSpec("l", "requests", most * ONE, "day", tz=tz, **more)


def draw(amount: float, name: str = "l", key: str = "[]") -> Draw:
    return Draw(name, key, int(amount * ONE))


def reserved(answer: Reserved | Refused) -> Reserved:
    assert isinstance(answer, Reserved)
    return answer


def refused(answer: Reserved | Refused) -> Refused:
    assert isinstance(answer, Refused)
    return answer


def at(tz: str, *when: int) -> float:
    return datetime(*when, tzinfo=ZoneInfo(tz)).timestamp()  # type: ignore[misc, arg-type]


# -- buckets
# ----------------------------------------------------------------------------------------------------------------------


def test_a_bucket_takes_its_whole_at_once_and_then_as_it_drains() -> None:
    book = Accounts(bucket(10, 60))
    assert [True] * 10 + [False] == [book.takes(NOON, 1) for _ in range(11)]
    assert not book.takes(NOON + 5.9, 1)
    assert book.takes(NOON + 6.0, 1)
    assert not book.takes(NOON + 6.0, 1)


@pytest.mark.parametrize(("most", "period"), [(10, 60.0), (7, 3.3), (1, 86_400.0), (3, 0.001)])
def test_a_refused_draw_fits_when_it_was_said_to_and_not_much_before(most: int, period: float) -> None:
    book = Accounts(bucket(most, period))
    assert book.takes(NOON, most)
    after = refused(book.reserve(NOON, draw(1))).retry_after
    assert after is not None
    assert after == pytest.approx(period / most, abs=1e-5)
    assert not book.takes(NOON + after - 5e-6, 1)
    assert book.takes(NOON + after, 1)


def test_looking_often_loses_nothing() -> None:
    """A unit takes a second to drain here, and it is drawn on ten times a second. If each step were rounded, it would
    never drain."""
    units = LimitSpec("l", "requests", 100, "bucket", 100.0)
    book = Accounts(units)
    book.reserve(NOON, Draw("l", "[]", 100))
    given = sum(isinstance(book.reserve(NOON + step / 10, Draw("l", "[]", 1)), Reserved) for step in range(1, 1001))
    assert 100 == given
    slow = Accounts(bucket(10, 60))
    slow.takes(NOON, 10)
    for step in range(1, 6000):
        opened = slow.reserve(NOON + step / 1000, draw(0.000_5))
        if isinstance(opened, Reserved):
            slow.settle(NOON + step / 1000, opened)
    assert slow.takes(NOON + 6.003, 1)  # a millionth of a second for each of 2000 changes


def test_more_than_the_whole_limit_never_fits() -> None:
    answer = refused(Accounts(bucket(10, 60)).reserve(NOON, draw(11)))
    assert ("l", "never", None) == (answer.limit, answer.why, answer.retry_after)
    assert "limit l: 11 requests is more than the whole limit, 10 requests" == answer.detail


def test_a_refusal_says_how_much_is_drawn() -> None:
    book = Accounts(bucket(10, 60))
    book.takes(NOON, 9)
    assert "limit l: 9 of 10 requests used, 2 more would exceed it" == refused(book.reserve(NOON, draw(2))).detail


@pytest.mark.parametrize("back", [0.5, SKEW, SKEW + 1, 3600.0, 10 * DAY])
def test_a_clock_set_back_drains_nothing_and_blocks_nobody_for_long(back: float) -> None:
    book = Accounts(bucket(10, 60))
    book.takes(NOON, 10)
    assert not book.takes(NOON - back, 1)
    assert not book.takes(NOON - back + 5.9, 1)
    assert book.takes(NOON - back + 6.0 + SKEW, 1)


def test_times_of_two_processes_out_of_order_drain_nothing_twice() -> None:
    book = Accounts(bucket(60, 60))
    book.takes(NOON, 60)
    for step in range(1, 21):
        assert book.takes(NOON + 5 * step, 5)
        assert not book.takes(NOON + 5 * step - 4, 1)


# -- settling a bucket
# ----------------------------------------------------------------------------------------------------------------------


def test_what_was_not_drawn_is_given_back() -> None:
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(8)))
    book.settle(NOON, opened, [draw(3)])
    assert 3 == book.level()


def test_a_draw_without_a_true_figure_is_given_back_whole() -> None:
    book = Accounts(bucket(10, 60))
    book.settle(NOON, reserved(book.reserve(NOON, draw(8))))
    assert 0 == book.level()


def test_what_has_drained_meanwhile_is_not_given_back_again() -> None:
    """If all 8 were returned, they would hide the later draw: 8 reserved, 8 drained in 48 s, 10 drawn then, and 10 must
    remain."""
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(8)))
    assert book.takes(NOON + 48, 10)
    book.settle(NOON + 48, opened)
    assert 10 == book.level()
    assert not book.takes(NOON + 48, 1)


def test_half_drained_is_half_given_back() -> None:
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(10)))
    assert book.takes(NOON + 30, 5)
    book.settle(NOON + 30, opened, [draw(2)])
    assert 7 == pytest.approx(book.level(), abs=1e-5)  # of the 8 to return, 5 have drained


def test_an_overrun_is_booked_beyond_the_limit_and_has_to_drain() -> None:
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(10)))
    book.settle(NOON, opened, [draw(25)])
    assert 25 == book.level()
    answer = refused(book.reserve(NOON, draw(1)))
    assert "full" == answer.why
    assert answer.retry_after == pytest.approx(96.0, abs=1e-5)


def test_what_is_never_settled_stays_charged() -> None:
    book = Accounts(day(10))
    book.takes(NOON, 10)
    assert not book.takes(NOON + 1, 1)


def test_an_absurd_overrun_leaves_a_level_that_can_be_stored() -> None:
    book = Accounts(bucket(10, 60))
    book.settle(NOON, reserved(book.reserve(NOON, draw(1))), [Draw("l", "[]", 10**40)])
    assert book.kept["l", "[]"].level < 2**63


def test_a_draw_that_a_clock_set_back_makes_later_is_not_given_back() -> None:
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(8)))
    assert book.takes(NOON - 3600, 1)
    book.settle(NOON - 3599, opened)
    assert 9 == book.level()


# -- days and months
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tz", "last", "hours"),
    [
        ("UTC", (2026, 3, 28, 23, 59), 24),
        ("Europe/Berlin", (2026, 3, 28, 23, 59), 23),
        ("Europe/Berlin", (2026, 10, 24, 23, 59), 25),
        ("Asia/Kolkata", (2026, 3, 28, 23, 59), 24),
    ],
)
def test_a_day_begins_at_midnight_of_its_zone_and_ends_after_its_own_hours(
    tz: str, last: tuple[int, ...], hours: int
) -> None:
    book, late = Accounts(day(10, tz)), at(tz, *last)
    assert book.takes(late, 10)
    answer = refused(book.reserve(late, draw(1)))
    assert ("full", 60.0) == (answer.why, answer.retry_after)
    assert not book.takes(late + 59, 1)
    assert book.takes(late + 60, 10)
    assert not book.takes(late + 60 + hours * 3600 - 1, 1)
    assert book.takes(late + 60 + hours * 3600, 1)


def test_a_month_begins_anew_on_its_first() -> None:
    book = Accounts(LimitSpec("l", "requests", 5 * ONE, "month", tz="Europe/Berlin"))
    assert book.takes(at("Europe/Berlin", 2026, 2, 1), 5)
    assert not book.takes(at("Europe/Berlin", 2026, 2, 28, 23, 59, 59), 1)
    assert book.takes(at("Europe/Berlin", 2026, 3, 1), 5)


def test_a_rest_is_given_back_within_the_same_day_and_not_on_the_next() -> None:
    book, late = Accounts(day(10)), at("UTC", 2026, 5, 1, 23, 59)
    same, other = reserved(book.reserve(late, draw(4))), reserved(book.reserve(late, draw(6)))
    book.settle(late + 30, same, [draw(1)])
    assert 7 == book.level()
    assert book.takes(late + 60, 10)
    book.settle(late + 61, other)
    assert 10 == book.level()


def test_an_overrun_is_booked_on_the_day_it_becomes_known() -> None:
    book, late = Accounts(day(10)), at("UTC", 2026, 5, 1, 23, 59)
    opened = reserved(book.reserve(late, draw(4)))
    book.settle(late + 60, opened, [draw(9)])
    assert 5 == book.level()


def test_a_clock_set_back_over_midnight_frees_nothing_and_the_next_midnight_does() -> None:
    book, midnight = Accounts(day(10)), at("UTC", 2026, 5, 2)
    assert book.takes(midnight + 3600, 10)
    assert not book.takes(midnight - 3600, 1)
    assert not book.takes(midnight - 1, 1)
    assert book.takes(midnight, 10)
    assert not book.takes(midnight + 3600, 1)


def test_a_process_that_read_the_clock_before_midnight_frees_nothing_after_it() -> None:
    book, midnight = Accounts(day(10)), at("UTC", 2026, 5, 2)
    assert book.takes(midnight + 1, 9)
    assert book.takes(midnight - 1, 1)
    assert not book.takes(midnight + 2, 1)


# -- calls and processes
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["call", "process"])
def test_what_one_call_or_process_drew_never_comes_back_by_time(per: Any) -> None:
    book = Accounts(LimitSpec("l", "requests", 2 * ONE, per))
    assert [True, True, False] == [book.takes(NOON, 1) for _ in range(3)]
    answer = refused(book.reserve(NOON + 30 * DAY, draw(1)))
    assert ("full", None) == (answer.why, answer.retry_after)
    assert book.takes(NOON, 2, key='["another"]')


@pytest.mark.parametrize("per", ["call", "process"])
def test_a_call_gets_back_what_was_not_drawn_whenever_it_is_settled(per: Any) -> None:
    book = Accounts(LimitSpec("l", "output_tokens", 100 * ONE, per))
    opened = reserved(book.reserve(NOON, draw(80)))
    book.settle(NOON + 3600, opened, [draw(30)])
    assert 30 == book.level()
    assert (NOON + 3600) == book.kept["l", "[]"].stamp


# -- several draws
# ----------------------------------------------------------------------------------------------------------------------


def test_all_of_the_draws_are_charged_or_none() -> None:
    book = Accounts(bucket(10, 60, "a"), bucket(1, 60, "b"))
    assert isinstance(book.reserve(NOON, draw(1, "a"), draw(1, "b")), Reserved)
    before = dict(book.kept)
    assert "b" == refused(book.reserve(NOON, draw(1, "a"), draw(1, "b"))).limit
    assert before == book.kept


def test_draws_on_one_account_count_together() -> None:
    book = Accounts(bucket(10, 60))
    assert "never" == refused(book.reserve(NOON, draw(6), draw(6))).why
    opened = reserved(book.reserve(NOON, draw(6), draw(4)))
    assert 10 == book.level()
    book.settle(NOON, opened, [draw(1), draw(1)])
    assert 2 == book.level()


def test_of_several_refusals_the_one_that_lasts_longest_is_told() -> None:
    call = LimitSpec("call", "requests", ONE, "call")
    book = Accounts(bucket(1, 60, "minute"), bucket(1, 3600, "hour"), call)
    book.reserve(NOON, draw(1, "minute"), draw(1, "hour"), draw(1, "call"))
    assert "hour" == refused(book.reserve(NOON, draw(1, "hour"), draw(1, "minute"))).limit
    assert "call" == refused(book.reserve(NOON, draw(1, "hour"), draw(1, "call"), draw(1, "minute"))).limit
    assert "never" == refused(book.reserve(NOON, draw(1, "call"), draw(2, "minute"))).why


def test_slots_are_not_this_ledgers_business() -> None:
    book = Accounts(LimitSpec("slots", "concurrent", 1, "slots"), bucket(10, 60))
    opened = reserved(book.reserve(NOON, Draw("slots", "[]", 1), Draw("slots", "[]", 1), draw(1)))
    book.settle(NOON, opened, [])
    assert {("l", "[]")} == book.kept.keys()


def test_a_limit_that_is_not_known_lets_nothing_through() -> None:
    book = Accounts(bucket(10, 60))
    answer = refused(book.reserve(NOON, draw(1), draw(1, "gone")))
    assert ("gone", "unavailable") == (answer.limit, answer.why)
    assert {} == book.kept


def test_a_limit_that_is_gone_when_its_draw_is_settled_is_left_alone() -> None:
    book = Accounts(bucket(10, 60))
    opened = reserved(book.reserve(NOON, draw(1)))
    book.specs = {}
    book.settle(NOON, opened)
    assert 1 == len(book.kept)


def test_a_draw_of_nothing_fits_even_where_nothing_does() -> None:
    book = Accounts(bucket(1, 60))
    book.settle(NOON, reserved(book.reserve(NOON, draw(1))), [draw(5)])
    assert isinstance(book.reserve(NOON, draw(0)), Reserved)
    assert isinstance(book.reserve(NOON, draw(0, key='["other"]')), Reserved)
    assert 1 == len(book.kept)


# -- warnings
# ----------------------------------------------------------------------------------------------------------------------


def test_a_day_warns_once_and_the_next_day_again() -> None:
    book = Accounts(day(10, warn_at=0.8))
    assert [(), ("l",), ()] == [reserved(book.reserve(NOON, draw(amount))).warned for amount in (7, 1, 1)]
    assert ("l",) == reserved(book.reserve(NOON + DAY, draw(10))).warned


def test_a_bucket_warns_again_once_it_has_drained_empty_and_not_while_it_hovers() -> None:
    book = Accounts(bucket(10, 60, warn_at=0.8))
    assert ("l",) == reserved(book.reserve(NOON, draw(10))).warned
    assert () == reserved(book.reserve(NOON + 6, draw(1))).warned
    assert () == reserved(book.reserve(NOON + 24, draw(1))).warned
    assert () == reserved(book.reserve(NOON + 30, draw(2))).warned
    assert ("l",) == reserved(book.reserve(NOON + 200, draw(9))).warned
    assert () == reserved(book.reserve(NOON + 24, draw(1))).warned


def test_giving_back_is_no_draining_so_it_does_not_warn_again() -> None:
    book = Accounts(bucket(10, 60, warn_at=0.8))
    opened = reserved(book.reserve(NOON, draw(9)))
    book.settle(NOON, opened, [draw(1)])
    assert () == reserved(book.reserve(NOON + 0.5, draw(9))).warned


def test_a_refused_draw_warns_of_nothing() -> None:
    book = Accounts(bucket(10, 60, "a", warn_at=0.1), bucket(1, 60, "b"))
    book.reserve(NOON, draw(1, "b"))
    book.reserve(NOON, draw(5, "a"), draw(1, "b"))
    assert ("a",) == reserved(book.reserve(NOON, draw(1, "a"))).warned


# -- forgetting
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "busy", "done"),
    [
        (bucket(10, 60), 59.9 + SKEW, 60.1 + SKEW),
        (day(10), 3600.0, DAY),
        (LimitSpec("l", "requests", 10 * ONE, "call"), FORGET_AFTER - 1, FORGET_AFTER),
        (LimitSpec("l", "requests", 10 * ONE, "process", by=("session",)), FORGET_AFTER - 1, FORGET_AFTER),
    ],
    ids=lambda value: value.per if isinstance(value, LimitSpec) else "",
)
def test_an_account_is_forgotten_when_it_says_no_more_than_none(spec: LimitSpec, busy: float, done: float) -> None:
    book = Accounts(spec)
    book.takes(NOON, 10)
    assert not idle(spec, book.kept["l", "[]"], NOON + busy)
    assert idle(spec, book.kept["l", "[]"], NOON + done)


def test_what_a_process_drew_is_never_forgotten() -> None:
    spec = LimitSpec("l", "requests", 10 * ONE, "process", by=("server",))
    assert not idle(spec, Account(10 * ONE, NOON), NOON + 365 * DAY)


def test_a_clock_set_back_makes_no_account_idle() -> None:
    for spec in (bucket(10, 60), day(10), LimitSpec("l", "requests", ONE, "call")):
        assert not idle(spec, Account(ONE, NOON), NOON - 10 * DAY)


def test_settling_on_a_forgotten_account_books_no_more_than_an_overrun() -> None:
    for spec in (bucket(10, 60), day(10), LimitSpec("l", "requests", 10 * ONE, "call")):
        book = Accounts(spec)
        opened = reserved(book.reserve(NOON, draw(5)))
        book.kept.clear()
        book.settle(NOON + 2 * DAY, opened, [draw(1)])
        assert {} == book.kept
        book.settle(NOON + 2 * DAY, opened, [draw(7)])
        assert 2 == book.level()


# -- words and size
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "units", "text"),
    [
        ("usd", 12_500_000_000, "$0.0125"),
        ("usd", 5 * 10**12, "$5.00"),
        ("usd", 1, "$0.000000000001"),
        ("usd", 1234 * 10**12, "$1,234.00"),
        ("requests", 12 * ONE, "12 requests"),
        ("requests", ONE, "1 request"),
        ("requests", 3_333_333, "3.33 requests"),
        ("requests", 0, "0 requests"),
        ("input_tokens", 20_000 * ONE, "20,000 input tokens"),
        ("concurrent", 3, "3 at a time"),
    ],
)
def test_an_amount_is_shown_as_a_person_writes_it(quantity: Any, units: int, text: str) -> None:
    assert text == amount_text(LimitSpec("l", quantity, 10, "day"), units)


def test_an_account_is_stored_as_a_short_list() -> None:
    assert b"[5,7.5,false]" == msgspec.json.encode(Account(5, 7.5))
    assert Account(5, 7.5) == msgspec.json.decode(b"[5,7.5]", type=Account)


def test_each_of_many_keys_takes_little_memory() -> None:
    """About 0.5 KiB. Only the last tenth is traced, because tracing is slow."""
    specs = {"l": bucket(10, 60), "m": LimitSpec("m", "usd", 5 * SCALE["usd"], "day", tz="Europe/Berlin")}
    book = Accounts(*specs.values())
    for number in range(5_000):
        if number == 4_500:
            tracemalloc.start()
        key = f'["docs","caller {number}"]'
        reserved(book.reserve(NOON + number / 1000, Draw("l", key, ONE), Draw("m", key, 10**9)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 10_000 == len(book.kept)
    assert most < 500 * 2048
    assert 5_000 == sum(idle(specs[limit], account, NOON + 3600) for (limit, _), account in book.kept.items())
