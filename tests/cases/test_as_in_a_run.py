"""What a case comes to is what comes of it in a run: every case here and of the shipped policies goes through the gate itself, request by request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
import msgspec.structs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samplegate.core.capabilities import offer_to
from samplegate.core.cases import Placed, load_cases
from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Reason
from samplegate.core.ledger import Draw, Refused, Reserved
from samplegate.core.load import load
from samplegate.core.matching.match import compile_policy
from samplegate.core.policy import seconds
from samplegate.core.record import Record
from samplegate.core.review import states, verdicts
from samplegate.core.review.review import Review, Stage, Verdict
from samplegate.core.samples import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.core.session import doors
from samplegate.core.session.rounds import Reply, Round
from samplegate.core.trials import scenes
from samplegate.core.trials.accounts import Accounts
from samplegate.core.trials.comparing import seen
from samplegate.core.trials.play import Came, Play, Scenery, scenery
from samplegate.core.trials.suite import FREE, START, Asked, Said
from samplegate.core.trials.suite import Verdict as Given
from samplegate.core.trials.verdicts import Judged, written
from samplegate.core.trials.wire import wire
from samplegate.gate import Gate
from samplegate.ports import Ports
from tests.cases.test_decisions import TESTS, book_of, cases_of
from tests.world import Silent

pytestmark = pytest.mark.anyio
ACTIONS: Final = ("accept", "decline", "cancel")
TEXT: Final = ({"type": "text", "text": "hi"},)
MOST: Final = 12  # of a step's repetitions that are put to the gate: beyond it nothing new happens in these files
CASES: Final = [(tests, placed) for tests in TESTS for placed in cases_of(tests).cases]


class Held:
    """A request that stays open: when it ends, and the moments that are waited for."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.open, self.told, self.over = anyio.Event(), anyio.Event(), anyio.Event()


