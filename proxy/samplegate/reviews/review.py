"""Pure. A review: its request, its verdict, its history and its state machine.

pending -> approved | rejected | answered | expired | withdrawn. A verdict is used once.

The first verdict wins, or the last of the approvals that the reviewer needs (``votes.py``). A later one is refused with
the review's current state. The store applies each transition to its rows within one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from samplegate.policy.schema import Mode, Show, Stage
from samplegate.protocol.frames import Era
from samplegate.protocol.requests import Call, Dialect, Kind
from samplegate.protocol.strictjson import JsonFault, plain_name
from samplegate.secret_names import secret_fields, without_secrets
from samplegate.urls import origin_of

State: TypeAlias = Literal["pending", "approved", "rejected", "answered", "expired", "withdrawn"]
Door: TypeAlias = Literal["gate", "webhook", "callback", "command", "api", "page", "cli"]
"""How a change of a review arrived; ``gate`` is the gate itself (expiry and withdrawal)."""

MAX_UI: Final = 1024 * 1024  # bytes of a server's UI
DECIDED: Final[frozenset[State]] = frozenset({"approved", "rejected", "answered"})
ENDED: Final[frozenset[State]] = frozenset(get_args(State)) - {"pending"}
PROGRAMS: Final[frozenset[Door]] = frozenset({"webhook", "command"})
"""Doors through which a program decides at once: no person is known to stand behind the verdict."""


class EditBounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constraints on edits of a sampling request: the policy's hard limits, as far as a form's field can show them."""

    models: tuple[str, ...] = ()
    """The policy's names of the models that may be asked; the first is the policy's choice."""
    max_tokens: Mapping[str, int] = {}
    """Maximum output tokens by model; no entry: unlimited."""
    temperature_min: float | None = None
    temperature_max: float | None = None
    drops_system_prompt: bool = False
    """The rule removes the system prompt, so there is none to edit."""
    prepended: str = ""
    """The text that the rule puts before the system prompt: an edited prompt must begin with it."""


class Edits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A reviewer's edits of a sampling request. None: unchanged. A system prompt of "" removes it."""

    messages: tuple[Mapping[str, Any], ...] | None = None
    system_prompt: str | None = None
    model: str | None = None
    """The policy's name of a model."""
    max_tokens: int | None = None
    temperature: float | None = None


