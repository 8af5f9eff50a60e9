"""Pure. Notification formats: the body and signature of Standard Webhooks, Slack blocks, and callback tokens.

Signatures are symmetric (``v1`` of standardwebhooks.com); a receiver recognizes a repeated message by its ID. A
callback token is derived from the store's key, so none is stored. It is valid for one review and its digest until the
review expires (T13).

In a Slack message the server's text is escaped, plain or preformatted: never a link, a mention, markup or hidden (T29).
The only URL is ours. Chats fetch the URLs that they show, so a URL elicitation appears by its host only (T12).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.money import dollars
from samplegate.policy.ledger import SCALE
from samplegate.reviews.review import Delivery, Review
from samplegate.reviews.views import MAX_BYTES, Clean, moment, note_text, request_sections, to_view

FENCE: Final = "```"
MIN_SHOWN: Final = 200  # characters; a shorter text does not help the reader
_entities: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_address: Final = re.compile(
    r"(?i)\b([a-z][a-z0-9+.-]{0,30}):(?=//)|\b(mailto|tel|data|javascript|slack):(?=\S)|\b(www)\.(?=\S)"
)
_mention: Final = re.compile(r"(?<!\w)@(?=\w)|<(?=[@!#&]|users/)|\](?=\()")
"""Where a mention, or a link with a text, would begin in the markup of one chat or another."""
_GAP: Final = "\u200b"
"""A zero-width space, which breaks links and fences."""


def line(text: str, most: int) -> str:
    """One line of plain text, at most ``most`` characters after escaping."""
    return _cut_escaped(_neutralized(text, keep=""), most)


def preformatted(name: str, text: str, most: int) -> str | None:
    """Our heading and a text between fences, at most ``most`` characters after escaping; None if there is no room."""
    head = f"*{name}*\n{FENCE}\n"
    room = most - len(head) - len(FENCE) - 1
    if room < MIN_SHOWN:
        return None
    shown = _neutralized(text, keep="\n\t").replace("`", f"`{_GAP}")
    return f"{head}{_cut_escaped(shown, room)}\n{FENCE}"


def plain_text(text: str) -> str:
    """Text of several lines for a format other than Slack's: not escaped, without links, mentions and hidden
    characters."""
    return _mention.sub(lambda found: f"{found[0]}{_GAP}", _neutralized(text, keep="\n\t"))


def _neutralized(text: str, keep: str) -> str:
    """The text without invisible or direction-changing characters, and with addresses that do not become links."""
    seen = "".join(
        c if c in keep or not _hidden(c) else " " if c in "\n\r\t" else "\ufffd" for c in text.replace("\r\n", "\n")
    )
    return _address.sub(lambda found: f"{found[0]}{_GAP}", seen)


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _cut_escaped(text: str, most: int) -> str:
    """The escaped text, cut to at most ``most`` characters with a mark, never within an entity."""
    out = "".join(_entities.get(c, c) for c in text[: most + 1])
    if len(out) <= most:
        return out
    note = f"… [{len(text)} characters]" if most >= MIN_SHOWN else "…"
    kept, size = [], len(note)
    for c in text[:most]:
        piece = _entities.get(c, c)
        size += len(piece)
        if size > most:
            break
        kept.append(piece)
    return "".join(kept) + note


Format: TypeAlias = Literal["standard", "slack", "json"]


class ReviewView(msgspec.Struct, frozen=True):
    """How to present a review: the time, the page's base URL (None: no page), and the store's key for callbacks."""

    now: float
    url: str | None
    clean: Clean | None
    key: bytes


def data(review: Review, view: ReviewView, *, callback: bool) -> dict[str, Any]:
    """The review's view, redacted as its rule's ``show`` requires.

    ``callback``: include the URL and token for a later verdict if the review is still pending.
    """
    found = to_view(review, show=review.show, now=view.now, url=view.url, clean=view.clean, most=MAX_BYTES)
    if not callback or review.state != "pending" or view.url is None:
        return found
    token = callback_token(view.key, review.id, review.digest, review.expires)
    where = {
        "url": f"{view.url}/v1/reviews/{review.id}/verdict",
        "token": token,
        "expires": moment(int(review.expires)),
    }
    return found | {"callback": where}


def standard(delivery: Delivery, review: Review, view: ReviewView) -> bytes:
    """The body of a Standard Webhooks message: ``{"type", "timestamp", "data"}``.

    The timestamp is the event's; the data is the review as it is now. Only ``review.opened`` has a callback.
    """
    event = delivery.event
    body = {
        "type": event,
        "timestamp": moment(delivery.created),
        "data": data(review, view, callback=event == "review.opened"),
    }
    return encoded(body)


def for_slack(delivery: Delivery, review: Review, view: ReviewView) -> bytes:
    """The body of a Slack message. It has no callback, because the whole channel would see it."""
    return encoded(message(delivery.event, data(review, view, callback=False)))


def encoded(body: Mapping[str, Any]) -> bytes:
    """Compact ASCII JSON, so that no receiver has to guess the encoding."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def key_of(secret: str) -> bytes | None:
    """The key in a secret: base64, with or without ``whsec_``, as the reference libraries decode it.

    None if the secret contains no key.
    """
    coded = secret.strip().removeprefix("whsec_").rstrip("=")
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def headers(keys: Sequence[bytes], *, id: str, at: float, body: bytes) -> dict[str, str]:
    """The three signature headers of a message.

    ``keys``: the newest first, one signature each, so that the receiver needs only one of them. ``at``: Unix seconds.
    """
    seconds = str(int(at))
    signed = f"{id}.{seconds}.".encode() + body
    signatures = " ".join(
        f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}" for key in keys
    )
    return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": signatures}