class People:
    """The port to people: whoever is asked says what the case says, and lets through what it says nothing of."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.used = 0

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        return None

    async def open(self, review: Review, *, announce: bool) -> Review:
        assert not announce, "no reviewer here has a webhook"
        return msgspec.structs.replace(review, id="rv_case", waiter="case", held_until=float("inf"))

    async def wait(self, review: Review, seconds: float, *, comes_back: bool = False, gone: object = None) -> Review:
        given = self.asked.verdict if review.stage == "request" else "approve"
        if given == "none":
            return review
        passed: Given = "approve" if review.kind == "sampling" else "cancel"
        if given is None and review.kind == "sampling" and review.bounds is None:
            given = Said(answer="as you like")
        read = verdicts.read(written(given or passed, review.kind), review, digest="optional")
        assert isinstance(read, Verdict), read
        decided = states.decided(review, read, who="somebody", door="api", now=review.created)
        assert isinstance(decided, Review)
        return decided

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        self.used += 1
        return True

    async def give_back(self, review: Review) -> None:
        pass


class Running:
    """A gate over accounts of its own, in the time of a case."""

    def __init__(self, book: Rulebook, group: anyio.abc.TaskGroup) -> None:
        self.accounts = Accounts(book.terms)
        self.now = 0.0
        self.records: list[Record] = []
        self.asked = Asked()
        self.people = People()
        self._group = group
        self._held: list[Held] = []
        ports = Ports(
            sample=self._sample,
            reserve=self._reserve,
            settle=self._settle,
            progress=lambda _round, _tokens: None,
            ask_client=self._client,
            record=self._record,
            note=lambda _note: None,
            clock=lambda: self.now,
            wall=lambda: self.now,
            random=bytes,
            log=Silent(),
            reviews=self.people,
        )
        self.gate = Gate(book, "hash", ports)

    async def _reserve(self, draws: Sequence[Draw], _wait: float | None) -> Reserved | Refused:
        return self.accounts.reserve(draws, self.now)

    async def _settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        self.accounts.settle(reserved, actual, self.now)

    async def _sample(self, _request: SampleRequest, _heard: Callable[[int], None]) -> SampleResult:
        asked = self.asked
        if asked.hold:
            held = self._held[-1]
            held.open.set()
            await held.told.wait()
        read, wrote = (None, None) if asked.usage is None else (asked.usage.input_tokens, asked.usage.output_tokens)
        if asked.fails is not None:
            return SampleFailed(asked.fails, "as the case says", free=asked.fails in FREE, input_tokens=read, output_tokens=wrote)
        return Sampled(TEXT, "gpt", "endTurn", read, wrote)

    async def _client(self, round: Round) -> Reply:
        return Reply(round.id, "", True, b'{"action":"cancel"}')

    async def _record(self, record: Record) -> None:
        self.records.append(record)

    async def until(self, now: float) -> None:
        """Let what has ended by now end, each at its own time."""
        for held in sorted((held for held in self._held if held.end <= now), key=lambda held: held.end):
            self.now = held.end
            held.told.set()
            await held.over.wait()
        self._held = [held for held in self._held if held.end > now]
        self.now = now

    async def ask(self, asked: Asked, scene: Scenery) -> Record | None:
        """The record of one request; None while it is open."""
        self.asked = self.people.asked = asked
        method, params = wire(asked)
        client, who = scenes.capabilities(asked.client or []), scene.who
        item = doors.item(method, msgspec.json.encode(params), who.origin, offer_to(self.gate.book, who.origin, client))
        round = Round("r", "push", who.origin, client, {"": item}, None, None, call_ids=who.call_ids, session=who.session)
        before = len(self.records)
        if asked.hold:
            self._held.append(Held(float("inf") if asked.hold is True else self.now + seconds(asked.hold)))
            self._group.start_soon(self._run, round, self._held[-1])
            await self._held[-1].open.wait()
        else:
            await self.gate.run(round)
        return self.records[before] if len(self.records) > before else None

    async def _run(self, round: Round, held: Held) -> None:
        await self.gate.run(round)
        held.open.set()
        held.over.set()


def said(came: Came) -> tuple[object, ...]:
    decision = came.decision
    reason = came.judged.reason if isinstance(came.judged, Judged) else decision.reason
    return decision.effect, decision.rule, reason, came.limit, [shadow.rule for shadow in decision.shadows]


def recorded(record: Record, came: Came) -> tuple[object, ...]:
    """The reason of what was acted on is the act's own."""
    own = record.effect in ("allow", "forward") or (
        record.effect == "escalate" and (not isinstance(came.judged, Judged) or came.judged.reason is Reason.RULE)
    )
    reason = came.decision.reason if own else record.reason
    return record.effect, record.rule, reason, record.refused_by, [shadow.rule for shadow in record.shadows]


def outcome(came: Came) -> str | None:
    """None: a model's answer or a client has a say in it."""
    if isinstance(came.judged, Judged):
        return came.judged.outcome
    return None if came.decision.effect in ("allow", "forward", "escalate") else seen(came.decision)["outcome"]


async def compare(book: Rulebook, placed: Placed) -> None:
    """Put every request to a trial and to the gate, and look at what came of it and at every limit."""
    start = datetime.fromisoformat(placed.case.start or START).timestamp()
    at = 0.0
    async with anyio.create_task_group() as group:
        play, running = Play(book), Running(book, group)
        for moment in placed.moments:
            step = moment.step
            at = at if step.at is None else seconds(step.at)
            scene = scenery(step, book)
            await running.until(start + at)
            for _ in range(min(step.repeat, MOST)):
                came = play.ask(scene, start + at)
                record = await running.ask(step, scene)
                assert record is None or said(came) == recorded(record, came)
                assert record is None or outcome(came) in (None, record.outcome)
                assert record is None or came.wire is None or record.action == (came.wire if came.wire in ACTIONS else None)
                thought = {limit: play.drawn(limit, scene, came, start + at) for limit in book.terms}
                play.accounts, own = running.accounts, play.accounts
                assert thought == {limit: play.drawn(limit, scene, came, start + at) for limit in book.terms}
                play.accounts = own
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("tests", "placed"), CASES, ids=[f"{tests.name}: {placed.case.name}" for tests, placed in CASES])
async def test_a_case_comes_to_what_comes_of_it_in_a_run(tests: Path, placed: Placed) -> None:
    await compare(replace(book_of(tests), environment=placed.case.environment or {}), placed)


