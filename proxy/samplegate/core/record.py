"""One record of the decision log: what is kept about one request, and its line of JSON. Not the file: ``records/decisions.py`` writes it.

Content is not kept unless asked for. The default is a keyed hash (HMAC-SHA256 with a random key that stays beside the log): it shows
that two contents were the same, or what one was to whoever has it and the key. A plain hash of a short answer is guessed in no time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.decisions import DecidedBy, Reason, Shadow
from samplegate.core.eras import Era
from samplegate.core.ledger import SCALE
from samplegate.core.matching.secrecy import secret_fields, without_secrets
from samplegate.core.parsing.strictjson import Fault, decode
from samplegate.core.requests import Call

ContentMode: TypeAlias = Literal["none", "hash", "full"]
Door: TypeAlias = Literal["push", "input_required", "url_error", "unasked"]
Released: TypeAlias = Literal["answered", "denied", "unanswered", "withdrawn", "forwarded", "put_off"]
"""What came of it. ``forwarded`` is the first of a modern forward's two records, ``put_off`` that of a request whose model has answered and whose
call is put off while people look at the answer; the client's return writes the other."""

MAX_NAME: Final = 256  # characters of a name that a peer chose
MAX_DETAIL: Final = 2_000
MAX_CALLS: Final = 20
MAX_ATTEMPTS: Final = 100  # no request has as many: every model of several rules would have to fail
MAX_FULL: Final = 1024 * 1024  # bytes of one content; beyond it the hash is kept, so that one line stays one quick append

# What could forge a line or drive a terminal that shows the log, and halves of characters that no UTF-8 has.
_escaped: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_user: Final = re.compile(r"^([^/]*//)[^/]*@")
"""Up to the last @ before the path."""


class Attempt(msgspec.Struct, frozen=True):
    """One call of one model for a request."""

    model: str
    """Our name of it."""
    result: str
    """``ok``, ``cancelled`` or the failure (``core.samples.Failure``)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: int | None = None
    """What it cost, in units of ``ledger.SCALE["usd"]``: as settled, 0 where nothing can have been charged. None: its price is unknown."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request and what came of it. Times in unix seconds, durations in milliseconds. What is None or empty is left out of the line."""

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
    """The record before of the same ``decision_id`` says what was not released after all. What was spent stands there, and not here."""
    asked: Mapping[str, Any] | None = field(default=None, repr=False)
    """What a model was asked, within its rule's bounds: for the tape, never in the line."""
    request: Mapping[str, Any] | None = field(default=None, repr=False)
    """The params as asked; in the line only as the content mode says."""
    result: bytes | None = field(default=None, repr=False)
    """The result's JSON as released; likewise."""


def to_json(record: Record, *, content: ContentMode = "none", key: bytes = b"") -> bytes:
    """One line of UTF-8 JSON without its line end. ``hash`` needs the ``key``; ``full`` is without secret-looking form values (R39)."""
    line: dict[str, Any] = {
        "decision_id": record.decision_id,
        "time": timestamp(record.time),
        "server": _clipped(record.server, MAX_NAME),
        "caller": _clipped(record.caller, MAX_NAME),
        "era": record.era,
        "revision": _clipped(record.revision, MAX_NAME),
        "door": record.door,
        "round": _clipped(record.round, MAX_NAME),
        "key": _clipped(record.key, MAX_NAME),
        "kind": record.kind,
        "mode": record.mode,
        "calls": [_call(call) for call in record.calls[:MAX_CALLS]],
        "effect": record.effect,
        "rule": record.rule,
        "reason": str(record.reason),
        "detail": _clipped(record.detail, MAX_DETAIL),
        "tried": [_clipped(one, MAX_DETAIL) for one in record.tried[:MAX_CALLS]],
        "changed": list(record.changed),
        "shadows": [{"rule": shadow.rule, "effect": shadow.effect} for shadow in record.shadows],
        "model": _clipped(record.model, MAX_NAME),
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "attempts": [_attempt(one) for one in record.attempts[:MAX_ATTEMPTS]],
        "cost_usd": _dollars(record.usd),
        "reserved_usd": _dollars(record.reserved_usd),
        "limits": list(record.limits),
        "refused_by": record.refused_by,
        "redacted": dict(record.redacted) or None,
        "review": record.review,
        "reviewer": record.reviewer,
        "reviewed_by": _clipped(record.reviewed_by, MAX_NAME),
        "review_door": record.review_door,
        "reviewed_ms": None if record.reviewed_ms is None else round(record.reviewed_ms, 3),
        "revokes": record.revokes or None,
        "duration_ms": None if record.duration_ms is None else round(record.duration_ms, 3),
        "outcome": record.outcome,
        "action": record.action,
        "decided_by": record.decided_by,
        "fits": record.fits,
        "policy_hash": record.policy_hash,
        **_contents(record, content, key),
    }
    return _dump({name: value for name, value in line.items() if value is not None and value not in ("", [])})


def comes_again(outcome: str, door: str) -> bool:
    """Whether another record of the same request follows once its client has come back."""
    return outcome == "put_off" or (outcome == "forwarded" and door != "url_error")


def may_be_revoked(outcome: str, review: str | None) -> bool:
    """Whether a record that revokes one with these may follow: a verdict is marked as used once the record stands, and that may fail."""
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
    counts = {"input_tokens": attempt.input_tokens, "output_tokens": attempt.output_tokens, "cost_usd": _dollars(attempt.usd)}
    return {"model": attempt.model, "result": attempt.result} | {name: count for name, count in counts.items() if count is not None}


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
    except Fault:
        found["result"] = (record.result or b"").decode("utf-8", "replace")
        legible = False
    kept = {name: value for name, value in found.items() if value is not None}
    if not legible:
        return {f"{name}_hash": content_hash(value, key) for name, value in kept.items()}
    secret = secret_fields((record.request or {}).get("requestedSchema"))
    shown = {name: _without_query(without_secrets(value, secret)) for name, value in kept.items()}
    large = {name for name, value in shown.items() if len(_dump(value)) > MAX_FULL}
    return {f"{name}_hash" if name in large else name: content_hash(kept[name], key) if name in large else shown[name] for name in kept}


def _without_query(params: Any) -> Any:
    """The address of a URL elicitation without its user, query and fragment, where such requests carry their secrets."""
    if not isinstance(params, dict) or not isinstance(url := params.get("url"), str):
        return params
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    shown = _user.sub(r"\1[removed]@", bare)
    return {**params, "url": shown if bare == url else shown + "?[removed]"}


def _dump(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _escaped.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
