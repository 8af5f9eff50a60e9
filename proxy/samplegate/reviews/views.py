"""Pure. JSON views of a review: for the API, webhook data and a command's input; and forms in words (R32).

Members: ``id, digest, state, stage, reviewer, rule, server, caller, era, kind, mode, method, during`` (list of {method,
tool}), ``created, expires, answers_until, decided, used`` (RFC 3339, UTC, null if not set), ``seconds_left`` (0 unless
pending), ``late_seconds, link, worst_usd`` (dollars), ``who, door, verdict`` (null or the verdict), ``notes``
(sentences), ``show, truncated``.

The digest is the one that a verdict must state: of the version that is to be approved. ``approvals`` is how many people
must approve, ``approvals_given`` how many have, ``votes`` a list of {by, how, verdict, at, digest, proven, void,
reason}, ``not_caller`` whether the person who made the call may not approve, ``groups`` whose people may decide,
``also`` the reviewers who may decide from ``also_from`` on.

Unless ``show`` is "none", there are also:

- ``arguments``: of the call.
- ``request``: for sampling, MCP's params as a model would get them; for elicitation, message and requestedSchema, or
  message and url.
- ``address``: url mode: host, host_unicode, port, warnings.
- ``bounds``: of edits; null: the request cannot be approved, and ``why`` has the reason.
- ``changed``: params that the rule changed.
- ``unsent``: list of {param, value, effect}: params of a sampling request that are not sent to the model.
- ``answer``: stage answer.
- ``proposal``: the edits or the answer that the approvals of a pending review are for, as a verdict; null: none.

"redacted" views have no secrets. Redacted views and views over a limit in bytes show the type and size of a picture
instead of its data; the latter are also cut. Schemas may be any JSON. Views escape nothing: each output format does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from samplegate.policy.ledger import SCALE
from samplegate.policy.schema import Show
from samplegate.reviews.review import DECIDED, Review, ReviewEvent, ReviewUi, Verdict, Vote, scrub_verdict
from samplegate.reviews.votes import approvers, progress, version
from samplegate.secret_names import secret_fields, without_secrets
from samplegate.urls import ShownUrl, shown_url

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(seconds: float) -> str:
    """A duration in the form 42 s, 13 min, 24 h or 3 d; never less than 0 s."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


MAX_CHOICES: Final = 30
MAX_TEXT: Final = 200  # characters of a bound, a default or a choice
_CONSTRAINTS: Final = {
    "minLength": "min length {}",
    "maxLength": "max length {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "at least {} selected",
    "maxItems": "at most {} selected",
    "format": "format {}",
    "pattern": "pattern {}",
}


def kind(schema: Mapping[str, Any]) -> str:
    """A form field's kind: single choice, multiple choice, or the type's name."""
    found = schema.get("type")
    if found == "array":
        return "multiple choice"
    return "single choice" if "enum" in schema or "oneOf" in schema else found if isinstance(found, str) else "value"


def lines(schema: Mapping[str, Any], *, secret: bool) -> Iterator[str]:
    """Lines about a form field, except its name, kind, title and description.

    ``secret``: the field looks like a secret, so its default is not shown (R39).
    """
    constraints = [constraint(name, _short(schema[name])) for name in _CONSTRAINTS if name in schema]
    if constraints:
        yield f"constraints: {', '.join(constraints)}"
    if "default" in schema and not secret:
        yield f"default: {_short(schema['default'])}"
    found = choices(schema)
    for value, title in found[:MAX_CHOICES]:
        yield f"- {_short(value)}{f': {_short(title)}' if title not in ('', value) else ''}"
    if len(found) > MAX_CHOICES:
        yield f"and {len(found) - MAX_CHOICES} more"


def constraint(keyword: str, value: str) -> str:
    """A keyword of a field's schema in words: ``min length 1``, ``at most 9``."""
    return _CONSTRAINTS[keyword].format(value)


