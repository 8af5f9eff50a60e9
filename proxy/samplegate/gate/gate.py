"""The gate: decides, admits, acts on, records and releases the requests of a round.

Rounds come from the session, and conclusions return to it; ``ports.py`` has everything else that the gate needs. The
gate fails closed: any failure here is Unanswered, never an allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
import msgspec.structs

from samplegate.audit.record import Done
from samplegate.gate.actions import act
from samplegate.gate.admission import admit
from samplegate.gate.ports import Ports, offload
from samplegate.gate.release import in_force, record
from samplegate.gate.request import (
    PendingRequest,
    Wait,
    blocks,
    call_drawn,
    ends_the_call,
    first_ending_key,
    left_open,
    task_drawn,
    withdraw_rest,
    withdrawn_outcomes,
)
from samplegate.gate.review import ask_first, is_answer_reviewed, is_late, verdict_ends_call
from samplegate.limits.brakes import BrakeState, brake_key, digest
from samplegate.policy.capabilities import can_forward
from samplegate.policy.decide import CompiledPolicy, decide
from samplegate.policy.decisions import Decision, DenyAs, Escalated, Forwarded, Situation, refusal
from samplegate.protocol.outcomes import Answered, Outcome, Reason, SealedDecision, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest, Request
from samplegate.protocol.rounds import Conclusion, ForwardRound, Note, Release, Round, Settled
from samplegate.reviews.review import Review

REFUSED: Final = {
    Reason.ROUNDS: "the server sent too many requests in one call",
    Reason.ERROR: "the gate ended after it had asked a model, and asks no model twice",
}
"""What is recorded of a request that the session refuses."""


class Gate:
    """Runs rounds under one policy.

    A reload makes a new gate. Open rounds finish under the policy that they began with.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        policy_hash: str,
        ports: Ports,
        brakes: BrakeState | None = None,
        rounds: dict[str, Mapping[str, PendingRequest]] | None = None,
    ) -> None:
        """``rounds`` has the requests of each round while it runs, by the round's id, for those who watch."""
        self.compiled = compiled
        self.policy_hash = policy_hash
        self.ports = ports
        self._brakes = brakes if brakes is not None else BrakeState(compiled.policy.brakes)
        self._rounds = {} if rounds is None else rounds

    async def run(self, round: Round) -> Conclusion:
        """Run a round to its conclusion.

        The task is cancelled when the round is withdrawn: its requests are then recorded as Withdrawn.
        """
        requests = {key: self._pending(round, key) for key in round.items}
        self._rounds[round.id] = requests
        conclusion: Conclusion = Settled({})
        try:
            if round.door == "unasked":
                return Settled(await self._record_answers(requests))
            if round.drawn:
                await self.ports.restore_drawn(round.drawn)
            await self._decide_all(round, requests)
            conclusion = await self._run(round, requests)
        finally:
            # give back the reservations of requests that were not acted on; the others stay at their max cost
            try:
                for pending in requests.values():
                    await pending.close()
            finally:
                self._rounds.pop(round.id, None)
                if self.ports.trace is not None:
                    _end_spans(requests, conclusion)
        # for the gate that gets the retry, or goes on with the task
        if round.task is not None:
            drawn = task_drawn(requests.values())
        else:
            drawn = call_drawn(self.ports, round, requests.values()) if isinstance(conclusion, ForwardRound) else ()
        return msgspec.structs.replace(conclusion, drawn=drawn) if drawn else conclusion

    async def _run(self, round: Round, requests: Mapping[str, PendingRequest]) -> Conclusion:
        if round.door in ("push", "tool_result"):
            await self._admit(requests)
            return await self._act_and_record(round, requests)
        blocked = first_ending_key(requests)
        if blocked is None:
            await self._admit(requests)
            blocked = first_ending_key(requests)
        if blocked is not None:  # one key ends the call, so nothing is spent on the others (T7)
            decision = requests[blocked].decision
            return Settled(await record(requests, {blocked: Done(refusal(decision), decision)}))
        if round.door == "url_error":
            return Settled(await self._leave_to_client(requests))
        forwarded = frozenset(key for key, pending in requests.items() if isinstance(pending.decision.act, Forwarded))
        away = forwarded if self.ports.replay is None else frozenset[str]()
        if round.returned is None and (away or round.roots):
            return await self._forward(requests, away)
        try:
            put_off = await ask_first(requests, round.parks)
        except anyio.get_cancelled_exc_class():
            await record(requests, {})
            raise
        if put_off:
            return await self._put_off(round, requests, {})
        refused = next((key for key, pending in requests.items() if verdict_ends_call(pending)), None)
        if refused is not None:  # the call ends, so nothing is spent on the others (T7)
            return Settled(await record(requests, {refused: await self._act(requests[refused])}))
        return await self._act_and_record(round, requests)

    # -- decide
    # ------------------------------------------------------------------------------------------------------------------

    def _pending(self, round: Round, key: str) -> PendingRequest:
        """A request before its decision. A retry keeps its decision_id."""
        known = None if round.returned is None else round.returned.ids.get(key)
        decision_id = self.ports.random(12).hex() if known is None else known
        undecided = left_open(Reason.ERROR, "withdrawn before it was decided")
        pending = PendingRequest(
            round,
            key,
            round.items[key],
            self.compiled,
            self.ports,
            self.policy_hash,
            decision_id,
            self.ports.clock(),
            undecided,
        )
        if self.ports.trace is not None and round.door != "unasked":
            pending.span = self.ports.trace(round, key, decision_id)
        return pending

    async def _decide_all(self, round: Round, requests: Mapping[str, PendingRequest]) -> None:
        """Decide every key. If the round is withdrawn meanwhile, it is recorded like any other."""
        size = sum(item.request.size for item in round.items.values() if not isinstance(item.request, BadRequest))
        for pending in requests.values():
            try:
                pending.decision = await self._decide(pending, size)
            except anyio.get_cancelled_exc_class():
                await record(requests, {})
                raise
            except Exception:
                pending.log_fault()
                pending.decision = left_open(Reason.ERROR, "internal error in the gate; see the log")

    async def _decide(self, pending: PendingRequest, size: int) -> Decision:
        round, item = pending.round, pending.item
        if item.refused is not None:
            return left_open(item.refused, REFUSED[item.refused])
        if isinstance(item.request, BadRequest):
            return left_open(Reason.MALFORMED, item.request.message)
        situation = Situation(can_forward=can_forward(item.request, round.client), declared=item.offered)
        if item.offered and round.returned is None and (braked := await self._braked(round, item.request)) is not None:
            return left_open(Reason.BRAKE, braked)
        decision = await offload(size + item.request.origin.params_size, decide, self.compiled, item.request, situation)
        if not item.offered or round.returned is None or isinstance(decision.act, DenyAs):
            return decision  # a rule that now denies overrides the sealed decision
        seen = round.returned.seen.get(pending.key)
        if seen is not None:
            return msgspec.structs.replace(
                decision, act=Forwarded(seen.verify or _verifies(decision), None), effect="forward", rule=seen.rule
            )
        return (
            left_open(Reason.CANNOT, "the reloaded policy forwards a request that was not forwarded before")
            if isinstance(decision.act, Forwarded) and self.ports.replay is None
            else decision
        )

    async def _braked(self, round: Round, request: Request) -> str | None:
        """Why the brakes leave the server unanswered, or None."""
        asked = await offload(request.size, digest, request.params) if self._brakes.compares else ""
        braked = self._brakes.asked(brake_key(round.origin), round.call_ids, asked, self.ports.clock())
        if braked is None:
            return None
        if braked.tripped:
            self.ports.note(
                Note("brake.tripped", {"server": round.origin.server, "brake": braked.which, "detail": braked.detail})
            )
        return braked.detail

    # -- admit
    # ------------------------------------------------------------------------------------------------------------------

    async def _admit(self, requests: Mapping[str, PendingRequest]) -> None:
        """Reserve the max cost of every key before acting on any (T7).

        A key that the client or a model has already answered draws nothing more.
        """
        left = [
            pending
            for pending in requests.values()
            if (pending.round.returned is None or pending.key not in pending.round.returned.seen)
            and not pending.was_answered(pending.decision)
        ]
        while left:
            pending = left.pop(0)
            if not pending.decision.limits:
                continue
            holds = [(other, other.hold) for other in requests.values() if other.hold is not None]
            # its review was opened before it was put off, so it already counts as a request
            counted = isinstance(pending.decision.act, Escalated) and pending.was_put_off(
                "request", pending.decision.rule
            )
            try:
                with pending.waiting(Wait("limit", ", ".join(pending.decision.limits))):
                    admitted = await admit(
                        self.compiled,
                        self.ports,
                        pending.round,
                        pending.request,
                        pending.decision,
                        beside=[hold for _, hold in holds],
                        counted=counted,
                    )
                pending.decision, pending.hold, pending.waited = (
                    admitted.decision,
                    admitted.hold,
                    pending.waited + admitted.waited,
                )
                pending.refused_by, pending.tried = (
                    admitted.refused_by or pending.refused_by,
                    (*pending.tried, *admitted.tried),
                )
            except anyio.get_cancelled_exc_class():  # withdrawn while it waited for room
                await record(requests, {})
                raise
            except Exception:
                pending.log_fault()
                pending.decision = left_open(Reason.ERROR, "internal error in the gate; see the log")
            if ends_the_call(pending):
                return  # the round is refused, so nothing more is reserved
            again = [other for other, hold in holds if hold.closed]  # given back for the wait, then not reserved again
            for other in again:
                other.hold = None
            left = [*again, *left]

    # -- act
    # ------------------------------------------------------------------------------------------------------------------

    async def _act_and_record(self, round: Round, requests: Mapping[str, PendingRequest]) -> Conclusion:
        """Act on all keys concurrently, and record the outcomes.

        While the call can be put off, reviewers see models' answers before anything else is spent.
        """
        reviewed_first = {
            key: pending for key, pending in requests.items() if round.parks > 0 and is_answer_reviewed(pending)
        }
        rest = {key: pending for key, pending in requests.items() if key not in reviewed_first}
        for pending in reviewed_first.values():
            pending.comes_back = True
        done: dict[str, Done] = {}
        later = False
        try:
            ended = await self._act_on(reviewed_first, done)
            waiting = any(pending.put_off for pending in reviewed_first.values())
            later = (
                not ended and bool(reviewed_first) and (waiting or any(is_late(pending) for pending in rest.values()))
            )
            if not (ended or later):
                await self._act_on(rest, done)
        except anyio.get_cancelled_exc_class():
            await record(requests, withdrawn_outcomes(done))
            raise
        if later:
            return await self._put_off(round, requests, done)
        done |= withdrawn_outcomes({key: one for key, one in done.items() if requests[key].put_off})
        done = {key: in_force(requests[key], one) for key, one in done.items()}
        if round.is_joint:
            done = withdraw_rest(requests, done)
        return Settled(await record(requests, done))

    async def _act_on(self, requests: Mapping[str, PendingRequest], done: dict[str, Done]) -> bool:
        """Act on some keys concurrently. True if one of them can only end the call, which cancels the others (R120)."""
        ended = False

        async def one(pending: PendingRequest) -> None:
            nonlocal ended
            came = done[pending.key] = await self._act(pending)
            if pending.round.is_joint and blocks(pending.item, came.outcome) and not pending.put_off:
                ended = True
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for pending in requests.values():
                group.start_soon(one, pending)
        return ended

    async def _act(self, pending: PendingRequest) -> Done:
        try:
            with anyio.CancelScope() as scope:
                if pending.hold is not None:
                    pending.hold.when_lost(scope.cancel)
                return await act(pending, pending.decision)
            return Done(
                Unanswered(Reason.LIMIT, detail="the shared database could not be reached to keep the request's slot"),
                pending.decision,
            )
        except Exception:
            pending.log_fault()
            return Done(
                Unanswered(Reason.ERROR, detail="internal error in the gate; see the log"),
                pending.decision,
            )

    async def _put_off(
        self, round: Round, requests: Mapping[str, PendingRequest], done: Mapping[str, Done]
    ) -> Conclusion:
        """Put the call off: the client retries by itself.

        Nothing stays reserved meanwhile, and verdicts wait for the retry. The models' cost is recorded now.
        """
        paid = {key: one.put_off_now() for key, one in done.items() if requests[key].attempts}
        releases = await record({key: requests[key] for key in paid}, paid)
        failed = {key: release for key, release in releases.items() if release.outcome is not paid[key].outcome}
        if failed:  # not recorded: the answers stay with their reviews
            return Settled({**_withdrawn(requests), **failed})
        self.ports.note(Note("round.parked", {"server": round.origin.server, "round": round.id}, warn=False))
        ends = [review.expires for pending in requests.values() for review in _reviews(pending)]
        put_off = self._forward_round(requests, frozenset())
        return msgspec.structs.replace(put_off, expires=max(ends)) if ends else put_off

    async def _leave_to_client(self, requests: Mapping[str, PendingRequest]) -> dict[str, Release]:
        """Forward all URLs of a -32042 error: the client receives the error itself. A cassette has no answer to it."""
        if self.ports.replay is not None:
            key, pending = next(iter(requests.items()))
            reason = "a cassette has no answers for the links of an error"
            replayed = await self.ports.replay(pending.request, pending.request.params)
            unanswered = Unanswered(Reason.CANNOT, detail=replayed if isinstance(replayed, str) else reason)
            return await record(requests, {key: Done(unanswered, pending.decision)})
        releases = await record(requests, {key: Done.handed_on(pending.decision) for key, pending in requests.items()})
        if not any(isinstance(release.outcome, Unanswered) for release in releases.values()):
            for pending in requests.values():
                pending.begin()  # the client has the URLs, so the request counts
        return releases

    async def _record_answers(self, requests: Mapping[str, PendingRequest]) -> dict[str, Release]:
        """Record answers that the client sent unasked (only if `forward` rules alone could have asked). Nothing is
        decided."""
        decision = Decision(
            Forwarded(False, None), "forward", None, Reason.RULE, "the client answered before it was asked"
        )
        return await record(
            requests,
            {key: Done(Answered(one.item.answer or b"null", "client"), decision) for key, one in requests.items()},
        )

    async def _forward(self, requests: Mapping[str, PendingRequest], away: frozenset[str]) -> Conclusion:
        """Forward a modern round: recorded now and again at the retry, under one decision_id."""
        forwarded = {key: pending for key, pending in requests.items() if key in away}
        releases = await record(
            forwarded, {key: Done.handed_on(pending.decision) for key, pending in forwarded.items()}
        )
        if any(isinstance(release.outcome, Unanswered) for release in releases.values()):
            return Settled({**_withdrawn(requests), **releases})
        for pending in forwarded.values():
            # the client is asked, so this request counts; the others' reservations are given back until the retry
            pending.begin()
        return self._forward_round(requests, away)

    def _forward_round(self, requests: Mapping[str, PendingRequest], away: frozenset[str]) -> ForwardRound:
        seen = {
            key: SealedDecision(
                pending.decision_id,
                pending.decision.effect,
                pending.decision.rule,
                _verifies(pending.decision),
                pending.decision.act.timeout if isinstance(pending.decision.act, Forwarded) else None,
                reviews=dict(pending.reviews),
            )
            for key, pending in requests.items()
        }
        return ForwardRound(away, seen, self.policy_hash, self.ports.random(12))


def _reviews(pending: PendingRequest) -> list[Review]:
    return [*pending.held, *([] if pending.verdict is None else [pending.verdict])]


def _verifies(decision: Decision) -> bool:
    """Whether the client's answer is checked against the request."""
    return isinstance(decision.act, Forwarded) and decision.act.verify


def _withdrawn(requests: Mapping[str, PendingRequest]) -> dict[str, Release]:
    return {key: Release(Withdrawn(), pending.decision_id) for key, pending in requests.items()}


def _end_spans(requests: Mapping[str, PendingRequest], conclusion: Conclusion) -> None:
    """End the spans of a round. A request without a release and without a record was ended by an internal error."""
    releases = conclusion.releases if isinstance(conclusion, Settled) else None
    for key, pending in requests.items():
        if pending.span is None:
            continue
        outcome: Outcome | None = None
        if releases is not None:
            faulty = Unanswered(Reason.ERROR) if pending.recorded is None else Withdrawn()
            outcome = releases[key].outcome if key in releases else faulty
        pending.span.end(pending.decision, pending.recorded, outcome, pending.item.kind)
