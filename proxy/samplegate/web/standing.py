"""How a review stands, for a person: what asks, who may still be reached by a verdict, and until when. Pure: time is an argument."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from samplegate.core.review.review import DECIDED, Review
from samplegate.web.words import many

Phase: TypeAlias = Literal["waits", "outlived", "used", "taken", "kept", "unused", "expired", "withdrawn"]
"""``waits``: its request does; ``outlived``: only the review does. Decided: ``used``, ``taken`` by a request that waits, ``kept`` for the next same
one, or ``unused`` and past."""


class Standing(msgspec.Struct, frozen=True):
    """Where it is between its request and its end."""

    phase: Phase
    request_until: float
    """When its request stops waiting, or did."""
    review_until: float
    late: float
    """Seconds that a verdict is good for after it was given; 0: only for a request that waits."""
    kept_until: float
    """Decided: when the verdict is good for nothing any more."""


def standing(review: Review, now: float) -> Standing:
    """How it stands at ``now``."""
    request_until = review.expires if review.answers_until is None else min(review.answers_until, review.expires)
    kept_until = (review.decided or 0.0) + review.late
    return Standing(_phase(review, now, request_until, kept_until), request_until, review.expires, review.late, kept_until)


def _phase(review: Review, now: float, request_until: float, kept_until: float) -> Phase:
    if review.state == "pending":
        return "waits" if now < request_until else "outlived"
    if review.state not in DECIDED:
        return "withdrawn" if review.state == "withdrawn" else "expired"
    if review.used_by is not None:
        return "used"
    if review.waiter is not None and now < review.held_until:
        return "taken"
    return "kept" if now < kept_until else "unused"


def asks(review: Review) -> str:
    """What it is about, behind the server's name."""
    if review.stage == "answer":
        return "gets an answer of a model"
    if review.kind == "sampling":
        return "asks a model"
    if review.mode == "url":
        return "wants a web page opened"
    schema = review.params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return f"asks for {many(len(fields), 'value')}" if isinstance(fields, dict) and fields else "asks for consent"


def kind(review: Review) -> str:
    """In two words."""
    if review.kind == "sampling":
        return "Model answer" if review.stage == "answer" else "Sampling"
    return "Web page" if review.mode == "url" else "Form"
