"""Gates on one store and one decision log, in processes that kill themselves between a reviewer's verdict and the
server.

At most once wins over at least once: a verdict whose use was noted before its process died is spent, though the server
never saw it, since nobody can know that it did not. Whatever is killed before that note loses nothing: the next same
request is answered by the same verdict.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.service import LEASE
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.forked import Forked, Forks, forks
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

BOUND = 60.0
LATER = LEASE + 1  # seconds by the clock on the wall, after which a dead process holds nothing
YES = Verdict(word="approve")
FILLED = Verdict(word="answer", result={"action": "accept", "content": {"confirm": True}})
VERDICTS = {
    "form filled": ("form", FILLED),
    "form declined": ("form", Verdict(word="reject")),
    "sample approved": ("sample", YES),
    "sample rejected": ("sample", Verdict(word="reject")),
    "model's answer approved": ("answer", YES),
    "modern form filled": ("modern form", FILLED),
    "modern sample approved": ("modern sample", YES),
}
RELEASED = {
    "form filled": '"accept"',
    "modern form filled": '"accept"',
    "form declined": "Denied",
    "sample rejected": "Denied",
}
MODELS = '"hi"'
OPEN = ("Unanswered", "put off")


class Started:
    """A running process."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self.opened: list[str] = []
        """The reviews of its own."""
        self.asks = asyncio.Event()
        """It has one."""

    async def says(self, word: str) -> Any:
        """Read its next line, which must be this."""
        async with asyncio.timeout(BOUND):
            said = json.loads(await asyncio.to_thread(self._process.stdout.readline))
        assert [word] == list(said)[:1], said
        return said[word]

    async def ended(self) -> dict[str, Any] | None:
        """The answer that it released. None if it was killed before."""
        released = list[dict[str, Any]]()
        async with asyncio.timeout(BOUND):
            while line := await asyncio.to_thread(self._process.stdout.readline):
                said = json.loads(line)
                released += [said] if "released" in said else []
                if "opened" in said:
                    self.opened.append(said["opened"])
                    self.asks.set()
            code = await asyncio.to_thread(self._process.wait, BOUND)
        if code == -signal.SIGKILL:
            assert [] == released
            return None
        assert (0, 1) == (code, len(released)), await asyncio.to_thread(self._process.stderr.read)
        return released[0]


class Place:
    """A store and a decision log that processes share, and a reviewer."""

    def __init__(self, folder: Path, forks: Forks, empty: Path) -> None:
        self.store, self.log = shutil.copy(empty, folder / "reviews.db"), folder / "decisions.jsonl"
        self.reviews = SqlReviewStore(f"sqlite:{self.store}")
        self._forks, self._started = forks, list[Forked]()

    async def start(self, case: str, point: str | None = None, **more: Any) -> Started:
        """Start a process with the request."""
        told = json.dumps({"store": str(self.store), "log": str(self.log), "case": case, "point": point, **more})
        self._started.append(await asyncio.to_thread(self._forks.start, told, cwd=ROOT, env={}))
        return Started(self._started[-1])

    def close(self) -> None:
        """Kill all processes that still run."""
        self.reviews.close()
        for process in self._started:
            process.close()

    async def request(self, case: str, **more: Any) -> dict[str, Any]:
        """The answer to the request in a process that uses only earlier verdicts."""
        released = await (await self.start(case, **more)).ended()
        assert released is not None
        return released

    def decide(self, id: str, verdict: Verdict) -> Review:
        """A reviewer's verdict."""
        said = self.reviews.decide(id, verdict, who="ana", door="cli")
        assert isinstance(said, Review)
        return said

    def all(self) -> Sequence[Review]:
        return self.reviews.list(Filter())

    def records(self) -> list[dict[str, Any]]:
        """The decision log, without a last line that a killed process did not finish."""
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def answered(self) -> list[str]:
        """The decision IDs under which a request was answered or denied."""
        return [record["decision_id"] for record in self.records() if record["outcome"] in ("answered", "denied")]