def choices(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values of an enum in any of its four notations, each with its title or ""."""
    listed = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(listed, Mapping):
        return []
    for name in ("oneOf", "anyOf"):
        if isinstance(listed.get(name), list):
            return [
                (str(one.get("const", "")), str(one.get("title", "")))
                for one in listed[name]
                if isinstance(one, Mapping)
            ]
    values, titles = listed.get("enum"), listed.get("enumNames")
    values, titles = (each if isinstance(each, list) else [] for each in (values, titles))
    return [(str(value), str(titles[at]) if at < len(titles) else "") for at, value in enumerate(values)]


def _short(value: Any) -> str:
    """The value as a user would type it: lists with commas."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


Clean = Callable[[str], str]

MAX_DEPTH: Final = 70  # params nest at most 64 deep
TOO_DEEP: Final = "[nested too deep]"

_STEPS: Final = ((16_384, 2_000), (4_096, 500), (1_024, 100), (256, 50), (128, 20), (64, 8))
"""Successive limits on the characters of a text and the items of a list or object, until the view is small enough."""


def cleaned(value: Any, clean: Clean | None, depth: int = 0) -> Any:
    """A copy in which ``clean`` has processed every text and member name, and media are replaced by type and size."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    match value:
        case str():
            return value if clean is None else clean(value)
        case list() | tuple():
            return [cleaned(each, clean, depth + 1) for each in value]
        case Mapping():
            return _members(without_media(value), clean, depth)
        case _:
            return value


def _members(value: Mapping[str, Any], clean: Clean | None, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, each in value.items():
        free = name if clean is None else clean(name)
        while free in out:  # names that differ only in their secrets must not merge
            free += "#"
        out[free] = cleaned(each, clean, depth + 1)
    return out


def without_media(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content block with the size of its data in bytes instead of the data; other blocks are unchanged."""
    name = "data" if block.get("type") in ("image", "audio") else "blob"
    data = block.get(name)
    if not isinstance(data, str):
        return block
    return {
        **{key: each for key, each in block.items() if key != name},
        "bytes": len(data) * 3 // 4 - data[-2:].count("="),
    }


def all_without_media(value: Any) -> Any:
    """A copy of a value without media; its texts are unchanged."""
    return cleaned(value, None)


def without_secret_defaults(schema: Any) -> Any:
    """A requestedSchema without the values of fields that look secret (R39)."""
    secret = secret_fields(schema)
    if not secret:
        return schema
    values = frozenset({"default", "examples", "const", "enum"})
    fields = schema["properties"].items()
    return {
        **schema,
        "properties": {name: _drop_members(field, values) if name in secret else field for name, field in fields},
    }


def _drop_members(field: Any, names: frozenset[str]) -> Any:
    return {name: value for name, value in field.items() if name not in names} if isinstance(field, dict) else field


def size(value: Any) -> int:
    """The size as compact JSON, in bytes."""
    return len(json.dumps(value, separators=(",", ":")))


def cut(value: dict[str, Any], most: int) -> dict[str, Any] | None:
    """``value`` without media, its texts and lists cut until it is at most ``most`` bytes of ASCII JSON.

    None if no cut is enough.
    """
    value = all_without_media(value)
    for characters, items in _STEPS:
        if size(value) <= most:
            return value
        value = {name: _cut(each, characters, items) for name, each in value.items()}
    return value if size(value) <= most else None


def _cut(value: Any, characters: int, items: int) -> Any:
    match value:
        case str() if len(value) > characters + 40:
            return f"{value[:characters]}... [cut: {len(value)} characters]"
        case list():
            return [_cut(each, characters, items) for each in value[:items]]
        case dict():
            return {name[:characters]: _cut(each, characters, items) for name, each in list(value.items())[:items]}
        case _:
            return value


MAX_MESSAGES: Final = 10
MAX_FIELDS: Final = 30
# characters of a form with the bounds and choices of its fields: a Slack block has 3000, escapes included
MAX_FIELDS_TEXT: Final = 2_500
_address_of: Final = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,30}://\S+")


