"""People are asked: a review is opened or joined, and its verdict waited for as long as the peers do. What a verdict comes to is ``reviewing.py``'s.

A verdict that came after its request had ended answers the next same request; whoever holds one uses it, or gives it back (``Scene.held``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from samplegate.core.capabilities import can_forward
from samplegate.core.decide import decide
from samplegate.core.decisions import Allowed, Decision, Escalated, Outcome, Reason, Situation, Unanswered
from samplegate.core.patience import hold, left
from samplegate.core.policy import AllowRule, EscalateRule
from samplegate.core.review import create
from samplegate.core.review.review import DECIDED, Review, Stage
from samplegate.core.session.rounds import SAMPLING
from samplegate.plans import Plan
from samplegate.ports import Unavailable
from samplegate.sampling import late
from samplegate.scene import Scene, review_key

LONGEST: Final = 86_400.0  # seconds that one wait for a person may take where no peer sets an end; the reviewer's own time is mostly shorter


async def ask_first(plans: Mapping[str, Plan], parks: int) -> bool:
    """Before anything is done in a round: the verdicts of people. True where one still waits and the client can be made to come back (T10).

    What ends the call ends its siblings' waiting: their reviews are withdrawn. A fault in asking is met again by the act, which tells it.
    """
    asked = [plan for plan in plans.values() if isinstance(plan.decision.act, Escalated)]
    put_off = False

    async def one(plan: Plan) -> None:
        nonlocal put_off
        assert isinstance(plan.decision.act, Escalated)
        try:
            outcome = await consult(plan.scene, plan.decision, plan.decision.act, comes_back=parks > 0)
        except Exception:
            plan.scene.ports.log.error("request.failed", decision_id=plan.decision_id, exc_info=True)  # noqa: G201
            return
        later = parks > 0 and (waits(plan.scene, outcome) or is_late(plan))
        put_off = put_off or later
        if not later and refuses(plan):
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for plan in asked:
            group.start_soon(one, plan)
    return put_off and not any(refuses(plan) and not waits(plan.scene, plan.scene.missed) for plan in asked)


def refuses(plan: Plan) -> bool:
    """Whether what a person said, or that nobody could be asked, ends the call (R70): sampling has no milder form than an error."""
    scene, decision = plan.scene, plan.decision
    if plan.item.method != SAMPLING or not isinstance(decision.act, Escalated):
        return False
    if scene.missed is not None:
        return not (isinstance(scene.missed, Unanswered) and scene.missed.reason is Reason.TIMEOUT and decision.on_timeout == "next")
    return scene.verdict is not None and scene.verdict.verdict is not None and scene.verdict.verdict.word == "reject"


def waits(scene: Scene, outcome: Outcome | None) -> bool:
    """Whether a person may still decide what was waited for here."""
    return isinstance(outcome, Unanswered) and outcome.reason is Reason.TIMEOUT and scene.verdict is not None and scene.verdict.state == "pending"


def is_late(plan: Plan) -> bool:
    """Whether a model is to be asked and most of this try is over: the next one has its whole time for it."""
    scene = plan.scene
    tried, rest = hold(scene.book.policy), left(scene.book.policy, scene.round, None, scene.ports.clock())
    asks = isinstance(plan.decision.act, Allowed) or (isinstance(plan.decision.act, Escalated) and _approved(scene))
    return asks and not scene.was_answered(plan.decision) and tried is not None and rest is not None and rest < tried / 2


def _approved(scene: Scene) -> bool:
    return scene.verdict is not None and scene.verdict.verdict is not None and scene.verdict.verdict.word == "approve"


def is_looked_at(plan: Plan) -> bool:
    """Whether a person may look at the answer of a model that is asked now, by this rule or by one behind a reviewer who said nothing in time."""
    scene, decision = plan.scene, plan.decision
    if decision.allowed is not None and decision.allowed.review_answer is not None:
        return True
    if scene.missed is None or decision.on_timeout != "next":
        return False
    later = scene.book.policy.rules[decision.index + 1 :]
    return any(isinstance(rule, AllowRule | EscalateRule) and rule.review_answer is not None for rule in later)


async def consult(scene: Scene, decision: Decision, escalated: Escalated, *, comes_back: bool = False) -> Outcome | None:
    """Ask a person about the request and wait; the verdict is in ``scene.verdict`` then. The outcome where there is none."""
    wanted = create.of_request(context_of(scene, decision), escalated)
    scene.missed = await ask(scene, wanted, escalated.reviewer, escalated.timeout, comes_back=comes_back)
    return scene.missed


def _until(scene: Scene, stage: Stage, seconds: float | None, expires: float) -> float | None:
    """When whoever asked gives up: after this try, and those that it can be put off to. None: not before the review is over."""
    tried = hold(scene.book.policy)
    if seconds is None or tried is None:
        return None
    parks = scene.round.parks if stage == "request" or scene.comes_back else 0
    until = scene.ports.wall() + max(seconds, 0.0) + parks * tried
    return until if until < expires else None


async def spend(scenes: Sequence[Scene]) -> bool:
    """What people said is spent with the release, all of it or nothing: once ever, whoever asks for the same meanwhile. False: it is not ours."""
    spent = [(review, scene.decision_id) for scene in scenes for review in scene.held if review.state in DECIDED]
    if not spent:
        return True
    ports = scenes[0].ports
    assert ports.reviews is not None
    for scene in scenes:
        scene.held[:] = [review for review in scene.held if review.state not in DECIDED]  # not to be given back: somebody may have it
    try:
        return await ports.reviews.use(spent)
    except Unavailable as problem:
        ports.log.error("review.unused", decision_id=scenes[0].decision_id, problem=str(problem))
        return False


def withdrawn_by_policy(scene: Scene, held: Sequence[Review] | None = None) -> str | None:
    """Why a verdict that is held, or one of ``held``, does not count any more: the policy in force would not ask for it. None: it counts."""
    book = None if scene.ports.in_force is None else scene.ports.in_force()
    held = scene.held if held is None else held
    if book is None or book is scene.book or not held:
        return None
    decision = decide(book, scene.request, Situation(can_forward=can_forward(scene.request, scene.round.client)))
    at = msgspec.structs.replace(context_of(scene, decision), book=book)
    said = {review.stage: review.lookup for review in held}
    asks: dict[Stage, str] = {"request": create.of_request(at, decision.act).lookup} if isinstance(decision.act, Escalated) else {}
    if decision.allowed is not None and decision.allowed.review_answer is not None:
        asks["answer"] = create.lookup_of_answer(at, decision.allowed)
    stage: Stage = "request" if "request" in said else "answer"  # an edited request has another answer: what it began with counts
    return None if asks.get(stage) == said[stage] else "the policy has changed meanwhile, and does not ask for this verdict any more"


async def find(scene: Scene, lookup: str, stage: Stage, rule: str | None, until: float | None) -> Review | None:
    """An earlier verdict on the same, or a review of it that nobody waits for; held from here on. ``until``: when we give up. Raises Unavailable."""
    if scene.ports.reviews is None:
        raise Unavailable("reviews: there is no store for them in this process")
    own = scene.reviews.get(review_key(stage, rule), "")
    found = await scene.ports.reviews.find(lookup, stage=stage, until=until, own=own)
    if found is not None:
        scene.held.append(found)
        scene.reviews[review_key(stage, rule)] = found.id
    return found


async def find_answer(scene: Scene, decision: Decision, allowed: Allowed, timeout: float) -> Review | None:
    """The review of a model's answer to the same request that was opened before, held from here on. Raises Unavailable."""
    seconds = left(scene.book.policy, scene.round, timeout, scene.ports.clock())
    until = _until(scene, "answer", seconds, scene.ports.wall() + timeout)
    return await find(scene, create.lookup_of_answer(context_of(scene, decision), allowed), "answer", decision.rule, until)


