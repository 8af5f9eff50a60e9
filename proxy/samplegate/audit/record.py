"""Pure. Records of the decision log: the facts about one request, its line of JSON, and the line read back.

Content is recorded only if configured. The default is a keyed hash (HMAC-SHA256; its random key is stored beside the
log). It shows that two contents were equal, and it confirms a content to anyone who has that content and the key. A
plain hash of a short answer would be easy to guess.

A verdict is marked as used after its record is written. If that fails, nothing is released, and a second record with
the same ``decision_id`` revokes the first within seconds. So only a bounded number of records, each with a verdict, is
kept back while waiting for it. ``jsonl.py`` and ``sqlite_log.py`` write the records.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.arguments import path_of
from samplegate.policy.conditions import IdentityNames
from samplegate.policy.decisions import Decision, Misses, Shadow
from samplegate.policy.facts import ABSENT, Claims
from samplegate.policy.ledger import SCALE
from samplegate.policy.redaction import Redactor, clean_value
from samplegate.protocol import rawjson
from samplegate.protocol.frames import Era
from samplegate.protocol.identity import Identity
from samplegate.protocol.outcomes import Answered, DecidedBy, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import BadRequest, Call, ElicitationRequest
from samplegate.protocol.rounds import Item, Round
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews.review import Review, Vote
from samplegate.secret_names import secret_fields, without_secrets

ContentMode: TypeAlias = Literal["none", "hash", "full"]
Door: TypeAlias = Literal["push", "input_required", "url_error", "unasked", "task", "tool_result"]
Released: TypeAlias = Literal["answered", "denied", "unanswered", "withdrawn", "forwarded", "put_off"]
"""The outcome of a request. ``forwarded`` is the first of a modern forward's two records. ``put_off`` is the first
record if a model has answered, but the call is put off while a reviewer sees the answer. The second follows at the
client's retry."""

MAX_NAME: Final = 256  # characters of a name that a peer chooses
MAX_DETAIL: Final = 2_000
MAX_CALLS: Final = 20
MAX_RULES: Final = 200  # rules of one record that did not decide; the others are only counted
MAX_RULE_TEXT: Final = 16_000  # characters of all their names and reasons
MAX_ATTEMPTS: Final = 100  # more than any request has: every model of several rules would have to fail
# bytes of one content; a larger one is hashed, so that an append stays quick
MAX_FULL: Final = 1024 * 1024

# Characters that could forge a line or control a terminal, and unpaired surrogates, which UTF-8 cannot encode.
_escaped: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_user: Final = re.compile(r"^([^/]*//)[^/]*@")
"""The user part of a URL, up to the last @ before the path."""


