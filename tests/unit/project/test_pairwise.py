"""Pairwise selection of the rows that replace a full product in the tests with real programs."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.pairwise import pairwise

SHAPES = {"client": "abcdefgh", "server": (1, 2, 3), "front": ("run", "serve"), "policy": "wxyz"}


@given(st.lists(st.integers(min_value=1, max_value=5), min_size=2, max_size=4), st.integers(min_value=0))
def test_each_two_values_that_may_meet_are_in_a_row_together(sizes: list[int], unwanted: int) -> None:
    dimensions = {f"d{n}": range(size) for n, size in enumerate(sizes)}

    def allowed(row: dict[str, int]) -> bool:
        return (unwanted + sum(value * (n + 2) for n, value in enumerate(row.values()))) % 3 != 0

    rows = [tuple(row.values()) for row in pairwise(dimensions, allowed)]
    assert len(rows) == len(set(rows))
    assert all(allowed(dict(zip(dimensions, row, strict=True))) for row in rows)
    everything = [row for row in product(*dimensions.values()) if allowed(dict(zip(dimensions, row, strict=True)))]
    for first, second in combinations(range(len(sizes)), 2):
        assert {(row[first], row[second]) for row in everything} == {(row[first], row[second]) for row in rows}


def test_each_value_that_is_wanted_besides_is_in_a_row() -> None:
    rows = pairwise(SHAPES, also=lambda row: (row["client"] in "abcd", row["server"], row["policy"]))
    wanted = set(product((True, False), SHAPES["server"], SHAPES["policy"]))
    assert wanted == {(row["client"] in "abcd", row["server"], row["policy"]) for row in rows}
    assert 40 > len(rows)


def test_the_rows_are_few() -> None:
    assert 32 == len(pairwise(SHAPES))  # eight clients meet four policies; the full product has 192 rows


def test_the_rows_are_the_same_each_time() -> None:
    assert pairwise(SHAPES) == pairwise(SHAPES)
