"""Human review of a request: opens or joins a review, waits for its verdict as long as the peers wait, and carries it
out.

A verdict is bound to exactly the request that it was given for (``reviews/create.py``, T13) and is used once. A verdict
that arrives after its request has ended answers the next identical request. A request that holds a verdict uses it or
gives it back (``PendingRequest.held``). An edited request is decided again under the rule's constraints and limits, so
no edit exceeds them. The store is behind a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from samplegate.audit.record import Done
from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.gate import server_ui
from samplegate.gate.ports import ReviewPort
from samplegate.gate.request import PendingRequest, Wait, review_key
from samplegate.gate.sampling import sample, shaped, timed_out
from samplegate.policy import answers
from samplegate.policy.deadlines import max_hold
from samplegate.policy.decide import decide
from samplegate.policy.decisions import Allowed, Decision, Escalated
from samplegate.policy.schema import MAX_REVIEW_BYTES, AllowRule, EscalateRule, Stage, is_notified
from samplegate.protocol import strictjson
from samplegate.protocol.outcomes import Answered, DecidedBy, Denied, Outcome, Reason, Unanswered
from samplegate.protocol.requests import SAMPLING
from samplegate.reviews import create, edits
from samplegate.reviews.review import DECIDED, Review, lookup_with_ui
from samplegate.reviews.votes import by_program

# seconds of one wait for a verdict if no peer sets an end; the reviewer's own timeout is usually shorter
LONGEST: Final = 86_400.0


# -- asking
# ----------------------------------------------------------------------------------------------------------------------


async def ask_first(requests: Mapping[str, PendingRequest], parks: int) -> bool:
    """Ask the reviewers of a round before anything else is done. True if a verdict is still missing and the client can
    be made to retry (T10).

    If one verdict ends the call, the other reviews are withdrawn. An unexpected exception is only logged here, because
    the act raises it again.
    """
    asked = [pending for pending in requests.values() if isinstance(pending.decision.act, Escalated)]
    put_off = False

    async def one(pending: PendingRequest) -> None:
        nonlocal put_off
        assert isinstance(pending.decision.act, Escalated)
        try:
            outcome = await consult(pending, pending.decision, pending.decision.act, comes_back=parks > 0)
        except Exception:
            pending.log_fault()
            return
        later = parks > 0 and (may_still_decide(pending, outcome) or is_late(pending))
        put_off = put_off or later
        if not later and verdict_ends_call(pending):
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for pending in asked:
            group.start_soon(one, pending)
    return put_off and not any(
        verdict_ends_call(pending) and not may_still_decide(pending, pending.missed) for pending in asked
    )


def verdict_ends_call(pending: PendingRequest) -> bool:
    """Whether the verdict, or its absence, ends the call (R70): a sampling request can be refused only by an error."""
    decision = pending.decision
    if pending.item.method != SAMPLING or not isinstance(decision.act, Escalated):
        return False
    if pending.missed is not None:
        return not (
            isinstance(pending.missed, Unanswered)
            and pending.missed.reason is Reason.TIMEOUT
            and decision.on_timeout == "next"
        )
    return pending.word == "reject"


def may_still_decide(pending: PendingRequest, outcome: Outcome | None) -> bool:
    """Whether a reviewer may still decide the review that was waited for."""
    return (
        isinstance(outcome, Unanswered)
        and outcome.reason is Reason.TIMEOUT
        and pending.verdict is not None
        and pending.verdict.state == "pending"
    )


def is_late(pending: PendingRequest) -> bool:
    """Whether a model would be asked, but most of this try's time has elapsed. The next try has its full time."""
    tried, rest = max_hold(pending.compiled.policy), pending.seconds_left(None)
    asks = isinstance(pending.decision.act, Allowed) or (
        isinstance(pending.decision.act, Escalated) and pending.word == "approve"
    )
    return (
        asks
        and not pending.was_answered(pending.decision)
        and tried is not None
        and rest is not None
        and rest < tried / 2
    )


def is_answer_reviewed(pending: PendingRequest) -> bool:
    """Whether a reviewer may see the answer of a model that is asked now: under this rule, or under a later one after a
    reviewer's timeout."""
    decision = pending.decision
    if decision.allowed is not None and decision.allowed.review_answer is not None:
        return True
    if pending.missed is None or decision.on_timeout != "next":
        return False
    later = pending.compiled.policy.rules[decision.index + 1 :]
    return any(isinstance(rule, AllowRule | EscalateRule) and rule.review_answer is not None for rule in later)