class Attempt(msgspec.Struct, frozen=True):
    """One call of one model for a request."""

    model: str
    """The policy's name of the model."""
    result: str
    """``ok``, ``cancelled`` or the failure (``policy.prompt.Failure``)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: int | None = None
    """The settled cost in units of ``ledger.SCALE["usd"]``, 0 if nothing can have been charged. None: the price is
    unknown."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request and its outcome. Times are Unix seconds, durations milliseconds. Members that are None or empty are
    left out of the line."""

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
    settings_hash: str | None = None
    """The hash of the process's settings without secrets."""
    run: str | None = None
    """The ID of the process's run."""
    session: str | None = None
    """The name of the conversation in its gate."""
    round: str | None = None
    """The round in which it was decided, the same for all requests of the round."""
    key: str | None = None
    """Its key in ``inputRequests``, which the server chose."""
    mode: Literal["form", "url"] | None = None
    calls: tuple[Call, ...] = ()
    """The client requests that it may belong to."""
    traceparent: str | None = None
    """The trace context (W3C) of the call, if the client sent one."""
    trace_id: str | None = None
    span_id: str | None = None
    """The gate's span of the request, if it is exported."""
    rule: str | None = None
    rules: Misses | None = field(default=None, repr=False)
    """The rules that were looked at before."""
    detail: str = ""
    shadows: tuple[Shadow, ...] = ()
    model: str | None = None
    """The model that actually answered (R1)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_ms: float | None = None
    action: Literal["accept", "decline", "cancel"] | None = None
    """The reply to an elicitation."""
    decided_by: DecidedBy | None = None
    fits: bool | None = None
    """Whether a forwarded client's answer fits the request."""
    tried: tuple[str, ...] = ()
    """Rules that were tried before this one, each with the reason: a timeout, or a limit without room (``next``)."""
    changed: tuple[str, ...] = ()
    """The params that the rule's constraints changed."""
    attempts: tuple[Attempt, ...] = ()
    """The calls of models, in order; all but the last failed."""
    usd: int | None = None
    """Their settled cost, in units of ``ledger.SCALE["usd"]``; None if it is unknown."""
    reserved_usd: int | None = None
    """Their reserved max cost, in the same units."""
    limits: tuple[str, ...] = ()
    """The limits that it drew on."""
    refused_by: str | None = None
    """The limit that had no room for it."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How many secrets of each pattern were found in the prompt and in the answer."""
    review: str | None = None
    """The id of its review."""
    reviewer: str | None = None
    reviewed_by: str | None = None
    """The reviewer who decided, as far as the door knows; None without a verdict."""
    review_door: str | None = None
    """How the reviewer decided: ``page``, ``api``, ``cli``, ``webhook``, ``callback`` or ``command``."""
    reviewed_ms: float | None = None
    """The part of ``duration_ms`` that was spent waiting for reviewers."""
    review_ui: str | None = None
    """The SHA-256 in hex of the server's own UI that the reviewer was shown."""
    votes: tuple[Vote, ...] = ()
    """All votes, if the reviewer needs several approvals."""
    revokes: bool = False
    """The earlier record with this ``decision_id`` names an outcome that was not released after all. The cost is in
    that record only."""
    asked: Mapping[str, Any] | None = field(default=None, repr=False)
    """The model's params within the rule's constraints: for the cassette, never in the line."""
    request: Mapping[str, Any] | None = field(default=None, repr=False)
    """The params as requested; in the line only if the content mode allows it."""
    result: bytes | None = field(default=None, repr=False)
    """The result's JSON as released; in the line only if the content mode allows it."""
    arguments: tuple[tuple[bytes | None, ...], ...] = field(default=(), repr=False)
    """The params of the calls, as in ``Origin``; their arguments are in the line only if the content mode allows it."""
    identities: tuple[Identity, ...] = field(default=(), repr=False)
    """The identities of the calls, as in ``Origin``."""
    looks_at: IdentityNames = field(default_factory=IdentityNames, repr=False)
    """The parts of the identities that the policy's rules name; only these are in the line, under the same
    condition."""
    redactor: Redactor | None = field(default=None, repr=False)
    """Redacts the secrets in the arguments and claims."""


