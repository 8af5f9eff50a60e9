"""What a webhook or a command is told, as JSON text: Standard Webhooks' body around the told review. Pure; nothing is signed or sent here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from samplegate.core.review import callbacks, slack
from samplegate.core.review.review import Delivery, Review
from samplegate.core.review.telling import MOST_BYTES, moment, told
from samplegate.core.review.withholding import Clean

Format: TypeAlias = Literal["standard", "slack"]


class View(msgspec.Struct, frozen=True):
    """How a review is told: as of ``now``, with links below ``url`` (None: there is no page), and ``key`` for callbacks (the store's)."""

    now: float
    url: str | None
    clean: Clean | None
    key: bytes


def data(review: Review, view: View, *, callback: bool) -> dict[str, Any]:
    """The review as whoever is told sees it: as its rule says by ``show``. ``callback``: with how a verdict is given later, if it still waits."""
    found = told(review, show=review.show, now=view.now, url=view.url, clean=view.clean, most=MOST_BYTES)
    if not callback or review.state != "pending" or view.url is None:
        return found
    token = callbacks.make(view.key, review.id, review.digest, review.expires)
    where = {"url": f"{view.url}/v1/reviews/{review.id}/verdict", "token": token, "expires": moment(int(review.expires))}
    return found | {"callback": where}


def standard(delivery: Delivery, review: Review, view: View) -> bytes:
    """``{"type", "timestamp", "data"}``: the event, when it was, the review as it is now. The callback only where a verdict is asked for."""
    event = delivery.event
    body = {"type": event, "timestamp": moment(delivery.created), "data": data(review, view, callback=event == "review.opened")}
    return encoded(body)


def for_slack(delivery: Delivery, review: Review, view: View) -> bytes:
    """A message for a channel: no callback, since everybody in it would have it."""
    return encoded(slack.message(delivery.event, data(review, view, callback=False)))


def encoded(body: Mapping[str, Any]) -> bytes:
    """ASCII, so that no receiver has to guess."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