async def consult(
    pending: PendingRequest, decision: Decision, escalated: Escalated, *, comes_back: bool = False
) -> Outcome | None:
    """Ask a reviewer about the request and wait. Sets ``pending.verdict``, and returns the outcome if there is no
    verdict."""
    wanted = create.of_request(context_of(pending, decision), escalated)
    pending.missed = await ask(pending, wanted, escalated.reviewer, escalated.timeout, comes_back=comes_back)
    return pending.missed


def _until(pending: PendingRequest, stage: Stage, seconds: float | None, expires: float) -> float | None:
    """When the request gives up: after this try and those that it can be put off to. None: not before the review is
    over."""
    tried = max_hold(pending.compiled.policy)
    if seconds is None or tried is None or pending.round.hold is not None:
        return None
    parks = pending.round.parks if stage == "request" or pending.comes_back else 0
    until = pending.ports.wall() + max(seconds, 0.0) + parks * tried
    return until if until < expires else None


async def use_verdicts(requests: Sequence[PendingRequest]) -> bool:
    """Mark the verdicts of a round as used, all or none; each can be used once. False if one was used by another
    request or could not be marked."""
    spent = [
        (review, pending.decision_id) for pending in requests for review in pending.held if review.state in DECIDED
    ]
    if not spent:
        return True
    ports = requests[0].ports
    assert ports.reviews is not None
    for pending in requests:
        # not given back: the store may have marked it as used
        pending.held[:] = [review for review in pending.held if review.state not in DECIDED]
    try:
        used = await ports.reviews.use(spent)
    except Unavailable as problem:
        ports.log.error("review.unused", decision_id=requests[0].decision_id, problem=str(problem))
        return False
    spans = {pending.decision_id: pending.span for pending in requests} if used else {}
    for review, decision_id in spent:
        if (span := spans.get(decision_id)) is not None:
            span.use_verdict(review)
    return used


def withdrawn_by_policy(pending: PendingRequest, held: Sequence[Review] | None = None) -> str | None:
    """Why the policy in force would no longer ask for a held verdict, or one of ``held``. None if the verdict
    counts."""
    compiled = None if pending.ports.in_force is None else pending.ports.in_force()
    held = pending.held if held is None else held
    if compiled is None or compiled is pending.compiled or not held:
        return None
    decision = decide(compiled, pending.request, pending.situation)
    at = msgspec.structs.replace(context_of(pending, decision), compiled=compiled)
    said = {review.stage: review for review in held}
    asks: dict[Stage, str] = (
        {"request": create.of_request(at, decision.act).lookup} if isinstance(decision.act, Escalated) else {}
    )
    if decision.allowed is not None and decision.allowed.review_answer is not None:
        asks["answer"] = create.lookup_of_answer(at, decision.allowed)
    # an edited request has another answer, so the review of the request itself counts
    stage: Stage = "request" if "request" in said else "answer"
    asked, review = asks.get(stage), said[stage]
    with_ui = None if asked is None or review.ui is None else lookup_with_ui(asked, review.ui)
    same = asked is not None and review.lookup in (asked, with_ui)
    return None if same else "the policy has changed and no longer asks for this decision"


async def find(
    pending: PendingRequest, lookup: str, stage: Stage, rule: str | None, until: float | None
) -> Review | None:
    """An earlier verdict on the same request, or a review of it that no request waits for; held from here on.

    ``until``: when this request gives up (Unix seconds). Raises Unavailable.
    """
    own = pending.reviews.get(review_key(stage, rule), "")
    found = await _port(pending).find(lookup, stage=stage, until=until, own=own)
    if found is not None:
        pending.held.append(found)
        pending.reviews[review_key(stage, rule)] = found.id
    return found


def _port(pending: PendingRequest) -> ReviewPort:
    if pending.ports.reviews is None:
        raise Unavailable("reviews: this process has no review store")
    return pending.ports.reviews