MEMBERS: Final[Mapping[str, str]] = {
    "decision_id": (
        "The id of the decision in every log and message. A request that the client answers in 2026-07-28 has two lines"
        " with one id, and a revoked decision has one line more."
    ),
    "time": "When the outcome was recorded, in UTC.",
    "run": "The ID of the run (`SAMPLEGATE_RUN`, or the CI job), if the gate has one.",
    "server": "The server that made the request.",
    "session": "The client's connection: the same for all requests of one session of the gate.",
    "caller": "The caller on whose behalf the server works; on stdio always `local`.",
    "era": "The protocol's generation: `legacy` (2025-11-25 and older) or `modern` (2026-07-28).",
    "revision": "The protocol version.",
    "door": (
        "How the request arrived: `push` (a request from the server), `input_required` (a result that asks for input),"
        " `url_error` (a URL in an error), `unasked` (unsolicited answers from a client), `task` (a task that asks for"
        " input) or `tool_result` (a tool's result that asks the user)."
    ),
    "round": "The input round, shared by all its requests.",
    "key": "The request's key in its input round, which the server chose.",
    "kind": "`sampling` or `elicitation`.",
    "mode": "Whether an elicitation is a `form` or a `url`.",
    "calls": "The client's calls that the request may belong to.",
    "effect": "The effect of the rule, or `none`.",
    "rule": "The rule that decided.",
    "rules": (
        "The rules that were looked at before, each with the first `condition` that did not match (with `?` if the"
        " request's value is unknown or ambiguous), or `why` it did not decide although it matched. The last entry may"
        " have `left_out` instead: how many more there were, by condition."
    ),
    "reason": "Why the request was decided this way.",
    "detail": "More about the reason, in words.",
    "tried": (
        "The rules that were tried before, each with why it did not decide: a timeout, or a limit that was reached."
    ),
    "changed": "The params that the rule changed or the provider does not support.",
    "shadows": "What shadow rules would have done.",
    "model": (
        "The model that answered, as its provider names it; if none answered, the policy's name for the last model that"
        " was called."
    ),
    "input_tokens": "The input tokens that the provider reported.",
    "output_tokens": "The output tokens that the provider reported.",
    "attempts": "Every model call: the policy's name for the model, the result, tokens and cost.",
    "cost_usd": "The cost of all model calls. Omitted if a price is unknown.",
    "reserved_usd": "The upper bound of the cost that was reserved.",
    "limits": "The limits that were charged.",
    "refused_by": "The limit that was reached.",
    "redacted": (
        "How many secrets of each pattern were found, never the secrets. They are redacted from the recorded `request`."
    ),
    "review": "The id of the review.",
    "reviewer": "The reviewer's name in the policy.",
    "reviewed_by": "Who decided the review, as far as the gate knows. Omitted if the review was not decided.",
    "review_door": "How the review was decided: `page`, `api`, `cli`, `webhook`, `callback` or `command`.",
    "reviewed_ms": "The part of `duration_ms` that was spent waiting for reviewers, in this attempt.",
    "review_ui": "The SHA-256 of the server's own UI, or of its URL, that a reviewer who decided was shown.",
    "votes": (
        "The votes so far, if the reviewer needs several approvals: `by`, `how`, `verdict` (`approve`, `answer`,"
        " `reject`, `decline`, `cancel`), `at`, the `digest` of the version, whether the name is `proven`, whether an"
        " edit made the vote `void`, and the SHA-256 of the server's own UI that this person was shown (`ui`)."
    ),
    "revokes": (
        "`true`: the earlier line with this `decision_id` names an answer that was not released after all, because the"
        " reviewer's decision could not be marked as used. The earlier line has the cost."
    ),
    "duration_ms": "The time from the decision to this line.",
    "outcome": (
        "`answered`, `denied`, `unanswered`, `withdrawn`, `forwarded` or `put_off` (a reviewer sees a model's answer,"
        " and the client retries). After `forwarded` and `put_off`, a second line with the same `decision_id`"
        " follows once the client has retried. The first line has the cost until then."
    ),
    "action": "The reply to an elicitation: `accept`, `decline` or `cancel`.",
    "decided_by": "Who answered: `policy`, `human`, `client` or `timeout`.",
    "fits": "Whether the client's answer fits the request.",
    "policy_hash": "The hash of the policy that decided.",
    "settings_hash": (
        "The hash of the gate's settings, without secrets: without values of environment variables, headers and"
        " arguments, queries of URLs, and the ID of the run."
    ),
    "traceparent": "The trace context (W3C) of the call, if the client sent one, in `_meta` or as a header.",
    "trace_id": "The ID of the trace with the gate's span of this request, if traces are on and it is sampled.",
    "span_id": "The ID of that span.",
}
"""The members of a line and their descriptions, in order."""
CONTENTS: Final[Mapping[str, str]] = {
    "request": "With `record_content: full`, the request's params.",
    "result": "With `record_content: full`, the released result.",
    "arguments": (
        "With `record_content: full`, the arguments of each of `calls`: a list for each, because several calls of one"
        " tool may be in flight. Omitted if those of a call were not kept or have two readings, and above 1 MiB."
    ),
    "groups": (
        "With `record_content: full`, if a rule has `groups`: the caller's groups, a list for each token that may have"
        " come with the call, or null if they are not known."
    ),
    "claims": (
        "With `record_content: full`, the claims that rules name, by path: a mapping for each such token, with null for"
        " an absent claim, or null if they are not known. Omitted if one of them has two readings or is null."
    ),
    "request_hash": "The keyed hash of the request's params, with `hash`, or with `full` if they are too large.",
    "result_hash": "The keyed hash of the result, under the same conditions.",
    "arguments_hash": "The keyed hash of the arguments, under the same conditions.",
    "groups_hash": "The keyed hash of the groups, under the same conditions.",
    "claims_hash": "The keyed hash of the claims, under the same conditions.",
}
"""The members that depend on the content mode."""


