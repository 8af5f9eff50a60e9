"""Benchmark of limits: a reservation and its settlement with few and with many accounts, in memory and in the state
file, and the size of an account."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal

import anyio

from samplegate.limits.limiter import Limiter
from samplegate.limits.sqlite_ledger import SqliteLedger
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Refused

FEW: Final = 10
MANY: Final = 100_000
AT_ONCE: Final = 1_000
"""Draws in one reservation while the accounts are created."""
# requests in thirty days: a draw drains within some minutes, and a drained account is removed
AMOUNT: Final = 1_000_000
DRAW_SIZE: Final = 100
Place = Literal["memory", "SQLite"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Figures of one place: microseconds of a reservation with its settlement, each on one account; the median of the
    laps."""

    place: Place
    accounts: int
    few: float
    """With FEW accounts."""
    many: float
    ratio: float
    """``many`` divided by ``few``, in the same lap."""
    bytes_each: float
    """Bytes of one account in the database."""


class _NoLog:
    def warning(self, event: str, **fields: object) -> object:
        raise RuntimeError(f"{event}: {fields}")

    debug = info = error = warning


class _Accounts:
    """Accounts of one limit. None of them drains during the measurement."""

    def __init__(self, place: Place, state: Path, accounts: int) -> None:
        spec = LimitSpec(
            "rate",
            "requests",
            AMOUNT * SCALE["requests"],
            "bucket",
            30 * 86_400.0,
            by=("session",),
            shared=place == "SQLite",
        )
        self.admission = Limiter({"rate": spec}, state=state, clock=time.time, log=_NoLog())
        self._accounts = accounts

    async def fill(self) -> None:
        for begin in range(0, self._accounts, AT_ONCE):
            await self._draw([_key(number) for number in range(begin, min(begin + AT_ONCE, self._accounts))])

    @property
    def memory(self) -> int:
        """Bytes of the database in memory."""
        backend = self.admission._ledger._backend
        assert isinstance(backend, SqliteLedger)
        pages, size = (backend._memory.db.execute(f"PRAGMA {one}").fetchone()[0] for one in ("page_count", "page_size"))
        return int(pages * size)

    async def lap(self, repeats: int) -> float:
        """Mean microseconds of one reservation with its settlement, over a lap of random accounts."""
        keys = [_key(number) for number in random.Random(repeats).choices(range(self._accounts), k=repeats)]
        begun = time.perf_counter()
        for key in keys:
            await self._draw([key])
        return (time.perf_counter() - begun) / repeats * 1e6

    async def _draw(self, keys: Sequence[str]) -> None:
        unit = DRAW_SIZE * SCALE["requests"]
        reserved = await self.admission.reserve([Draw("rate", key, 2 * unit) for key in keys], None)
        if isinstance(reserved, Refused):
            raise RuntimeError(f"a reservation was refused, so the lap is invalid: {reserved}")
        await self.admission.settle(reserved, [Draw("rate", key, unit) for key in keys])


def _key(number: int) -> str:
    return f'["session-{number:06}"]'


def measure(laps: int, repeats: dict[Place, int], accounts: int = MANY) -> list[Ledger]:
    """Run laps of reservations that alternate between few and many accounts. ``repeats`` is the number in a lap, by
    place."""
    return [anyio.run(_measure, place, laps, count, accounts) for place, count in repeats.items()]


async def _measure(place: Place, laps: int, repeats: int, accounts: int) -> Ledger:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with _filled(place, state / "few", FEW) as few, _filled(place, state / "many", accounts) as many:
            runs = [(await few.lap(repeats), await many.lap(repeats)) for _ in range(laps)]
            size = (
                many.memory
                if place == "memory"
                else sum(file.stat().st_size for file in (state / "many").rglob("*") if file.is_file())
            )
    ratio = median(with_many / with_few for with_few, with_many in runs)
    return Ledger(
        place, accounts, median(run[0] for run in runs), median(run[1] for run in runs), ratio, size / accounts
    )


@asynccontextmanager
async def _filled(place: Place, state: Path, accounts: int) -> AsyncIterator[_Accounts]:
    filled = _Accounts(place, state, accounts)
    async with aclosing(filled.admission):
        await filled.fill()
        yield filled