async def ask(
    pending: PendingRequest, wanted: Review, reviewer: str, timeout: float, *, comes_back: bool = False
) -> Outcome | None:
    """Use an earlier verdict, or wait for one as long as the peers wait; ``pending.verdict`` is then the review.

    Returns the outcome if there is no verdict.
    """
    started, seconds = pending.ports.clock(), pending.seconds_left_to_review(timeout)
    try:
        reviews = _port(pending)
        until = _until(pending, wanted.stage, seconds, wanted.expires)
        longest = _longest(pending, seconds, comes_back)
        review, reading = (wanted, 0.0) if wanted.waiter else await _earlier(pending, wanted, until, longest)
        asked_before = review_key(wanted.stage, wanted.rule) in pending.reviews
        if review is None and asked_before and pending.was_put_off(wanted.stage, wanted.rule):
            # the earlier review is over, and one request is not reviewed twice
            return timed_out(f"reviewer {reviewer} did not decide in time")
        opened = review is None
        if review is None:
            people = pending.compiled.policy.reviewers[reviewer]
            traceparent = "" if pending.span is None else pending.span.traceparent
            fresh = msgspec.structs.replace(wanted, answers_until=until, traceparent=traceparent)
            review = await reviews.open(
                fresh,
                announce=is_notified(people),
                also=[name for name in people.also if is_notified(pending.compiled.policy.reviewers[name])],
            )
            pending.held.append(review)
            pending.reviews[review_key(wanted.stage, wanted.rule)] = review.id
            pending.ask()
        if pending.span is not None:
            pending.span.ask_reviewer(review, opened=opened)
        if review.state not in DECIDED:
            pending.verdict = review  # recorded even if the wait is cancelled
            longest = max(0.0, longest - reading)
            gone = partial(withdrawn_by_policy, pending, (review,))
            if pending.round.detaches and pending.ports.wait_long is not None:
                pending.ports.wait_long(pending.round.id, pending.ports.random(12))
            with pending.waiting(Wait("reviewer", reviewer, pending.ports.clock() + longest)):
                waited = await _wait(pending, review, longest, comes_back=comes_back, gone=gone, until=until)
            pending.held[:] = [held for held in pending.held if held.id not in (review.id, waited.id)] + (
                [] if waited.waiter is None else [waited]
            )
            review = waited
    except Unavailable as problem:
        return no_reviewer(problem)
    finally:
        pending.reviewed += pending.ports.clock() - started
    pending.verdict = review
    if review.state in DECIDED:
        return None
    if review.state == "withdrawn":
        changed = withdrawn_by_policy(pending, (wanted,))
        return Unanswered(Reason.REVIEW, detail=changed or f"reviewer {reviewer}: review {review.id} was withdrawn")
    if review.state == "expired":
        return timed_out(f"reviewer {reviewer} did not decide review {review.id} within {duration_text(timeout)}")
    return timed_out(
        f"reviewer {reviewer} has not decided review {review.id} yet; a later decision answers the next identical"
        " request"
    )


async def _earlier(
    pending: PendingRequest, wanted: Review, until: float | None, seconds: float
) -> tuple[Review | None, float]:
    """An earlier verdict or review, as ``find``, of the form alone or with the UI that the server has now; and the
    seconds for which that UI was read.

    ``seconds``: how long the server may take to give that UI.
    """
    find_by = _finder(pending, wanted, until)
    found = await find_by(wanted.lookup)
    key = review_key(wanted.stage, wanted.rule)
    own = pending.reviews.get(key)
    if found is not None or wanted.ui is None or own is None:
        return found, 0.0
    began = pending.ports.clock()
    await server_ui.read(pending, wanted.ui, seconds)  # a reviewer may decide on the form meanwhile
    reading = pending.ports.clock() - began
    found = await server_ui.find_shown(pending, wanted, find_by) or await find_by(wanted.lookup)
    why, now = server_ui.why_over(pending), server_ui.lookup_now(pending, wanted)
    if found is None and await _port(pending).supersede(own, why, now=now):
        del pending.reviews[key]  # another review opens
    elif found is not None and create.shown(found):
        server_ui.forget(pending, found.id)
    return found, reading


def _finder(pending: PendingRequest, wanted: Review, until: float | None) -> server_ui.Find:
    return lambda lookup: find(pending, lookup, wanted.stage, wanted.rule, until)