def to_json(record: Record, *, content: ContentMode = "none", key: bytes = b"") -> bytes:
    """One line of UTF-8 JSON without its line end. ``hash`` needs the ``key``; ``full`` leaves out form values that
    look like secrets (R39)."""
    line: dict[str, Any] = {name: getattr(record, name, None) for name in MEMBERS}
    line |= {
        name: _clipped(line[name], MAX_NAME)
        for name in ("server", "caller", "session", "revision", "round", "key", "model", "reviewed_by")
    }
    line |= {name: None if line[name] is None else round(line[name], 3) for name in ("reviewed_ms", "duration_ms")}
    line |= {
        "time": timestamp(record.time),
        "calls": [_call(call) for call in record.calls[:MAX_CALLS]],
        "reason": str(record.reason),
        "detail": _clipped(record.detail, MAX_DETAIL),
        "tried": [_clipped(one, MAX_DETAIL) for one in record.tried[:MAX_CALLS]],
        "rules": None if record.rules is None else _rules(record.rules),
        "shadows": [{"rule": shadow.rule, "effect": shadow.effect} for shadow in record.shadows],
        "attempts": [_attempt(one) for one in record.attempts[:MAX_ATTEMPTS]],
        "votes": [_vote(one) for one in record.votes],
        "cost_usd": _dollars(record.usd),
        "reserved_usd": _dollars(record.reserved_usd),
        "redacted": dict(record.redacted) or None,
        "revokes": record.revokes or None,
        **_contents(record, content, key),
    }
    return _dump({name: value for name, value in line.items() if value is not None and value not in ("", [], ())})


def _rules(misses: Misses) -> list[dict[str, Any]]:
    """The rules that did not decide, bounded: from the first that no longer fits on, they are counted by condition."""
    found: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    room = MAX_RULE_TEXT
    for miss in misses:  # a policy may have 1000 rules, so this loop is kept short
        name, condition = miss.rule, miss.condition
        if len(name) > MAX_NAME:
            name = _clipped(name, MAX_NAME)
        why = "" if condition else _clipped(miss.why, MAX_NAME)
        room -= len(name) + len(why)
        if left_out or room < 0 or len(found) == MAX_RULES:
            left_out[condition or "matched"] += 1
        else:
            found.append({"rule": name, "condition": condition} if condition else {"rule": name, "why": why})
    return [*found, {"left_out": dict(left_out)}] if left_out else found


def comes_again(outcome: str, door: str) -> bool:
    """Whether a second record of the request follows at the client's retry."""
    return outcome == "put_off" or (outcome == "forwarded" and door not in ("url_error", "tool_result"))


