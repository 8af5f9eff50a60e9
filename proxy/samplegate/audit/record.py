"""Pure. Records of the decision log: the facts about one request, its line of JSON, and the line read back.
``records/`` writes the files.

Content is not kept unless asked for. The default is a keyed hash (HMAC-SHA256 with a random key that stays beside the
log): it shows that two contents were the same, or what one was to whoever has it and the key. A plain hash of a short
answer is guessed in no time.

A verdict is marked as used after the record stands. Where that cannot be done nothing is released, and a second record
of the same ``decision_id`` says so, within seconds. So only a bounded number of records, each with a verdict, is held
back to wait for it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.decisions import Decision, Shadow
from samplegate.policy.ledger import SCALE
from samplegate.protocol import rawjson
from samplegate.protocol.frames import Era
from samplegate.protocol.outcomes import Answered, DecidedBy, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest, Call, ElicitationRequest
from samplegate.protocol.rounds import Item, Round
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews.review import Review
from samplegate.secret_names import secret_fields, without_secrets

ContentMode: TypeAlias = Literal["none", "hash", "full"]
Door: TypeAlias = Literal["push", "input_required", "url_error", "unasked"]
Released: TypeAlias = Literal["answered", "denied", "unanswered", "withdrawn", "forwarded", "put_off"]
"""What came of it. ``forwarded`` is the first of a modern forward's two records, ``put_off`` that of a request whose
model has answered and whose call is put off while people look at the answer; the client's return writes the other."""

MAX_NAME: Final = 256  # characters of a name that a peer chose
MAX_DETAIL: Final = 2_000
MAX_CALLS: Final = 20
MAX_ATTEMPTS: Final = 100  # no request has as many: every model of several rules would have to fail
# bytes of one content; beyond it the hash is kept, so that one line stays one quick append
MAX_FULL: Final = 1024 * 1024

# What could forge a line or drive a terminal that shows the log, and halves of characters that no UTF-8 has.
_escaped: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_user: Final = re.compile(r"^([^/]*//)[^/]*@")
"""Up to the last @ before the path."""


class Attempt(msgspec.Struct, frozen=True):
    """One call of one model for a request."""

    model: str
    """Our name of it."""
    result: str
    """``ok``, ``cancelled`` or the failure (``core.prompt.Failure``)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: int | None = None
    """What it cost, in units of ``ledger.SCALE["usd"]``: as settled, 0 where nothing can have been charged. None: its
    price is unknown."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request and what came of it. Times in unix seconds, durations in milliseconds. What is None or empty is left
    out of the line."""

    decision_id: str
    time: float
    server: str
    caller: str
    era: Era
    revision: str
    door: Door
    kind: Literal["sampling", "elicitation"]
    effect: Literal["allow", "answer", "forward", "escalate", "deny", "none"]
    reason: Reason
    outcome: Released
    policy_hash: str
    round: str | None = None
    """The round it was decided in: the same for all its requests."""
    key: str | None = None
    """Its key in ``inputRequests``; the server chose it."""
    mode: Literal["form", "url"] | None = None
    calls: tuple[Call, ...] = ()
    """The client requests it may belong to."""
    traceparent: str | None = None
    """The trace context of the call it belongs to (W3C), where the client gave one."""
    rule: str | None = None
    detail: str = ""
    shadows: tuple[Shadow, ...] = ()
    model: str | None = None
    """The model that really answered (R1)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_ms: float | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    """What an elicitation was answered."""
    decided_by: DecidedBy | None = None
    fits: bool | None = None
    """Whether a forwarded client's answer fits what was asked."""
    tried: tuple[str, ...] = ()
    """Rules that were tried before this one, each with why it was left: no time, or no room in a limit (``next``)."""
    changed: tuple[str, ...] = ()
    """The params that the rule's bounds changed."""
    attempts: tuple[Attempt, ...] = ()
    """The calls of models, in their order: all but the last failed."""
    usd: int | None = None
    """What all of them cost, as settled, in units of ``ledger.SCALE["usd"]``; None where it is unknown."""
    reserved_usd: int | None = None
    """What was reserved for them at worst, likewise."""
    limits: tuple[str, ...] = ()
    """The limits that it drew on."""
    refused_by: str | None = None
    """The limit that had no room for it."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of which pattern were found in the prompt and in the answer."""
    review: str | None = None
    """The review that a person was asked to decide."""
    reviewer: str | None = None
    reviewed_by: str | None = None
    """Who decided it, as far as the door knows; None where nobody has."""
    review_door: str | None = None
    """By what way: ``page``, ``api``, ``cli``, ``webhook``, ``callback`` or ``command``."""
    reviewed_ms: float | None = None
    """What of ``duration_ms`` was spent waiting for people."""
    revokes: bool = False
    """The record before of the same ``decision_id`` says what was not released after all. What was spent stands there,
    and not here."""
    asked: Mapping[str, Any] | None = field(default=None, repr=False)
    """What a model was asked, within its rule's bounds: for the tape, never in the line."""
    request: Mapping[str, Any] | None = field(default=None, repr=False)
    """The params as asked; in the line only as the content mode says."""
    result: bytes | None = field(default=None, repr=False)
    """The result's JSON as released; likewise."""


