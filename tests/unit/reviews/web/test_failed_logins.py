"""Limits on failed logins, for each address and in total."""

from __future__ import annotations

from samplegate.reviews.web.security import MAX_ADDRESSES, FailedLoginLimiter, Pace


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_it_is_used_up_and_refilled_by_time() -> None:
    clock = Clock()
    mistakes = FailedLoginLimiter(Pace(burst=2, rate=0.5), Pace(burst=100, rate=100), clock)
    assert 0 == mistakes.wait("a")
    mistakes.record("a")
    assert 0 == mistakes.wait("a")
    mistakes.record("a")
    assert (2, 0) == (mistakes.wait("a"), mistakes.wait("b"))
    clock.now += 1
    assert 1 == mistakes.wait("a")
    clock.now += 1
    assert 0 == mistakes.wait("a")
    mistakes.record("a")
    assert 2 == mistakes.wait("a")


def test_all_together_have_one_too() -> None:
    clock = Clock()
    mistakes = FailedLoginLimiter(Pace(burst=10, rate=1), Pace(burst=3, rate=1), clock)
    for address in "abc":
        mistakes.record(address)
    assert 1 == mistakes.wait("d")
    clock.now += 1
    assert 0 == mistakes.wait("d")


def test_a_clock_that_is_set_back_refills_nothing_and_locks_nobody_out_for_long() -> None:
    clock = Clock()
    mistakes = FailedLoginLimiter(Pace(burst=1, rate=1), Pace(burst=10, rate=1), clock)
    mistakes.record("a")
    clock.now -= 500
    assert 1 == mistakes.wait("a")
    mistakes.record("b")  # from here on the budgets count from the new time
    mistakes.record("a")
    clock.now += 2
    assert 0 == mistakes.wait("a")


def test_only_so_many_addresses_are_remembered() -> None:
    clock = Clock()
    mistakes = FailedLoginLimiter(Pace(burst=1, rate=0.001), Pace(burst=1_000_000, rate=1), clock)
    for number in range(MAX_ADDRESSES + 1):
        mistakes.record(str(number))
    assert 0 == mistakes.wait("0")
    assert mistakes.wait("1") > 0