TOKEN_PREFIX: Final = "cb1."
"""The prefix of every callback token, which distinguishes it from a reviewer's token."""

_PURPOSE: Final = b"samplegate review callback 1"
_token: Final = re.compile(r"cb1\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})\Z")


def callback_token(key: bytes, review_id: str, digest: str, expires: float) -> str:
    """A callback token. ``key``: the store's 32 bytes. ``expires``: Unix seconds, rounded down, so never later."""
    seconds = int(expires)
    return f"{TOKEN_PREFIX}{seconds}.{_code(key, review_id, digest, seconds)}"


def callback_fault(key: bytes, token: str, review_id: str, digest: str, now: float) -> str | None:
    """Why a token is not valid for this review, None if it is. The store checks whether the review is still pending."""
    found = _token.match(token)
    if found is None:
        return "is not a callback token"
    seconds = int(found[1])
    if not hmac.compare_digest(_code(key, review_id, digest, seconds), found[2]):
        return "is not the callback token of this review"
    return "has expired" if now >= seconds else None


def _code(key: bytes, review_id: str, digest: str, seconds: int) -> str:
    """The signature, with a derived key: it is valid for nothing else that the store's key signs."""
    own = hmac.digest(key, _PURPOSE, hashlib.sha256)
    bound = json.dumps([review_id, digest, seconds], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hmac.digest(own, bound, hashlib.sha256)).rstrip(b"=").decode()


MAX_BLOCKS: Final = 50  # Slack's limits, here and below
MAX_HEADER: Final = 150
MAX_FIELD: Final = 2_000
MAX_TEXT: Final = 3_000
MAX_LINK: Final = 3_000
MAX_TOTAL: Final = 12_000
"""Our own limit on the characters of the request, so that the message stays readable. The page shows everything."""
_MAX_NAME: Final = 100  # characters of a name, so that the end of the title stays visible
_ACTIONS: Final = {"accept": "Accepted", "decline": "Declined", "cancel": "Dismissed"}
"""The decision on a form or URL as a word for people; any other is named by the review's state."""
_TITLES: Final = {
    "sampling": "Sampling request from",
    "form": "Form from",
    "url": "URL request from",
}


