"""The gate: a round is decided, admitted, acted on, recorded and released. One page; its ports are in ``ports.py``.

Not the wire: rounds come from ``core.session`` and verdicts go back to it. Whatever fails in here is Unanswered, never an allow (fail closed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
import msgspec.structs

from samplegate.acts import Scene, act
from samplegate.core.capabilities import can_forward
from samplegate.core.decide import Rulebook, decide
from samplegate.core.decisions import Answered, Decision, Denied, DenyAs, Forwarded, LeftOpen, Outcome, Reason, Situation, Unanswered, Withdrawn
from samplegate.core.recording import Done, describe, detail_of
from samplegate.core.requests import BadRequest
from samplegate.core.session.rounds import ForwardRound, Item, Release, Round, Seen, Settled, Verdict
from samplegate.core.session.shapes import REJECTED, code_of
from samplegate.ports import Ports, Unavailable

RECORDING: Final = 10.0  # seconds that the records of a round may take; the log gives up earlier where the end of the process has begun


class Plan(msgspec.Struct, frozen=True):
    """One key of a round: what is to be done about it, and its name in the decision log."""

    item: Item
    decision: Decision
    decision_id: str


class Gate:
    """Runs rounds under one policy. A reload makes a new gate; rounds that are open end under the one they began with."""

    def __init__(self, book: Rulebook, policy_hash: str, ports: Ports) -> None:
        self.book = book
        self.policy_hash = policy_hash
        self.ports = ports

    async def run(self, round: Round) -> Verdict:
        """The whole way of a round. Cancelled when the round is withdrawn: its requests are then recorded as Withdrawn."""
        if round.door == "unasked":
            return Settled(await self._record_answers(round))
        plans = {key: self._plan(round, key, item) for key, item in round.items.items()}
        if round.door == "push":
            return Settled(await self._act_and_record(round, plans))
        stopped = next((key for key, plan in plans.items() if _ends_the_call(round, plan)), None)
        if stopped is not None:
            return Settled(await self._refuse(round, plans, stopped))
        if round.door == "url_error":
            return Settled(await self._leave_to_client(round, plans))
        away = frozenset(key for key, plan in plans.items() if isinstance(plan.decision.act, Forwarded))
        if round.returned is None and (away or round.roots):
            return await self._hand_on(round, plans, away)
        return Settled(await self._act_and_record(round, plans))

    # -- decide ----------------------------------------------------------------------------------------------------------------------------

    def _plan(self, round: Round, key: str, item: Item) -> Plan:
        seen = None if round.returned is None else round.returned.seen.get(key)
        decision_id = self.ports.random(12).hex() if seen is None else seen.decision_id
        try:
            return Plan(item, self._decide(round, key, item), decision_id)
        except Exception:
            self.ports.log.error("request.failed", decision_id=decision_id, exc_info=True)  # noqa: G201
            return Plan(item, _open(Reason.ERROR, "a fault while deciding; the log has it"), decision_id)

    def _decide(self, round: Round, key: str, item: Item) -> Decision:
        if item.refused is not None:
            return _open(item.refused, "the server asked too often in one call")
        if isinstance(item.request, BadRequest):
            return _open(Reason.MALFORMED, item.request.message)
        if not item.offered:
            return _open(Reason.NOT_OFFERED, "its kind, mode or sub-capability was not declared to the server")
        decision = decide(self.book, item.request, Situation(can_forward=can_forward(item.request, round.client)))
        if round.returned is None or isinstance(decision.act, DenyAs):
            return decision  # a rule that now denies wins over what was sealed
        seen = round.returned.seen.get(key)
        if seen is not None:
            return msgspec.structs.replace(decision, act=Forwarded(seen.verify or _verifies(decision), None), effect="forward", rule=seen.rule)
        return _open(Reason.CANNOT, "the policy now forwards what it answered before") if isinstance(decision.act, Forwarded) else decision

    # -- act -------------------------------------------------------------------------------------------------------------------------------

    async def _act_and_record(self, round: Round, plans: Mapping[str, Plan]) -> dict[str, Release]:
        """Every key at once; the first that can only end the call takes its siblings' work back (R120)."""
        done: dict[str, Done] = {}
        started = self.ports.clock()

        async def one(key: str, plan: Plan) -> None:
            done[key] = await self._act(round, key, plan)
            if round.door == "input_required" and _blocks(plan.item, done[key].outcome):
                group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                for key, plan in plans.items():
                    group.start_soon(one, key, plan)
        except anyio.get_cancelled_exc_class():
            taken_back = {key: msgspec.structs.replace(one_done, outcome=Withdrawn()) for key, one_done in done.items()}
            await self._record_all(round, plans, taken_back, started)
            raise
        if round.door == "input_required":
            done = _one_for_all(plans, done)
        return await self._record_all(round, plans, done, started)

    async def _act(self, round: Round, key: str, plan: Plan) -> Done:
        try:
            return await act(Scene(round, key, plan.item, self.book, self.ports), plan.decision)
        except Exception:
            self.ports.log.error("request.failed", decision_id=plan.decision_id, exc_info=True)  # noqa: G201
            return Done(Unanswered(Reason.ERROR, detail="a fault while acting; the log has it"), plan.decision)

    async def _refuse(self, round: Round, plans: Mapping[str, Plan], stopped: str) -> dict[str, Release]:
        """One key ends the call: nothing is spent on the others (T7)."""
        plan = plans[stopped]
        done = {stopped: Done(_refusal(plan), plan.decision)}
        return await self._record_all(round, plans, done, self.ports.clock())

    async def _leave_to_client(self, round: Round, plans: Mapping[str, Plan]) -> dict[str, Release]:
        """The URLs of a -32042 error are all forwarded: the client has the error itself."""
        done = {key: Done.handed_on(plan.decision) for key, plan in plans.items()}
        return await self._record_all(round, plans, done, self.ports.clock())

    async def _record_answers(self, round: Round) -> dict[str, Release]:
        """Answers that nobody asked for, where only `forward` rules could have asked: there is nothing to decide, only to record."""
        decision = Decision(Forwarded(False, None), "forward", None, Reason.RULE, "the client answered before it was asked")
        plans = {key: Plan(item, decision, self.ports.random(12).hex()) for key, item in round.items.items()}
        done = {key: Done(Answered(item.answer or b"null", "client"), decision) for key, item in round.items.items()}
        return await self._record_all(round, plans, done, self.ports.clock())

    async def _hand_on(self, round: Round, plans: Mapping[str, Plan], away: frozenset[str]) -> Verdict:
        """Modern forward: recorded now and again at the return, under one decision_id."""
        done = {key: Done.handed_on(plans[key].decision) for key in away}
        releases = await self._record_all(round, {key: plans[key] for key in away}, done, self.ports.clock())
        if any(isinstance(release.outcome, Unanswered) for release in releases.values()):
            rest = {key: Release(Withdrawn(), plan.decision_id) for key, plan in plans.items() if key not in away}
            return Settled({**releases, **rest})
        seen = {
            key: Seen(plan.decision_id, plan.decision.effect, plan.decision.rule, _verifies(plan.decision), _timeout(plan.decision))
            for key, plan in plans.items()
        }
        return ForwardRound(away, seen, self.policy_hash, self.ports.random(12))

    # -- record and release ----------------------------------------------------------------------------------------------------------------

    async def _record_all(self, round: Round, plans: Mapping[str, Plan], done: Mapping[str, Done], started: float) -> dict[str, Release]:
        """All of them or, with a log that does not answer, none: a withdrawal in the middle waits until the records stand."""
        out: dict[str, Release] = {}
        with anyio.move_on_after(RECORDING, shield=True):
            for key, plan in plans.items():
                out[key] = await self._record(round, key, plan, done.get(key), started)
        for key, plan in plans.items():
            out.setdefault(key, Release(_UNRECORDED, plan.decision_id))
        return out

    async def _record(self, round: Round, key: str, plan: Plan, done: Done | None, started: float) -> Release:
        """The record stands before the release; one that cannot be written makes the outcome Unanswered."""
        done = done if done is not None else Done(Withdrawn(), plan.decision)
        duration, now = self.ports.clock() - started, self.ports.wall()
        release = Release(done.outcome, plan.decision_id, self._explain(round, done))
        try:
            await self.ports.record(
                describe(round, key, plan.item, plan.decision_id, done, policy_hash=self.policy_hash, time=now, duration=duration)
            )
        except Unavailable as problem:
            self.ports.log.error("record.failed", decision_id=plan.decision_id, problem=str(problem))
        except Exception:
            self.ports.log.error("record.failed", decision_id=plan.decision_id, exc_info=True)  # noqa: G201
        else:
            return release
        return release if isinstance(done.outcome, Withdrawn) else Release(_UNRECORDED, plan.decision_id)

    def _explain(self, round: Round, done: Done) -> str:
        server = self.book.policy.servers.get(round.origin.server)
        if server is None or not server.explain_to_server:
            return ""
        said, rule = detail_of(done), done.decision.rule
        return said if rule is None or rule in said else f"rule {rule!r}" + (f": {said}" if said else "")