async def ask(scene: Scene, wanted: Review, reviewer: str, timeout: float, *, comes_back: bool = False) -> Outcome | None:
    """Take an earlier verdict on the same, or wait for one as long as the peers do; ``scene.verdict`` is how the review stands then."""
    reviews, started = scene.ports.reviews, scene.ports.clock()
    seconds = left(scene.book.policy, scene.round, timeout, started)
    try:
        until = _until(scene, wanted.stage, seconds, wanted.expires)
        review = wanted if wanted.waiter else await find(scene, wanted.lookup, wanted.stage, wanted.rule, until)
        assert reviews is not None or review is None
        if review is None and scene.was_put_off(wanted.stage, wanted.rule):
            return late(f"reviewer {reviewer} gave no verdict in time")  # what was asked before is over, and nobody is asked again for one request
        if review is None:
            assert reviews is not None
            people = scene.book.policy.reviewers[reviewer]
            fresh = msgspec.structs.replace(wanted, answers_until=until)
            review = await reviews.open(fresh, announce=people.webhook is not None or people.command is not None)
            scene.held.append(review)
            scene.reviews[review_key(wanted.stage, wanted.rule)] = review.id
            scene.ask()
        if review.state not in DECIDED:
            assert reviews is not None
            scene.verdict = review  # who is asked, also where the wait is cancelled
            longest, gone = LONGEST if seconds is None else max(seconds, 0.0), partial(withdrawn_by_policy, scene, (review,))
            waited = await reviews.wait(review, longest, comes_back=comes_back, gone=gone)
            scene.held[:] = [held for held in scene.held if held.id != review.id] + ([] if waited.waiter is None else [waited])
            review = waited
    except Unavailable as problem:
        return nobody(problem)
    finally:
        scene.reviewed += scene.ports.clock() - started
    scene.verdict = review
    if review.state in DECIDED:
        return None
    if review.state == "withdrawn":
        changed = withdrawn_by_policy(scene, (wanted,))
        return Unanswered(Reason.REVIEW, detail=changed or f"reviewer {reviewer}: review {review.id} was withdrawn")
    if review.state == "expired":
        return late(f"reviewer {reviewer} gave no verdict on {review.id} within {timeout:.3g} s")
    return late(f"reviewer {reviewer} has given no verdict on {review.id} so far; one that still comes answers the next same request")


def context_of(scene: Scene, decision: Decision) -> create.Context:
    """What a review of this request is opened in."""
    ports = scene.ports
    return create.Context(scene.book, scene.policy_hash, scene.round, scene.request, decision, scene.decision_id, ports.wall(), ports.realm)


def nobody(problem: Unavailable) -> Unanswered:
    """The outcome where the way to people is closed."""
    return Unanswered(Reason.REVIEW, detail=f"nobody could be asked: {problem}")
