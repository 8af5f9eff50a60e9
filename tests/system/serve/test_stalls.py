"""Hostile frames at a real `samplegate serve`: the time between two turns of its event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.hostile_frames import SIZE, TOLERATED
from tests.fakes.hostile_traffic import MOST_STALL, NAMES, Stall, stalls
from tests.speed import slowness

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
COSTLY = [
    (name, size)
    for size, names in {
        SIZE: [
            "backslashes, in an argument",
            "backslashes, in _meta",
            "empty objects, in the envelope",
            "empty objects, in argument",
            "a million members of the envelope and spaces",
            "a million twins, in meta",
            "a million members, in capabilities",
            "a million twins and a NaN, in content",
            "-Infinity, in a notification",
        ],
        TOLERATED: [
            "as many -Infinity as may be, and objects, in an argument",
            "as many of each number as may be, in argument",
            "a NaN and empty objects, where input is required",
            "millions of escapes and a lone surrogate, in _meta",
            "millions of escapes and a lone surrogate, in argument",
            "pairs of surrogates and a lone one, in capabilities",
            "a million twins and a NaN, in _meta",
            "a long name of lone surrogates, in a notification",
        ],
    }.items()
    for name in names
]
TRIES = 3


async def test_no_hostile_frame_stalls_the_event_loop(tmp_path: Path) -> None:
    left, slow = COSTLY, list[Stall]()
    # a busy machine costs CPU time too: a frame's time is the least of some tries, at the machine's speed then
    for number in range(TRIES):
        found = [stall async for stall in stalls(tmp_path, left)]
        assert left == [(stall.name, stall.size) for stall in found]
        if number == 0:
            assert any(stall.cpu > 20 for stall in found), "nothing took any time, so this shows nothing"
        most = MOST_STALL * slowness()
        slow = [stall for stall in found if stall.cpu > most]
        left = [(stall.name, stall.size) for stall in slow]
        if not left:
            break
    assert [] == slow


def test_all_names_differ() -> None:
    assert len(NAMES) == len(set(NAMES))
