"""The ledger under any history: reservations settled with less, as much or more, returned, or never settled (a crash),
over any times and accounts.

The expected values are computed here from the history alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.claims import Claimant, charges_of
from samplegate.policy.ledger import SKEW, Draw, LimitSpec, Refused, Reserved, idle
from samplegate.protocol.requests import Call, Origin
from tests.fakes.ledger import Accounts

NOON: Final = 1_780_000_000.0
BERLIN: Final = ZoneInfo("Europe/Berlin")
BUCKETS: Final = (
    LimitSpec("a", "output_tokens", 1000, "bucket", 60.0, warn_at=0.8),
    LimitSpec("b", "output_tokens", 7, "bucket", 1000.0),
    LimitSpec("c", "usd", 10**13, "bucket", 3600.0),
)
WINDOWS: Final = (
    LimitSpec("d", "usd", 1000, "day", tz="Europe/Berlin"),
    LimitSpec("m", "usd", 3000, "month", tz="Europe/Berlin"),
)
COUNTS: Final = (LimitSpec("x", "requests", 1000, "call"), LimitSpec("y", "requests", 500, "process"))


class Step(msgspec.Struct, frozen=True):
    """One step of a history, ``wait`` seconds after the last (below 0: by a clock that is behind): draws are reserved,
    or one of the ``open`` reservations ends."""

    wait: float
    draws: tuple[tuple[str, str, float], ...] = ()
    open: int = 0
    share: float | None = None
    """Of what was reserved, that is the truth; None: reserve."""


def steps(
    names: str, waits: st.SearchStrategy[float], keys: tuple[str, ...] = ("[]", '["k"]')
) -> st.SearchStrategy[list[Step]]:
    shares = st.one_of(st.sampled_from([0.3, 0.5, 0.8, 1.0]), st.floats(0, 1.1))
    draws = st.lists(st.tuples(st.sampled_from(names), st.sampled_from(keys), shares), min_size=1, max_size=len(names))
    reserves = st.builds(lambda wait, drawn: Step(wait, tuple(drawn)), waits, draws)
    ends = st.builds(
        lambda wait, which, share: Step(wait, (), which, share),
        waits,
        st.integers(0, 5),
        st.sampled_from([0, 0, 0.3, 0.9, 1, 1.5, 3]),
    )
    return st.lists(st.one_of(reserves, reserves, ends), max_size=30)


FORWARD: Final = st.one_of(
    st.just(0.0), st.sampled_from([0.01, 6.0, 30.0, 143.0, 500.0]), st.floats(0, 90), st.floats(0, 4000)
)
SKEWED: Final = st.one_of(FORWARD, st.floats(-SKEW, 0))
DAYS: Final = st.one_of(FORWARD, st.floats(0, 200_000), st.floats(0, 3_000_000))
ONE_BUCKET: Final = st.sampled_from("abc").flatmap(lambda name: steps(name, SKEWED, ("[]",)))


class History:
    """Runs steps on a ledger and remembers the time and the counted amount of each draw."""

    def __init__(self, specs: tuple[LimitSpec, ...]) -> None:
        self.book = Accounts(*specs)
        self.now = self.latest = NOON
        self.open: list[tuple[Reserved, list[int]]] = []
        self.entries: list[Entry] = []

    def run(self, history: list[Step]) -> Iterator[Any]:
        """Run one step at a time and yield its result: Refused, Reserved, or the settled reservation."""
        for step in history:
            self.latest += max(0.0, step.wait)
            self.now = self.latest + min(0.0, step.wait)
            yield self._reserve(step) if step.share is None else self._end(step, step.share)
            for account, kept in list(self.book.kept.items()):
                if idle(self.book.specs[account[0]], kept, self.now):
                    del self.book.kept[account]

    def _reserve(self, step: Step) -> Reserved | Refused:
        draws = [Draw(name, key, int(share * self.book.specs[name].max_units)) for name, key, share in step.draws]
        before = dict(self.book.kept)
        answer = self.book.reserve(self.now, *draws)
        if isinstance(answer, Refused):
            assert before == self.book.kept
            return answer
        places = []
        for draw in draws:
            kept = self.book.kept.get((draw.limit, draw.key))
            places.append(len(self.entries))
            self.entries.append(
                Entry((draw.limit, draw.key), 0.0 if kept is None else kept.stamp, self.now, draw.amount)
            )
        self.open.append((answer, places))
        return answer

    def _end(self, step: Step, share: float) -> Any:
        if not self.open:
            return None
        reserved, places = self.open.pop(step.open % len(self.open))
        actual = [msgspec.structs.replace(draw, amount=int(draw.amount * share)) for draw in reserved.draws]
        self.book.settle(self.now, reserved, actual)
        for place, draw in zip(places, actual, strict=True):
            entry = self.entries[place]
            entry.overrun = max(0, draw.amount - entry.amount)
            entry.amount = min(entry.amount, draw.amount)
        return reserved


class Entry(msgspec.Struct):
    """One draw with the amount that still counts. An overrun beyond its upper bound is charged without any limit."""

    account: tuple[str, str]
    stamp: float
    at: float
    amount: int
    overrun: int = 0


@given(st.one_of(ONE_BUCKET, ONE_BUCKET, steps("abc", SKEWED)))
def test_over_any_span_a_bucket_admits_no_more_than_itself_and_what_drains_in_the_span(history: list[Step]) -> None:
    """Checked at every moment, with open reservations at their upper bounds and settled ones at their actual amounts.
    Times are out of order by some seconds, as between processes."""
    run = History(BUCKETS)
    for outcome in run.run(history):
        if not isinstance(outcome, Reserved):
            continue
        for account in {(draw.limit, draw.key) for draw in outcome.draws if draw.amount}:
            limit = run.book.specs[account[0]]
            entries = [entry for entry in run.entries if entry.account == account and entry.stamp]
            total = 0
            for entry in reversed(entries):
                total += entry.amount
                span = max(Fraction(0), Fraction(entries[-1].stamp) - Fraction(entry.stamp))
                assert total <= limit.max_units + span * limit.max_units / Fraction(limit.period)


@given(steps("abc", SKEWED))
def test_a_bucket_never_runs_ahead_of_the_clock(history: list[Step]) -> None:
    run = History(BUCKETS)
    for _ in run.run(history):
        assert all(account.stamp <= run.latest and account.level >= 0 for account in run.book.kept.values())


@given(steps("dm", DAYS))
def test_a_day_or_month_holds_its_open_draws_at_worst_its_settled_ones_in_truth_and_no_more_than_its_limit(
    history: list[Step],
) -> None:
    run, model = History(WINDOWS), Calendar()
    for step, outcome in zip(history, run.run(history), strict=True):
        if isinstance(outcome, Reserved) and step.share is None:
            model.reserved(outcome)
            assert all(
                model.total(draw, run.now) <= run.book.specs[draw.limit].max_units
                for draw in outcome.draws
                if draw.amount
            )
        elif isinstance(outcome, Reserved) and step.share is not None:
            model.settled(outcome, step.share, run.now)
        for (name, key), account in run.book.kept.items():
            if account.stamp == Calendar.begins(name, run.now):
                assert model.total(Draw(name, key, 0), run.now) == account.level


class Calendar:
    """The total of each day and month."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, float], int] = {}

    @staticmethod
    def begins(name: str, now: float) -> float:
        here = datetime.fromtimestamp(now, BERLIN).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        return (here if name == "d" else here.replace(day=1)).timestamp()

    def total(self, draw: Draw, now: float) -> int:
        return self._sums.get((draw.limit, draw.key, self.begins(draw.limit, now)), 0)

    def reserved(self, outcome: Reserved) -> None:
        for draw in outcome.draws:
            self._add(draw, outcome.at, draw.amount)

    def settled(self, outcome: Reserved, share: float, now: float) -> None:
        """The expected totals by account: today's overrun, or what is returned within the same window."""
        more: dict[tuple[str, str], int] = {}
        for draw in outcome.draws:
            more[draw.limit, draw.key] = more.get((draw.limit, draw.key), 0) + int(draw.amount * share) - draw.amount
        for (name, key), amount in more.items():
            same = self.begins(name, outcome.at) == self.begins(name, now)
            self._add(Draw(name, key, 0), now, amount if amount > 0 or same else 0)

    def _add(self, draw: Draw, now: float, amount: int) -> None:
        window = draw.limit, draw.key, self.begins(draw.limit, now)
        self._sums[window] = self._sums.get(window, 0) + amount


