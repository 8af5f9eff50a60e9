"""Limits per call of a task count on after the gate has ended, with the amounts in the task's record."""

from __future__ import annotations

from typing import Any, Final

import msgspec.structs
import pytest

from samplegate.gate.gate import Gate
from samplegate.protocol.outcomes import Answered, Reason
from samplegate.protocol.rounds import ForwardRound, Open, Round, Settled, TaskStep
from samplegate.protocol.task_state import CLAIM, paying
from samplegate.tasks.store import carry_out
from tests.fakes.dialogue import ask, form, one, sample
from tests.fakes.gate_ports import FakePorts
from tests.fakes.limits import Desk
from tests.fakes.task_dialogue import SCOPE, TaskDialogue

pytestmark = pytest.mark.anyio

LIMITED: Final[dict[str, Any]] = {"limits": {"few": {"requests": 1, "per": "call"}}}
SAMPLES: Final = {"name": "samples", "effect": "allow", "match": {"kind": "sampling"}, "limits": ["few"]}
FORMS: Final = {"name": "forms", "effect": "forward", "match": {"kind": "elicitation"}, "limits": ["few"]}


def process(ports: FakePorts, d: TaskDialogue) -> Gate:
    """The gate of a process whose accounts are empty."""
    limiter = Desk(*d.compiled.limit_specs.values()).admission
    gate = ports.gate(d)
    gate.ports = msgspec.structs.replace(
        gate.ports,
        reserve=limiter.reserve,
        settle=limiter.settle,
        call_drawn=limiter.call_drawn,
        restore_drawn=limiter.restore_drawn,
    )
    return gate


def restarted(d: TaskDialogue) -> TaskDialogue:
    d.rows.wall += CLAIM
    return TaskDialogue(SAMPLES, FORMS, rows=d.rows, token="other", **LIMITED)


async def outcome(d: TaskDialogue, key: str) -> Any:
    """The outcome of a further sample of the task."""
    round = one(d.poll(asks={key: ask(sample())}), Open).round
    conclusion = await process(FakePorts(), d).run(round)
    assert isinstance(conclusion, Settled)
    return conclusion.releases[key].outcome


def created() -> TaskDialogue:
    d = TaskDialogue(SAMPLES, FORMS, **LIMITED)
    d.create()
    return d


async def test_a_sample_that_was_answered_counts() -> None:
    d = created()
    round = one(d.poll(asks={"a": ask(sample())}), Open).round
    conclusion = await process(FakePorts(), d).run(round)
    assert isinstance(conclusion, Settled)
    assert isinstance(conclusion.releases["a"].outcome, Answered)
    d.done(round, conclusion)
    assert Reason.LIMIT == (await outcome(restarted(d), "b")).reason


async def test_a_sample_that_was_paid_for_before_a_kill_counts() -> None:
    d = created()

    async def pay(round: Round, key: str, drawn: Any) -> None:
        assert round.task is not None
        carry_out(d.rows, SCOPE, TaskStep("", round.task, paying(key, d.session.state.token, drawn)), 1)

    await process(FakePorts(pay=pay), d).run(one(d.poll(asks={"a": ask(sample())}), Open).round)
    assert Reason.LIMIT == (await outcome(restarted(d), "b")).reason


async def test_a_form_that_the_client_was_shown_counts() -> None:
    d = created()
    round = one(d.poll(asks={"a": ask(form())}), Open).round
    conclusion = await process(FakePorts(), d).run(round)
    assert isinstance(conclusion, ForwardRound)
    d.done(round, conclusion)
    assert Reason.LIMIT == (await outcome(restarted(d), "b")).reason


async def test_another_task_has_its_own_amounts() -> None:
    d = created()
    round = one(d.poll(asks={"a": ask(sample())}), Open).round
    d.done(round, await process(FakePorts(), d).run(round))
    d = restarted(d)
    d.create("task-2", call=7)
    round = one(d.poll(asks={"a": ask(sample())}, task_id="task-2"), Open).round
    conclusion = await process(FakePorts(), d).run(round)
    assert isinstance(conclusion, Settled)
    assert isinstance(conclusion.releases["a"].outcome, Answered)