MEMBERS: Final[Mapping[str, str]] = {
    "decision_id": (
        "The id of the decision in every log and message. A request that the client answers in 2026-07-28 has two lines"
        " with one id, and a revoked decision has one line more."
    ),
    "time": "When the outcome was recorded, in UTC.",
    "server": "The server that made the request.",
    "caller": "The caller on whose behalf the server works; on stdio always `local`.",
    "era": "The protocol's generation: `legacy` (2025-11-25 and older) or `modern` (2026-07-28).",
    "revision": "The protocol version.",
    "door": (
        "How the request arrived: `push` (a request of the server), `input_required` (a result that asks for input),"
        " `url_error` (a URL in an error) or `unasked` (answers that a client sent before it was asked)."
    ),
    "round": "The input round, the same for all its requests.",
    "key": "The request's key in its input round, which the server chose.",
    "kind": "`sampling` or `elicitation`.",
    "mode": "Whether an elicitation is a `form` or a `url`.",
    "calls": "The client's calls that the request may belong to.",
    "effect": "The effect of the rule, or `none`.",
    "rule": "The rule that decided.",
    "reason": "Why the request was decided so.",
    "detail": "More about the reason, in words.",
    "tried": "The rules that were tried before, each with why it was left: a timeout, or a limit with no room.",
    "changed": "The params that the rule changed or the provider does not support.",
    "shadows": "What shadow rules would have done.",
    "model": (
        "The model that answered, as its provider names it; if none answered, the policy's name of the last model that"
        " was called."
    ),
    "input_tokens": "The input tokens that the provider reported.",
    "output_tokens": "The output tokens that the provider reported.",
    "attempts": "Every call of a model, by the policy's name of it: its result, tokens and cost.",
    "cost_usd": "The cost of all calls of models. Left out if a price is unknown.",
    "reserved_usd": "The upper bound of the cost that was reserved.",
    "limits": "The limits that were charged.",
    "refused_by": "The limit that had no room.",
    "redacted": (
        "How many secrets of each pattern were found, never the secrets. The recorded `request` is without those found"
        " in the prompt."
    ),
    "review": "The id of the review.",
    "reviewer": "The policy's name of the reviewer.",
    "reviewed_by": "Who decided the review, as far as the gate knows. Left out if the review was not decided.",
    "review_door": "How the review was decided: `page`, `api`, `cli`, `webhook`, `callback` or `command`.",
    "reviewed_ms": "How much of `duration_ms` was spent waiting for reviewers, in this try.",
    "revokes": (
        "`true`: the earlier line with this `decision_id` names an answer that was not released after all, because the"
        " reviewer's decision could not be marked as used. The earlier line has the cost."
    ),
    "duration_ms": "The time from the decision to this line.",
    "outcome": (
        "`answered`, `denied`, `unanswered`, `withdrawn`, `forwarded` or `put_off` (a reviewer sees a model's answer,"
        " and the client comes back). After `forwarded` and `put_off`, a second line with the same `decision_id`"
        " follows once the client has come back. The first line has the cost until then."
    ),
    "action": "The reply to an elicitation: `accept`, `decline` or `cancel`.",
    "decided_by": "Who answered: `policy`, `human`, `client` or `timeout`.",
    "fits": "Whether the client's answer fits the request.",
    "policy_hash": "The hash of the policy that decided.",
    "traceparent": "The trace context (W3C) of the call, if the client sent one, in `_meta` or as a header.",
}
"""The members of a line and their descriptions, in their order."""
CONTENTS: Final[Mapping[str, str]] = {
    "request": "With `record_content: full`, the request's params.",
    "result": "With `record_content: full`, the released result.",
    "request_hash": "The keyed hash of the request's params, with `hash`, or with `full` if they are too large.",
    "result_hash": "The keyed hash of the result, likewise.",
}
"""The members that depend on the content mode."""


