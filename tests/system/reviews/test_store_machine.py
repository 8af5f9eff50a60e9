"""The SQLite store and the in-memory store behave alike under any order of calls (hypothesis)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from samplegate.reviews.review import Filter, State, Verdict
from tests.fakes.review_store import MemoryReviews, TimedReviews
from tests.fakes.stored_reviews import NO, NOW, YES, filled, review
from tests.profiles import share

IDS = st.sampled_from([f"rv_{n}" for n in range(6)])
WAITERS = st.sampled_from(["v", "w"])
LOOKUPS = st.sampled_from(["l", "m"])
STATES: tuple[State, ...] = ("pending", "approved", "rejected", "answered", "expired", "withdrawn")


class Twins(RuleBasedStateMachine):
    """Makes each call on both stores and compares the results."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.real = TimedReviews(f"sqlite:{Path(self.folder.name) / 'r.db'}")
        self.model = MemoryReviews()
        self.now = NOW
        self.born = 0
        self.held: list[tuple[Any, Any]] = []

    def teardown(self) -> None:
        self.real.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Any], Any]) -> Any:
        mine, theirs = call(self.real), call(self.model)
        assert theirs == mine
        return mine

    @rule(seconds=st.sampled_from([0.5, 3, 11]))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        lookup=LOOKUPS,
        waiter=st.none() | WAITERS,
        wait=st.sampled_from([2, 15]),
        late=st.sampled_from([0, 8]),
        announce=st.booleans(),
    )
    def open(self, lookup: str, waiter: str | None, wait: float, late: float, announce: bool) -> None:
        one = review(
            f"rv_{self.born}",
            lookup=lookup,
            waiter=waiter,
            held_until=self.now + 5 if waiter else 0.0,
            created=self.now,
            late=late,
        )
        one = review(
            one.id,
            **{name: getattr(one, name) for name in ("lookup", "waiter", "held_until", "created", "late")},
            expires=self.now + wait,
        )
        if self.both(lambda store: store.at(self.now).open(one, announce=announce, most=4)):
            self.born += 1

    @rule(lookup=LOOKUPS, waiter=WAITERS)
    def seek(self, lookup: str, waiter: str) -> None:
        self.both(lambda store: store.at(self.now).seek(lookup, stage="request", waiter=waiter, seconds=5))

    @rule(waiters=st.lists(WAITERS, unique=True))
    def renew(self, waiters: list[str]) -> None:
        self.both(lambda store: store.at(self.now).renew(waiters, seconds=5))

    @rule(id=IDS, verdict=st.sampled_from([YES, NO, filled(a="b")]))
    def decide(self, id: str, verdict: Verdict) -> None:
        self.both(lambda store: store.at(self.now).decide(id, verdict, who="ann", door="page"))

    @rule(id=IDS, waiter=WAITERS, by=st.sampled_from(["d", "e"]))
    def use(self, id: str, waiter: str, by: str) -> None:
        self.both(lambda store: store.at(self.now).use([(id, waiter, by)]))

    @rule(id=IDS, waiter=WAITERS)
    def leave(self, id: str, waiter: str) -> None:
        self.both(lambda store: store.at(self.now).leave(id, waiter=waiter))

    @rule(id=IDS, waiter=WAITERS)
    def withdraw(self, id: str, waiter: str) -> None:
        self.both(lambda store: store.at(self.now).withdraw(id, waiter=waiter, why="gone"))

    @rule()
    def expire(self) -> None:
        self.both(lambda store: store.at(self.now).expire())

    @rule(ago=st.sampled_from([0, 20]))
    def purge(self, ago: float) -> None:
        self.both(lambda store: store.at(self.now).purge(ago))

    @rule()
    def take(self) -> None:
        mine, theirs = (
            store.at(self.now).take_deliveries(["ops"], taker="t", seconds=4, limit=99)
            for store in (self.real, self.model)
        )

        def key(one: Any) -> Any:
            return one.due, one.review, one.event, one.tries, one.said, one.held_until

        assert sorted(map(key, theirs)) == sorted(map(key, mine))  # their ids are random
        self.held = list(zip(sorted(mine, key=key), sorted(theirs, key=key), strict=True))

    @rule(what=st.sampled_from(["delivered", "give_up", "postpone"]))
    def end_a_delivery(self, what: str) -> None:
        if self.held:
            mine, theirs = self.held.pop()
            more = {"wait": 3} if what == "postpone" else {}
            getattr(self.real.at(self.now), what)(mine, said="500", **more)
            getattr(self.model.at(self.now), what)(theirs, said="500", **more)

    @invariant()
    def all_is_the_same(self) -> None:
        for filter in (Filter(), Filter(states=STATES[:2]), Filter(states=STATES, limit=2)):
            assert [*self.model.list(filter)] == [*self.real.list(filter)]
        assert [*self.model.changes(0, 999)] == [*self.real.changes(0, 999)]
        assert self.model.last_change() == self.real.last_change()
        assert dict(self.model.pending()) == dict(self.real.pending())


TestTwins = Twins.TestCase
# an example creates a database and migrates it
TestTwins.settings = settings(max_examples=share(0.25), stateful_step_count=30)
