"""A process with one open round and the real gate, store and decision log, which kills itself at a given point.

``reviewed.py JSON`` with ``store``, ``log``, ``case`` (see CASES), ``point`` (see POINTS, or none), ``patience`` (how
long the server waits), ``ahead`` (seconds that its clock on the wall is ahead) and ``lease`` (seconds after which
others take a process for dead; as in the product where it is left out). It prints lines of JSON: ``opened`` or
``joined`` with a review that it waits for, and ``released``: what reaches the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from samplegate.audit.decision_log import DecisionLog, decision_log
from samplegate.audit.record import Record
from samplegate.gate.gate import Gate
from samplegate.protocol.outcomes import Answered
from samplegate.protocol.rounds import Conclusion, Settled
from samplegate.reviews import async_store as threads
from samplegate.reviews import service, sql_store
from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.review import Review
from samplegate.reviews.service import Counts
from samplegate.reviews.sql_store import append_event
from samplegate.telemetry.metrics import Metrics
from tests.fakes.dialogue import form, sample
from tests.fakes.gate_ports import FakePorts, asked, pushed

POINTS: Final = ("opened", "decided", "recorded", "using", "used")
ASK: Final = {"name": "people", "effect": "escalate", "reviewer": "ops"}
LOOK: Final = {"name": "models", "effect": "allow", "with": {"models": ["m"]}, "review_answer": "ops"}
CASES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "form": (ASK, "elicitation/create"),
    "sample": (ASK, "sampling/createMessage"),
    "answer": (LOOK, "sampling/createMessage"),
    "both": ({**ASK, "review_answer": "ops"}, "sampling/createMessage"),
}


def say(**said: str) -> None:
    print(json.dumps(said), flush=True)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Store(sql_store.SqlReviewStore):
    """The real store. The process may die after it has a review, or after it has marked a verdict as used."""

    point: str | None = None

    def open(self, review: Review, **values: Any) -> Review | None:
        done = super().open(review, **values)
        say(opened=review.id)
        if self.point == "opened":
            die()
        return done

    def seek(self, lookup: str, **values: Any) -> Review | None:
        found = super().seek(lookup, **values)
        if found is not None and found.state == "pending":
            say(joined=found.id)
        return found

    def use(self, uses: Any, **values: Any) -> bool:
        done = super().use(uses, **values)
        if self.point == "used":
            die()
        return done


def dies_within_the_transaction() -> None:
    """Kill the process when the row is written but not committed."""

    def told(db: Any, review: Review, what: Any, *values: Any, **named: Any) -> None:
        append_event(db, review, what, *values, **named)
        if what == "used":
            die()

    setattr(sql_store, "append_event", told)  # noqa: B010 (a name that the module only uses)


def way_of(point: str | None, log: DecisionLog) -> Any:
    """The decision log's port."""

    async def record(record: Record) -> None:
        if point == "decided":
            die()
        await log.write(record)
        if point == "recorded":
            die()

    return record


def round_of(case: str, patience: str) -> Any:
    """The same request in every process."""
    rule, method = CASES[case.removeprefix("modern ")]
    policy = {
        "models": [{"name": "m", "model": "scripted"}],
        "reviewers": {"ops": {"timeout": "1h"}},
        "servers": {"default": {"peer_timeout": patience}},
        "client": {"peer_timeout": patience},
    }
    if case.startswith("modern "):
        return asked(rule, policy=policy, k=form() if method.startswith("e") else sample())
    return pushed(rule, method=method, policy=policy)


async def main(
    store: str,
    log: str,
    case: str,
    point: str | None = None,
    *,
    patience: str = "40s",
    ahead: float = 0.0,
    lease: float = 0.0,
) -> None:
    """Run one round."""
    if lease:
        service.LEASE = lease  # type: ignore[misc]
    if point == "using":
        dies_within_the_transaction()
    started = time.monotonic()  # the dialogues' time begins with 0
    d, round = round_of(case, patience)
    fakes = FakePorts(clock=lambda: time.monotonic() - started, wall=lambda: time.time() + ahead)
    Store.point = point
    setattr(threads, "SqlReviewStore", Store)  # noqa: B010 (a name that the module only uses)
    kept, metrics = AsyncReviewStore(f"sqlite:{store}"), Metrics()
    people = service.ReviewService(
        lambda: kept,
        wall=fakes.wall,
        clock=time.monotonic,
        random=secrets.token_bytes,
        log=fakes.log,
        counts=Counts(metrics),
        most=10,
    )
    fakes.reviews = people
    decisions = decision_log(log, state=Path(log).parent, server="default", content="full")
    gate = fakes.gate(d)
    ports = msgspec.structs.replace(gate.ports, random=secrets.token_bytes, record=way_of(point, decisions))
    async with anyio.create_task_group() as group:
        group.start_soon(people.run)
        say(**told(await Gate(d.compiled, "hash", ports).run(round)))
        group.cancel_scope.cancel()
    await decisions.aclose()
    kept.close()


def told(conclusion: Conclusion) -> dict[str, str]:
    """What is released, and the ID of its decision."""
    if not isinstance(conclusion, Settled):
        return {"released": "put off"}
    (release,) = conclusion.releases.values()
    outcome = release.outcome
    return {
        "released": outcome.result.decode() if isinstance(outcome, Answered) else type(outcome).__name__,
        "as": release.decision_id,
    }


def program() -> None:
    """Run with the arguments of the command line."""
    asyncio.run(main(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    program()