def may_be_revoked(outcome: str, review: str | None) -> bool:
    """Whether a record may be revoked by a second one: its verdict is marked as used after the record is written, and
    that may fail."""
    return review is not None and outcome in ("answered", "denied")


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def content_hash(value: Any, key: bytes) -> str:
    """``hmac-sha256:`` and the hex of the HMAC over the value's canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "hmac-sha256:" + hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _call(call: Call) -> dict[str, str]:
    found = {"method": _clipped(call.method, MAX_NAME)}
    return found if call.tool is None else {**found, "tool": _clipped(call.tool, MAX_NAME)}


def _vote(vote: Vote) -> dict[str, Any]:
    found = {name: getattr(vote, name) for name in ("how", "verdict", "digest", "proven")}
    void = {"void": True} if vote.void else {}
    ui = {"ui": vote.ui} if vote.ui else {}
    return {"by": _clipped(vote.by, MAX_NAME), **found, "at": timestamp(vote.at), **void, **ui}


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


def _clipped(text: str | None, length: int) -> Any:
    return text if text is None or len(text) <= length else text[: length - 1] + "…"


def _contents(record: Record, content: ContentMode, key: bytes) -> dict[str, Any]:
    """The contents according to the mode. Content that is not JSON with one reading is only hashed, as received."""
    if content == "none":
        return {}
    found: dict[str, Any] = {
        "request": record.request,
        "arguments": _arguments(record),
        "groups": _groups(record),
        "claims": _claims(record),
    }
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


def _arguments(record: Record) -> list[list[Any]] | None:
    """The arguments of each call, decoded; None without a call, or if those of one are not kept, have two readings, or
    are too large."""
    params = record.arguments[:MAX_CALLS]
    every = [one for of_call in params for one in of_call]
    if not every or sum(len(one or b"") for one in every) > MAX_ARGUMENTS:
        return None
    if any(one is None or _half.search(one) for one in every):
        return None
    try:
        raws = [[rawjson.lookup(one, "arguments") for one in of_call] for of_call in params]
        found = [[None if raw is None else decode(raw) for raw in of_call] for of_call in raws]
    except (JsonFault, Malformed):
        return None
    return found if record.redactor is None else clean_value(record.redactor, found)


def _groups(record: Record) -> list[list[str] | None] | None:
    """The groups of each identity, None if they are not known; None if no rule has ``groups``."""
    if not record.looks_at.groups or not 0 < len(record.identities) <= MAX_CALLS:
        return None
    found = [None if one.groups is None else sorted(one.groups) for one in record.identities]
    return found if record.redactor is None else clean_value(record.redactor, found)


def _claims(record: Record) -> list[dict[str, Any] | None] | None:
    """The named claims of each identity by path, None if none is known; None if no rule has ``claims``, or if one of
    them has two readings."""
    if not record.looks_at.claims or not 0 < len(record.identities) <= MAX_CALLS:
        return None
    try:
        found = [
            None if one.claims is None else _named_claims(Claims(one.claims), record.looks_at.claims)
            for one in record.identities
        ]
    except JsonFault:
        return None
    return found if record.redactor is None else clean_value(record.redactor, found)


def _named_claims(claims: Claims, paths: Iterable[str]) -> dict[str, Any]:
    """Raises JsonFault for a claim with two readings, and for one that is null, because this stands for an absent
    one."""
    found: dict[str, Any] = {}
    for path in paths:
        raw = claims.raw(path_of(path))
        if raw is not ABSENT and (not isinstance(raw, bytes) or raw == b"null" or _half.search(raw)):
            raise JsonFault("not known")
        found[path] = None if raw is ABSENT else decode(raw)
    return found


def _without_query(params: Any) -> Any:
    """The params with the URL of an elicitation reduced: without user, query and fragment, which may carry secrets."""
    if not isinstance(params, dict) or not isinstance(url := params.get("url"), str):
        return params
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    shown = _user.sub(r"\1[removed]@", bare)
    return {**params, "url": shown if bare == url else shown + "?[removed]"}


def _dump(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _escaped.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


MAX_ARGUMENTS: Final = 1024 * 1024  # bytes of all calls to which a request may belong
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_half: Final = re.compile(rb"%s(?!%s)|(?<!%s)%s" % (_HIGH, _LOW, _HIGH, _LOW))
"""An escaped half of a surrogate pair, which is decoded to another text than the call's."""
FULL: Final = 250  # characters: a name of this length may have been shortened (``MAX_NAME``)
_time: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z\Z")


class RecordedTry(msgspec.Struct, frozen=True):
    """One call of one model, as recorded."""

    model: str
    result: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """As settled; None if the price is unknown."""


