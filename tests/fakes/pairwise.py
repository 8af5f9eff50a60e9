"""A small choice out of a full product: every two values that may meet, meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]


def pairs(row: Row) -> set[tuple[tuple[str, Any], ...]]:
    """Each two of a row's values, with the names of their dimensions."""
    return set(combinations(sorted(row.items(), key=lambda item: item[0]), 2))


def pairwise(
    dimensions: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = lambda row: True,
    also: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Rows with one value of each dimension, few of them. Each two values of two dimensions are in one of the rows
    together, if any row that is allowed has both; likewise each value of ``also``. Where there is a choice, the first
    values of a dimension are taken: put the cheap ones there."""
    rows = [dict(zip(dimensions, values, strict=True)) for values in product(*dimensions.values())]
    # a row is a number with a bit for each pair in it: thousands of rows are compared in milliseconds
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
