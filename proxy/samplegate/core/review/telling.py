"""What is told of a review outside: the API's view, a webhook's data, a command's input. JSON-able, pure. Who may be told is not asked here.

``id, digest, state, stage, reviewer, rule, server, caller, era, kind, mode, method, during`` (list of {method, tool}),
``created, expires, answers_until, decided, used`` (RFC 3339, UTC, null where there is none), ``seconds_left`` (0 unless pending),
``late_seconds, link, worst_usd`` (dollars), ``who, door, verdict`` (null or what was said), ``notes`` (sentences), ``show, truncated``;
and unless ``show`` is "none" also ``arguments`` (of the call), ``request`` (sampling: MCP's params as a model would be asked; elicitation: message
and requestedSchema, or message and url), ``address`` (url mode: host, host_unicode, port, warnings), ``bounds`` (of edits; null: it cannot be
approved, and ``why``), ``changed`` (params the rule changed), ``unsent`` (list of {param, value, effect}: what no model is sent of a sampling
request), ``answer`` (stage answer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from samplegate.core.ledger import SCALE
from samplegate.core.matching.secrecy import without_secrets
from samplegate.core.policy import Show
from samplegate.core.review.cleared import cleared
from samplegate.core.review.review import DECIDED, Event, Review, Verdict
from samplegate.core.review.spans import span
from samplegate.core.review.unsent import as_json
from samplegate.core.review.withholding import Clean, cleaned, cut, size, without_secret_defaults
from samplegate.urls import ShownUrl, shown_url

MOST_BYTES: Final = 256 * 1024
"""A good ``most`` for webhooks and commands."""
_FORM: Final = ("message", "requestedSchema")
_URL: Final = ("message", "url")


def told(review: Review, *, show: Show, now: float, url: str | None, clean: Clean | None = None, most: int | None = None) -> dict[str, Any]:
    """The review as JSON values. ``clean`` takes secrets out of a text (show "redacted"); ``most`` bounds the bytes of it as JSON in ASCII.

    What secret-looking fields of a form were filled in with is never told. Beyond ``most``, pictures go first, then texts and lists are cut, then
    the content is left out altogether; ``truncated`` and a note say so.
    """
    review = cleared(review)
    bare = _outline(review, now, url) | {"show": show, "truncated": False}
    if show == "none":
        return bare
    content = _content(review, show, clean)
    whole = bare | content
    if most is None or size(whole) <= most:
        return whole
    shorter = cut(content, most - size(bare) - 500)
    note = "it is cut short here: the whole is at the page" if shorter else "it is too large to be told here: it is at the page"
    return bare | (shorter or {}) | {"truncated": True, "notes": [*bare["notes"], note], "show": show if shorter else "none"}


def _outline(review: Review, now: float, url: str | None) -> dict[str, Any]:
    """Who, what, when, where: no content and no names of fields."""
    return {
        "id": review.id,
        "digest": review.digest,
        "state": review.state,
        "stage": review.stage,
        "reviewer": review.reviewer,
        "rule": review.rule,
        "server": review.server,
        "caller": review.caller,
        "era": review.era,
        "kind": review.kind,
        "mode": review.mode,
        "method": review.method,
        "during": [{"method": call.method, "tool": call.tool} for call in review.calls],
        "created": moment(review.created),
        "expires": moment(review.expires),
        "answers_until": moment(review.answers_until),
        "decided": moment(review.decided),
        "used": moment(review.used),
        "seconds_left": max(0, int(review.expires - now)) if review.state == "pending" else 0,
        "late_seconds": int(review.late),
        "link": None if url is None else f"{url}/reviews/{review.id}",
        "worst_usd": None if review.worst_usd is None else review.worst_usd / SCALE["usd"],
        "who": review.who,
        "door": review.door,
        "verdict": None if review.verdict is None else {"verdict": review.verdict.word},
        "notes": notes(review, now),
    }


def moment(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC, to the second."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def notes(review: Review, now: float) -> list[str]:
    """What whoever decides should know beside the request, as sentences. Without content."""
    found = []
    if review.mode == "url" and review.state == "pending":  # R45
        found.append("the server means its own user to open this address; whoever decides here is not that user and should not sign in there")
    if review.state == "pending" and review.answers_until is not None and now >= review.answers_until:
        late = f"once, within {span(review.late)}" if review.late else "not at all"
        found.append(f"its request has ended: a verdict now answers the next same request, {late}")
    if review.state in DECIDED and review.used is None and review.waiter is None and review.decided is not None:
        over = now >= review.decided + review.late
        found.append("the verdict was never used, and is over" if over else "the verdict is not used yet: the next same request gets it")
    return found


def withdrawn_for(events: Sequence[Event]) -> str:
    """Why a review was withdrawn, by its history; "" if it was not."""
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
        "unsent": [dict(as_json(each)) for each in review.unsent],
        "answer": review.answer,
    }
    if review.verdict is not None:
        content["verdict"] = said(review.verdict, review)
    return content if show == "full" else _redacted(content, address, clean)


def _plain(struct: msgspec.Struct) -> Any:
    """As a JSON parser would give it: lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(struct))


def _request(review: Review) -> dict[str, Any]:
    if review.kind == "sampling":
        return dict(review.params)
    return {name: review.params[name] for name in (_URL if review.mode == "url" else _FORM) if name in review.params}


def _address(address: ShownUrl) -> dict[str, Any]:
    return {"host": address.host, "host_unicode": address.host_unicode, "port": address.port, "warnings": list(address.warnings)}


def said(verdict: Verdict, review: Review) -> dict[str, Any]:
    """A verdict in the form that it is given in (``verdicts.py``), with nulls left out."""
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
    unsent = [{**each, "value": without_secrets({each["param"]: each["value"]})[each["param"]]} for each in content["unsent"]]
    out: dict[str, Any] = cleaned({**content, "request": request, "arguments": arguments, "unsent": unsent}, clean)
    return out