class RecordLine(msgspec.Struct, frozen=True):
    """A record as read from a line. Missing members are None or empty; unknown members are ignored."""

    decision_id: str
    time: str
    """RFC 3339 in UTC, so that two of them compare as text."""
    server: str
    caller: str
    era: Era
    revision: str
    door: str
    kind: Literal["sampling", "elicitation"]
    effect: str
    reason: str
    outcome: str
    run: str | None = None
    mode: Literal["form", "url"] | None = None
    calls: tuple[Call, ...] = ()
    rule: str | None = None
    detail: str = ""
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
    """How the reviewer decided; None without a verdict."""
    reviewed_ms: float | None = None
    revokes: bool = False
    """It revokes the earlier record with the same ``decision_id``."""
    request: msgspec.Raw = msgspec.Raw(b"")
    """The params as JSON; empty if the log has no contents."""
    arguments: msgspec.Raw = msgspec.Raw(b"")
    """The arguments of each of ``calls`` as JSON, a list for each; empty if the log does not have them."""
    groups: msgspec.Raw = msgspec.Raw(b"")
    """The caller's groups as JSON, a list for each token; empty if the log does not have them."""
    claims: msgspec.Raw = msgspec.Raw(b"")
    """Claims by path as JSON, a mapping for each token; empty if the log does not have them."""
    result: msgspec.Raw = msgspec.Raw(b"")


_DECODER: Final = msgspec.json.Decoder(RecordLine)


def read_line(line: bytes, decoder: msgspec.json.Decoder[Any] = _DECODER) -> RecordLine | str:
    """The record in a line, or why the line has none. The message names members, never values. ``decoder``: for a
    subclass of RecordLine."""
    try:
        found = _decoded(line, decoder)
    except msgspec.ValidationError as problem:
        return f"is not a decision log record: {str(problem)[:200]}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, JsonFault):
        return "is not JSON"
    return found if _time.match(found.time) else "is not a decision log record: the time is not in UTC"


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Any]) -> RecordLine:
    try:
        found: RecordLine = decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = decoder.decode(json.dumps(decode(line)).encode())  # unpaired surrogates, which a log keeps as escapes
    return found


MAX_HELD: Final = 10_000  # records
MAX_BYTES: Final = 64 * 1024 * 1024  # of JSON: a log may come from anywhere, and its lines may have contents


def settled(lines: Iterable[RecordLine]) -> Iterator[RecordLine]:
    """The records of a log, each revoked record merged with the one that revokes it. Records with a verdict are yielded
    later than their position in the log.

    A revoking record without its earlier record is yielded alone: the file begins between them.
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
    """The request and cost of the first record, with the outcome of the last."""
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
    """A copy whose contents do not keep the text of the whole line in memory."""
    contents = {name: getattr(line, name).copy() for name in CONTENT_FIELDS}
    return msgspec.structs.replace(line, **contents)


def without_contents(line: RecordLine) -> RecordLine:
    """The line as a log without contents has it."""
    return msgspec.structs.replace(line, **dict.fromkeys(CONTENT_FIELDS, _NOTHING))


CONTENT_FIELDS: Final = ("request", "arguments", "groups", "claims", "result")
"""The fields of a line with contents."""
_NOTHING: Final = msgspec.Raw(b"")


class Done(msgspec.Struct, frozen=True):
    """The result of acting on one request."""

    outcome: Outcome
    decision: Decision
    """The decision that was acted on last (`on_timeout: next` may have replaced it)."""
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    fits: bool | None = None
    """Whether a client's answer fits the request; None if no client answered."""
    dropped: tuple[str, ...] = ()
    """Params that the model's provider does not support."""
    tried: tuple[str, ...] = ()
    """Rules that were tried before, each with the timeout or the limit that ended it."""
    handed_on_to_client: bool = False
    """A modern forward, recorded at its start."""
    is_put_off: bool = False
    """A model has answered, and the call is put off for a review: recorded for its cost."""
    attempts: tuple[Attempt, ...] = ()
    """The calls of models, in order."""
    limits: tuple[str, ...] = ()
    """The limits that were drawn on."""
    refused_by: str | None = None
    """The limit that had no room for it."""
    redacted: Mapping[str, int] = {}
    """How many secrets of each pattern were found, in prompt and answer together."""
    cleaned: Mapping[str, Any] | None = None
    """The request's params with the found secrets redacted, for the record. None: the record has them as requested."""
    usd: int | None = None
    """The settled cost of all attempts, in units of ``ledger.SCALE["usd"]``; None if it is unknown or no model was
    asked."""
    reserved_usd: int | None = None
    """Their reserved max cost, in the same units."""
    review: Review | None = None
    """Its review, with the verdict if there is one."""
    reviewed: float = 0.0
    """Seconds spent waiting for verdicts."""
    message: str = ""
    """A reviewer's message to the server."""
    revokes: bool = False
    """Revokes the request's earlier record, whose outcome was not released after all."""

    @classmethod
    def handed_on(cls, decision: Decision) -> Done:
        """A request that the client answers by itself: in an ``input_required`` result, or as the original -32042
        error."""
        return cls(Answered(b"{}", "client"), decision, handed_on_to_client=True)

    def put_off_now(self) -> Done:
        """The same while its call is put off: nothing is released, and no verdict is carried out."""
        waits = isinstance(self.outcome, Unanswered)
        outcome = (
            self.outcome
            if waits
            else Unanswered(Reason.TIMEOUT, detail="the call was postponed because of another request in the round")
        )
        return msgspec.structs.replace(self, outcome=outcome, is_put_off=True, message="")


