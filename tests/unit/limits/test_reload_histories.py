"""Limits under any history of reservations, settlements and reloads: never more than the amount in force, and nothing
is returned twice.

The expected values are computed here from the history alone. Reservations and settlements may belong to rounds of
earlier policies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from samplegate.limits.accounts import identity
from samplegate.policy.ledger import Draw, LimitSpec, Reserved, window_start
from tests.fakes.limits import Desk

NAME: Final = "l"


def bucket(most: int, seconds: float) -> LimitSpec:
    return LimitSpec(NAME, "requests", most, "bucket", period=seconds)


def daily(most: int, tz: str = "UTC", **more: Any) -> LimitSpec:
    return LimitSpec(NAME, "requests", most, "day", tz=tz, **more)


KINDS: Final = (
    *(bucket(most, 60.0) for most in (50, 100, 1000)),
    bucket(100, 30.0),
    *(daily(most) for most in (50, 100, 300)),
    daily(100, "Asia/Tokyo"),
    daily(100, by=("server",)),
    LimitSpec(NAME, "usd", 100, "day"),
    *(LimitSpec(NAME, "concurrent", most, "slots") for most in (2, 4, 100)),
    LimitSpec(NAME, "requests", 200, "process"),
)


class Amend(msgspec.Struct, frozen=True):
    spec: LimitSpec | None


class Reserve(msgspec.Struct, frozen=True):
    share: float
    under: int
    """Of the policies that there were, the one that its draw was measured for, from the end."""


class Settle(msgspec.Struct, frozen=True):
    which: int
    share: float
    times: int


class Elapse(msgspec.Struct, frozen=True):
    seconds: float


class Entry(msgspec.Struct):
    """One admitted draw, with the amount that still counts."""

    spec: LimitSpec
    life: int
    at: float
    amount: int
    reserved: Reserved | None
    worst: int
    reloads: int
    """How many there had been."""


class Model:
    """One limit whose spec changes."""

    def __init__(self, desk: Desk, *, remembers: bool) -> None:
        self.desk = desk
        self.remembers = remembers
        self.policies: list[Mapping[str, LimitSpec]] = [{}]
        self.amended: list[LimitSpec | None] = []
        self.entries: list[Entry] = []
        self.lives: dict[str, int] = {}

    @property
    def spec(self) -> LimitSpec | None:
        return self.policies[-1].get(NAME)

    async def take(self, step: Amend | Reserve | Settle | Elapse) -> None:
        match step:
            case Amend(spec):
                self.update_limits(spec)
            case Reserve():
                await self.reserve(step)
            case Settle():
                await self.settle(step)
            case Elapse(seconds):
                self.desk.clock.now += seconds

    def update_limits(self, spec: LimitSpec | None) -> None:
        before, after = (None if one is None else identity(one) for one in (self.spec, spec))
        open = {identity(entry.spec) for entry in self.entries if entry.reserved is not None}
        for name in self.lives:
            if name not in open and not name == before == after and not self.remembers:
                self.lives[name] += 1  # nothing of it is left: it may start anew
        self.amended.append(spec)
        self.policies.append({} if spec is None else {NAME: spec})
        self.desk.admission.update_limits(self.policies[-1])

    async def reserve(self, step: Reserve) -> None:
        under = self.policies[-1 - step.under % len(self.policies)]
        if NAME not in under:
            return
        draw = Draw(NAME, "[]", max(1, int(under[NAME].max_units * step.share)))
        got = await self.desk.admission.reserve([draw], None, under)
        if not isinstance(got, Reserved):
            assert got.why in {"full", "never", "unavailable"}
            return
        assert self.spec is not None
        was, now = under[NAME], self.spec
        assert (was.quantity, was.by, was.per == "call") == (now.quantity, now.by, now.per == "call")
        life = self.lives.setdefault(identity(self.spec), 0)
        self.entries.append(
            Entry(self.spec, life, self.desk.clock.now, draw.amount, got, draw.amount, len(self.amended))
        )
        self.check(self.spec, life)

    async def settle(self, step: Settle) -> None:
        if not self.entries:
            return
        entry = self.entries[step.which % len(self.entries)]
        reserved = Reserved(entry.reserved.id, entry.reserved.draws, entry.reserved.at) if entry.reserved else None
        if reserved is None:
            return
        came = int(entry.worst * step.share)
        for _ in range(step.times):
            await self.desk.admission.settle(reserved, [Draw(NAME, "[]", came)])
        entry.reserved, entry.amount = None, 0 if entry.spec.per == "slots" else came

    def check(self, spec: LimitSpec, life: int) -> None:
        """Check that the draws on this spec's account since it began stay within the amount in force."""
        mine = [entry for entry in self.entries if entry.life == life and identity(entry.spec) == identity(spec)]
        now = self.desk.clock.now
        if spec.per == "bucket":
            self.check_bucket(spec, mine, now)
            return
        if spec.per == "day":
            mine = [entry for entry in mine if entry.at >= window_start("day", spec.tz, now)]
        total = sum(entry.amount for entry in mine)
        assert total <= spec.max_units, f"{total} of {spec.max_units}"

    def check_bucket(self, spec: LimitSpec, mine: list[Entry], now: float) -> None:
        total = 0
        for entry in reversed(mine):
            total += entry.amount
            rates = [one.max_units for one in self.amended[entry.reloads :] if one is not None] + [entry.spec.max_units]
            fastest, slowest = max(rates), min(rates)
            rounding = 1 + -(-fastest // slowest)
            assert total <= spec.max_units + (now - entry.at) * fastest / spec.period + rounding


reserves = st.builds(Reserve, st.sampled_from([0.01, 0.5, 0.6, 1.0]), st.sampled_from([0, 0, 0, 1, 2]))
settles = st.builds(Settle, st.integers(0, 8), st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.3]), st.integers(1, 2))
passes = st.builds(Elapse, st.sampled_from([0.0, 0.5, 7.0, 30.0, 61.0, 40_000.0]))