def request_sections(view: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, text) pairs of a request, the most important first: our names, the server's texts.

    ``view``: from ``to_view``, with a ``show`` other than "none".
    """
    if "request" not in view:  # too large for the view
        return
    request = view["request"]
    if view["stage"] == "answer":
        yield "Model's answer", _content_text((view.get("answer") or {}).get("content"))
    if view["mode"] == "url":
        yield from _url_sections(view, request)
    elif view["mode"] == "form":
        yield "Message", str(request.get("message", ""))
        yield "Fields", _fields(request.get("requestedSchema"))
    else:
        yield from _sampling(request, view.get("bounds") or {})
    for each in view.get("unsent") or ():
        yield f"The server also asked for {each['param']} ({each['effect']})", _json(each["value"])
    if view.get("arguments"):
        arguments = _json(view["arguments"])
        yield "Call arguments", _without_addresses(arguments) if view["mode"] == "url" else arguments


def _url_sections(view: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """R41, T12: the host alone, never the whole URL."""
    address = view.get("address") or {}
    host, shown = address.get("host") or "none, or unclear", address.get("host_unicode")
    yield "Host", host if shown in (None, "", host) else f"{host}\n(displayed as {shown})"
    if address.get("warnings"):
        yield "Warning", "\n".join(map(str, address["warnings"]))
    yield "Message", _without_addresses(str(request.get("message", "")))


def _without_addresses(text: str) -> str:
    return _address_of.sub("[URL: see the review page]", text)


def _sampling(request: Mapping[str, Any], bounds: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    models = bounds.get("models") or ()
    settings = [f"model {models[0]}"] if models else []
    settings += [
        f"{name} {request[name]}" for name in ("maxTokens", "temperature") if isinstance(request.get(name), int | float)
    ]
    if settings:
        yield "Settings", ", ".join(settings)
    if isinstance(request.get("systemPrompt"), str):
        yield "System prompt", request["systemPrompt"]
    messages = request.get("messages")
    messages = messages if isinstance(messages, list) else []
    if len(messages) > MAX_MESSAGES:
        yield "Messages", f"{len(messages)} in total; the last {MAX_MESSAGES} follow"
    for message in messages[-MAX_MESSAGES:]:
        found = message if isinstance(message, Mapping) else {}
        yield (
            f"{'Assistant' if found.get('role') == 'assistant' else 'User'} message",
            _content_text(found.get("content")),
        )


def _content_text(content: Any) -> str:
    blocks = content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
    return "\n".join(_block(block) for block in blocks)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return "" if block is None else _json(block)
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") in ("image", "audio"):
        return f"[{block['type']}, {block.get('mimeType', 'unknown type')}]"
    return _json(block)


def _fields(schema: Any) -> str:
    """The fields with their bounds, defaults and choices, or without them if that is too long for a message."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return "No fields: the server only asks for consent"
    required = schema.get("required")
    needed, secret = required if isinstance(required, list) else [], secret_fields(schema)
    fields = [
        (name, field if isinstance(field, Mapping) else {}) for name, field in list(properties.items())[:MAX_FIELDS]
    ]
    more = [f"and {len(properties) - MAX_FIELDS} more"] if len(properties) > MAX_FIELDS else []
    heads = [_field_heading(name, field, name in needed) for name, field in fields]
    rest = [[f"    {line}" for line in lines(field, secret=name in secret)] for name, field in fields]
    whole = "\n".join([*(line for head, below in zip(heads, rest, strict=True) for line in (head, *below)), *more])
    return (
        whole
        if len(whole) <= MAX_FIELDS_TEXT
        else "\n".join([*heads, *more, "(see the review page for constraints and choices)"])
    )


def _field_heading(name: str, field: Mapping[str, Any], needed: bool) -> str:
    about = " - ".join(str(field[key]) for key in ("title", "description") if isinstance(field.get(key), str))
    return f"{name} ({kind(field)}{', required' if needed else ''}){f': {about}' if about else ''}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


MAX_BYTES: Final = 256 * 1024
"""The usual ``most`` for webhooks and commands."""
_PLAIN: Final = (
    "id",
    "digest",
    "state",
    "stage",
    "reviewer",
    "rule",
    "server",
    "caller",
    "era",
    "kind",
    "mode",
    "method",
)
APPROVED: Final = frozenset({"approved", "answered"})
_MOMENTS: Final = ("created", "expires", "answers_until", "decided", "used")
_FORM: Final = ("message", "requestedSchema")
_URL: Final = ("message", "url")


