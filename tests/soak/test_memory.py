"""Memory after 10,000 frames of 64 KiB and 50 of 16 MiB at a real `samplegate serve` (every other frame hostile) and
`run`: it is freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.hostile_frames import SIZE
from tests.fakes.hostile_traffic import MOST_GROWTH, SMALL, load, resident, traffic
from tests.fakes.stdio_traffic import exchange, running, settled

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.anyio
async def test_memory_comes_back_after_ten_thousand_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with traffic(tmp_path) as at:
        await load(at, 200, SMALL)
        before = at.resident()
        statuses = await load(at, 10_000, SMALL)
        between = at.resident()
        large = await load(at, 50, SIZE)
        after = await at.settled(before + MOST_GROWTH)
    with capsys.disabled():
        print(
            f"\nmemory: {before:.1f} MiB before, {between:.1f} after 10,000 frames of 64 KiB, {after:.1f} after 50 of"
            " 16 MiB"
        )
    assert statuses.keys() | large.keys() == {200, 400}
    assert 25 <= large[200], "no large frame reached the server, so this shows nothing"
    assert MOST_GROWTH > after - before


def test_memory_of_run_comes_back_after_ten_thousand_frames_in_both_directions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, "legacy") as (at, client, server):
        exchange(at, client, server, 200, SMALL)
        before = resident(at.pid)
        exchange(at, client, server, 10_000, SMALL)
        between = resident(at.pid)
        exchange(at, client, server, 50, SIZE)
        after = settled(at.pid, before + MOST_GROWTH)
    with capsys.disabled():
        print(
            f"\nmemory of run: {before:.1f} MiB before, {between:.1f} after 10,000 frames of 64 KiB, {after:.1f} after"
            " 50 of 16 MiB"
        )
    assert MOST_GROWTH > after - before