@given(steps("xy", st.floats(-20_000, 2000)))
def test_a_call_or_process_holds_all_it_ever_drew_whatever_the_clock_says(history: list[Step]) -> None:
    run = History(COUNTS)
    for outcome in run.run(history):
        for account, kept in run.book.kept.items():
            entries = [entry for entry in run.entries if entry.account == account]
            assert sum(entry.amount + entry.overrun for entry in entries) == kept.level
            if isinstance(outcome, Reserved) and not any(entry.overrun for entry in entries):
                assert kept.level <= run.book.specs[account[0]].max_units


@given(steps("abcdm", FORWARD), st.floats(0, 40_000_000), st.sampled_from("abcdm"))
def test_a_clock_set_back_frees_nothing_and_is_got_over(history: list[Step], back: float, name: str) -> None:
    run = History(BUCKETS + WINDOWS)
    for _ in run.run(history):
        pass
    limit, before = run.book.specs[name], run.book.kept.get((name, "[]"))
    level = 0 if before is None else before.level
    behind = min(run.now, before.stamp if before is not None else run.now) - back
    assert (level < limit.max_units) is isinstance(run.book.reserve(behind, Draw(name, "[]", 1)), Reserved)
    over = behind + SKEW + (limit.period * (level / limit.max_units + 1) if limit.per == "bucket" else 32 * 86_400)
    assert isinstance(run.book.reserve(over, Draw(name, "[]", limit.max_units)), Reserved)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("pqr"), min_size=1, max_size=3, unique=True), st.booleans()), max_size=40
    )
)
def test_no_call_causes_more_than_its_limit_however_many_candidates_there_are(
    history: list[tuple[list[str], bool]],
) -> None:
    """Each candidate is charged, so the limit holds whichever call it really was."""
    limit = LimitSpec("loop", "requests", 4 * 10**6, "call")
    book, counted = Accounts(limit), dict.fromkeys("pqr", 0)
    for calls, crashed in history:
        origin = Origin("docs", "local", "legacy", "2025-11-25", tuple(Call("tools/call", call) for call in calls))
        draws = charges_of(["loop"], book.specs, Claimant(origin, tuple(calls), "s", "r"), None)
        assert not isinstance(draws, str)
        answer = book.reserve(NOON, *draws)
        assert all(counted[call] < 4 for call in calls) is isinstance(answer, Reserved)
        if isinstance(answer, Reserved):
            for call in calls:
                counted[call] += 1
            if not crashed:
                book.settle(NOON, answer, draws)
    assert max(counted.values()) <= 4