async def _wait(
    pending: PendingRequest,
    review: Review,
    seconds: float,
    *,
    comes_back: bool,
    gone: Callable[[], str | None],
    until: float | None,
) -> Review:
    """Wait for a verdict, as ``ReviewPort.wait``, and show the server's own UI meanwhile."""
    reviews, ends = _port(pending), pending.ports.clock() + seconds
    find_by = _finder(pending, review, until)
    while True:
        left = max(0.0, ends - pending.ports.clock())
        wait = partial(reviews.wait, review, left, comes_back=comes_back, gone=gone)
        if review.ui is None or review.ui.state != "loading" or pending.ports.read_ui is None:
            return await wait()
        found, switched = await server_ui.wait_showing(pending, reviews, review, wait, find_by)
        if not switched or found.state in DECIDED:
            return found
        review = found


def _longest(pending: PendingRequest, seconds: float | None, comes_back: bool) -> float:
    """Seconds of one wait for a reviewer. A call that becomes a task does not wait for long."""
    left = LONGEST if seconds is None else max(seconds, 0.0)
    return min(left, pending.round.hold) if comes_back and pending.round.hold is not None else left


def context_of(pending: PendingRequest, decision: Decision) -> create.Context:
    """The context in which a review of this request is created."""
    ports = pending.ports
    return create.Context(
        pending.compiled,
        pending.policy_hash,
        pending.round,
        pending.request,
        decision,
        pending.decision_id,
        ports.wall(),
        ports.realm,
        pending.item.ui if ports.read_ui is not None else None,
    )


def no_reviewer(problem: Unavailable) -> Unanswered:
    """The outcome if no reviewer could be asked."""
    return Unanswered(Reason.REVIEW, detail=f"no reviewer could be asked: {problem}")


# -- carrying out a verdict
# ----------------------------------------------------------------------------------------------------------------------


async def escalate(pending: PendingRequest, decision: Decision, escalated: Escalated) -> Done:
    """Carry out a reviewer's verdict."""
    if pending.verdict is None and pending.missed is None:
        await consult(pending, decision, escalated)
    if pending.missed is not None:
        return _done(pending, pending.missed, decision)
    review = pending.verdict
    if review is None or review.verdict is None:
        return _done(pending, Unanswered(Reason.REVIEW, detail="no reviewer has decided it"), decision)
    if (changed := withdrawn_by_policy(pending)) is not None:
        return _done(pending, Unanswered(Reason.REVIEW, detail=changed), decision)
    match review.verdict.word:
        case "reject":
            return _done(pending, _rejected(review), decision)
        case "answer":
            if pending.hold is not None:
                await pending.hold.settle_try(None)  # no model is asked, so no tokens and dollars are drawn
            pending.begin()
            return _done(pending, _answered(pending, review, review.verdict.result), decision)
        case "approve":
            return await _approved(pending, decision, escalated, review)


async def sample_reviewed(pending: PendingRequest, decision: Decision, allowed: Allowed) -> Done:
    """Ask a model, and have a reviewer see its answer before the server does. A verdict on an earlier try's answer is
    used without asking a model."""
    reviewer = allowed.review_answer
    assert reviewer is not None
    timeout = create.timeout_of(pending.compiled, reviewer)
    try:
        until = _until(pending, "answer", pending.seconds_left(timeout), pending.ports.wall() + timeout)
        found = await find(
            pending, create.lookup_of_answer(context_of(pending, decision), allowed), "answer", decision.rule, until
        )
    except Unavailable as problem:
        return _done(pending, no_reviewer(problem), decision)
    # its model has already answered at a cost, and is not asked again
    if found is None and pending.was_put_off("answer", decision.rule):
        return _done(pending, timed_out(f"reviewer {reviewer} did not decide on the model's answer in time"), decision)
    done = None if found is not None else await sample(pending, decision, allowed)
    if done is not None:
        if not isinstance(done.outcome, Answered):
            return msgspec.structs.replace(done, review=pending.verdict, reviewed=pending.reviewed)
        if len(done.outcome.result) > MAX_REVIEW_BYTES:
            large = f"the answer has {len(done.outcome.result)} bytes; a review can have at most {MAX_REVIEW_BYTES}"
            return _done(pending, Unanswered(Reason.REVIEW, detail=large), decision, done)
        found = create.of_answer(context_of(pending, decision), allowed, done.outcome.result)
    assert found is not None
    outcome = await ask(pending, found, reviewer, timeout, comes_back=pending.comes_back)
    pending.put_off = pending.comes_back and may_still_decide(pending, outcome)
    if outcome is None:
        outcome = _answer_review_outcome(pending)
    model = (found.answer or {}).get("model")  # for an earlier try's answer: the model that wrote it (R1)
    return _done(
        pending, outcome, decision, done or Done(outcome, decision, model=model if isinstance(model, str) else None)
    )


