"""What a request that is escalated to a person comes to, as `explain` shows it: who is asked, for how long, and what
follows. Asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from samplegate.policy.decide import Rulebook
from samplegate.policy.decisions import Allowed, Decision, Escalated
from samplegate.policy.file.timeouts import can_be_late, here, said
from samplegate.policy.schema import Otherwise, seconds
from samplegate.protocol.requests import Request
from samplegate.reviews.review import Stage

_FOLLOWS: Final[dict[Otherwise, str]] = {
    "next": "the later rules are asked",
    "deny": "it is denied",
    "unanswered": "it stays unanswered",
}


@dataclass(frozen=True, slots=True)
class Asking:
    """One person who is asked. Seconds."""

    reviewer: str
    stage: Stage
    timeout: float
    """How long the review waits."""
    here: float
    """How long this request does."""
    late: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """All that are asked, in their order, and what follows without a verdict on the request."""

    asking: tuple[Asking, ...]
    otherwise: Otherwise | None


def waiting(book: Rulebook, request: Request, decision: Decision) -> Waiting | None:
    """Of a decision that was made for the request; None where no person is asked."""
    asking: list[Asking] = []
    if isinstance(decision.act, Escalated):
        asking.append(_asking(book, request, decision.act.reviewer, "request", decision.act.timeout))
    if decision.allowed is not None and (second := decision.allowed.review_answer) is not None:
        asking.append(_asking(book, request, second, "answer", seconds(book.policy.reviewers[second].timeout)))
    otherwise = decision.on_timeout if isinstance(decision.act, Escalated) else None
    return Waiting(tuple(asking), otherwise) if asking else None


def _asking(book: Rulebook, request: Request, name: str, stage: Stage, timeout: float) -> Asking:
    late = seconds(book.policy.reviewers[name].late_verdict)
    return Asking(name, stage, timeout, here(book.policy, request.origin, timeout), late)


def report(waiting: Waiting) -> Iterator[str]:
    """A line for each."""
    for one in waiting.asking:
        what = "decides" if one.stage == "request" else "sees the answer before the server does"
        time = (
            said(one.timeout)
            if one.here == one.timeout
            else f"{said(one.here)}, as long as its peers wait, of {said(one.timeout)}"
        )
        may_come_late = one.late and can_be_late(one.stage, one.timeout, one.here)
        late = f"; a later verdict answers the next same request for {said(one.late)}" if may_come_late else ""
        yield f"reviewer  {one.reviewer} {what}, within {time}{late}"
    if waiting.otherwise is not None:
        yield f"timeout   without a verdict {_FOLLOWS[waiting.otherwise]}"


def as_json(waiting: Waiting) -> dict[str, Any]:
    """The same for programs; times in seconds."""
    asking = [
        {
            "reviewer": one.reviewer,
            "stage": one.stage,
            "timeout": one.timeout,
            "waits": one.here,
            "late_verdict": one.late,
        }
        for one in waiting.asking
    ]
    return {"asks": asking, "on_timeout": waiting.otherwise}


def outcome(decision: Decision, request: Request, back: str, refused: Callable[[Request, str], str]) -> str:
    """What goes over the wire, as a sentence."""
    act = decision.act
    assert isinstance(act, Escalated)
    no = f"if rejected, {refused(request, 'decline')}"
    match act.allowed:
        case Allowed(models=models):
            return (
                f"what {models[0]} writes goes to the server {back} once {act.reviewer} has approved, or what"
                f" {act.reviewer} answers; {no}"
            )
        case None if request.kind == "sampling":
            return f"what {act.reviewer} answers goes to the server {back}, for no model can be asked ({act.why}); {no}"
        case None:
            return f"what {act.reviewer} answers goes to the server {back}; {no}"