def message(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a Slack incoming webhook. ``fields``: from ``views.to_view``."""
    text, blocks = _opened_message(fields) if event == "review.opened" else _ended_message(fields)
    return {"text": text, "mrkdwn": False, "blocks": blocks[:MAX_BLOCKS], "unfurl_links": False, "unfurl_media": False}


def _opened_message(fields: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    title = title_of(fields)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(title, MAX_HEADER)},
        {"type": "section", "fields": [_plain(f"{name}: {value}", MAX_FIELD) for name, value in _facts(fields)]},
        *_request_blocks(fields),
        *({"type": "section", "text": _plain(note_text(note), MAX_TEXT)} for note in fields["notes"]),
        {
            "type": "context",
            "elements": [{"type": "mrkdwn", "text": _until(fields), "verbatim": True}, _plain(fields["id"], _MAX_NAME)],
        },
        *_button(fields),
    ]
    return line(title, MAX_TEXT), blocks


def _ended_message(fields: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """What was decided, as the title, and by whom. The ID comes last."""
    action = str((fields["verdict"] or {}).get("action"))
    title = f"{_ACTIONS.get(action) or fields['state'].capitalize()}: {title_of(fields)}"
    who = f"by {_short(fields['who'])} " if fields["who"] else ""
    door = f"({fields['door']})" if fields["door"] not in (None, "gate") else ""
    by = f"{who}{door}".strip()
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(title, MAX_HEADER)},
        {"type": "context", "elements": [*([_plain(by, MAX_FIELD)] if by else []), _plain(fields["id"], _MAX_NAME)]},
        *_button(fields),
    ]
    return line(f"{title} {by}".strip(), MAX_TEXT), blocks


def title_of(fields: Mapping[str, Any]) -> str:
    """The request and its server, as a title."""
    if fields["stage"] == "answer":
        return f"Model's answer for {_short(fields['server'])}"
    return f"{_TITLES[fields['mode'] or 'sampling']} {_short(fields['server'])}"


def _facts(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Facts about the review. Slack allows at most ten fields in a section."""
    yield "Server", _short(fields["server"])
    yield "Caller", _short(fields["caller"])
    yield "Call", ", ".join(_short(call["tool"] or call["method"]) for call in fields["during"][:5]) or "none"
    yield "Rule", _short(fields["rule"])
    yield "Reviewer", _short(fields["reviewer"])
    if fields["worst_usd"] is not None:
        yield "Max cost", dollars(round(fields["worst_usd"] * SCALE["usd"]))


def _request_blocks(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if fields["show"] == "none":
        yield {"type": "section", "text": _plain("The request is not shown here. Open the review to see it.", MAX_TEXT)}
        return
    left = MAX_TOTAL
    for name, text in request_sections(fields):
        block = preformatted(name, text, min(MAX_TEXT, left))
        if block is None:
            yield {"type": "section", "text": _plain("Truncated. Open the review to see the full request.", MAX_TEXT)}
            return
        left -= len(block)
        yield {"type": "section", "text": {"type": "mrkdwn", "text": block, "verbatim": True}}


def _until(fields: Mapping[str, Any]) -> str:
    """The request's deadline, after which a verdict answers the next identical request, and the review's."""
    ends, waits = fields["expires"], fields["answers_until"]
    if waits is None or datetime.fromisoformat(waits) >= datetime.fromisoformat(ends):
        return f"Request and review expire: {_time(ends)}"
    return f"Request expires: {_time(waits)}. Review expires: {_time(ends)}"


def _time(moment: str) -> str:
    """The time in the reader's own time zone, which Slack knows."""
    return f"<!date^{int(datetime.fromisoformat(moment).timestamp())}^{{date_short_pretty}} {{time}}|{moment}>"


def _button(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    link = fields["link"]
    if link is None or len(link) > MAX_LINK:
        return []
    button = {"type": "button", "action_id": "open_review", "text": _plain("Open review", 75), "url": link}
    return [{"type": "actions", "elements": [button]}]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": line(text, most), "emoji": False}
