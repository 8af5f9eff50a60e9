"""What came of a round is recorded, verdicts that people gave are spent, and only then it is released: the end of the gate's page.

A record stands before its release; a verdict is spent between the two, once ever. What cannot be recorded or spent is Unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
import msgspec

from samplegate.consulting import spend, withdrawn_by_policy
from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.core.record import Record
from samplegate.core.recording import Done, describe, detail_of
from samplegate.core.redaction import clean_params
from samplegate.core.requests import BadRequest, SamplingRequest
from samplegate.core.review.review import DECIDED
from samplegate.core.session.rounds import Release, Round
from samplegate.offload import offload
from samplegate.plans import Plan, blocks
from samplegate.ports import Ports, Unavailable
from samplegate.scene import Scene

RECORDING: Final = 10.0  # seconds that the records of a round may take; the log gives up earlier where the end of the process has begun


class _Ended(msgspec.Struct, frozen=True):
    """Unix seconds, and seconds since it was decided."""

    at: float
    after: float


class Releases:
    """The releases of one gate's rounds."""

    def __init__(self, book: Rulebook, policy_hash: str, ports: Ports) -> None:
        self.book = book
        self.policy_hash = policy_hash
        self.ports = ports

    async def record(self, round: Round, plans: Mapping[str, Plan], done: Mapping[str, Done]) -> dict[str, Release]:
        """All of them or, with a log that does not answer, none: a withdrawal in the middle waits until the records stand."""
        out: dict[str, Release] = {}
        with anyio.move_on_after(RECORDING, shield=True):
            for key, plan in plans.items():
                out[key] = await self._record_one(round, key, plan, done.get(key))
        for key, plan in plans.items():
            out.setdefault(key, Release(_UNRECORDED, plan.decision_id))
        lost = await self._unspent(round, plans, done, out)
        with anyio.move_on_after(RECORDING, shield=True):
            for key in lost:
                out[key] = Release(_LOST, plans[key].decision_id)
                await self._record_one(round, key, plans[key], msgspec.structs.replace(done[key], outcome=_LOST, told="", revokes=True))
        return out

    async def _unspent(self, round: Round, plans: Mapping[str, Plan], done: Mapping[str, Done], out: Mapping[str, Release]) -> list[str]:
        """Spend the verdicts that were carried out; the keys that are not released after all, where one is not ours any more."""
        spends = [key for key, one in done.items() if _spends(one, plans[key].scene) and out[key].outcome is one.outcome]
        released = [key for key in spends if isinstance(done[key].outcome, Answered | Denied)]
        ended = round.door == "input_required" and any(blocks(plans[key].item, release.outcome) for key, release in out.items())
        if ended:  # of all that people said only what ends the call reaches the server
            spends = [key for key in spends if not isinstance(done[key].outcome, Answered)]
        with anyio.CancelScope(shield=True):  # the store gives up where it does not answer; a crowd waits for its turn
            if await spend([plans[key].scene for key in spends]):
                return [key for key in released if key not in spends]
        return released

    async def _record_one(self, round: Round, key: str, plan: Plan, done: Done | None) -> Release:
        """The record stands before the release; one that cannot be written makes the outcome Unanswered."""
        done = done if done is not None else Done(Withdrawn(), plan.decision, review=plan.scene.verdict, reviewed=plan.scene.reviewed)
        ended = _Ended(self.ports.wall(), self.ports.clock() - plan.scene.started)
        release = Release(done.outcome, plan.decision_id, self._explain(round, done))
        try:
            record = await offload(_size(plan, done), self._described, round, plan, done, ended)
            await self.ports.record(record)
        except Unavailable as problem:
            self.ports.log.error("record.failed", decision_id=plan.decision_id, problem=str(problem))
        except Exception:
            self.ports.log.error("record.failed", decision_id=plan.decision_id, exc_info=True)  # noqa: G201
        else:
            return release
        return release if isinstance(done.outcome, Withdrawn) else Release(_UNRECORDED, plan.decision_id)

    def _described(self, round: Round, plan: Plan, done: Done, ended: _Ended) -> Record:
        done, hash = self._accounted(done, plan), self.policy_hash
        return describe(round, plan.scene.key, plan.item, plan.decision_id, done, policy_hash=hash, time=ended.at, duration=ended.after)

    def _accounted(self, done: Done, plan: Plan) -> Done:
        """With what was drawn, tried and spent, however it ended; and without the secrets that a rule of the policy would find in its prompt."""
        attempts, request, redactor = tuple(plan.scene.attempts), plan.item.request, self.book.redactor
        known = [attempt.usd for attempt in attempts if attempt.usd is not None]
        return msgspec.structs.replace(
            done,
            attempts=attempts,
            usd=sum(known) if attempts and len(known) == len(attempts) else None,
            limits=done.decision.limits if plan.scene.begun or done.handed_on_to_client else (),
            reserved_usd=plan.scene.reserved_usd if attempts else None,
            refused_by=done.refused_by or plan.refused_by,
            tried=(*plan.tried, *done.tried),
            cleaned=clean_params(redactor, request.params)[0] if redactor is not None and isinstance(request, SamplingRequest) else None,
        )

    def _explain(self, round: Round, done: Done) -> str:
        if done.told:
            return done.told
        server = self.book.policy.servers.get(round.origin.server)
        if server is None or not server.explain_to_server:
            return ""
        said, rule = detail_of(done), done.decision.rule
        return said if rule is None or rule in said else f"rule {rule!r}" + (f": {said}" if said else "")


def in_force(scene: Scene, done: Done) -> Done:
    """What is released of a verdict if the policy in force by now still asks for it: a model may have taken a while, and a person longer."""
    if not _spends(done, scene) or not isinstance(done.outcome, Answered | Denied) or (changed := withdrawn_by_policy(scene)) is None:
        return done
    return msgspec.structs.replace(done, outcome=Unanswered(Reason.REVIEW, detail=changed), told="")


def _size(plan: Plan, done: Done) -> int:
    """Bytes of what a record is made of."""
    asked = 0 if isinstance(plan.item.request, BadRequest) else plan.item.request.size
    return asked + (len(done.outcome.result) if isinstance(done.outcome, Answered) else 0)


def _spends(done: Done, scene: Scene) -> bool:
    """Whether verdicts that are held are spent with this: what a person said reaches the server, or is good for nothing."""
    if all(review.state not in DECIDED for review in scene.held):
        return False
    return scene.unfit or isinstance(done.outcome, Answered) or (isinstance(done.outcome, Denied) and done.outcome.reason is Reason.REVIEW)


_LOST: Final = Unanswered(Reason.REVIEW, detail="the verdict was lost to another, or could not be marked as used")
_UNRECORDED: Final = Unanswered(Reason.RECORDS, detail="the decision log could not be written")
