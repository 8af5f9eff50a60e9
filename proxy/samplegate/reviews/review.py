"""Pure. One review: what was asked of whom, what a verdict on it is bound to, and what became of it. Values only;
``review.py`` says what may follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from samplegate.policy.schema import Mode, Show, Stage
from samplegate.protocol.frames import Era
from samplegate.protocol.requests import Call, Kind
from samplegate.protocol.strictjson import JsonFault, plain_name
from samplegate.secret_names import secret_fields, without_secrets

State: TypeAlias = Literal["pending", "approved", "rejected", "answered", "expired", "withdrawn"]
Door: TypeAlias = Literal["gate", "webhook", "callback", "command", "api", "page", "cli"]
"""By what way something was said of a review; ``gate`` is the gate itself (time, and what peers took back)."""

DECIDED: Final[frozenset[State]] = frozenset({"approved", "rejected", "answered"})
ENDED: Final[frozenset[State]] = frozenset(get_args(State)) - {"pending"}
PROGRAMS: Final[frozenset[Door]] = frozenset({"webhook", "command"})
"""Doors at which a program answers at once: no person stands behind what it says, as far as anybody can know."""


class EditBounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What edits of a sampling request must keep to: the policy's hard limits, as far as they can be told at a form's
    field."""

    models: tuple[str, ...] = ()
    """Our names of the models that may be asked; the first is the choice of the policy."""
    max_tokens: Mapping[str, int] = {}
    """The most output tokens by model; no entry: no bound."""
    temperature_min: float | None = None
    temperature_max: float | None = None
    drops_system_prompt: bool = False
    """The rule takes it away, so there is none to edit."""
    prepended: str = ""
    """What the rule puts before the system prompt: an edited one must begin with it."""


class Edits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a person changes of a sampling request; None: as it is. A system prompt of "" takes it away."""

    messages: tuple[Mapping[str, Any], ...] | None = None
    system_prompt: str | None = None
    model: str | None = None
    """Our name of a model."""
    max_tokens: int | None = None
    temperature: float | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person said. ``approve``: go on (sampling, with or without edits; a model's answer as it is); ``answer``:
    this is the answer."""

    word: Literal["approve", "reject", "answer"]
    edits: Edits | None = None
    result: Mapping[str, Any] | None = None
    """``answer``: the whole result in the newest shape (an elicitation's action and content; sampling's role, content,
    model, stopReason)."""
    reason: str = ""
    tell_server: bool = False
    """Whether the server sees the reason."""


class Unsent(msgspec.Struct, frozen=True):
    """A param of a sampling request that no model is sent, as the server asked it."""

    param: str
    value: Any
    effect: str
    """What the gate makes of it, as a clause for people."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a model's answer to one, that waits for a person, and its history's last line. Times in unix
    seconds."""

    id: str
    """``rv_`` and 24 random letters and digits: known to nobody who was not told."""
    digest: str
    """``sha256:`` and hex: what a verdict is bound to (``create.py``)."""
    lookup: str
    """The digest without a model's answer: by it the next same request finds a verdict."""
    stage: Stage
    reviewer: str
    rule: str
    policy_hash: str
    decision_id: str
    """Of the request that opened it, in the decision log."""
    server: str
    caller: str
    era: Era
    revision: str
    kind: Kind
    mode: Mode | None
    calls: tuple[Call, ...]
    arguments: Any
    """The params of the client's call it was asked in, decoded, without ``_meta``; None where that is not known, or too
    large to show."""
    params: Mapping[str, Any]
    """Exactly what will be acted on: what a model is asked (within the rule's bounds), or what the form or the URL
    says."""
    changed: tuple[str, ...] = ()
    """The params that the rule's bounds changed."""
    unsent: tuple[Unsent, ...] = ()
    """Of a sampling request: model preferences, includeContext, metadata and the like. No verdict is bound to them,
    because no model gets them."""
    bounds: EditBounds | None = None
    """Sampling that may be approved; None: a person can only answer it or refuse it."""
    why: str = ""
    """Why it cannot be approved."""
    answer: Mapping[str, Any] | None = None
    """Stage ``answer``: the result that would be released."""
    worst_usd: int | None = None
    """What its sampling may cost at worst, in units of ``ledger.SCALE["usd"]``; None: unknown, or nothing is asked of a
    model."""
    show: Show = "redacted"
    created: float
    expires: float
    """When it no longer waits for a verdict."""
    late: float
    """Seconds that a verdict may be used after it was given."""
    answers_until: float | None = None
    """When its request's peers will have given up; later verdicts answer the next same request. None: as long as it
    waits."""
    state: State = "pending"
    verdict: Verdict | None = None
    decided: float | None = None
    """When it left ``pending``."""
    who: str = ""
    """Who decided: a person's name as far as their door knows it."""
    door: Door | None = None
    waiter: str | None = None
    """Who in which process waits for the verdict, or has taken it to act on it."""
    held_until: float = 0.0
    """When the waiter is taken for dead unless it says otherwise before."""
    used_by: str | None = None
    """The decision_id that the verdict was released under: after it the verdict is good for nothing."""
    used: float | None = None

    @property
    def method(self) -> str:
        """The request's method."""
        return "sampling/createMessage" if self.kind == "sampling" else "elicitation/create"


class ReviewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a review's history. ``number`` grows over all reviews of a store."""

    number: int
    review: str
    at: float
    what: Literal[
        "opened",
        "joined",
        "approved",
        "rejected",
        "answered",
        "expired",
        "withdrawn",
        "used",
        "given back",
        "told",
        "untold",
    ]
    """``told`` and ``untold`` are of its deliveries: by webhook or command, or that it could not be."""
    who: str = ""
    door: Door = "gate"
    detail: str = ""
    """Never content."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which reviews are listed, newest first. ``before`` is the id of the last one of the page before; ``oldest_first``
    turns the order round."""

    states: tuple[State, ...] = ()
    """Empty: all."""
    reviewers: tuple[str, ...] | None = None
    """None: all."""
    server: str | None = None
    kind: Kind | None = None
    before: str | None = None
    limit: int = 50
    oldest_first: bool = False


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to a reviewer's webhook or command, kept until it is delivered or given up."""

    id: str
    """``msg_`` and 24 random letters and digits; the same at each try."""
    review: str
    reviewer: str
    event: Literal["review.opened", "review.decided", "review.expired", "review.withdrawn"]
    created: float
    due: float
    """When it is tried next."""
    tries: int = 0
    state: Literal["waiting", "done", "failed"] = "waiting"
    taker: str | None = None
    held_until: float = 0.0
    said: str = ""
    """What became of the last try: a status or a kind of fault, never content."""


class FieldProblem(msgspec.Struct, frozen=True):
    """``path``: the field, such as ``content.port`` or ``edits.maxTokens``; "" for the whole. ``what`` follows its
    name, and holds no content."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def below(path: str, fault: JsonFault) -> FieldProblem:
    """A parser's fault, whose own place is before its first colon, as a problem below ``path``; ``path`` ends with a
    dot."""
    place, colon, what = str(fault).partition(": ")
    return FieldProblem(f"{path}{place}", what) if colon else FieldProblem(path[:-1], place)


def unknown(given: dict[str, object], known: frozenset[str], path: str = "") -> list[FieldProblem]:
    """A problem for each member that nothing knows: most likely a known one misspelt, so it is not passed over."""
    return [
        FieldProblem(f"{path}{plain_name(name)}", f"is none of {', '.join(sorted(known))}")
        for name in given
        if name not in known
    ]


def scrub_verdict(review: Review) -> Review:
    """The review without the values that a person gave for secret-looking fields of a form (R39). That a field was
    filled in stays."""
    verdict = review.verdict
    content = None if verdict is None or verdict.result is None else verdict.result.get("content")
    if verdict is None or verdict.result is None or review.kind != "elicitation" or not isinstance(content, dict):
        return review
    clean = without_secrets(content, secret_fields(review.params.get("requestedSchema")))
    return replace(review, verdict=replace(verdict, result={**verdict.result, "content": clean}))


# What may become of a review: pending -> approved | rejected | answered | expired | withdrawn, and a verdict's one
# use. Pure: time is a value.
#
# The first verdict wins; a later one is refused with what came of it. A store applies these to its rows within one
# transaction each.

_STATES: Final[Mapping[str, State]] = {"approve": "approved", "reject": "rejected", "answer": "answered"}


class Conflict(msgspec.Struct, frozen=True):
    """A verdict came too late: ``review`` is how it stands."""

    review: Review


def decided(review: Review, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict:
    """A verdict is given."""
    if review.state != "pending" or now >= review.expires:
        return Conflict(expired(review, now) or review)
    return msgspec.structs.replace(
        review, state=_STATES[verdict.word], verdict=verdict, decided=now, who=who, door=door
    )


def expired(review: Review, now: float) -> Review | None:
    """Its time is over; None if it is not, or something else came first."""
    if review.state != "pending" or now < review.expires:
        return None
    return msgspec.structs.replace(
        review, state="expired", decided=review.expires, door="gate", waiter=None, held_until=0.0
    )


def withdrawn(review: Review, *, waiter: str, now: float) -> Review | None:
    """Whoever asked or called took the request back; None if there is nothing to withdraw for this waiter."""
    if review.state != "pending" or review.waiter not in (None, waiter):
        return None
    return msgspec.structs.replace(review, state="withdrawn", decided=now, door="gate", waiter=None, held_until=0.0)


def verdict_for(review: Review, waiter: str, now: float, own: str = "") -> Literal["decided", "pending", "none"]:
    """What a waiter for a request with its ``lookup`` finds: a verdict that it may take, a review that it may wait for,
    or nothing for it.

    ``own``: the id of the review that the request waited for before it was put off; its verdict is never late for it.
    """
    free = review.waiter in (None, waiter) or now >= review.held_until
    if not free or review.used_by is not None:
        return "none"
    if review.state in DECIDED and review.decided is not None:
        # whoever waited while it was decided is in time whatever `late` says
        return (
            "decided" if now < review.decided + review.late or review.waiter == waiter or review.id == own else "none"
        )
    return "pending" if review.state == "pending" and now < review.expires else "none"


def held(review: Review, *, waiter: str, now: float, seconds: float, until: float | None = 0.0) -> Review:
    """The waiter says that it is there, for as many seconds; what it waits for it waits for until ``until`` (None: as
    long as the review does)."""
    answers = None if review.answers_until is None or until is None else max(review.answers_until, until)
    return msgspec.structs.replace(review, waiter=waiter, held_until=now + seconds, answers_until=answers)


def left(review: Review, waiter: str) -> Review | None:
    """The waiter goes: its request has ended, or it cannot use the verdict. None if it is not the waiter, or has used
    it."""
    if review.waiter != waiter or review.used_by is not None:
        return None
    return msgspec.structs.replace(review, waiter=None, held_until=0.0)


def used(review: Review, *, waiter: str, decision_id: str, now: float) -> Review | None:
    """The verdict is released, once; None if it is not this waiter's any more."""
    if review.state not in DECIDED or review.used_by is not None or review.waiter != waiter:
        return None
    return msgspec.structs.replace(review, used_by=decision_id, used=now, waiter=None, held_until=0.0)