@pytest.fixture(scope="module")
def processes() -> Iterator[Forks]:
    with forks("tests.fakes.programs.reviewed", env={"PYTHONWARNINGS": "error"}) as found:
        yield found


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without reviews. Creating one takes longer than everything that a test does with it."""
    path = tmp_path_factory.mktemp("empty") / "reviews.db"
    with closing(SqlReviewStore(f"sqlite:{path}")) as made:
        assert [] == list(made.list(Filter()))
        made.key()
    return path


@pytest.fixture
def place(tmp_path: Path, processes: Forks, empty: Path) -> Iterator[Place]:
    found = Place(tmp_path, processes, empty)
    yield found
    found.close()


async def killed(place: Place, case: str, verdict: Verdict, point: str, **more: Any) -> Review:
    """A process that has the verdict and dies at the point."""
    process = await place.start(case, point, **more)
    review = place.decide(await process.says("opened"), verdict)
    assert None is await process.ended()
    return review


async def killed_before(place: Place, case: str) -> Review:
    """A process that dies as soon as a review is open."""
    assert None is await (await place.start(case, "opened")).ended()
    (review,) = place.all()
    return review


@pytest.mark.parametrize(
    ("said", "point"),
    [
        ("form filled", "decided"),
        ("sample approved", "decided"),
        ("model's answer approved", "decided"),
        ("modern form filled", "decided"),
        ("form declined", "recorded"),
        ("sample approved", "recorded"),
        ("sample rejected", "recorded"),
        ("modern sample approved", "recorded"),
        ("form filled", "using"),
    ],
)
async def test_a_verdict_whose_process_died_before_its_use_was_noted_answers_the_next_same_request_once(
    place: Place, said: str, point: str
) -> None:
    (case, verdict), recorded = VERDICTS[said], 0 if point == "decided" else 1
    review = await killed(place, case, verdict, point)
    assert recorded == len(place.answered())
    second = await place.request(case, ahead=LATER)
    assert RELEASED.get(said, MODELS) in second["released"]
    (kept,) = place.all()
    assert (review.id, second["as"]) == (kept.id, kept.used_by)
    answered = place.answered()
    assert (recorded + 1, second["as"]) == (len(set(answered)), answered[-1])
    assert len(answered) == len(set(answered))
    third = await place.request(case, ahead=2 * LATER, patience="300ms")
    assert third["released"] in OPEN
    assert {review.id: second["as"]} == {one.id: one.used_by for one in place.all() if one.used_by is not None}


@pytest.mark.parametrize("said", ["form filled", "sample approved", "sample rejected", "modern form filled"])
async def test_a_verdict_whose_process_died_after_its_use_was_noted_is_spent(place: Place, said: str) -> None:
    """The server may have seen the answer. A second release could act twice, so the reviewer is asked again."""
    case, verdict = VERDICTS[said]
    review = await killed(place, case, verdict, "used")
    (recorded,) = place.answered()
    second = await place.request(case, ahead=LATER, patience="300ms")
    assert second["released"] in OPEN
    assert [recorded] == place.answered()
    assert {review.id: recorded} == {one.id: one.used_by for one in place.all() if one.used_by is not None}
    assert ["pending"] == [one.state for one in place.all() if one.used_by is None]


@pytest.mark.parametrize("case", ["form", "answer", "modern form"])
async def test_a_review_whose_process_died_before_the_verdict_is_joined_by_the_next_same_request(
    place: Place, case: str
) -> None:
    before = await killed_before(place, case)
    process = await place.start(case, ahead=LATER)
    assert before.id == await process.says("joined")
    place.decide(before.id, FILLED if "form" in case else YES)
    second = await process.ended()
    assert second is not None
    assert second["released"] not in OPEN
    (after,) = place.all()
    assert (before.id, second["as"]) == (after.id, after.used_by)
    assert ["opened", "joined"] == [event.what for event in place.reviews.history(before.id)][:2]


async def test_a_verdict_given_while_nobody_was_alive_answers_the_next_same_request(place: Place) -> None:
    review = place.decide((await killed_before(place, "form")).id, FILLED)
    second = await place.request("form", ahead=LATER)
    assert [(review.id, second["as"])] == [(one.id, one.used_by) for one in place.all()]


async def test_a_request_that_comes_before_the_dead_process_is_known_to_be_dead_takes_its_verdict_as_soon_as_it_is(
    place: Place,
) -> None:
    review = await killed(place, "form", FILLED, "recorded", lease=0.6)
    second = await place.request("form", lease=0.2)
    assert '"accept"' in second["released"]
    found = {one.id: one for one in place.all()}
    assert second["as"] == found.pop(review.id).used_by
    assert {"withdrawn"} >= {one.state for one in found.values()}


async def test_of_two_requests_that_wait_for_a_dead_ones_verdict_only_one_has_it(place: Place) -> None:
    review = await killed(place, "form", FILLED, "decided", lease=0.4)
    both = [await place.start("form", lease=0.2) for _ in range(2)]
    ends = [asyncio.ensure_future(one.ended()) for one in both]
    (first, *_), _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    assert '"accept"' in str(await first)
    assert [review.id] == [one.id for one in place.all() if one.used_by is not None]
    (other,) = (one for one, end in zip(both, ends, strict=True) if end is not first)
    async with asyncio.timeout(BOUND):
        await other.asks.wait()
    place.decide(other.opened[0], Verdict(word="reject"))
    assert ["Denied"] == [str((await end or {})["released"]) for end in ends if end is not first]
    assert 2 == len(place.answered())


@pytest.mark.parametrize(("point", "left"), [("recorded", 2), ("using", 2), ("used", 0)])
async def test_of_two_verdicts_on_one_request_both_are_spent_or_none(place: Place, point: str, left: int) -> None:
    """One verdict is on the request and one on the model's answer. A process that dies between the two marks has marked
    neither."""
    process = await place.start("both", point)
    for _ in range(2):
        place.decide(await process.says("opened"), YES)
    assert None is await process.ended()
    assert left == sum(one.used_by is None for one in place.all())
    second = await place.request("both", ahead=LATER, patience="10s" if left else "300ms")
    assert (left == 0) == (second["released"] == "Unanswered")
    assert left == sum(second["as"] == one.used_by for one in place.all())
