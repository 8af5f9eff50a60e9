"""Benchmark of reviews that one gate opens and a reviewer decides at another, with PostgreSQL, beside one gate with
SQLite. All gates are `samplegate serve`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, TypeAlias

from tests.fakes.daemon import Client, Gate, client, serving
from tests.fakes.daemon_reviews import ACCEPTED, People, people, settings
from tests.fakes.postgresql import postgresql, url

SERVER: Final = (sys.executable, str(Path(__file__).resolve().parent / "form_server.py"))
BETWEEN: Final = 0.005
"""Seconds between two looks at the API."""
GATES: Final = ("first", "second", "alone")
PAUSE: Final = 1.0
"""At most so many seconds pass before a request and before its decision, at random, so that both come at any time
between two polls of the gates."""
PATIENCE: Final = 60.0
"""Seconds for one review."""
Place: TypeAlias = Literal["PostgreSQL", "SQLite"]
"""Two gates with PostgreSQL, or one gate with SQLite."""


@dataclass(frozen=True, slots=True)
class Span:
    """Milliseconds: the median of all reviews, and the longest."""

    p50: float
    longest: float


@dataclass(frozen=True, slots=True)
class SharedReviews:
    """``listed`` and ``told`` begin when the server asks, and end when the reviewer's gate lists the review in the API
    and when its event stream has it. ``released`` begins when the reviewer sends the decision, and ends when the server
    gets the answer."""

    place: Place
    reviews: int
    listed: Span
    told: Span
    released: Span


@dataclass(frozen=True, slots=True)
class _Scene:
    client: Client
    reviewer: People
    next_event: Callable[[], Awaitable[str]]


def measure(reviews: int) -> list[SharedReviews]:
    """Open and decide ``reviews`` reviews at each place, in turn. Raises FileNotFoundError without PostgreSQL."""
    with postgresql() as place, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for gate in GATES:
            (folder / gate).mkdir()
        return asyncio.run(_measure(folder, url(place), reviews))


async def _measure(folder: Path, database: str, reviews: int) -> list[SharedReviews]:
    async with AsyncExitStack() as stack:
        gates = [
            await stack.enter_async_context(_gate(folder / name, **more))
            for name, more in zip(GATES, ({"database": database}, {"database": database}, {}), strict=True)
        ]
        scenes: dict[Place, _Scene] = {
            "PostgreSQL": await _scene(stack, opens=gates[0], decides=gates[1]),
            "SQLite": await _scene(stack, opens=gates[2], decides=gates[2]),
        }
        times: dict[Place, list[tuple[float, float, float]]] = {place: [] for place in scenes}
        for number in range(reviews + 1):
            for place, scene in scenes.items():
                async with asyncio.timeout(PATIENCE):
                    found = await _review(scene, number)
                times[place] += [found] if number else []  # the first one starts the server
    return [SharedReviews(place, len(all), *map(_span, zip(*all, strict=True))) for place, all in times.items()]


@asynccontextmanager
async def _gate(folder: Path, **more: Any) -> AsyncIterator[Gate]:
    log = "database" if "database" in more else str(folder / "decisions.jsonl")
    async with serving(folder, *settings(folder, decision_log=log, **more), "--", *SERVER) as gate:
        await gate.said("reviews on")
        yield gate


async def _scene(stack: AsyncExitStack, *, opens: Gate, decides: Gate) -> _Scene:
    """A client of one gate, and a reviewer with an event stream at another one, or at the same."""
    asking = await stack.enter_async_context(client(opens, capabilities={}))
    await asking.begin()
    reviewer = await stack.enter_async_context(people(decides))
    next_event = await stack.enter_async_context(reviewer.events())
    await next_event()  # it listens
    return _Scene(asking, reviewer, next_event)


async def _review(scene: _Scene, number: int) -> tuple[float, float, float]:
    """Milliseconds until a review is listed, until it is told, and from the decision until the answer."""
    await asyncio.sleep(random.uniform(0.0, PAUSE))
    calling = asyncio.create_task(scene.client.call("legacy", number + 1))
    telling = asyncio.create_task(_told(scene.next_event))
    while not (pending := (await scene.reviewer.get("/reviews?state=pending"))["reviews"]):  # noqa: ASYNC110 - this is measured
        await asyncio.sleep(BETWEEN)
    listed = time.monotonic_ns()
    told = await telling
    await asyncio.sleep(random.uniform(0.0, PAUSE))
    review = await scene.reviewer.get(f"/reviews/{pending[0]['id']}")
    decided = time.monotonic_ns()
    status, said = await scene.reviewer.say(review, verdict="answer", **ACCEPTED)
    answer = await calling
    if status != 200 or "result" not in answer:
        raise RuntimeError(f"a review was not decided: {said}; {answer}")
    at = answer["result"]["structuredContent"]
    return (listed - at["asked"]) / 1e6, (told - at["asked"]) / 1e6, (at["answered"] - decided) / 1e6


async def _told(next_event: Callable[[], Awaitable[str]]) -> int:
    """The moment of the event of a new review, in nanoseconds."""
    while True:
        for line in (await next_event()).splitlines():
            if line.startswith("data:") and json.loads(line[5:])["what"] == "opened":
                return time.monotonic_ns()


def _span(times: tuple[float, ...]) -> Span:
    return Span(median(times), max(times))
