"""A process that charges a shared limit, and prints a line for each reservation. ``charging.py STATE MODE MOST``.

``exhaust``: waits for a line, then draws one after the other until there is no room. ``hold``: takes what it can of the
slots, then waits for its end. ``turns``: takes a slot, says so and gives it back, twenty times.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import Draw, Refused, Reserved
from tests.fakes.limits import NOON, Log, daily, one, slot, slots


def say(word: str) -> None:
    print(word, flush=True)


async def exhaust(admission: Limiter) -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    waiting = 0
    while waiting < 3:
        got = await admission.reserve([one("d")], None)
        if isinstance(got, Refused):
            assert got.why == "full", got
            waiting += 1
        else:
            say("drawn")
            await admission.settle(got, [one("d")])


async def hold(admission: Limiter) -> None:
    while isinstance(await admission.reserve([slot("s")], None), Reserved):
        say("held")
    say("full")
    await asyncio.to_thread(sys.stdin.readline)


async def take_turns(admission: Limiter) -> None:
    for _ in range(20):
        got = await admission.reserve([Draw("s", "[]", 1)], 50.0)
        assert isinstance(got, Reserved), got
        say(f"+ {time.monotonic_ns()}")
        await asyncio.sleep(0)
        say(f"- {time.monotonic_ns()}")
        await admission.settle(got, [])


async def main(state: str, mode: str, most: str) -> None:
    specs = {"d": daily("d", int(most), shared=True), "s": slots("s", int(most), shared=True)}
    admission = Limiter(specs, state=Path(state), clock=lambda: NOON, log=Log())
    await {"exhaust": exhaust, "hold": hold, "turns": take_turns}[mode](admission)
    await admission.aclose()


asyncio.run(main(*sys.argv[1:]))
