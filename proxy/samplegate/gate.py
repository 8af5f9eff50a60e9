"""The gate: a round is decided, admitted, acted on, recorded and released. One page; its ports are in ``ports.py``.

Not the wire: rounds come from ``core.session`` and conclusions go back to it. Whatever fails in here is Unanswered, never an allow (fail closed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
import msgspec
import msgspec.structs

from samplegate.acts import act
from samplegate.admit import Hold, admit
from samplegate.consulting import ask_first, is_late, is_looked_at, refuses
from samplegate.core.brakes import Brakes, asker, digest
from samplegate.core.capabilities import can_forward
from samplegate.core.decide import Rulebook, decide
from samplegate.core.decisions import Answered, Decision, DenyAs, Escalated, Forwarded, Reason, Situation, Unanswered, Withdrawn
from samplegate.core.recording import Done
from samplegate.core.requests import BadRequest, Request
from samplegate.core.session.rounds import Conclusion, ForwardRound, Item, Note, Release, Round, Seen, Settled
from samplegate.core.session.shapes import refusal
from samplegate.offload import offload
from samplegate.plans import Plan, blocks, ends_the_call, left_open, one_for_all, stopped, timeout_of, verifies
from samplegate.ports import Ports
from samplegate.releasing import Releases, in_force
from samplegate.scene import Scene


class Gate:
    """Runs rounds under one policy. A reload makes a new gate; rounds that are open end under the one they began with."""

    def __init__(self, book: Rulebook, policy_hash: str, ports: Ports, brakes: Brakes | None = None) -> None:
        self.book = book
        self.policy_hash = policy_hash
        self.ports = ports
        self._releases = Releases(book, policy_hash, ports)
        self._brakes = brakes if brakes is not None else Brakes(book.policy.brakes)

    async def run(self, round: Round) -> Conclusion:
        """The whole way of a round. Cancelled when the round is withdrawn: its requests are then recorded as Withdrawn."""
        if round.door == "unasked":
            return Settled(await self._record_answers(round))
        plans: dict[str, Plan] = {}
        try:
            await self._decide_all(round, plans)
            return await self._run(round, plans)
        finally:
            for plan in plans.values():  # whatever was reserved and not acted on is given back; the rest stays at its worst case
                await plan.scene.close()

    async def _run(self, round: Round, plans: dict[str, Plan]) -> Conclusion:
        if round.door == "push":
            await self._admit(round, plans)
            return await self._act_and_record(round, plans)
        blocked = stopped(round, plans)
        if blocked is None:
            await self._admit(round, plans)
            blocked = stopped(round, plans)
        if blocked is not None:
            return Settled(await self._refuse(round, plans, blocked))
        if round.door == "url_error":
            return Settled(await self._leave_to_client(round, plans))
        away = frozenset(key for key, plan in plans.items() if isinstance(plan.decision.act, Forwarded))
        if round.returned is None and (away or round.roots):
            return await self._hand_on(round, plans, away)
        try:
            put_off = await ask_first(plans, round.parks)
        except anyio.get_cancelled_exc_class():
            await self._releases.record(round, plans, {})
            raise
        if put_off:
            return await self._put_off(round, plans, {})
        refused = next((key for key, plan in plans.items() if refuses(plan)), None)
        if refused is not None:  # nothing is spent on the others (T7)
            return Settled(await self._releases.record(round, plans, {refused: await self._act(round, refused, plans[refused])}))
        return await self._act_and_record(round, plans)

    # -- decide ----------------------------------------------------------------------------------------------------------------------------

    def _planned(self, round: Round, key: str, decision: Decision) -> Plan:
        item = round.items[key]
        decision_id = self.ports.random(12).hex()
        return Plan(item, decision, decision_id, self._scene(round, key, decision_id))

    def _scene(self, round: Round, key: str, decision_id: str) -> Scene:
        return Scene(round, key, round.items[key], self.book, self.ports, self.policy_hash, decision_id, self.ports.clock())

    async def _decide_all(self, round: Round, plans: dict[str, Plan]) -> None:
        """A plan for every key. One that is withdrawn meanwhile is recorded like any other."""
        size = sum(item.request.size for item in round.items.values() if not isinstance(item.request, BadRequest))
        try:
            for key, item in round.items.items():
                plans[key] = await self._plan(round, key, item, size)
        except anyio.get_cancelled_exc_class():
            undecided = left_open(Reason.ERROR, "withdrawn before it was decided")
            rest = {key: self._planned(round, key, undecided) for key in round.items if key not in plans}
            await self._releases.record(round, {**plans, **rest}, {})
            raise

    async def _plan(self, round: Round, key: str, item: Item, size: int) -> Plan:
        known = None if round.returned is None else round.returned.ids.get(key)
        decision_id = self.ports.random(12).hex() if known is None else known
        scene = self._scene(round, key, decision_id)
        try:
            return Plan(item, await self._decide(round, key, item, size), decision_id, scene)
        except Exception:
            self.ports.log.error("request.failed", decision_id=decision_id, exc_info=True)  # noqa: G201
            return Plan(item, left_open(Reason.ERROR, "a fault while deciding; the log has it"), decision_id, scene)

    async def _decide(self, round: Round, key: str, item: Item, size: int) -> Decision:
        if item.refused is not None:
            return left_open(item.refused, "the server asked too often in one call")
        if isinstance(item.request, BadRequest):
            return left_open(Reason.MALFORMED, item.request.message)
        situation = Situation(can_forward=can_forward(item.request, round.client), declared=item.offered)
        if not item.offered:
            return await offload(size, decide, self.book, item.request, situation)
        if round.returned is None and (braked := await self._braked(round, item.request)) is not None:
            return left_open(Reason.BRAKE, braked)
        decision = await offload(size, decide, self.book, item.request, situation)
        if round.returned is None or isinstance(decision.act, DenyAs):
            return decision  # a rule that now denies wins over what was sealed
        seen = round.returned.seen.get(key)
        if seen is not None:
            return msgspec.structs.replace(decision, act=Forwarded(seen.verify or verifies(decision), None), effect="forward", rule=seen.rule)
        return left_open(Reason.CANNOT, "the policy now forwards what it answered before") if isinstance(decision.act, Forwarded) else decision

    async def _braked(self, round: Round, request: Request) -> str | None:
        """Why the server is left unanswered for a while, None if it is not."""
        server = round.origin.server
        asked = await offload(request.size, digest, request.params) if self._brakes.compares else ""
        braked = self._brakes.asked(asker(round.origin), round.call_ids, asked, self.ports.clock())
        if braked is None:
            return None
        if braked.tripped:
            self.ports.note(Note("brake.tripped", {"server": server, "brake": braked.which, "detail": braked.detail}))
        return braked.detail

    # -- admit -----------------------------------------------------------------------------------------------------------------------------

    async def _admit(self, round: Round, plans: dict[str, Plan]) -> None:
        """Reserve what every key may come to, before any is acted on (T7). What a client or a model has answered already draws nothing more."""
        left = [key for key in plans if round.returned is None or key not in round.returned.seen]
        left = [key for key in left if not plans[key].scene.was_answered(plans[key].decision)]
        while left:
            key = left.pop(0)
            if not plans[key].decision.limits:
                continue
            holds = {other: plan.scene.hold for other, plan in plans.items() if plan.scene.hold is not None}
            try:
                plans[key] = await self._admitted(round, plans[key], list(holds.values()))
            except anyio.get_cancelled_exc_class():  # withdrawn while it waited for room
                await self._releases.record(round, plans, {})
                raise
            except Exception:
                self.ports.log.error("request.failed", decision_id=plans[key].decision_id, exc_info=True)  # noqa: G201
                plans[key] = msgspec.structs.replace(plans[key], decision=left_open(Reason.ERROR, "a fault while asking its limits; the log has it"))
            if ends_the_call(round, plans[key]):
                return  # nothing more is reserved for a round that is refused
            again = [other for other, hold in holds.items() if hold.closed]  # what they held was given back for nothing
            for other in again:
                plans[other].scene.hold = None
            left = [*again, *left]

    async def _admitted(self, round: Round, plan: Plan, beside: Sequence[Hold]) -> Plan:
        admitted = await admit(self.book, self.ports, round, plan.scene.request, plan.decision, beside=beside, counted=_counted(plan))
        plan.scene.hold, plan.scene.waited = admitted.hold, plan.scene.waited + admitted.waited
        tried = (*plan.tried, *admitted.tried)
        return msgspec.structs.replace(plan, decision=admitted.decision, refused_by=admitted.refused_by or plan.refused_by, tried=tried)

    # -- act -------------------------------------------------------------------------------------------------------------------------------

    async def _act_and_record(self, round: Round, plans: Mapping[str, Plan]) -> Conclusion:
        """Every key at once, except that while the call can be put off, people look at models' answers before anything else is spent."""
        looked_at = {key: plan for key, plan in plans.items() if round.parks > 0 and is_looked_at(plan)}
        rest = {key: plan for key, plan in plans.items() if key not in looked_at}
        for plan in looked_at.values():
            plan.scene.comes_back = True
        done: dict[str, Done] = {}
        later = False
        try:
            ended = await self._act_on(round, looked_at, done)
            waiting = any(plan.scene.put_off for plan in looked_at.values())
            later = not ended and bool(looked_at) and (waiting or any(is_late(plan) for plan in rest.values()))
            if not (ended or later):
                await self._act_on(round, rest, done)
        except anyio.get_cancelled_exc_class():
            await self._releases.record(round, plans, _taken_back(done))
            raise
        if later:
            return await self._put_off(round, plans, done)
        done |= _taken_back({key: one for key, one in done.items() if plans[key].scene.put_off})
        done = {key: in_force(plans[key].scene, one_done) for key, one_done in done.items()}
        if round.door == "input_required":
            done = one_for_all(plans, done)
        return Settled(await self._releases.record(round, plans, done))

    async def _act_on(self, round: Round, plans: Mapping[str, Plan], done: dict[str, Done]) -> bool:
        """Some keys at once; True where one can only end the call, which takes its siblings' work back (R120)."""
        ended = False

        async def one(key: str, plan: Plan) -> None:
            nonlocal ended
            done[key] = await self._act(round, key, plan)
            if round.door == "input_required" and blocks(plan.item, done[key].outcome) and not plan.scene.put_off:
                ended = True
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for key, plan in plans.items():
                group.start_soon(one, key, plan)
        return ended

    async def _act(self, round: Round, key: str, plan: Plan) -> Done:
        try:
            return await act(plan.scene, plan.decision)
        except Exception:
            self.ports.log.error("request.failed", decision_id=plan.decision_id, exc_info=True)  # noqa: G201
            return Done(Unanswered(Reason.ERROR, detail="a fault while acting; the log has it"), plan.decision)

    async def _put_off(self, round: Round, plans: Mapping[str, Plan], done: Mapping[str, Done]) -> Conclusion:
        """The client comes back by itself: nothing is held meanwhile, and verdicts wait for the return. What models were paid is recorded now."""
        paid = {key: one.put_off_now() for key, one in done.items() if plans[key].scene.attempts}
        releases = await self._releases.record(round, {key: plans[key] for key in paid}, paid)
        if any(releases[key].outcome is not one.outcome for key, one in paid.items()):  # not recorded: the answers stay with their reviews
            failed = {key: release for key, release in releases.items() if release.outcome is not paid[key].outcome}
            return Settled({**{key: Release(Withdrawn(), plan.decision_id) for key, plan in plans.items()}, **failed})
        self.ports.note(Note("round.parked", {"server": round.origin.server, "round": round.id}, warn=False))
        return self._handed(plans, frozenset())

    async def _refuse(self, round: Round, plans: Mapping[str, Plan], blocked: str) -> dict[str, Release]:
        """One key ends the call: nothing is spent on the others (T7)."""
        plan = plans[blocked]
        done = {blocked: Done(refusal(plan.decision), plan.decision)}
        return await self._releases.record(round, plans, done)

    async def _leave_to_client(self, round: Round, plans: Mapping[str, Plan]) -> dict[str, Release]:
        """The URLs of a -32042 error are all forwarded: the client has the error itself."""
        done = {key: Done.handed_on(plan.decision) for key, plan in plans.items()}
        releases = await self._releases.record(round, plans, done)
        if not any(isinstance(release.outcome, Unanswered) for release in releases.values()):
            for plan in plans.values():
                plan.scene.begin()  # the client has the URLs: that counts
        return releases

    async def _record_answers(self, round: Round) -> dict[str, Release]:
        """Answers that nobody asked for, where only `forward` rules could have asked: there is nothing to decide, only to record."""
        decision = Decision(Forwarded(False, None), "forward", None, Reason.RULE, "the client answered before it was asked")
        plans = {key: self._planned(round, key, decision) for key in round.items}
        done = {key: Done(Answered(item.answer or b"null", "client"), decision) for key, item in round.items.items()}
        return await self._releases.record(round, plans, done)

    async def _hand_on(self, round: Round, plans: Mapping[str, Plan], away: frozenset[str]) -> Conclusion:
        """Modern forward: recorded now and again at the return, under one decision_id."""
        done = {key: Done.handed_on(plans[key].decision) for key in away}
        releases = await self._releases.record(round, {key: plans[key] for key in away}, done)
        if any(isinstance(release.outcome, Unanswered) for release in releases.values()):
            rest = {key: Release(Withdrawn(), plan.decision_id) for key, plan in plans.items() if key not in away}
            return Settled({**releases, **rest})
        for key, plan in plans.items():
            if key in away:
                plan.scene.begin()  # the client is asked: that counts; what the others reserved is given back until it returns
        return self._handed(plans, away)

    def _handed(self, plans: Mapping[str, Plan], away: frozenset[str]) -> ForwardRound:
        seen = {
            key: Seen(
                plan.decision_id,
                plan.decision.effect,
                plan.decision.rule,
                verifies(plan.decision),
                timeout_of(plan.decision),
                reviews=dict(plan.scene.reviews),
            )
            for key, plan in plans.items()
        }
        return ForwardRound(away, seen, self.policy_hash, self.ports.random(12))


def _counted(plan: Plan) -> bool:
    """Whether it was put off after its person was asked, which counted as a request."""
    return isinstance(plan.decision.act, Escalated) and plan.scene.was_put_off("request", plan.decision.rule)


def _taken_back(done: Mapping[str, Done]) -> dict[str, Done]:
    """The same, withdrawn: none of it is released."""
    return {key: msgspec.structs.replace(one, outcome=Withdrawn()) for key, one in done.items()}
