"""Limits per call of a task count on after the gate has ended, with the amounts in the task's record."""

from __future__ import annotations

from typing import Any, Final

import msgspec.structs
import pytest

from samplegate.gate.gate import Gate
from samplegate.policy.ledger import SCALE
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
WORDS: Final[dict[str, Any]] = {"limits": {"few": {"output_tokens": 250, "per": "call"}}}
"""Room for two samples at their upper bound of 100 tokens. The fake model uses 4 of them."""
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


def paying_in(d: TaskDialogue) -> FakePorts:
    """Ports whose models' requests are noted in the task's record before they are asked."""

    async def pay(round: Round, key: str, drawn: Any) -> None:
        assert round.task is not None
        carry_out(d.rows, SCOPE, TaskStep("", round.task, paying(key, d.session.state.token, drawn)), 1)

    return FakePorts(pay=pay)


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
    await process(paying_in(d), d).run(one(d.poll(asks={"a": ask(sample())}), Open).round)
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


async def test_tokens_that_a_model_did_not_use_are_there_for_the_next_samples() -> None:
    d = TaskDialogue(SAMPLES, **WORDS)
    d.create()
    here = process(paying_in(d), d)
    for key in "abcd":
        round = one(d.poll(asks={key: ask(sample())}), Open).round
        conclusion = await here.run(round)
        assert isinstance(conclusion, Settled)
        assert isinstance(conclusion.releases[key].outcome, Answered), key
        d.done(round, conclusion)


async def test_the_next_process_counts_what_was_used_and_what_a_kill_left_open() -> None:
    d = TaskDialogue(SAMPLES, **WORDS)
    d.create()
    here = process(paying_in(d), d)
    settled = one(d.poll(asks={"a": ask(sample())}), Open).round
    d.done(settled, await here.run(settled))
    await here.run(one(d.poll(asks={"b": ask(sample())}), Open).round)  # killed before its answer is stored
    d.rows.wall += CLAIM
    d = TaskDialogue(SAMPLES, rows=d.rows, token="other", **WORDS)
    lost = one(d.poll(asks={"b": ask(sample())}), Open).round
    assert [104 * SCALE["output_tokens"]] == [drawn.units for drawn in lost.drawn]


async def test_what_two_processes_draw_is_added() -> None:
    d = TaskDialogue(SAMPLES, limits={"few": {"requests": 2, "per": "call"}})
    d.create()
    first = one(d.poll(asks={"a": ask(sample())}), Open).round
    there = TaskDialogue(SAMPLES, rows=d.rows, token="other", limits={"few": {"requests": 2, "per": "call"}})
    second = one(there.poll(asks={"a": ask(sample()), "b": ask(sample())}), Open).round
    d.done(first, await process(FakePorts(), d).run(first))
    there.done(second, await process(FakePorts(), there).run(second))
    third = one(d.poll(asks={"c": ask(sample())}), Open).round
    assert [2 * SCALE["requests"]] == [drawn.units for drawn in third.drawn]