class ReviewUi(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server's own UI for a form. Its bytes are stored beside the review."""

    uri: str
    """``ui://...``, as the server named it."""
    dialect: Dialect
    context: Any = None
    """RICH only: what the server gives its app. Untrusted data."""
    state: Literal["loading", "ready", "failed"] = "loading"
    origins: tuple[str, ...] = ()
    """The origins from which the page may load a UI that the server gives as a URL."""
    url: str = ""
    """The UI's URL, at one of ``origins``; "" if the server gave the HTML itself."""
    sha256: str = ""
    """The SHA-256 in hex of the HTML or of the URL, once it has been read."""
    size: int = 0
    """Bytes."""
    problem: str = ""
    """``failed``: why, without content."""

    @property
    def origin(self) -> str:
        """The origin of ``url``; "" without one."""
        return origin_of(self.url) or ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reviewer's decision. ``answer`` supplies the result.

    ``approve`` releases a model's answer as it is, or lets a sampling request go on, with or without edits.
    """

    word: Literal["approve", "reject", "answer"]
    edits: Edits | None = None
    result: Mapping[str, Any] | None = None
    """``answer``: the whole result in the newest shape (an elicitation's action and content; sampling's role, content,
    model, stopReason).
    """
    reason: str = ""
    tell_server: bool = False
    """Whether the server sees the reason."""
    ui: str = ""
    """The SHA-256 in hex of the UI that the reviewer, or one of several approvers, was shown; "" if none was."""


class Unsent(msgspec.Struct, frozen=True):
    """A param of a sampling request that is not sent to the model, with the server's value."""

    param: str
    value: Any
    effect: str
    """How the gate uses the param, as a clause for reviewers."""


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval or a rejection of a review that needs several approvals."""

    by: str
    """The name of who voted, as far as the door knows it."""
    how: Door
    verdict: Literal["approve", "answer", "reject", "decline", "cancel"]
    """``decline`` and ``cancel``: an answer to a form or a URL that refuses, as a rejection does."""
    at: float
    digest: str
    """The digest of the version that was approved (``votes.version``)."""
    proven: bool = False
    """Whether a token, a session or a signed assertion proved the name."""
    void: bool = False
    """An approval that a later edit voided."""
    reason: str = ""
    subject: str = ""
    """The ID of a person whom a signed assertion identified; "" for others."""
    ui: str = ""
    """The SHA-256 in hex of the server's UI that this person was shown; "" if none was."""


class Also(msgspec.Struct, frozen=True):
    """A reviewer who decides a review, too, if it is pending for long; and the groups of whose people one must be."""

    reviewer: str
    groups: tuple[str, ...] = ()


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a request, or of a model's answer to one, with its state and verdict. Times are in Unix seconds."""

    id: str
    """``rv_`` and 24 random letters and digits, which cannot be guessed."""
    digest: str
    """The digest that a verdict is bound to: ``sha256:`` and hex (``create.py``)."""
    lookup: str
    """The digest without a model's answer. The next identical request finds a verdict by it."""
    stage: Stage
    reviewer: str
    rule: str
    policy_hash: str
    decision_id: str
    """The decision log's ID of the request that opened the review."""
    traceparent: str = ""
    """The trace context (W3C) of that request's span, if it is exported."""
    server: str
    caller: str
    era: Era
    revision: str
    kind: Kind
    mode: Mode | None
    calls: tuple[Call, ...]
    arguments: Any
    """The decoded params of the client's call, without ``_meta``; None if unknown or too large to show."""
    params: Mapping[str, Any]
    """Exactly the params that a verdict acts on: the model's input (within the rule's bounds), or the form or URL."""
    changed: tuple[str, ...] = ()
    """The params that the rule's bounds changed."""
    unsent: tuple[Unsent, ...] = ()
    """Sampling only: model preferences, includeContext, metadata and the like.

    No verdict is bound to them, because no model gets them.
    """
    bounds: EditBounds | None = None
    """Set if sampling may be approved; None: a reviewer can only answer or reject."""
    why: str = ""
    """Why the request cannot be approved."""
    answer: Mapping[str, Any] | None = None
    """Stage ``answer``: the result that would be released."""
    worst_usd: int | None = None
    """The max cost of the sampling, in units of ``ledger.SCALE["usd"]``. None: unknown, or no model is asked."""
    show: Show = "redacted"
    created: float
    expires: float
    """The deadline for a verdict."""
    late: float
    """How long a verdict can be used after it was given, in seconds."""
    approvals: int = 1
    """How many approvals of the same content it needs, each by another person."""
    not_caller: bool = False
    """The person who made the call cannot approve it."""
    groups: tuple[str, ...] = ()
    """Only people in one of these groups, and admins, may decide; empty: all people of the reviewer."""
    also: tuple[Also, ...] = ()
    """Other reviewers, who may decide from ``also_from`` on."""
    also_from: float | None = None
    votes: tuple[Vote, ...] = ()
    """All votes in their order, if it needs several approvals."""
    proposal: Verdict | None = None
    """Pending only: the edits or the answer that the approvals so far are for. None: the request as it is."""
    answers_until: float | None = None
    """When the peers of the request give up; None: when the review expires.

    Later verdicts answer the next identical request.
    """
    ui: ReviewUi | None = None
    """The server's own UI, if the rule shows it. It changes only while the review is pending."""
    state: State = "pending"
    verdict: Verdict | None = None
    decided: float | None = None
    """When the review left ``pending``."""
    who: str = ""
    """Who decided: the reviewer's name as far as the door knows it."""
    door: Door | None = None
    waiter: str | None = None
    """The name of the wait that has the lease: it waits for the verdict, or acts on it. It stays after the use."""
    held_until: float = 0.0
    """When the waiter's lease ends unless it is renewed."""
    used_by: str | None = None
    """The decision_id under which the verdict was released. After that, the verdict cannot be used again."""
    used: float | None = None

    @property
    def method(self) -> str:
        """The request's JSON-RPC method."""
        return "sampling/createMessage" if self.kind == "sampling" else "elicitation/create"


class ReviewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a review's history. ``number`` increases over all reviews of a store."""

    number: int
    review: str
    at: float
    what: Literal[
        "opened",
        "joined",
        "voted",
        "approved",
        "rejected",
        "answered",
        "expired",
        "withdrawn",
        "used",
        "given back",
        "told",
        "untold",
        "ui ready",
        "ui failed",
    ]
    """``told`` and ``untold``: a delivery by webhook or command succeeded or failed.

    ``ui ready`` and ``ui failed``: the server's own UI can be shown or cannot.
    """
    who: str = ""
    door: Door = "gate"
    detail: str = ""
    """Never message content."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter and page of the list of reviews, newest first.

    ``before`` is the ID of the last review of the page before; ``oldest_first`` reverses the order.
    """

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
    """A message to a reviewer's webhook or command, kept until it is delivered or given up."""

    id: str
    """``msg_`` and 24 random letters and digits; the same for each attempt."""
    review: str
    reviewer: str
    event: Literal["review.opened", "review.decided", "review.expired", "review.withdrawn"]
    created: float
    due: float
    """When the next attempt is due."""
    tries: int = 0
    state: Literal["waiting", "done", "failed"] = "waiting"
    taker: str | None = None
    held_until: float = 0.0
    said: str = ""
    """The result of the last attempt: a status or a kind of fault, never content."""


class FieldProblem(msgspec.Struct, frozen=True):
    """A problem with one field of a verdict.

    ``path`` is the field, such as ``content.port`` or ``edits.maxTokens``; "" is the whole. ``what`` follows the
    field's name and contains no message content.
    """

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def below(path: str, fault: JsonFault) -> FieldProblem:
    """Prefix a parser's fault with ``path``, which ends with a dot. The fault's own path is before its first colon."""
    place, colon, what = str(fault).partition(": ")
    return FieldProblem(f"{path}{place}", what) if colon else FieldProblem(path[:-1], place)


def unknown(given: dict[str, object], known: frozenset[str], path: str = "") -> list[FieldProblem]:
    """A problem for each unknown member. It is most likely a misspelling, so it is not ignored."""
    return [
        FieldProblem(f"{path}{plain_name(name)}", f"is unknown; expected one of {', '.join(sorted(known))}")
        for name in given
        if name not in known
    ]


def scrub_verdict(review: Review) -> Review:
    """The review without the values that a reviewer gave for secret-looking fields of a form (R39).

    The names of the filled-in fields stay.
    """
    verdict, proposal = (_scrubbed(review, each) for each in (review.verdict, review.proposal))
    if verdict is review.verdict and proposal is review.proposal:
        return review
    return replace(review, verdict=verdict, proposal=proposal)


def _scrubbed(review: Review, verdict: Verdict | None) -> Verdict | None:
    content = None if verdict is None or verdict.result is None else verdict.result.get("content")
    if verdict is None or verdict.result is None or review.kind != "elicitation" or not isinstance(content, dict):
        return verdict
    clean = without_secrets(content, secret_fields(review.params.get("requestedSchema")))
    return replace(verdict, result={**verdict.result, "content": clean})


_STATES: Final[Mapping[str, State]] = {"approve": "approved", "reject": "rejected", "answer": "answered"}


class Conflict(msgspec.Struct, frozen=True):
    """A verdict that came too late; ``review`` has the current state."""

    review: Review


class VoteRefused(msgspec.Struct, frozen=True):
    """A vote that does not count, although the review is pending."""

    review: Review
    reason: Literal["stale", "repeated", "caller", "full"]
    """``stale``: the content was edited meanwhile, or another UI was shown than the review has; ``repeated``: this
    person's approval counts already; ``caller``: the person made the call; ``full``: it has too many votes."""
    why: str
    """A sentence without a full stop."""


def decided(review: Review, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict:
    """Apply a verdict."""
    if review.state != "pending" or now >= review.expires:
        return Conflict(expired(review, now) or review)
    # a verdict on the form alone counts, whatever UI the server has later
    lookup = review.digest if review.ui is not None and not verdict.ui else review.lookup
    return msgspec.structs.replace(
        review,
        lookup=lookup,
        state=_STATES[verdict.word],
        verdict=verdict,
        proposal=None,
        decided=now,
        who=who,
        door=door,
    )


def with_ui(review: Review, ui: ReviewUi, body: bytes, now: float) -> Review | None:
    """The review with the UI that was read, or with the reason why it could not be. None, so that nothing changes, if
    the review shows no UI, has one, or is no longer pending.

    Raises ValueError if ``ui`` does not describe ``body``: a verdict is bound to this SHA-256.
    """
    if ui.state == "loading" or len(body) > MAX_UI or (ui.state == "failed" and body):
        raise ValueError(f"a UI must be ready with at most {MAX_UI} bytes, or failed without any")
    if ui.state == "ready" and (ui.sha256, ui.size) != (hashlib.sha256(body).hexdigest(), len(body)):
        raise ValueError("the SHA-256 or the size is not that of the UI's bytes")
    if ui.url and ui.url.encode() != body:
        raise ValueError("the bytes are not the UI's URL")
    if review.state != "pending" or now >= review.expires or review.ui is None or review.ui.state != "loading":
        return None
    lookup = review.lookup if ui.state == "failed" else lookup_with_ui(review.lookup, ui)
    return replace(review, ui=ui, lookup=lookup)


def lookup_with_ui(lookup: str, ui: ReviewUi) -> str:
    """The lookup of a review that shows the server's own UI with these bytes, or from this URL, from its ``digest``."""
    kind = "url" if ui.url else "ui"
    return "sha256:" + hashlib.sha256(f"{lookup} {kind} {ui.sha256}".encode()).hexdigest()


def ui_detail(ui: ReviewUi) -> str:
    """The detail of the event ``ui ready`` or ``ui failed``."""
    return f"sha256:{ui.sha256} ({ui.size} bytes)" if ui.state == "ready" else ui.problem


def ready_ui(review: Review) -> ReviewUi | None:
    """The UI that can be shown to a reviewer now: none until it has been read, and none after the review's end."""
    return review.ui if review.state == "pending" and review.ui is not None and review.ui.state == "ready" else None


def expired(review: Review, now: float) -> Review | None:
    """The review as expired; None if its deadline has not passed or it has already ended."""
    if review.state != "pending" or now < review.expires:
        return None
    return msgspec.structs.replace(
        review, state="expired", decided=review.expires, door="gate", waiter=None, held_until=0.0, proposal=None
    )


def withdrawn(review: Review, *, waiter: str, now: float) -> Review | None:
    """The review as withdrawn by the peer that asked or called; None if this waiter has nothing to withdraw."""
    if review.state != "pending" or review.waiter not in (None, waiter):
        return None
    return msgspec.structs.replace(
        review, state="withdrawn", decided=now, door="gate", waiter=None, held_until=0.0, proposal=None
    )


def verdict_for(review: Review, waiter: str, now: float, own: str = "") -> Literal["decided", "pending", "none"]:
    """Whether a waiter with the same ``lookup`` may use the verdict, may wait for the pending review, or neither.

    ``own``: the review that the request waited for before it was put off; its verdict is never too late for this
    request.
    """
    free = review.waiter in (None, waiter) or now >= review.held_until
    if not free or review.used_by is not None:
        return "none"
    if review.state in DECIDED and review.decided is not None:
        # a waiter that was there when the verdict came is in time, whatever `late` is
        return (
            "decided" if now < review.decided + review.late or review.waiter == waiter or review.id == own else "none"
        )
    return "pending" if review.state == "pending" and now < review.expires else "none"


def opened(review: Review, now: float) -> Review:
    """The review as created at ``now``. Its other times move with its creation."""
    moved = now - review.created
    until, also = review.answers_until, review.also_from
    return replace(
        review,
        created=now,
        also_from=None if also is None else also + moved,
        expires=review.expires + moved,
        held_until=review.held_until + moved,
        answers_until=None if until is None else until + moved,
    )


def held(review: Review, *, waiter: str, now: float, seconds: float, gives_up: float | None = 0.0) -> Review:
    """Lease the review to the waiter for ``seconds``. Its peers give up in ``gives_up`` seconds.

    ``gives_up`` of None: not before the review expires.
    """
    answers = None
    if review.answers_until is not None and gives_up is not None:
        answers = max(review.answers_until, now + gives_up if gives_up > 0 else 0.0)
    return msgspec.structs.replace(review, waiter=waiter, held_until=now + seconds, answers_until=answers)


def left(review: Review, waiter: str) -> Review | None:
    """End the waiter's lease: its request has ended, or it cannot use the verdict.

    None if another waiter has the review, or the verdict is used.
    """
    if review.waiter != waiter or review.used_by is not None:
        return None
    return msgspec.structs.replace(review, waiter=None, held_until=0.0)


def used(review: Review, *, waiter: str, decision_id: str, now: float) -> Review | None:
    """Mark the verdict as used, once. None if it is used already, or the waiter has lost its lease.

    Returns the review unchanged if this waiter has used it under this ``decision_id``. The ID alone is not enough: the
    retries of a call have one ID, and each of them waits under a name of its own.
    """
    if review.state not in DECIDED or review.waiter != waiter:
        return None
    if review.used_by is not None:
        return review if review.used_by == decision_id else None
    return msgspec.structs.replace(review, used_by=decision_id, used=now, held_until=0.0)
