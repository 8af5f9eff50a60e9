"""A delivery as the message that a webhook gets: address, headers, body, in the webhook's format. Reads keys, sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from samplegate import __version__
from samplegate.core.policy import Webhook
from samplegate.core.review import payloads
from samplegate.core.review.payloads import Format, View
from samplegate.core.review.review import Delivery, Review
from samplegate.core.review.signing import headers
from samplegate.review.keys import Place, Unready, keys_of, url_of
from samplegate.review.sending import Message

BODIES: Final[Mapping[Format, Callable[[Delivery, Review, View], bytes]]] = {"standard": payloads.standard, "slack": payloads.for_slack}
ANSWERING: Final[frozenset[Format]] = frozenset({"standard"})
"""Formats whose receivers may answer with a verdict. Whoever reads a chat's message is none."""


def message(delivery: Delivery, review: Review, webhook: Webhook, *, view: View, place: Place) -> Message | Unready:
    """What is posted where. Without a readable key nothing is: a receiver that takes unsigned messages would take anybody's."""
    url = url_of(webhook, place)
    if isinstance(url, Unready):
        return url
    body = BODIES[webhook.format](delivery, review, view)
    signed: Mapping[str, str] = {}
    if webhook.format == "standard":
        keys = keys_of(webhook, place)
        if isinstance(keys, Unready):
            return keys
        signed = headers(keys, id=delivery.id, at=view.now, body=body)
    return Message(url, {"Content-Type": "application/json", "User-Agent": f"samplegate/{__version__}", **signed}, body)
