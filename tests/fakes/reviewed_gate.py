"""A gate with reviewers, in virtual time, and rules that escalate."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from samplegate.protocol.outcomes import Answered
from samplegate.protocol.rounds import Release, Settled
from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.service import Counts, ReviewService
from samplegate.telemetry.metrics import Metrics
from tests.fakes.gate_ports import FakePorts
from tests.fakes.review_store import MemoryReviews

Reviewer: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""The actions of a reviewer during a round."""
START = 1_800_000_000.0
ASK = {"name": "people", "effect": "escalate", "reviewer": "ops"}
POLICY: dict[str, Any] = {
    "models": [
        {"name": "m", "model": "scripted", "max_tokens": 500},
        {"name": "n", "model": "scripted", "max_tokens": 50},
    ],
    "reviewers": {"ops": {"timeout": "15m"}},
}


def wall() -> float:
    """The wall clock of the virtual loop, in Unix seconds."""
    return START + anyio.current_time()


class ReviewedGate:
    """A gate with a review service. ``decides`` makes a reviewer who decides the first pending review.

    ``ahead``: seconds by which the gate's clock is ahead of the store's."""

    def __init__(self, *, ahead: float = 0.0, **ports: Any) -> None:
        self._started = 0.0
        self._wall = lambda: wall() + ahead
        self.ports = FakePorts(**ports, clock=lambda: anyio.current_time() - self._started, wall=self._wall)
        self.store = MemoryReviews(wall)
        self.metrics = Metrics()
        self.service = self.new_service()
        self._ids = 0

    def new_service(self) -> ReviewService:
        return ReviewService(
            lambda: self.store,
            wall=self._wall,
            clock=anyio.current_time,
            random=self._random,
            log=self.ports.log,
            counts=Counts(self.metrics),
            most=10,
        )

    def _random(self, size: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(size, "big")

    async def run(self, d: Any, round: Any, *reviewers: Reviewer, seconds: float = 10) -> Any:
        """Run the round and the reviewers at the same time, for at most ``seconds``, and return its conclusion."""
        self.ports.reviews = self.service
        self._started = anyio.current_time()  # the dialogues' time begins with 0
        conclusion: list[Any] = []
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(self.service.run)
                for reviewer in reviewers:
                    group.start_soon(reviewer)
                conclusion.append(await self.ports.gate(d).run(round))
                group.cancel_scope.cancel()
        return conclusion[0]

    async def settled(self, d: Any, round: Any, *reviewers: Reviewer) -> Release:
        conclusion = await self.run(d, round, *reviewers)
        assert isinstance(conclusion, Settled)
        return next(iter(conclusion.releases.values()))

    async def pending(self) -> Review:
        """Wait for a pending review and return it."""
        changed = anyio.Event()
        end = self.store.watch(lambda: changed.set())
        try:
            while not (found := self.store.list(Filter(states=("pending",)))):
                await changed.wait()
                changed = anyio.Event()
        finally:
            end()
        return found[0]

    def decides(self, word: str, **more: Any) -> Reviewer:
        async def decide() -> None:
            review = await self.pending()
            self.store.decide(review.id, Verdict(word=word, **more), who="ana", door="page")  # type: ignore[arg-type]

        return decide


def body(release: Release) -> Any:
    assert isinstance(release.outcome, Answered), release
    return json.loads(release.outcome.result)


LOOK = {
    "name": "models",
    "match": {"kind": "sampling"},
    "effect": "allow",
    "with": {"models": ["m"]},
    "review_answer": "ops",
}


RATE = {"limits": {"rate": {"requests": 5, "per": "1h"}, "money": {"output_tokens": 10000, "per": "1h"}}}