@st.composite
def histories(draw: st.DrawFn, shared: Sequence[bool]) -> list[Any]:
    """Reloads among a few policies, of limits with the same meaning or of any limits."""
    kinds = st.one_of(*(st.sampled_from(kinds) for kinds in (KINDS[:3], KINDS[4:7], KINDS[10:13], KINDS)))
    few = draw(st.lists(kinds, min_size=2, max_size=4))
    reloads = st.builds(partial(reload, few, shared), st.integers(0, 8), st.integers(0, 1))
    return [
        draw(reloads),
        *draw(st.lists(st.one_of(reserves, reserves, settles, passes, reloads), min_size=5, max_size=40)),
    ]


def reload(few: Sequence[LimitSpec], shared: Sequence[bool], which: int, where: int) -> Amend:
    if which == 8:
        return Amend(None)
    spec = few[which % len(few)]
    return Amend(spec if spec.per == "process" else msgspec.structs.replace(spec, shared=shared[where % len(shared)]))


async def played(history: list[Any], folder: Path, *, remembers: bool) -> None:
    model = Model(Desk(state=folder), remembers=remembers)
    try:
        for step in history:
            await model.take(step)
        assert [] == model.desk.log.events
    finally:
        await model.desk.admission.aclose()


@given(histories([False]))
def test_no_history_admits_more_than_the_amount_in_force_in_memory(history: list[Any]) -> None:
    anyio.run(partial(played, history, Path("/nonexistent/state"), remembers=True))


@given(histories([False, True]))
def test_no_history_admits_more_than_the_amount_in_force_in_memory_and_the_state(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(partial(played, history, Path(folder), remembers=False))


@given(histories([True]))
def test_the_state_forgets_nothing_of_what_it_shares(history: list[Any]) -> None:
    shared = [
        step
        for step in history
        if not (isinstance(step, Amend) and step.spec is not None and step.spec.per == "process")
    ]
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(partial(played, shared, Path(folder), remembers=True))