def to_view(
    review: Review, *, show: Show, now: float, url: str | None, clean: Clean | None = None, most: int | None = None
) -> dict[str, Any]:
    """The review as JSON values.

    ``clean`` removes secrets from a text (show "redacted"); ``most`` limits the view in bytes of ASCII JSON.

    Values of secret-looking form fields are never included. Beyond ``most``, pictures are dropped first, then texts and
    lists are cut, then the content is omitted; ``truncated`` and a note show this.
    """
    review = scrub_verdict(review)
    bare = _outline(review, now, url) | {"show": show, "truncated": False}
    if show == "none":
        return bare
    content = _content(review, show, clean)
    whole = bare | content
    if most is None or size(whole) <= most:
        return whole
    shorter = cut(content, most - size(bare) - 500)
    note = (
        "the content is truncated here; the review page shows all of it"
        if shorter
        else "the content is too large to include here; see the review page"
    )
    return (
        bare
        | (shorter or {})
        | {"truncated": True, "notes": [*bare["notes"], note], "show": show if shorter else "none"}
    )


def _outline(review: Review, now: float, url: str | None) -> dict[str, Any]:
    """The view without content or field names."""
    return {
        **{name: getattr(review, name) for name in _PLAIN},
        "digest": version(review),
        "during": [{"method": call.method, "tool": call.tool} for call in review.calls],
        **{name: moment(getattr(review, name)) for name in _MOMENTS},
        "seconds_left": max(0, int(review.expires - now)) if review.state == "pending" else 0,
        "late_seconds": int(review.late),
        "link": None if url is None else f"{url}/reviews/{review.id}",
        "worst_usd": None if review.worst_usd is None else review.worst_usd / SCALE["usd"],
        "approvals": review.approvals,
        "approvals_given": len(approvers(review.votes)) if review.approvals > 1 else int(review.state in APPROVED),
        "votes": [_vote(vote) for vote in review.votes],
        "not_caller": review.not_caller,
        "groups": list(review.groups),
        "also": [one.reviewer for one in review.also],
        "also_from": moment(review.also_from),
        "who": review.who,
        "door": review.door,
        "verdict": None if review.verdict is None else {"verdict": review.verdict.word} | _seen(review.verdict),
        "ui": None if review.ui is None else _ui(review.ui),
        "notes": notes(review, now),
    }


def _ui(ui: ReviewUi) -> dict[str, Any]:
    """The server's own UI, without its URI, its bytes and its context."""
    return {"state": ui.state, "sha256": ui.sha256 or None, "size": ui.size}


def _seen(verdict: Verdict) -> dict[str, Any]:
    """The hash of the server's UI that the reviewer was shown, if one was."""
    return {"ui": verdict.ui} if verdict.ui else {}


def _vote(vote: Vote) -> dict[str, Any]:
    return {**msgspec.structs.asdict(vote), "at": moment(vote.at)}


