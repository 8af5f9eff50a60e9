"""The shards of the unit tests: together they have every file once, and one failure fails the run."""

from __future__ import annotations

import pytest

from tests.paths import ROOT
from tests.shards import UNIT, combined, shards


@pytest.mark.parametrize("count", [1, 3, 1_000])
def test_together_they_have_every_file_once(count: int) -> None:
    found = [file for shard in shards(count) for file in shard]
    assert sorted(path.relative_to(ROOT).as_posix() for path in UNIT.rglob("test_*.py")) == sorted(found)


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0], 0), ([0, 5], 0), ([5, 5], 5), ([0, 1], 1), ([5, 2], 2), ([0, -9, 1], -9)]
)
def test_one_failure_fails_all(codes: list[int], expected: int) -> None:
    assert expected == combined(codes)
