"""Hostile and plain frames at a real `samplegate serve`: what they needed is given back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hostile_frames import SIZE
from tests.system.hostile_traffic import MOST_GROWTH, SMALL, load, traffic

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


async def test_memory_comes_back_after_hostile_frames(tmp_path: Path) -> None:
    async with traffic(tmp_path) as at:
        await load(at, 200, SMALL)
        before = at.resident()
        statuses = await load(at, 300, SMALL)
        large = await load(at, 10, SIZE, first=13)
        after = await at.settled(before + MOST_GROWTH)
    assert statuses.keys() | large.keys() == {200, 400}
    assert 5 <= large[200], "no large frame reached the server, so this shows nothing"
    assert MOST_GROWTH > after - before
