"""Execution of cases in the real gate: its ports answer from the case, its limits are in memory, and ``at`` sets the
time.

The event loop's own clock is stopped, so that no timeout of the gate depends on the machine. A request that is held
open ends when the case's time reaches its end, before the next requests are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
import msgspec.structs

from samplegate.audit.record import Record
from samplegate.gate.gate import Gate
from samplegate.gate.ports import Ports
from samplegate.limits.brakes import BrakeState
from samplegate.limits.limiter import Limiter
from samplegate.policy.decide import CompiledPolicy, compile_policy
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import Policy, Stage, seconds
from samplegate.policytest.compare import CaseResult, Played, StepRequest, compare, step_request
from samplegate.policytest.load import Moment, PlacedCase
from samplegate.policytest.suite import FREE, START, Said
from samplegate.policytest.suite import Verdict as Given
from samplegate.protocol.requests import Kind
from samplegate.protocol.rounds import ClientReply, Round
from samplegate.reviews import review as states
from samplegate.reviews import verdict
from samplegate.reviews.review import Review, ReviewUi, Verdict
from samplegate.reviews.votes import version, voted

TEXT: Final = ({"type": "text", "text": "an answer"},)


def run(cases: Sequence[PlacedCase], policy: Policy | CompiledPolicy) -> list[CaseResult]:
    """Run every case in order, each with unused limits. ``${VAR}`` comes from the case, whatever environment the policy
    was compiled with."""
    compiled = policy if isinstance(policy, CompiledPolicy) else compile_policy(policy, {})

    async def play() -> list[CaseResult]:
        return [compare(placed, await _play(placed, compiled)) for placed in cases]

    return anyio.run(play, backend_options={"loop_factory": _StandingLoop})


class _StandingLoop(asyncio.SelectorEventLoop):
    """An event loop with a stopped clock."""

    def time(self) -> float:
        return 0.0


async def _play(placed: PlacedCase, compiled: CompiledPolicy) -> list[tuple[Moment, int, Played]]:
    """Every request of a case, with its result."""
    found: list[tuple[Moment, int, Played]] = []
    start, at = datetime.fromisoformat(placed.case.start or START).timestamp(), 0.0
    async with _stage(compiled, start) as stage:
        for moment in placed.moments:
            step = moment.step
            at = at if step.at is None else seconds(step.at)
            await stage.until(start + at)
            scene = step_request(step, replace(compiled, environment=step.environment or {}))
            for turn in range(1, step.repeat + 1):
                wants = turn == step.repeat and step.expect is not None and step.expect.limits is not None
                found.append((moment, turn, await stage.put(scene, measured=wants)))
    return found


@asynccontextmanager
async def _stage(compiled: CompiledPolicy, now: float) -> AsyncIterator[_Stage]:
    """A case's own time, limits and loop detection. Requests that are still held open end with it."""
    async with anyio.create_task_group() as group:
        stage = _Stage(compiled, now, group)
        yield stage
        await stage.until(inf)
        await stage.limits.aclose()


class _Stage:
    """The state that all requests of a case share."""

    def __init__(self, compiled: CompiledPolicy, now: float, group: anyio.abc.TaskGroup) -> None:
        self.now = now
        here = {name: msgspec.structs.replace(spec, shared=False) for name, spec in compiled.limit_specs.items()}
        self.limits = Limiter(here, state=Path(), clock=lambda: self.now, log=_Log(), run="test")
        self._brakes = BrakeState(compiled.policy.brakes)
        self._group = group
        self._held: list[_Actor] = []

    async def until(self, now: float) -> None:
        """End the requests whose ``hold`` is over, each at its own time."""
        for actor in sorted(self._held, key=lambda actor: actor.ends):
            if actor.ends > now:
                break
            self.now = self.now if actor.ends == inf else actor.ends
            self._held.remove(actor)
            actor.release.set()
            await actor.over.wait()
        self.now = self.now if now == inf else now

    async def put(self, scene: StepRequest, *, measured: bool) -> Played:
        """Send one request through the gate, until it ends or is held open. ``measured`` adds the draws on limits at
        that time."""
        actor, who, asked = _Actor(self, scene), scene.who, scene.asked
        gate = Gate(scene.compiled, "", actor.ports, self._brakes)
        round = Round(
            "case",
            "push",
            who.origin,
            scene.client,
            {"": scene.item},
            None,
            None,
            call_ids=who.call_ids,
            session=who.session,
        )
        if asked.hold:
            actor.ends = inf if asked.hold is True else self.now + seconds(asked.hold)
            self._held.append(actor)
            self._group.start_soon(actor.play, gate, round)
            await actor.standing.wait()
        else:
            await gate.run(round)
        if measured:
            actor.played.drawn = await self.limits.drawn()
        return actor.played