def moment(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC, to the second."""
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


URL_NOTE: Final = (
    "the server means its own user to open this address; whoever decides here is not that user and should not sign in"
    " there"
)
UNUSED_NOTE: Final = "the verdict is not used yet: the next same request gets it"
_NOTES_FOR_PEOPLE: Final = {
    URL_NOTE: "the server wants its own user to open this URL; reviewers are not that user and must not sign in there",
    UNUSED_NOTE: "the decision has not been used yet; it answers the next identical request",
}
"""Notes whose wording in JSON is unchanged since 0.1.0, and their text for people."""


def note_text(note: str) -> str:
    """The text for people of one of the ``notes``."""
    return _NOTES_FOR_PEOPLE.get(note, note)


EVENT_MEANINGS: Final = {
    "voted": "approved by one of several people",
    "joined": "the same request arrived again and is waiting",
    "told": "notification done",
    "untold": "notification not delivered",
    "given back": "the decision was not used by the waiting request",
    "ui ready": "the server's own UI can be shown",
    "ui failed": "the server's own UI cannot be shown",
}
"""The text for people of events whose names are not clear by themselves."""


def notes(review: Review, now: float) -> list[str]:
    """Sentences that a reviewer should know beside the request, as in JSON. Without content."""
    found = []
    if (said := progress(review)) and review.state == "pending":
        found.append(f"{said}; an edit voids the approvals so far" if review.votes else f"{said} so far")
    if review.mode == "url" and review.state == "pending":  # R45
        found.append(URL_NOTE)
    if review.state == "pending" and review.answers_until is not None and now >= review.answers_until:
        found.append(
            "the request has ended: a decision now answers the next identical request, once, within"
            f" {span(review.late)}"
            if review.late
            else "the request has ended: a decision has no effect, unless the same request is made again first, while"
            " this review is pending"
        )
    if review.state in DECIDED and review.used is None and review.waiter is None and review.decided is not None:
        over = now >= review.decided + review.late
        found.append("the decision was never used and has expired" if over else UNUSED_NOTE)
    return found


def withdrawn_for(events: Sequence[ReviewEvent]) -> str:
    """Why a review was withdrawn, from its history; "" if it was not."""
    return next((event.detail for event in reversed(events) if event.what == "withdrawn"), "")


def _content(review: Review, show: Show, clean: Clean | None) -> dict[str, Any]:
    address = shown_url(review.params["url"]) if review.mode == "url" else None
    content: dict[str, Any] = {
        "arguments": review.arguments,
        "request": _request(review),
        "address": None if address is None else _address(address),
        "bounds": None if review.bounds is None else _plain(review.bounds),
        "why": review.why,
        "changed": list(review.changed),
        "unsent": [msgspec.structs.asdict(each) for each in review.unsent],
        "answer": review.answer,
        "proposal": None if review.proposal is None else verdict_json(review.proposal, review),
    }
    if review.verdict is not None:
        content["verdict"] = verdict_json(review.verdict, review) | _seen(review.verdict)
    if review.ui is not None:
        url = review.ui.url if show == "full" else shown_url(review.ui.url).bare  # a query may contain secrets
        content["ui"] = {"uri": review.ui.uri} | _ui(review.ui) | ({"url": url} if url else {})
    return content if show == "full" else _redacted(content, address, clean)


def _plain(struct: msgspec.Struct) -> Any:
    """The struct as decoded JSON: lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(struct))


def _request(review: Review) -> dict[str, Any]:
    if review.kind == "sampling":
        return dict(review.params)
    return {name: review.params[name] for name in (_URL if review.mode == "url" else _FORM) if name in review.params}


def _address(address: ShownUrl) -> dict[str, Any]:
    return {
        "host": address.host,
        "host_unicode": address.host_unicode,
        "port": address.port,
        "warnings": list(address.warnings),
    }


def verdict_json(verdict: Verdict, review: Review) -> dict[str, Any]:
    """A verdict in its input format (``verdict.py``), without nulls."""
    out: dict[str, Any] = {"verdict": verdict.word}
    if verdict.edits is not None:
        out["edits"] = _plain(verdict.edits)
    if verdict.result is not None:
        names = ("action", "content") if review.kind == "elicitation" else ("content",)
        out |= {name: verdict.result[name] for name in names if name in verdict.result}
    if verdict.reason:
        out |= {"reason": verdict.reason, "tell_server": verdict.tell_server}
    return out


def _redacted(content: Mapping[str, Any], address: ShownUrl | None, clean: Clean | None) -> dict[str, Any]:
    request = dict(content["request"])
    if address is not None:
        request["url"] = address.bare
    if "requestedSchema" in request:
        request["requestedSchema"] = without_secret_defaults(request["requestedSchema"])
    arguments = without_secrets(content["arguments"])
    unsent = [
        {**each, "value": without_secrets({each["param"]: each["value"]})[each["param"]]} for each in content["unsent"]
    ]
    out: dict[str, Any] = cleaned({**content, "request": request, "arguments": arguments, "unsent": unsent}, clean)
    return out