def describe(
    round: Round,
    key: str,
    item: Item,
    decision_id: str,
    done: Done,
    *,
    policy_hash: str,
    redactor: Redactor | None = None,
    looks_at: IdentityNames | None = None,
    time: float,
    duration: float,
    trace_id: str | None = None,
    span_id: str | None = None,
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
        session=round.session or None,
        round=round.id,
        key=key or None,
        mode=request.mode if isinstance(request, ElicitationRequest) else None,
        calls=origin.calls,
        rule=decision.rule,
        rules=decision.missed,
        detail=detail_of(done),
        shadows=decision.shadows,
        model=done.model,
        duration_ms=duration * 1000,
        action=_action(round, item, done),
        decided_by=None if done.handed_on_to_client or done.is_put_off else _decided_by(outcome),
        fits=done.fits,
        tried=done.tried,
        changed=(*(() if decision.allowed is None else decision.allowed.changed), *done.dropped),
        **_cost_fields(done),
        redacted=done.redacted,
        asked=None if decision.allowed is None else decision.allowed.params,
        arguments=origin.params,
        identities=origin.identities,
        looks_at=looks_at or IdentityNames(),
        redactor=redactor,
        request=None if isinstance(request, BadRequest) else request.params if done.cleaned is None else done.cleaned,
        traceparent=origin.trace or None,
        trace_id=trace_id,
        span_id=span_id,
        **_review_fields(done),
        revokes=done.revokes,
        result=outcome.result if isinstance(outcome, Answered) and not done.handed_on_to_client else None,
    )


def _cost_fields(done: Done) -> dict[str, Any]:
    """The draws and the cost. Only one record has them: a revoking record leaves them to the earlier one."""
    if done.revokes:
        return {}
    names = ("input_tokens", "output_tokens", "attempts", "usd", "reserved_usd", "limits", "refused_by")
    return {name: getattr(done, name) for name in names}


def _review_fields(done: Done) -> dict[str, Any]:
    review = done.review
    if review is None:
        return {}
    verdict: dict[str, Any] = {}
    if review.verdict is not None:
        verdict = {
            "reviewed_by": review.who or None,
            "review_door": review.door,
            "review_ui": review.verdict.ui or None,
        }
    return {
        "review": review.id,
        "reviewer": review.reviewer,
        "reviewed_ms": done.reviewed * 1000,
        "votes": review.votes,
        **verdict,
    }


def _action_of(result: bytes) -> str:
    try:
        return rawjson.string(rawjson.lookup(result, "action")) or ""
    # a client's result with two readings is passed on verbatim, but has no action to record
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
    """The reason for the outcome, for the operator."""
    detail = done.outcome.detail if isinstance(done.outcome, Denied | Unanswered) else ""
    return detail or done.decision.detail


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


def _action(round: Round, item: Item, done: Done) -> Literal["accept", "decline", "cancel"] | None:
    """The reply to an elicitation; of a client's own words, only one of the three actions."""
    if item.method.startswith("sampling/") or done.handed_on_to_client:
        return None
    always = round.door == "tool_result"  # there, no refusal is an error
    match done.outcome:
        case Denied(error=None, action=action, code=code) if always or code == -1:
            return action
        case Unanswered(error=None, code=code) if always or code == -1:
            return "cancel"
        case Answered(result=result):
            return _ACTIONS.get(_action_of(result))
        case _:
            return None