class _Actor:
    """The gate's ports for one request: model, client and reviewer act as its step says."""

    def __init__(self, stage: _Stage, scene: StepRequest) -> None:
        self._stage, self._asked = stage, scene.asked
        self.played = Played(scene)
        self.ends = 0.0
        self.standing, self.release, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ports = Ports(
            sample=self._sample,
            reserve=self._reserve,
            settle=stage.limits.settle,
            progress=_ignore,
            ask_client=self._client,
            record=self._record,
            note=_ignore,
            clock=self._clock,
            wall=self._clock,
            random=bytes,
            log=_Log(),
            reviews=self,
        )

    async def play(self, gate: Gate, round: Round) -> None:
        """Run a request that is held open."""
        try:
            await gate.run(round)
        finally:
            self.standing.set()
            self.over.set()

    def _clock(self) -> float:
        return self._stage.now

    async def _hold(self) -> None:
        """Wait for the end of the step's ``hold``, if it has one."""
        if self._asked.hold:
            self.standing.set()
            await self.release.wait()

    async def _reserve(self, draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        """Reserve without waiting for room: ``waits`` gets the time that a real run would wait."""
        answer = await self._stage.limits.reserve(draws, None)
        self.played.waits = answer.retry_after if isinstance(answer, Refused) and wait is not None else None
        return answer

    async def _sample(self, request: SampleRequest, _heard: Callable[[int], None], _span: object) -> SampleResult:
        self.played.sampled = True
        await self._hold()
        fails, usage = self._asked.fails, self._asked.usage
        read, wrote = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        if fails is not None:  # ``started``: so that no other model is tried
            return SampleFailed(
                fails, "as the case says", started=True, free=fails in FREE, input_tokens=read, output_tokens=wrote
            )
        tools = request.params.get("tools") or ()
        if tools and (request.params.get("toolChoice") or {}).get("mode") == "required":
            return Sampled(
                ({"type": "tool_use", "id": "case", "name": tools[0]["name"], "input": {}},),
                None,
                "toolUse",
                read,
                wrote,
            )
        return Sampled(TEXT, None, "endTurn", read, wrote)

    async def _client(self, round: Round) -> ClientReply:
        await self._hold()
        return ClientReply(round.id, "", True, b'{"action":"cancel"}')

    async def _record(self, record: Record) -> None:
        self.played.record = record

    # -- the reviewer
    # ------------------------------------------------------------------------------------------------------------------

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> None:
        """No earlier decision on the same request exists."""

    async def open(self, review: Review, *, announce: bool, also: Sequence[str] = ()) -> Review:
        """Open the review without notifying a reviewer, because the case has the verdict."""
        return msgspec.structs.replace(review, id="case", waiter="case", held_until=inf)

    async def wait(
        self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None
    ) -> Review:
        """The case's verdict on the request. Without one, and for a model's answer, a verdict that lets the request
        continue."""
        if self._asked.votes is not None and review.stage == "request":
            return self._voted(review, self._asked.votes)
        given = self._asked.verdict if review.stage == "request" else None
        self.played.consulted = self.played.consulted or review.stage == "request"
        if given == "none":
            return msgspec.structs.replace(review, state="expired", waiter=None)
        read = None if given is None else verdict.read(_written(given, review.kind), review, digest="optional")
        if isinstance(read, Verdict):
            self.played.verdict = read
        else:
            self.played.verdict_problem = None if read is None else "; ".join(map(str, read))
            read = verdict.read(_written(_lets_pass(review), review.kind), review, digest="optional")
        assert isinstance(read, Verdict), read
        decided = states.decided(review, read, who="a person", door="api", now=review.created)
        assert isinstance(decided, Review)
        return decided

    def _voted(self, review: Review, votes: Mapping[str, Given]) -> Review:
        """The review after the votes of the case; expired if they do not decide it."""
        self.played.consulted = True
        for who, given in votes.items():
            if given == "none":
                continue
            read = verdict.read(_written(given, review.kind), review, digest="optional")
            if not isinstance(read, Verdict):
                self.played.verdict_problem = f"{who}: {'; '.join(map(str, read))}"
                break
            after = voted(review, read, who=who, door="api", seen=version(review), now=review.created)
            review = after if isinstance(after, Review) else review
            if review.state != "pending":
                self.played.verdict = review.verdict
                return review
        return msgspec.structs.replace(review, state="expired", waiter=None, proposal=None)

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """Always succeeds, because there is no other process."""
        return True

    async def show_ui(self, review: Review, ui: ReviewUi, body: bytes, kept_by: str = "") -> Review | None:
        """None: a test has no page."""
        return None

    async def supersede(self, id: str, why: str, *, waiter: str | None = None, now: str = "") -> bool:
        """False, because no test shows a UI that could change."""
        return False

    async def give_back(self, review: Review) -> None:
        """Nothing to return, because no other request waits for the review."""


class _Log:
    """A log that raises: an error of the gate itself must not go unnoticed."""

    def error(self, event: str, **fields: object) -> None:
        raise RuntimeError(f"{event}: {fields}")

    debug = warning = info = error


def _ignore(*_: object) -> None:
    """A port that cases do not use: notes and progress."""


def _written(given: Given, kind: Kind) -> Mapping[str, Any]:
    """A case's verdict in the form that all channels of verdicts use."""
    match given:
        case Said(edits=None, answer=content) if kind == "elicitation":
            return {"verdict": "answer", "action": "accept", "content": content}
        case Said(edits=None, answer=content):
            return {"verdict": "answer", "content": content}
        case Said(edits=edits):
            return {"verdict": "approve", "edits": msgspec.to_builtins(edits)}
        case "accept" | "decline" | "cancel":
            return {"verdict": "answer", "action": given}
        case _:
            return {"verdict": given}


def _lets_pass(review: Review) -> Given:
    """A verdict that is valid for any review of this kind."""
    if review.kind == "elicitation":
        return "cancel"
    return "approve" if review.stage == "answer" or review.bounds is not None else Said(answer="an answer")
