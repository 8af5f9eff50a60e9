"""Pure. A webhook's own JSON body: a template from the policy, whose texts name fields of a review.

Fields are put into the parsed template, so no text of a server can change its structure. A server's text is plain: it
has no invisible characters, no addresses that become links, no links with a text and no mentions, and is cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from samplegate.policy.message_template import DEFAULT_CUT, FIELD, OURS, shortened
from samplegate.reviews.notify.formats import ReviewView, data, encoded, plain_text, title_of
from samplegate.reviews.review import Delivery, Review
from samplegate.reviews.views import request_sections


def filled(body: object, delivery: Delivery, review: Review, view: ReviewView, secret: str) -> bytes:
    """The body of a message about a review."""
    made = _filled(body, values(delivery, review, view, secret))
    return encoded(made if isinstance(made, dict) else {})


def values(delivery: Delivery, review: Review, view: ReviewView, secret: str) -> dict[str, str]:
    """The fields of a review."""
    seen = data(review, view, callback=False)
    sections = () if seen["show"] == "none" else request_sections(seen)
    summary = "\n\n".join(f"{name}: {text}" for name, text in sections)
    return {
        "event": delivery.event,
        "title": title_of(seen),
        "summary": summary or "The request is not shown here. Open the review to see it.",
        "kind": str(seen["mode"] or "sampling"),
        "server": str(seen["server"]),
        "caller": str(seen["caller"]),
        "tool": ", ".join(str(call["tool"] or call["method"]) for call in seen["during"][:5]),
        "rule": str(seen["rule"]),
        "reviewer": delivery.reviewer,
        "state": str(seen["state"]),
        "who": str(seen["who"] or ""),
        "id": str(seen["id"]),
        "link": str(seen["link"] or ""),
        "expires": str(seen["expires"]),
        "secret": secret,
    }


def _filled(node: object, fields: Mapping[str, str]) -> Any:
    if isinstance(node, Mapping):
        made = {str(name): _filled(value, fields) for name, value in node.items()}
        return {name: value for name, value in made.items() if value is not None}
    if isinstance(node, list):
        return [value for each in node if not _lacks(each, fields) and (value := _filled(each, fields)) is not None]
    return _text(node, fields) if isinstance(node, str) else node


def _lacks(item: object, fields: Mapping[str, str]) -> bool:
    """Whether a member of an item is nothing but a field without a value: a button or a link without a page would be
    refused."""
    return isinstance(item, Mapping) and any(_is_empty(value, fields) for value in item.values())


def _is_empty(value: object, fields: Mapping[str, str]) -> bool:
    whole = FIELD.fullmatch(value) if isinstance(value, str) else None
    return whole is not None and whole[1] is not None and not fields.get(whole[1])


def _text(text: str, fields: Mapping[str, str]) -> str | None:
    """A text with its fields. One that is nothing but a field without a value is left out."""
    if _is_empty(text, fields):
        return None

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        most = int(found[2]) if found[2] is not None else DEFAULT_CUT
        said = fields[found[1]]
        if found[1] in OURS:
            return said
        return shortened(plain_text(said), most)

    return FIELD.sub(value, text)
