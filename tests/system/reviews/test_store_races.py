"""One store, many processes: of twenty that do the same at once, exactly one succeeds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from samplegate.reviews.review import Conflict, Review, VoteRefused
from tests.fakes.postgresql import postgresql
from tests.fakes.postgresql import url as address
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import APP, LOADING, NO, NOW, READY, YES, form, review
from tests.paths import ROOT

RACER = ROOT / "tests/fakes/programs/racer.py"
PROCESSES, THREADS = 4, 5
DIES = """
import os, signal, sys
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import NOW
store = TimedReviews(sys.argv[1])
found = store.at(NOW + 1).seek("sha256:l", stage="request", waiter="dying", seconds=10)
print(found.id, found.state, flush=True)
sys.stdin.readline()
"""


def python(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'proxy'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


class Racers:
    """Processes that race on request."""

    def __init__(self, racers: Sequence[subprocess.Popen[str]]) -> None:
        self.racers = racers

    def race(self, url: str, what: str) -> list[str]:
        """The outcomes of all threads of all processes, which start as simultaneously as possible."""
        self._told(f"{what} {url}")
        assert {"ready\n"} == set(self._said())
        self._told("go")
        return [outcome for said in self._said() for outcome in json.loads(said)]

    def _told(self, line: str) -> None:
        for racer in self.racers:
            assert racer.stdin is not None
            racer.stdin.write(line + "\n")
            racer.stdin.flush()

    def _said(self) -> list[str]:
        return [racer.stdout.readline() for racer in self.racers if racer.stdout is not None]


@pytest.fixture(scope="module")
def racers() -> Iterator[Racers]:
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(python(str(RACER), str(n), str(THREADS))) for n in range(PROCESSES)]
        for racer in started:
            stack.callback(racer.kill)
        yield Racers(started)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'reviews.db'}"


def test_of_twenty_verdicts_at_once_one_wins(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    store.open(review(), announce=True, most=9)
    assert Counter(won=1, lost=19) == Counter(racers.race(url, "decide"))
    assert ["opened", "approved"] == [event.what for event in store.history("rv_a")]
    assert isinstance(store.at(NOW + 3).decide("rv_a", NO, who="late", door="api"), Conflict)
    store.close()


def test_of_twenty_approvals_at_once_each_person_counts_once_and_the_last_one_decides(url: str, racers: Racers) -> None:
    votes_race(url, racers)


def test_approvals_at_once_count_once_in_postgresql(racers: Racers) -> None:
    with postgresql("fsync = off") as place:
        votes_race(address(place), racers)


def votes_race(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    store.open(review(approvals=7), announce=True, most=9)
    outcomes = Counter(racers.race(url, "vote"))
    assert (6, 1) == (outcomes["pending"], outcomes["approved"])
    assert 13 == outcomes["VoteRefused"] + outcomes["Conflict"]
    found = store.get("rv_a")
    assert found is not None
    assert (7, 7) == (len(found.votes), len({vote.by for vote in found.votes}))
    assert ["opened", *["voted"] * 6, "approved"] == [event.what for event in store.history("rv_a")]
    store.close()


def test_a_ui_is_attached_once_and_never_after_the_decision(url: str, racers: Racers) -> None:
    ui_race(url, racers)


def test_a_ui_is_attached_once_in_postgresql_and_its_link_used_once(racers: Racers) -> None:
    with postgresql("fsync = off") as place:
        ui_race(address(place), racers)
        link_race(address(place), racers)


def test_of_twenty_uses_of_a_link_one_gets_the_ui(url: str, racers: Racers) -> None:
    link_race(url, racers)


def ui_race(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    store.open(form(ui=LOADING), announce=False, most=9)
    outcomes = Counter(racers.race(url, "ui"))
    assert (1, 3, 16) == (outcomes["decided"], outcomes["late"], outcomes["attached"] + outcomes["not attached"])
    events = [event.what for event in store.history("rv_f")]
    if outcomes["attached"]:
        assert (1, ["opened", "ui ready", "answered"], APP) == (outcomes["attached"], events, store.ui_body("rv_f"))
    else:
        assert (["opened", "answered"], None) == (events, store.ui_body("rv_f"))
    store.at(NOW + 200).purge(0)
    store.close()


def link_race(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    store.open(form(ui=LOADING), announce=False, most=9)
    store.at(NOW + 1).attach_ui("rv_f", READY, APP)
    assert Counter(won=1, lost=19) == Counter(racers.race(url, "link"))
    store.close()


VOTES: Final = """
import sys
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import NOW, YES
print(TimedReviews(sys.argv[1]).at(NOW + 1).decide("rv_a", YES, who="ann", door="page").state, flush=True)
sys.stdin.readline()
"""


def test_an_approval_survives_the_process_that_took_it(url: str) -> None:
    store = TimedReviews(url)
    store.open(review(approvals=2), announce=False, most=9)
    with python("-c", VOTES, url) as voted:
        assert voted.stdout is not None
        assert "pending\n" == voted.stdout.readline()
        os.kill(voted.pid, signal.SIGKILL)
    assert isinstance(store.at(NOW + 2).decide("rv_a", YES, who="ann", door="api"), VoteRefused)
    done = store.at(NOW + 3).decide("rv_a", YES, who="ben", door="api")
    assert isinstance(done, Review)
    assert ("approved", "ann, ben") == (done.state, done.who)
    store.close()


def test_of_twenty_uses_at_once_one_is_the_use(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    store.open(review(waiter="w", held_until=NOW + 99), announce=False, most=9)
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert Counter(won=1, lost=19) == Counter(racers.race(url, "use"))
    assert ["opened", "approved", "used"] == [event.what for event in store.history("rv_a")]
    store.close()


def test_each_of_fifteen_verdicts_is_taken_by_one_of_twenty(url: str, racers: Racers) -> None:
    store = TimedReviews(url)
    for n in range(15):
        store.open(review(f"rv_{n}"), announce=False, most=99)
        store.at(NOW + 1).decide(f"rv_{n}", YES, who="ann", door="page")
    assert Counter({"none": 5, **{f"rv_{n}": 1 for n in range(15)}}) == Counter(racers.race(url, "seek"))
    store.close()


def test_twenty_that_open_at_once_make_one_store_and_no_more_reviews_than_may_wait(url: str, racers: Racers) -> None:
    assert Counter(won=7, lost=13) == Counter(racers.race(url, "open"))
    store = TimedReviews(url)
    assert list(range(1, 8)) == [event.number for event in store.changes(0, 99)]
    store.close()


def test_what_a_killed_process_had_taken_is_the_next_ones_once_its_lease_is_over(url: str) -> None:
    store = TimedReviews(url)
    store.open(review(), announce=False, most=9)
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    with python("-c", DIES, url) as dying:
        assert dying.stdout is not None
        assert "rv_a approved\n" == dying.stdout.readline()
        os.kill(dying.pid, signal.SIGKILL)
    assert None is store.at(NOW + 10.9).seek("sha256:l", stage="request", waiter="next", seconds=10)
    found = store.at(NOW + 11).seek("sha256:l", stage="request", waiter="next", seconds=10)
    assert found is not None
    assert [False, True, False] == [
        store.at(NOW + 12).use([("rv_a", w, d)]) for w, d in (("dying", "a"), ("next", "b"), ("next", "c"))
    ]
    store.close()
