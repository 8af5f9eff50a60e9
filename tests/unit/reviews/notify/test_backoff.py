from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.notify.webhook import FIRST_RETRY, MAX_RETRY, MAX_RETRY_AFTER, retry_after, retry_wait

NOW: Final = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


def test_the_waits_double_from_two_seconds_to_five_minutes() -> None:
    assert [1.0, 2.0, 4.0, 8.0] == [retry_wait(tries, 0.0) for tries in (1, 2, 3, 4)]
    assert MAX_RETRY / 2 == retry_wait(100, 0.0)
    assert MAX_RETRY / 2 == retry_wait(10**9, 0.0)


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_every_wait_lies_between_half_and_whole(tries: int, chance: float) -> None:
    assert FIRST_RETRY / 2 <= retry_wait(tries, chance) <= MAX_RETRY
    assert retry_wait(tries, 0.0) <= retry_wait(tries, chance) <= 2 * retry_wait(tries, 0.0)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("999999999", MAX_RETRY_AFTER),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60.0),
        ("Fri, 15 Jan 2027 09:01:00 +0100", 60.0),
        ("Fri, 15 Jan 2026 08:01:00 GMT", 0.0),
        ("Fri, 15 Jan 2127 08:01:00 GMT", MAX_RETRY_AFTER),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(header: str, seconds: float) -> None:
    assert seconds == retry_after(header, NOW)


@pytest.mark.parametrize(
    "header",
    [None, "", "soon", "-5", "1.5", "1e3", "99999999999999", "Fri, 99 Jan 2027 08:01:00 GMT", "x" * 100_000, "١٢"],
)
def test_a_retry_after_that_says_nothing_asks_for_nothing(header: str | None) -> None:
    assert retry_after(header, NOW) is None


@given(st.text())
def test_no_retry_after_raises(header: str) -> None:
    found = retry_after(header, NOW)
    assert found is None or 0 <= found <= MAX_RETRY_AFTER