ALL_LIMITS: Final = """\
version: 1
models:
  - {name: main, model: openai/none, max_tokens: 100, price: {input: 1, output: 2}}
  - {name: spare, model: openai/none, price: {input: 0, output: 1}}
brakes: {requests_per_call: 9, repeats: 7, cooling: 20s}
limits:
  rate: {requests: 4, per: 1m, by: [server]}
  read: {input_tokens: 400, per: 10m, by: [caller, model]}
  loop: {requests: 5, per: call}
  wrote: {output_tokens: 900, per: process, by: [tool]}
  day: {usd: 0.002, per: day, tz: Europe/Berlin}
  month: {usd: 0.003, per: month, tz: America/New_York, by: [rule]}
  open: {concurrent: 2, by: [session]}
reviewers: {ops: {}, desk: {}}
rules:
  - {name: looks on, match: {kind: sampling, caller: ann}, effect: deny, shadow: true}
  - name: by a person
    match: {kind: sampling, caller: bob, tool: [a, b]}
    effect: escalate
    reviewer: ops
    with: {models: [main]}
    limits: [read, wrote, open, month]
    on_limit: next
  - name: seen
    match: {kind: sampling, caller: bob, server: db}
    effect: escalate
    reviewer: ops
    with: {models: [spare]}
    review_answer: desk
    limits: [rate, day]
  - {name: first, match: {kind: sampling}, effect: allow, with: {models: [main]}, limits: [rate, read, open, day], on_limit: next}
  - name: second
    match: {kind: sampling, tool: ["*", none]}
    effect: allow
    with: {models: [spare]}
    limits: [loop, wrote, open, month]
    on_limit: next
  - {name: third, match: {kind: sampling, server: docs}, effect: answer, content: nothing, limits: [loop], on_limit: deny}
  - {name: fourth, match: {kind: sampling}, effect: forward, limits: [rate], on_limit: wait}
"""
GAPS: Final = st.sampled_from([0, 0, 0, 1, 7, 15, 61, 600, 30_000, 90_000])
STEPS: Final = st.lists(
    st.fixed_dictionaries(
        {"gap": GAPS, "sampling": st.sampled_from(["hello", "something longer than that"])},
        optional={
            "server": st.sampled_from(["docs", "db"]),
            "caller": st.sampled_from(["ann", "bob"]),
            "tool": st.sampled_from(["a", "b", ["a", "b"]]),
            "repeat": st.integers(1, 3),
            "client": st.just(["sampling"]),
            "usage": st.fixed_dictionaries({}, optional={"input_tokens": st.integers(0, 900), "output_tokens": st.integers(0, 2000)}),
            "fails": st.sampled_from(["timeout", "error", "refused", "rate_limited"]),
            "verdict": st.sampled_from(["approve", "reject", "none", {"answer": "No"}, {"edits": {"maxTokens": 5}}]),
            "hold": st.sampled_from(["1s", "10s", "2m", "24h"]),
        },
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_is_asked_when_a_trial_comes_to_what_comes_of_it_in_a_run(steps: list[dict[str, Any]]) -> None:
    at = 0
    for step in steps:
        at += step.pop("gap")
        step["at"] = f"{at}s"
        if step.get("fails") in FREE:
            step.pop("usage", None)
    case = {"name": "one", "steps": [{**steps[0], "expect": {"effect": "none"}}, *steps[1:]]}
    (placed,) = load_cases(json.dumps({"cases": [case]}), file="t").cases
    anyio.run(compare, compile_policy(load(ALL_LIMITS, file="p", environment={}).policy, {}), placed)
