"""Numbers as words."""

from __future__ import annotations

import pytest

from samplegate.money import dollars
from samplegate.policy.ledger import SCALE
from samplegate.reviews.web.context import many, moment, size, span, stamp


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (86_399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float, expected: str) -> None:
    assert expected == span(seconds)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("0", "$0.00"),
        ("0.013", "$0.013"),
        ("0.0131", "$0.014"),
        ("0.3101", "$0.32"),
        ("0.05", "$0.05"),
        ("0.01", "$0.01"),
        ("0.0099", "$0.0099"),
        ("0.00123", "$0.0013"),
        ("0.5", "$0.50"),
        ("1", "$1.00"),
        ("1234.5", "$1,234.50"),
        ("1.001", "$1.01"),
    ],
)
def test_money_has_two_decimals_and_below_a_dollar_two_significant_digits_and_is_rounded_up(
    amount: str, expected: str
) -> None:
    assert expected == dollars(round(float(amount) * SCALE["usd"]))


def test_moments_are_told_in_utc() -> None:
    assert ("15 Jan 2027, 08:00:00 UTC", "2027-01-15T08:00:00Z") == (moment(1_800_000_000.5), stamp(1_800_000_000.5))


def test_a_moment_beyond_the_calendar_is_its_end() -> None:
    assert moment(1e30).endswith("9999, 23:59:59 UTC")


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "1 byte"), (512, "512 bytes"), (3481, "3.4 KiB"), (1024**2 * 12, "12 MiB"), (1024**3 * 5, "5,120 MiB")],
)
def test_sizes(count: int, expected: str) -> None:
    assert expected == size(count)


def test_one_and_many() -> None:
    assert ("1 value", "1,000 values", "2 parties") == (
        many(1, "value"),
        many(1000, "value"),
        many(2, "party", "parties"),
    )
