"""Gates over one store and one decision log, in processes that kill themselves between a person's verdict and the
server.

At most once wins over at least once: a verdict whose use was noted before its process died is spent, though the server
never saw it, since nobody can know that it did not. Whatever is killed before that note loses nothing: the next same
request is answered by the same verdict.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.service import LEASE
from samplegate.reviews.sql_store import Reviews

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[1]
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
    """A process at work."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self, word: str) -> Any:
        """The next thing that it says, which has to be this."""
        assert self._process.stdout is not None
        async with asyncio.timeout(BOUND):
            said = json.loads(await self._process.stdout.readline())
        assert [word] == list(said)[:1], said
        return said[word]

    async def ended(self) -> dict[str, Any] | None:
        """What it released; None where it was killed before."""
        async with asyncio.timeout(BOUND):
            out, _ = await self._process.communicate()
        released = [said for line in out.splitlines() if "released" in (said := json.loads(line))]
        if self._process.returncode == -signal.SIGKILL:
            assert [] == released
            return None
        assert (0, 1) == (self._process.returncode, len(released))
        found: dict[str, Any] = released[0]
        return found


class Place:
    """A store and a decision log that processes share, and a person at the store."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log = folder / "reviews.db", folder / "decisions.jsonl"
        self.reviews = Reviews(f"sqlite:{self.store}")

    async def start(self, case: str, point: str | None = None, **more: Any) -> Started:
        """A process with the request."""
        told = json.dumps({"store": str(self.store), "log": str(self.log), "case": case, "point": point, **more})
        env = {"PYTHONPATH": f"{ROOT / 'proxy'}:{ROOT}", "PYTHONWARNINGS": "error"}
        program = [sys.executable, "-m", "tests.programs.reviewed", told]
        return Started(
            await asyncio.create_subprocess_exec(*program, cwd=ROOT, env=env, stdout=asyncio.subprocess.PIPE)
        )

    async def request(self, case: str, **more: Any) -> dict[str, Any]:
        """What becomes of the request in a process that nobody says anything to but what was said before."""
        released = await (await self.start(case, **more)).ended()
        assert released is not None
        return released

    def decide(self, id: str, verdict: Verdict) -> Review:
        """The verdict of a person."""
        said = self.reviews.decide(id, verdict, who="ana", door="cli", now=time.time())
        assert isinstance(said, Review)
        return said

    def all(self) -> Sequence[Review]:
        return self.reviews.list(Filter())

    def records(self) -> list[dict[str, Any]]:
        """The decision log; a last line that a killed process did not finish is none."""
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def answered(self) -> list[str]:
        """The names under which something was answered or denied."""
        return [record["decision_id"] for record in self.records() if record["outcome"] in ("answered", "denied")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.reviews.close()


async def killed(place: Place, case: str, verdict: Verdict, point: str, **more: Any) -> Review:
    """A process that has the verdict and dies at the point."""
    process = await place.start(case, point, **more)
    review = place.decide(await process.says("opened"), verdict)
    assert None is await process.ended()
    return review


async def killed_before(place: Place, case: str) -> Review:
    """A process that dies as soon as somebody is asked."""
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
    """The server may have seen it: a second release could act twice, so the person is asked again."""
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
    review = await killed(place, "form", FILLED, "recorded", lease=3.0)
    second = await place.request("form", lease=1.0)
    assert '"accept"' in second["released"]
    found = {one.id: one for one in place.all()}
    assert second["as"] == found.pop(review.id).used_by
    assert {"withdrawn"} >= {one.state for one in found.values()}


async def test_of_two_requests_that_wait_for_a_dead_ones_verdict_only_one_has_it(place: Place) -> None:
    review = await killed(place, "form", FILLED, "decided", lease=2.0)
    both = [await place.start("form", lease=1.0, patience="8s") for _ in range(2)]
    released = [str(await one.ended()) for one in both]
    assert ["Unanswered", "accept"] == sorted("accept" if "accept" in one else "Unanswered" for one in released)
    assert [review.id] == [one.id for one in place.all() if one.used_by is not None]
    assert 1 == len(place.answered())


@pytest.mark.parametrize(("point", "left"), [("recorded", 2), ("using", 2), ("used", 0)])
async def test_of_two_verdicts_on_one_request_both_are_spent_or_none(place: Place, point: str, left: int) -> None:
    """One on the request and one on the model's answer: what dies between the two notes has noted neither."""
    process = await place.start("both", point)
    for _ in range(2):
        place.decide(await process.says("opened"), YES)
    assert None is await process.ended()
    assert left == sum(one.used_by is None for one in place.all())
    second = await place.request("both", ahead=LATER, patience="10s" if left else "300ms")
    assert (left == 0) == (second["released"] == "Unanswered")
    assert left == sum(second["as"] == one.used_by for one in place.all())