def to_json(record: Record, *, content: ContentMode = "none", key: bytes = b"") -> bytes:
    """One line of UTF-8 JSON without its line end. ``hash`` needs the ``key``; ``full`` is without secret-looking form
    values (R39)."""
    line: dict[str, Any] = {name: getattr(record, name, None) for name in MEMBERS}
    line |= {
        name: _clipped(line[name], MAX_NAME)
        for name in ("server", "caller", "revision", "round", "key", "model", "reviewed_by")
    }
    line |= {name: None if line[name] is None else round(line[name], 3) for name in ("reviewed_ms", "duration_ms")}
    line |= {
        "time": timestamp(record.time),
        "calls": [_call(call) for call in record.calls[:MAX_CALLS]],
        "reason": str(record.reason),
        "detail": _clipped(record.detail, MAX_DETAIL),
        "tried": [_clipped(one, MAX_DETAIL) for one in record.tried[:MAX_CALLS]],
        "shadows": [{"rule": shadow.rule, "effect": shadow.effect} for shadow in record.shadows],
        "attempts": [_attempt(one) for one in record.attempts[:MAX_ATTEMPTS]],
        "cost_usd": _dollars(record.usd),
        "reserved_usd": _dollars(record.reserved_usd),
        "redacted": dict(record.redacted) or None,
        "revokes": record.revokes or None,
        **_contents(record, content, key),
    }
    return _dump({name: value for name, value in line.items() if value is not None and value not in ("", [], ())})


def comes_again(outcome: str, door: str) -> bool:
    """Whether another record of the same request follows once its client has come back."""
    return outcome == "put_off" or (outcome == "forwarded" and door != "url_error")


