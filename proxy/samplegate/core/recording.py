"""From a round and what came of it to the record of the decision log. Values only: ``record.py`` says how a record reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from samplegate.core import jsontext
from samplegate.core.decisions import Answered, DecidedBy, Decision, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.core.record import Attempt, Record, Released
from samplegate.core.requests import BadRequest, ElicitationRequest
from samplegate.core.review.review import Review
from samplegate.core.session.rounds import Item, Round

__all__ = ["Attempt", "Done", "describe", "detail_of"]


class Done(msgspec.Struct, frozen=True):
    """What came of one request."""

    outcome: Outcome
    decision: Decision
    """The decision that was acted on last (`on_timeout: next` may have moved it)."""
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    fits: bool | None = None
    """Whether a client's answer fits what was asked; None where no client answered."""
    dropped: tuple[str, ...] = ()
    """Params that the model's provider does not take."""
    tried: tuple[str, ...] = ()
    """Rules that were tried before, each with why it was left: what was waited for, or the limit that had no room."""
    handed_on_to_client: bool = False
    """A modern forward, recorded at its start."""
    is_put_off: bool = False
    """A model has answered, and the call is put off while people look: recorded for what was spent."""
    attempts: tuple[Attempt, ...] = ()
    """The calls of models, in their order."""
    limits: tuple[str, ...] = ()
    """The limits that were drawn on."""
    refused_by: str | None = None
    """The limit that had no room for it."""
    redacted: Mapping[str, int] = {}
    """How many secrets of which pattern were found, in prompt and answer together."""
    cleaned: Mapping[str, Any] | None = None
    """The request's params without the secrets that were found: what the record is to hold of it. None: they are kept as asked."""
    usd: int | None = None
    """What all attempts cost, as settled, in units of ``ledger.SCALE["usd"]``; None where it is unknown or no model was asked."""
    reserved_usd: int | None = None
    """What was reserved for them at worst, likewise."""
    review: Review | None = None
    """What a person was asked, with the verdict if there is one."""
    reviewed: float = 0.0
    """Seconds that were spent waiting for verdicts."""
    told: str = ""
    """What a person wants the server to see."""
    revokes: bool = False
    """The record of this request that stands already says what is not released after all."""

    @classmethod
    def handed_on(cls, decision: Decision) -> Done:
        """The request goes to the client, which answers by itself: inside an ``input_required`` result, or as the -32042 error that it was."""
        return cls(Answered(b"{}", "client"), decision, handed_on_to_client=True)

    def put_off_now(self) -> Done:
        """The same while its call is put off: nothing is released, and nothing that a person said is carried out."""
        waits = isinstance(self.outcome, Unanswered)
        outcome = self.outcome if waits else Unanswered(Reason.TIMEOUT, detail="its call was put off for another request of the round")
        return msgspec.structs.replace(self, outcome=outcome, is_put_off=True, told="")


def describe(round: Round, key: str, item: Item, decision_id: str, done: Done, *, policy_hash: str, time: float, duration: float) -> Record:
    """The record of one request: ``time`` in Unix seconds, ``duration`` in seconds."""
    request, decision, outcome = item.request, done.decision, done.outcome
    origin = round.origin
    return Record(
        decision_id=decision_id,
        time=time,
        server=origin.server,
        caller=origin.caller,
        era=origin.era,
        revision=origin.revision,
        door=round.door,
        kind="sampling" if item.method.startswith("sampling/") else "elicitation",
        effect=decision.effect,
        reason=_reason(done),
        outcome="forwarded" if done.handed_on_to_client else "put_off" if done.is_put_off else _released(outcome),
        policy_hash=policy_hash,
        round=round.id,
        key=key or None,
        mode=request.mode if isinstance(request, ElicitationRequest) else None,
        calls=origin.calls,
        rule=decision.rule,
        detail=detail_of(done),
        shadows=decision.shadows,
        model=done.model,
        duration_ms=duration * 1000,
        action=_action(item, done),
        decided_by=None if done.handed_on_to_client or done.is_put_off else _decided_by(outcome),
        fits=done.fits,
        tried=done.tried,
        changed=(*(() if decision.allowed is None else decision.allowed.changed), *done.dropped),
        **_spent(done),
        redacted=done.redacted,
        asked=None if decision.allowed is None else decision.allowed.params,
        request=None if isinstance(request, BadRequest) else request.params if done.cleaned is None else done.cleaned,
        traceparent=origin.trace or None,
        **_reviewed(done),
        revokes=done.revokes,
        result=outcome.result if isinstance(outcome, Answered) and not done.handed_on_to_client else None,
    )


def _spent(done: Done) -> dict[str, Any]:
    """What was drawn and spent. It stands once: a record that revokes another leaves it to that one."""
    if done.revokes:
        return {}
    names = ("input_tokens", "output_tokens", "attempts", "usd", "reserved_usd", "limits", "refused_by")
    return {name: getattr(done, name) for name in names}


def _reviewed(done: Done) -> dict[str, Any]:
    review = done.review
    if review is None:
        return {}
    said = {"reviewed_by": review.who or None, "review_door": review.door} if review.verdict is not None else {}
    return {"review": review.id, "reviewer": review.reviewer, "reviewed_ms": done.reviewed * 1000, **said}


def _said(result: bytes) -> str:
    try:
        return jsontext.string(jsontext.lookup(result, "action")) or ""
    except jsontext.Malformed:  # a client's result of two readings: verbatim, but it says nothing that could be recorded
        return ""


_ACTIONS: Final[Mapping[str, Literal["accept", "decline", "cancel"]]] = {"accept": "accept", "decline": "decline", "cancel": "cancel"}


def _reason(done: Done) -> Reason:
    return done.outcome.reason if isinstance(done.outcome, Denied | Unanswered) and not done.is_put_off else done.decision.reason


def _released(outcome: Outcome) -> Released:
    names: Mapping[type[Any], Released] = {Answered: "answered", Denied: "denied", Unanswered: "unanswered", Withdrawn: "withdrawn"}
    return names[type(outcome)]


def detail_of(done: Done) -> str:
    """Why it came out as it did, for the operator."""
    said = done.outcome.detail if isinstance(done.outcome, Denied | Unanswered) else ""
    return said or done.decision.detail


def _decided_by(outcome: Outcome) -> DecidedBy | None:
    match outcome:
        case Answered(decided_by=by):
            return by
        case Denied(reason=Reason.CLIENT) | Unanswered(reason=Reason.CLIENT):
            return "client"
        case Denied(reason=Reason.REVIEW, decided_by=by):
            return by
        case Unanswered(reason=Reason.TIMEOUT):
            return "timeout"
        case Withdrawn():
            return None
        case _:
            return "policy"


def _action(item: Item, done: Done) -> Literal["accept", "decline", "cancel"] | None:
    """What an elicitation was answered; of a client's own words only one of the three."""
    if item.method.startswith("sampling/") or done.handed_on_to_client:
        return None
    match done.outcome:
        case Denied(error=None, action=action, code=-1):
            return action
        case Unanswered(error=None, code=-1):
            return "cancel"
        case Answered(result=result):
            return _ACTIONS.get(_said(result))
        case _:
            return None
