"""A person decides: what a review asks, and what a verdict comes to. One of the acts of ``acts.py``; opening, waiting and keeping are a port.

A verdict is bound to exactly what it was given for (``core.review.binding``, T13), is used once, and holds also if it came after its request had
ended: then it answers the next same request. What a person changed is decided again by the rule's bounds and limits: no edit exceeds them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from samplegate.admit import sentence
from samplegate.consulting import ask, consult, context_of, find_answer, nobody, waits, withdrawn_by_policy
from samplegate.core import answers
from samplegate.core.admission import draws_of
from samplegate.core.capabilities import can_forward
from samplegate.core.claims import Claimant
from samplegate.core.decisions import Allowed, Answered, DecidedBy, Decision, Denied, Escalated, Outcome, Reason, Situation, Unanswered
from samplegate.core.parsing import strictjson
from samplegate.core.recording import Done
from samplegate.core.review import create, edits
from samplegate.core.review.review import MOST_REVIEWED, PROGRAMS, Review, Verdict
from samplegate.ports import Unavailable
from samplegate.sampling import late, sample, shaped
from samplegate.scene import Scene


async def escalate(scene: Scene, decision: Decision, escalated: Escalated) -> Done:
    """The verdict of a person, carried out."""
    if scene.verdict is None and scene.missed is None:
        await consult(scene, decision, escalated)
    if scene.missed is not None:
        return _done(scene, scene.missed, decision)
    verdict = None if scene.verdict is None else scene.verdict.verdict
    if scene.verdict is None or verdict is None:
        return _done(scene, Unanswered(Reason.REVIEW, detail="nobody has decided it"), decision)
    if (changed := withdrawn_by_policy(scene)) is not None:
        return _done(scene, Unanswered(Reason.REVIEW, detail=changed), decision)
    match verdict.word:
        case "reject":
            return _done(scene, _rejected(scene.verdict), decision)
        case "answer":
            if scene.hold is not None:
                await scene.hold.tried(None)  # no model is asked, so no tokens and dollars are drawn
            scene.begin()
            return _done(scene, _answered(scene, verdict), decision)
        case "approve":
            return await _approved(scene, decision, escalated, verdict)


async def sample_seen(scene: Scene, decision: Decision, allowed: Allowed) -> Done:
    """A model answers, and a person sees the answer before the server does. A verdict on an answer of before is taken without asking a model."""
    reviewer = allowed.review_answer
    assert reviewer is not None
    timeout = create.timeout_of(scene.book, reviewer)
    try:
        found = await find_answer(scene, decision, allowed, timeout)
    except Unavailable as problem:
        return _done(scene, nobody(problem), decision)
    if found is None and scene.was_put_off("answer", decision.rule):  # its model was asked and paid, and is not asked again
        return _done(scene, late(f"reviewer {reviewer} gave no verdict on the model's answer in time"), decision)
    done = None if found is not None else await sample(scene, decision, allowed)
    if done is not None:
        if not isinstance(done.outcome, Answered):
            return msgspec.structs.replace(done, review=scene.verdict, reviewed=scene.reviewed)
        if len(done.outcome.result) > MOST_REVIEWED:
            large = f"the answer has {len(done.outcome.result)} bytes, and a person is shown {MOST_REVIEWED} at most"
            return _done(scene, Unanswered(Reason.REVIEW, detail=large), decision, done)
        found = create.of_answer(context_of(scene, decision), allowed, done.outcome.result)
    assert found is not None
    outcome = await ask(scene, found, reviewer, timeout, comes_back=scene.comes_back)
    scene.put_off = scene.comes_back and waits(scene, outcome)
    if outcome is None:
        assert scene.verdict is not None
        outcome = _looked_at(scene, scene.verdict)
    return _done(scene, outcome, decision, done or Done(outcome, decision, model=_model_of(found)))


def _model_of(review: Review) -> str | None:
    """The model that wrote an answer of before (R1)."""
    model = (review.answer or {}).get("model")
    return model if isinstance(model, str) else None


async def _approved(scene: Scene, decision: Decision, escalated: Escalated, verdict: Verdict) -> Done:
    allowed = escalated.allowed
    if allowed is None:
        scene.unfit = True
        return _done(scene, Unanswered(Reason.REVIEW, detail=f"it was approved, but {escalated.why or 'no model can be asked'}"), decision)
    if verdict.edits is not None:
        situation = Situation(can_forward=can_forward(scene.request, scene.round.client))
        again = edits.decided_again(scene.book, scene.request, situation, decision, verdict.edits)
        if isinstance(again, str):
            scene.unfit = True
            return _done(scene, Unanswered(Reason.REVIEW, detail=f"the edits of review {_id(scene)} cannot be carried out: {again}"), decision)
        refused = await _admit_again(scene, decision, escalated, again)
        if refused is not None:
            return _done(scene, refused[0], decision, Done(refused[0], decision, refused_by=refused[1]))
        allowed = again
        decision = msgspec.structs.replace(decision, act=msgspec.structs.replace(escalated, allowed=again))
    done = await sample_seen(scene, decision, allowed) if allowed.review_answer else await sample(scene, decision, allowed)
    outcome = done.outcome
    if isinstance(outcome, Answered) and outcome.decided_by == "policy":
        outcome = Answered(outcome.result, _whose(scene.verdict))
    return _done(scene, outcome, decision, done)


async def _admit_again(scene: Scene, decision: Decision, escalated: Escalated, edited: Allowed) -> tuple[Outcome, str | None] | None:
    """Reserve what the edited request may come to, in place of what was reserved; the outcome where a limit has no room for it, and which.

    The request itself and its slot stay: it is the same one.
    """
    if scene.hold is None:
        return None
    asked = msgspec.structs.replace(decision, act=msgspec.structs.replace(escalated, allowed=edited))
    draws = draws_of(scene.book, asked, Claimant(scene.round.origin, scene.round.call_ids, scene.round.session, ""))
    if isinstance(draws, str):
        return Unanswered(Reason.LIMIT, detail=draws), None
    await scene.hold.tried(None)
    refused = await scene.hold.next_try(draws)
    return None if refused is None else (Unanswered(Reason.LIMIT, detail=f"rule {decision.rule}: {sentence(refused)}"), refused.limit)


def _rejected(review: Review) -> Denied:
    detail = f"reviewer {review.reviewer}: rejected by {review.who or 'nobody known'} ({review.id})"
    return Denied(Reason.REVIEW, "decline", detail=detail, decided_by=_whose(review))


def _answered(scene: Scene, verdict: Verdict) -> Outcome:
    """A person's own answer, held against the request once more: nothing that does not fit is released (R36)."""
    result: dict[str, Any] = dict(verdict.result or {})
    outcome = shaped(scene, result, _whose(scene.verdict))
    if not isinstance(outcome, Answered):
        scene.unfit = True
        return outcome
    problem = answers.fits(scene.request, strictjson.decode(outcome.result))
    if problem is None:
        return outcome
    scene.unfit = True
    return Unanswered(Reason.REVIEW, detail=f"the answer of review {_id(scene)} does not fit: {problem}")


def _looked_at(scene: Scene, review: Review) -> Outcome:
    """What becomes of a model's answer that a person has seen."""
    verdict = review.verdict
    assert verdict is not None
    match verdict.word:
        case "reject":
            return _rejected(review)
        case "answer":
            return _answered(scene, verdict)
        case "approve":
            return _answered(scene, msgspec.structs.replace(verdict, result=review.answer))


def _done(scene: Scene, outcome: Outcome, decision: Decision, done: Done | None = None) -> Done:
    made = Done(outcome, decision) if done is None else msgspec.structs.replace(done, outcome=outcome, decision=decision)
    verdict = None if scene.verdict is None else scene.verdict.verdict
    told = verdict.reason if verdict is not None and verdict.word == "reject" and verdict.tell_server else ""
    return msgspec.structs.replace(made, review=scene.verdict, reviewed=scene.reviewed, told=told)


def _whose(review: Review | None) -> DecidedBy:
    """A program that answers for a reviewer is the operator's, as the policy is: a machine never poses as a person."""
    return "policy" if review is None or review.door in PROGRAMS else "human"


def _id(scene: Scene) -> str:
    return scene.verdict.id if scene.verdict is not None else "unknown"