def may_be_revoked(outcome: str, review: str | None) -> bool:
    """Whether a record that revokes one with these may follow: a verdict is marked as used once the record stands, and
    that may fail."""
    return review is not None and outcome in ("answered", "denied")


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def content_hash(value: Any, key: bytes) -> str:
    """``hmac-sha256:`` and the hex of the HMAC over the value's canonical JSON: sorted keys, no blanks, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "hmac-sha256:" + hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _call(call: Call) -> dict[str, str]:
    found = {"method": _clipped(call.method, MAX_NAME)}
    return found if call.tool is None else {**found, "tool": _clipped(call.tool, MAX_NAME)}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    counts = {
        "input_tokens": attempt.input_tokens,
        "output_tokens": attempt.output_tokens,
        "cost_usd": _dollars(attempt.usd),
    }
    return {"model": attempt.model, "result": attempt.result} | {
        name: count for name, count in counts.items() if count is not None
    }


def _dollars(units: int | None) -> float | None:
    return None if units is None else units / SCALE["usd"]


def _clipped(text: str | None, most: int) -> Any:
    return text if text is None or len(text) <= most else text[: most - 1] + "…"


def _contents(record: Record, content: ContentMode, key: bytes) -> dict[str, Any]:
    """The contents as the mode says. What cannot be read as JSON with one reading is only ever hashed, as it stands."""
    if content == "none":
        return {}
    found: dict[str, Any] = {"request": record.request}
    legible = content == "full"
    try:
        found["result"] = None if record.result is None else decode(record.result)
    except JsonFault:
        found["result"] = (record.result or b"").decode("utf-8", "replace")
        legible = False
    kept = {name: value for name, value in found.items() if value is not None}
    if not legible:
        return {f"{name}_hash": content_hash(value, key) for name, value in kept.items()}
    secret = secret_fields((record.request or {}).get("requestedSchema"))
    shown = {name: _without_query(without_secrets(value, secret)) for name, value in kept.items()}
    large = {name for name, value in shown.items() if len(_dump(value)) > MAX_FULL}
    return {
        f"{name}_hash" if name in large else name: content_hash(kept[name], key) if name in large else shown[name]
        for name in kept
    }


def _without_query(params: Any) -> Any:
    """The address of a URL elicitation without its user, query and fragment, where such requests carry their
    secrets."""
    if not isinstance(params, dict) or not isinstance(url := params.get("url"), str):
        return params
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    shown = _user.sub(r"\1[removed]@", bare)
    return {**params, "url": shown if bare == url else shown + "?[removed]"}


def _dump(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _escaped.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


FULL: Final = 250  # characters: a name this long may have been shortened (``MAX_NAME``)
_time: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z\Z")


class RecordedTry(msgspec.Struct, frozen=True):
    """One call of one model."""

    model: str
    result: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """As settled; None where its price is unknown."""


class RecordLine(msgspec.Struct, frozen=True):
    """One record. What it does not say is None or empty; members that are not known here are left aside."""

    decision_id: str
    time: str
    """RFC 3339 in UTC; two of them compare as text."""
    server: str
    caller: str
    era: Era
    revision: str
    door: str
    kind: Literal["sampling", "elicitation"]
    effect: str
    reason: str
    outcome: str
    mode: Literal["form", "url"] | None = None
    calls: tuple[Call, ...] = ()
    rule: str | None = None
    tried: tuple[str, ...] = ()
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_ms: float | None = None
    action: str | None = None
    decided_by: str | None = None
    attempts: tuple[RecordedTry, ...] = ()
    cost_usd: float | None = None
    limits: tuple[str, ...] = ()
    refused_by: str | None = None
    redacted: dict[str, int] = {}
    review: str | None = None
    reviewer: str | None = None
    review_door: str | None = None
    """By what way a person decided; None where nobody has."""
    reviewed_ms: float | None = None
    revokes: bool = False
    """It revokes the record before of the same ``decision_id``."""
    request: msgspec.Raw = msgspec.Raw(b"")
    """The params as JSON, empty where the log was not to keep contents."""
    result: msgspec.Raw = msgspec.Raw(b"")


_DECODER: Final = msgspec.json.Decoder(RecordLine)


def read_line(line: bytes) -> RecordLine | str:
    """The record in a line, or why it holds none; the sentence names members, never values."""
    try:
        found = _decoded(line)
    except msgspec.ValidationError as problem:
        return f"is no record of a decision log: {str(problem)[:200]}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, JsonFault):
        return "is not JSON"
    return found if _time.match(found.time) else "is no record of a decision log: its time is not in UTC"


def _decoded(line: bytes) -> RecordLine:
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _DECODER.decode(json.dumps(decode(line)).encode())  # halves of characters, which a log keeps as escapes


MAX_HELD: Final = 10_000  # records
MAX_BYTES: Final = 64 * 1024 * 1024  # of JSON; a log may be anybody's, and its lines may have contents


def settled(lines: Iterable[RecordLine]) -> Iterator[RecordLine]:
    """The records of a log, each revoked one with its revoking one as one. Those with a verdict come later than they
    stand in the log.

    A revoking record is passed on by itself where the one before is not there: in a file that begins between them.
    """
    held: dict[str, tuple[RecordLine, int]] = {}
    total = 0
    for line in lines:
        before, size = held.pop(line.decision_id, (None, 0))
        total -= size
        if before is not None and line.revokes:
            yield _revoked(before, line)
            continue
        if before is not None:
            yield before
        if not may_be_revoked(line.outcome, line.review):
            yield line
            continue
        held[line.decision_id] = (_alone(line), size := len(msgspec.json.encode(line)))
        total += size
        while len(held) > MAX_HELD or total > MAX_BYTES:
            oldest, size = held.pop(next(iter(held)))
            total -= size
            yield oldest
    for line, _ in held.values():
        yield line


def _revoked(first: RecordLine, last: RecordLine) -> RecordLine:
    """What was asked and spent stands in the first, what came of it in the last."""
    return msgspec.structs.replace(
        first,
        time=last.time,
        outcome=last.outcome,
        reason=last.reason,
        action=last.action,
        decided_by=last.decided_by,
        duration_ms=last.duration_ms,
        revokes=True,
        result=last.result,
    )


def _alone(line: RecordLine) -> RecordLine:
    """Without the rest of the text that it was read from, which its contents would keep in memory."""
    return msgspec.structs.replace(line, request=line.request.copy(), result=line.result.copy())


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
    """The request's params without the secrets that were found: what the record is to hold of it. None: they are kept
    as asked."""
    usd: int | None = None
    """What all attempts cost, as settled, in units of ``ledger.SCALE["usd"]``; None where it is unknown or no model was
    asked."""
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
        """The request goes to the client, which answers by itself: inside an ``input_required`` result, or as the
        -32042 error that it was."""
        return cls(Answered(b"{}", "client"), decision, handed_on_to_client=True)

    def put_off_now(self) -> Done:
        """The same while its call is put off: nothing is released, and nothing that a person said is carried out."""
        waits = isinstance(self.outcome, Unanswered)
        outcome = (
            self.outcome
            if waits
            else Unanswered(Reason.TIMEOUT, detail="its call was put off for another request of the round")
        )
        return msgspec.structs.replace(self, outcome=outcome, is_put_off=True, told="")


def describe(
    round: Round, key: str, item: Item, decision_id: str, done: Done, *, policy_hash: str, time: float, duration: float
) -> Record:
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
        return rawjson.string(rawjson.lookup(result, "action")) or ""
    # a client's result of two readings: verbatim, but it says nothing that could be recorded
    except rawjson.Malformed:
        return ""


_ACTIONS: Final[Mapping[str, Literal["accept", "decline", "cancel"]]] = {
    "accept": "accept",
    "decline": "decline",
    "cancel": "cancel",
}


def _reason(done: Done) -> Reason:
    return (
        done.outcome.reason
        if isinstance(done.outcome, Denied | Unanswered) and not done.is_put_off
        else done.decision.reason
    )


def _released(outcome: Outcome) -> Released:
    names: Mapping[type[Any], Released] = {
        Answered: "answered",
        Denied: "denied",
        Unanswered: "unanswered",
        Withdrawn: "withdrawn",
    }
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
