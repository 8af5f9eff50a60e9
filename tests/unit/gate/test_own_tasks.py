"""A call waits an hour for a person as a task of the gate, through the whole gate, and one gate dies meanwhile."""

from __future__ import annotations

from typing import Any, Final

import anyio
import msgspec
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.outcomes import CallDrawn
from samplegate.protocol.own_tasks import HOLD
from samplegate.protocol.rounds import ForwardRound, Open, Round, Settled
from samplegate.protocol.task_state import CLAIM
from samplegate.reviews.service import LEASE
from tests.fakes.dialogue import ask, form, modern, one, result, sample, to_client, to_server
from tests.fakes.reviewed_gate import ASK, POLICY, ReviewedGate, wall
from tests.fakes.task_dialogue import ALL, Rows, TaskDialogue
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
HOUR: Final = 3_600.0
PATIENT: Final[dict[str, Any]] = {**POLICY, "reviewers": {"ops": {"timeout": "2h"}}}


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


class ClockedRows(Rows):
    """Rows by the wall clock of the virtual loop."""

    def now(self) -> float:
        return wall()


async def test_a_task_waits_an_hour_for_a_person_and_survives_a_kill() -> None:
    first = ReviewedGate()
    d = TaskDialogue(ASK, rows=ClockedRows(), **PATIENT)
    d.client(modern(1, "tools/call", ALL, name="x", arguments={"n": 1}))
    round = one(d.server(result(1, resultType="input_required", inputRequests={"k": ask(form())})), Open).round
    before = anyio.current_time()
    conclusion = await first.run(d, round)
    assert isinstance(conclusion, ForwardRound)
    assert pytest.approx(HOLD, abs=0.1) == anyio.current_time() - before
    made = d.done(round, conclusion)
    (task,) = [frame["result"] for frame in to_client(made)]
    assert task["ttlMs"] >= 2 * HOUR * 1000, "the review lives as long as the task"

    waiting = one(made, Open).round
    with anyio.move_on_after(HOUR / 2):
        async with anyio.create_task_group() as group:
            group.start_soon(first.service.run)
            first.ports.reviews = first.service
            group.start_soon(first.ports.gate(d).run, waiting)
            await anyio.sleep(HOUR / 2 - 1)
            first.store.fault = "the process is dead"  # it withdraws nothing
            await anyio.sleep(10)
    first.store.fault = None
    await anyio.sleep(CLAIM + LEASE)

    second = ReviewedGate()
    second.store = first.store
    second.service = second.new_service()
    other = TaskDialogue(ASK, rows=d.rows, token="other", **PATIENT)

    async def after_an_hour() -> None:
        await anyio.sleep(HOUR / 2)
        await second.decides("answer", result={"action": "accept", "content": {"confirm": True}})()

    polled = other.client(modern(5, "tasks/get", ALL, taskId=task["taskId"]))
    taken = one(polled, Open).round
    settled = await second.run(other, taken, after_an_hour, seconds=2 * HOUR)
    assert isinstance(settled, Settled)
    (sent,) = to_server(other.done(taken, settled))
    other.server(result(sent["id"], resultType="complete", content=[]))
    (ended,) = to_client(other.client(modern(6, "tasks/get", ALL, taskId=task["taskId"])))
    assert "completed" == ended["result"]["status"]
    assert anyio.current_time() - before > HOUR
    assert 1 == len(first.store.reviews), "the person was asked once"


@pytest.mark.parametrize("fault", [None, "the task has ended"])
async def test_a_model_is_asked_only_after_the_store_has_noted_it(fault: str | None) -> None:
    paid: list[tuple[str, str]] = []

    async def pay(round: Round, key: str, _drawn: tuple[CallDrawn, ...]) -> None:
        paid.append((round.own, key))
        if fault is not None:
            raise Unavailable(fault)

    gate = ReviewedGate(pay=pay)
    allow = {"name": "models", "effect": "allow", "with": {"models": ["m"]}}
    d = TaskDialogue(allow, rows=ClockedRows(), **POLICY)
    d.client(modern(1, "tools/call", ALL, name="x"))
    round = one(d.server(result(1, resultType="input_required", inputRequests={"k": ask(sample())})), Open).round
    await gate.run(d, msgspec.structs.replace(round, own="task-1"))
    assert [("task-1", "k")] == paid
    assert (fault is None) == bool(gate.ports.asked)
