"""Amounts of money as text."""

from __future__ import annotations

import pytest

from samplegate.money import UNITS, dollars, exact_dollars


@pytest.mark.parametrize(
    ("units", "rounded", "exact"),
    [
        (0, "$0.00", "$0.00"),
        (1, "$0.000000000001", "$0.000000000001"),
        (12_345_678, "$0.000013", "$0.000012345678"),
        (4_200_000_000, "$0.0042", "$0.0042"),
        (250_000_000_000, "$0.25", "$0.25"),
        (999_999_000_000, "$1.00", "$0.999999"),
        (UNITS, "$1.00", "$1.00"),
        (5 * UNITS, "$5.00", "$5.00"),
        (1_234_567_890_000_000, "$1,234.57", "$1,234.56789"),
    ],
)
def test_an_amount_is_in_dollars(units: int, rounded: str, exact: str) -> None:
    assert (rounded, exact) == (dollars(units), exact_dollars(units))
