"""The description of the REST API (OpenAPI 3.1), as data. It is held against the running API by tests; nothing is generated from it."""

from __future__ import annotations

from typing import Any, Final, get_args, get_type_hints

from samplegate.core.eras import Era
from samplegate.core.policy import Mode, Show
from samplegate.core.review.review import Door, Event, Stage
from samplegate.core.review.verdicts import MOST_REASON
from samplegate.web.asking import DEFAULT_LIMIT, KINDS, MAX_LIMIT, MAX_NAME, MAX_VALUES, STATES

_ID: Final = "^rv_[A-Za-z0-9]{24}$"
_TEXT: Final = {"type": "string"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_MAYBE: Final = {"type": ["string", "null"], "format": "date-time"}
_DIGEST: Final = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}


def document(version: str) -> dict[str, Any]:
    """The whole description, with the release's version."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "samplegate reviews",
            "version": version,
            "description": "What servers asked and a person decides. Verdicts are bound to exactly what was asked; the first one wins.",
        },
        "paths": {
            "/v1/openapi.json": {"get": _get("openapi", "This description.", {"type": "object"}, [], errors={}, public=True)},
            "/v1/reviews": {"get": _get("reviews", "Reviews without their contents, newest first.", _ref("Reviews"), _FILTERS, errors={422})},
            "/v1/reviews/events": {"get": _events()},
            "/v1/reviews/{id}": {"get": _get("review", "One review, whole.", _ref("Review"), [_PATH], errors={404})},
            "/v1/reviews/{id}/history": {"get": _get("history", "What became of it, by whom and when.", _ref("History"), [_PATH], errors={404})},
            "/v1/reviews/{id}/verdict": {"post": _verdict()},
        },
        "components": {"schemas": _schemas(), "responses": _responses(), "securitySchemes": _security()},
    }


def _ref(name: str, kind: str = "schemas") -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _query(name: str, what: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": what, "schema": schema}


def _some(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "maxItems": MAX_VALUES}


_NAME: Final = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_PATH: Final = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": _ID}}
_FILTERS: Final = [
    _query("state", "Only these states.", _some({"enum": list(STATES)})),
    _query("reviewer", "Only these reviewers' of the policy.", _some(_NAME)),
    _query("server", "Only this server's.", _NAME),
    _query("kind", "Only this kind.", {"enum": list(KINDS)}),
    _query("limit", f"The most, {DEFAULT_LIMIT} by default.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
    _query("before", "Those after this one: `next` of the page before.", {"type": "string", "pattern": _ID}),
]
_SINCE: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The last event that was seen: the stream goes on behind it. Without it, with what happens from now on.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}


def _get(name: str, what: str, schema: dict[str, Any], parameters: list[Any], *, errors: Any, public: bool = False) -> dict[str, Any]:
    fine = {"description": what, "content": {"application/json": {"schema": schema}}}
    return {
        "operationId": name,
        "summary": what,
        "parameters": parameters,
        "security": [] if public else [{"person": []}],
        "responses": {"200": fine} | _errors({403, 500, *errors} | (set() if public else {401, 429, 503})),
    }


def _events() -> dict[str, Any]:
    what = "Changes as server-sent events, named `change`; of the reviews that this token may see."
    return {
        "operationId": "events",
        "summary": what,
        "parameters": [_SINCE],
        "security": [{"person": []}],
        "responses": {"200": {"description": what, "content": {"text/event-stream": {"schema": _TEXT}}}} | _errors({401, 403, 429, 500, 503}),
    }


def _verdict() -> dict[str, Any]:
    return {
        "operationId": "decide",
        "summary": "Give a verdict.",
        "description": "By the token of a person who may decide it, or by the one-time token that came with its notification.",
        "parameters": [_PATH],
        "security": [{"person": []}, {"callback": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("Verdict")}}},
        "responses": {"200": {"description": "It counts: the review as it stands.", "content": {"application/json": {"schema": _ref("Review")}}}}
        | _errors({400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503}),
    }


_ERRORS: Final = {
    400: "The request cannot be read.",
    401: "No token, or none that is known.",
    403: "Not for this token, or not from this page.",
    404: "There is no such review for this token.",
    408: "The body did not come to its end in time.",
    409: "It is not pending any more: `review` is how it stands.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "Something is wrong: `problems` says what, and where.",
    429: "Too many wrong tokens, or too many listeners.",
    500: "A fault in the gate; its log has it.",
    503: "The store cannot be reached now.",
}


def _errors(statuses: set[int]) -> dict[str, Any]:
    return {str(status): _ref(f"Problem{status}", "responses") for status in sorted(statuses)}


def _responses() -> dict[str, Any]:
    return {f"Problem{status}": _problem(status, what) for status, what in _ERRORS.items()}


def _problem(status: int, what: str) -> dict[str, Any]:
    members = {409: {"review": _ref("Review")}, 422: {"problems": {"type": "array", "minItems": 1, "items": _ref("Wrong")}}}.get(status, {})
    schema = {
        "type": "object",
        "required": ["type", "title", "status", "detail", *members],
        "properties": {"type": {"const": "about:blank"}, "title": _TEXT, "status": {"const": status}, "detail": _TEXT, **members},
        "additionalProperties": False,
    }
    found: dict[str, Any] = {"description": what, "content": {"application/problem+json": {"schema": schema}}}
    header = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}.get(status)
    if header is not None:
        found["headers"] = {header: {"required": True, "schema": _TEXT}}
    return found


def _security() -> dict[str, Any]:
    return {
        "person": {"type": "http", "scheme": "bearer", "description": "A token of `people` in the settings."},
        "callback": {"type": "http", "scheme": "bearer", "description": "The one-time token of one notification."},
    }


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}, "additionalProperties": False}


def _word(type: Any) -> dict[str, Any]:
    return {"enum": list(get_args(type))}


def _schemas() -> dict[str, Any]:
    whatever: dict[str, Any] = {}
    event = dict.fromkeys(("who", "detail"), _TEXT) | {
        "number": {"type": "integer"},
        "review": {"type": "string", "pattern": _ID},
        "at": _MOMENT,
        "what": _word(get_type_hints(Event)["what"]),
        "door": _word(Door),
    }
    return {
        "Review": _object(_outline(), _content(whatever)),
        "Reviews": _object({"reviews": {"type": "array", "items": _ref("Review")}, "next": {"type": ["string", "null"], "pattern": _ID}}),
        "Event": _object(event),
        "History": _object({"events": {"type": "array", "items": _ref("Event")}}),
        "Wrong": _object({"path": {**_TEXT, "description": 'A field, such as `content.port`; "" for the whole.'}, "what": _TEXT}),
        "Edits": _edits(),
        "Verdict": _given(whatever),
    }


def _outline() -> dict[str, Any]:
    """What every view of a review has."""
    return {
        "id": {"type": "string", "pattern": _ID},
        "digest": _DIGEST,
        "state": {"enum": list(STATES)},
        "stage": _word(Stage),
        **dict.fromkeys(("reviewer", "rule", "server", "caller", "method", "who"), _TEXT),
        "era": _word(Era),
        "kind": {"enum": list(KINDS)},
        "mode": {"enum": [*get_args(Mode), None]},
        "during": {"type": "array", "items": _object({"method": _TEXT, "tool": {"type": ["string", "null"]}})},
        "created": _MOMENT,
        "expires": _MOMENT,
        **dict.fromkeys(("answers_until", "decided", "used"), _MAYBE),
        "seconds_left": {"type": "integer", "minimum": 0},
        "late_seconds": {"type": "integer", "minimum": 0},
        "link": {"type": ["string", "null"]},
        "worst_usd": {"type": ["number", "null"]},
        "door": {"enum": [*get_args(Door), None]},
        "verdict": {"type": ["object", "null"], "description": "What was said, in the form in which it is given."},
        "notes": {"type": "array", "items": _TEXT},
        "show": _word(Show),
        "truncated": {"type": "boolean"},
    }


def _content(whatever: dict[str, Any]) -> dict[str, Any]:
    """What a view with contents has besides."""
    address = {"host": _TEXT, "host_unicode": whatever, "port": {"type": ["integer", "null"]}, "warnings": {"type": "array", "items": _TEXT}}
    return {
        "arguments": whatever,
        "request": {"type": "object"},
        "address": {"anyOf": [_object(address), {"type": "null"}]},
        "bounds": {"type": ["object", "null"]},
        "why": _TEXT,
        "changed": {"type": "array", "items": _TEXT},
        "unsent": {
            "type": "array",
            "items": _object({"param": _TEXT, "value": whatever, "effect": _TEXT}),
            "description": "Params of a sampling request that no model is sent, as the server asked them, with what the gate makes of each.",
        },
        "answer": {"type": ["object", "null"]},
    }


def _edits() -> dict[str, Any]:
    return _object(
        {},
        {
            "messages": {"type": "array", "items": {"type": "object"}},
            "systemPrompt": {**_TEXT, "description": '"" takes it away.'},
            "model": _TEXT,
            "maxTokens": {"type": "integer", "minimum": 1},
            "temperature": {"type": "number", "minimum": 0},
        },
    )


def _given(whatever: dict[str, Any]) -> dict[str, Any]:
    return {
        **_object(
            {"verdict": {"enum": ["approve", "reject", "answer"]}, "digest": _DIGEST},
            {
                "edits": {"anyOf": [_ref("Edits"), {"type": "null"}]},
                "action": {"enum": ["accept", "decline", "cancel", None]},
                "content": {**whatever, "description": "An elicitation's fields, or the text or content blocks of a sampling answer."},
                "reason": {"type": ["string", "null"], "maxLength": MOST_REASON},
                "tell_server": {"type": ["boolean", "null"], "description": "Whether the server is told the reason of a rejection."},
            },
        ),
        "description": "`digest` names what was shown: a verdict on anything else is refused. What else fits depends on the review (422).",
    }
