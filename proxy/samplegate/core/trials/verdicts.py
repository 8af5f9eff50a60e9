"""What a case's ``verdict`` makes of a request that a rule escalates: read and carried out as a person's would be. Nothing is kept, nobody waits."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
import msgspec.structs

from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Decision, Escalated, Reason, Situation
from samplegate.core.policy import Kind
from samplegate.core.requests import ClientCapabilities, Request
from samplegate.core.review import create, edits, verdicts
from samplegate.core.review.review import Review, Verdict
from samplegate.core.session.rounds import Round
from samplegate.core.trials.suite import Asked, Said
from samplegate.core.trials.suite import Verdict as Given

Outcome: TypeAlias = Literal["answered", "denied", "unanswered"]

Act: TypeAlias = Literal["ask", "answer", "nothing"]

_NOBODY: Final = ClientCapabilities()


class Judged(msgspec.Struct, frozen=True):
    """What came of a verdict."""

    decision: Decision
    """What was decided, or what it became by the person's edits."""
    outcome: Outcome | None
    """None: that depends on what a model says."""
    reason: Reason = Reason.RULE
    as_: str | None = None
    content: Any = None
    detail: str = ""
    action: str | None = None
    """What a form is answered by the person."""
    act: Act = "nothing"
    """Whether a model is asked, or a person has answered; else nothing is drawn on limits."""


def review_of(book: Rulebook, request: Request, decision: Decision) -> Review:
    """The review as a person would be shown it."""
    assert isinstance(decision.act, Escalated)
    round = Round("case", "push", request.origin, _NOBODY, {}, None, None)
    return create.of_request(create.Context(book, "", round, request, decision, "", 0.0), decision.act)


def judge(book: Rulebook, request: Request, situation: Situation, decision: Decision, asked: Asked) -> Judged | str:
    """The outcome of the case's verdict on an escalated request; why it is none on it, as a sentence."""
    if asked.verdict == "none":
        assert isinstance(decision.act, Escalated)
        return _timed_out(decision, f"reviewer {decision.act.reviewer} gave no verdict within {decision.act.timeout:.3g} s", "nothing")
    read = verdicts.read(written(asked.verdict, request.kind), review_of(book, request, decision), digest="optional")
    return _carried_out(book, request, situation, decision, (asked, read)) if isinstance(read, Verdict) else "; ".join(map(str, read))


def written(given: Given | None, kind: Kind) -> dict[str, Any]:
    """A case's verdict in the form that every door takes."""
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


def _timed_out(decision: Decision, what: str, act: Act) -> Judged:
    denied, detail = decision.on_timeout == "deny", f"{what}; on_timeout: {decision.on_timeout}"
    return Judged(decision, "denied" if denied else "unanswered", Reason.TIMEOUT, "cancel" if denied else None, detail=detail, act=act)


def _carried_out(book: Rulebook, request: Request, situation: Situation, decision: Decision, said: tuple[Asked, Verdict]) -> Judged | str:
    asked, verdict = said
    assert isinstance(decision.act, Escalated)
    if verdict.word == "reject":
        return Judged(decision, "denied", Reason.REVIEW, "decline", detail="a person rejected it")
    if verdict.word == "answer":
        result = verdict.result or {}
        return Judged(decision, "answered", content=result.get("content"), detail="a person answered it", action=result.get("action"), act="answer")
    allowed = decision.act.allowed
    assert allowed is not None, "what cannot be approved is not read as approved"
    if verdict.edits is not None:
        again = edits.decided_again(book, request, situation, decision, verdict.edits)
        if isinstance(again, str):
            return Judged(decision, "unanswered", Reason.REVIEW, detail=f"the edits cannot be carried out: {again}")
        decision = msgspec.structs.replace(decision, act=msgspec.structs.replace(decision.act, allowed=again))
    if asked.fails == "timeout":
        return _timed_out(decision, "a person approved it, and the model took too long", "ask")
    outcome: Outcome | None = None if allowed.review_answer is not None else "answered" if asked.fails is None else "unanswered"
    return Judged(decision, outcome, detail="a person approved it", act="ask")