_UNRECORDED: Final = Unanswered(Reason.RECORDS, detail="the decision log could not be written")


def _open(reason: Reason, detail: str) -> Decision:
    return Decision(LeftOpen(), "none", None, reason, detail)


def _timeout(decision: Decision) -> float | None:
    return decision.act.timeout if isinstance(decision.act, Forwarded) else None


def _verifies(decision: Decision) -> bool:
    return isinstance(decision.act, Forwarded) and decision.act.verify


def _refusal(plan: Plan) -> Outcome:
    decision = plan.decision
    if isinstance(decision.act, DenyAs):
        return Denied(decision.reason, decision.act.as_, detail=decision.detail)
    return Unanswered(decision.reason, detail=decision.detail, code=code_of(decision.reason))


def _ends_the_call(round: Round, plan: Plan) -> bool:
    """Known before acting: the key has no answer that could stand in ``inputResponses`` (R70), or a URL of a -32042 error is not forwarded."""
    decision = plan.decision
    if round.door == "url_error":
        return not isinstance(decision.act, Forwarded)
    if not isinstance(decision.act, DenyAs | LeftOpen):
        return False
    return plan.item.method.startswith("sampling/") or code_of(decision.reason) != REJECTED


def _one_for_all(plans: Mapping[str, Plan], done: Mapping[str, Done]) -> dict[str, Done]:
    """A round that one key ends releases none of the others, whatever came of them."""
    blocked = [key for key, one in done.items() if _blocks(plans[key].item, one.outcome)]
    taken_back = {key: msgspec.structs.replace(one, outcome=Withdrawn()) for key, one in done.items()}
    return {**taken_back, blocked[0]: done[blocked[0]]} if blocked else dict(done)


def _blocks(item: Item, outcome: Outcome) -> bool:
    return item.method.startswith("sampling/") and isinstance(outcome, Denied | Unanswered)
