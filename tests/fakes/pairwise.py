"""Pairwise combinations: few rows of a full product in which each two compatible values occur together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]


def pairs(row: Row) -> set[tuple[tuple[str, Any], ...]]:
    """Each two values of a row, with the names of their dimensions."""
    return set(combinations(sorted(row.items(), key=lambda item: item[0]), 2))


def pairwise(
    dimensions: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = lambda row: True,
    also: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """A few rows with one value of each dimension. Each two values of two dimensions are together in a row if any
    allowed row has both; likewise each value of ``also``. Ties prefer the first values of a dimension, so put the cheap
    ones first."""
    rows = [dict(zip(dimensions, values, strict=True)) for values in product(*dimensions.values())]
    # a row is an integer with one bit for each pair, so that thousands of rows are compared in milliseconds
    bits: dict[object, int] = {}
    masks = []
    for row in filter(allowed, rows):
        wanted = {*pairs(row), also(row)}
        masks.append((sum(1 << bits.setdefault(one, len(bits)) for one in wanted), row))
    missing = (1 << len(bits)) - 1
    chosen = []
    while missing:
        mask, row = max(masks, key=lambda candidate: (candidate[0] & missing).bit_count())
        chosen.append(row)
        missing &= ~mask
    return chosen