def _answer_review_outcome(pending: PendingRequest) -> Outcome:
    """The outcome of a review of a model's answer."""
    review = pending.verdict
    assert review is not None
    assert review.verdict is not None
    match review.verdict.word:
        case "reject":
            return _rejected(review)
        case "answer":
            return _answered(pending, review, review.verdict.result)
        case "approve":
            return _answered(pending, review, review.answer)


async def _approved(pending: PendingRequest, decision: Decision, escalated: Escalated, review: Review) -> Done:
    allowed = escalated.allowed
    wanted = None if review.verdict is None else review.verdict.edits
    if allowed is None:
        pending.unfit = True
        return _done(
            pending,
            Unanswered(
                Reason.REVIEW, detail=f"the request was approved, but {escalated.why or 'no model can be called'}"
            ),
            decision,
        )
    if wanted is not None:
        again = edits.decide_edited(pending.compiled, pending.request, pending.situation, decision, wanted)
        if isinstance(again, str):
            pending.unfit = True
            return _done(
                pending,
                Unanswered(Reason.REVIEW, detail=f"the edits of review {review.id} cannot be applied: {again}"),
                decision,
            )
        edited = msgspec.structs.replace(decision, act=msgspec.structs.replace(escalated, allowed=again))
        if pending.hold is not None:
            # give back the reservation for the request as asked; its count and its slot stay
            await pending.hold.settle_try(None)
            if (unreserved := await pending.hold.next_try(edited, pending.round)) is not None:
                why, limit = unreserved
                refused = Unanswered(Reason.LIMIT, detail=why if limit is None else f"rule {decision.rule}: {why}")
                return _done(pending, refused, decision, Done(refused, decision, refused_by=limit))
        allowed, decision = again, edited
    done = (
        await sample_reviewed(pending, decision, allowed)
        if allowed.review_answer
        else await sample(pending, decision, allowed)
    )
    outcome = done.outcome
    if isinstance(outcome, Answered) and outcome.decided_by == "policy":
        outcome = Answered(outcome.result, _decided_by(pending.verdict or review))
    return _done(pending, outcome, decision, done)


def _rejected(review: Review) -> Denied:
    detail = f"reviewer {review.reviewer}: rejected by {review.who or 'an unknown user'} ({review.id})"
    return Denied(Reason.REVIEW, "decline", detail=detail, decided_by=_decided_by(review))


def _answered(pending: PendingRequest, review: Review, result: Mapping[str, Any] | None) -> Outcome:
    """A reviewer's own answer, or a model's answer that they approved. It is checked again, and only a fitting answer
    is released (R36)."""
    outcome = shaped(pending, dict(result or {}), _decided_by(review))
    problem = (
        answers.answer_error(pending.request, strictjson.decode(outcome.result))
        if isinstance(outcome, Answered)
        else None
    )
    if isinstance(outcome, Answered) and problem is None:
        return outcome
    pending.unfit = True
    return (
        outcome
        if problem is None
        else Unanswered(Reason.REVIEW, detail=f"the answer of review {review.id} does not fit: {problem}")
    )


def _done(pending: PendingRequest, outcome: Outcome, decision: Decision, done: Done | None = None) -> Done:
    made = (
        Done(outcome, decision) if done is None else msgspec.structs.replace(done, outcome=outcome, decision=decision)
    )
    verdict = None if pending.verdict is None else pending.verdict.verdict
    message = verdict.reason if verdict is not None and verdict.word == "reject" and verdict.tell_server else ""
    return msgspec.structs.replace(made, review=pending.verdict, reviewed=pending.reviewed, message=message)


def _decided_by(review: Review) -> DecidedBy:
    """A program that decides for a reviewer counts as the policy, so that a machine never appears as a human."""
    return "policy" if by_program(review) else "human"
