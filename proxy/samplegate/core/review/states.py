"""What may become of a review: pending -> approved | rejected | answered | expired | withdrawn, and a verdict's one
use. Pure: time is a value.

The first verdict wins; a later one is refused with what came of it. A store applies these to its rows within one
transaction each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from samplegate.reviews.review import DECIDED, Door, Review, State, Verdict

_STATES: Final[Mapping[str, State]] = {"approve": "approved", "reject": "rejected", "answer": "answered"}


class Conflict(msgspec.Struct, frozen=True):
    """A verdict came too late: ``review`` is how it stands."""

    review: Review


def decided(review: Review, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict:
    """A verdict is given."""
    if review.state != "pending" or now >= review.expires:
        return Conflict(expired(review, now) or review)
    return msgspec.structs.replace(
        review, state=_STATES[verdict.word], verdict=verdict, decided=now, who=who, door=door
    )


def expired(review: Review, now: float) -> Review | None:
    """Its time is over; None if it is not, or something else came first."""
    if review.state != "pending" or now < review.expires:
        return None
    return msgspec.structs.replace(
        review, state="expired", decided=review.expires, door="gate", waiter=None, held_until=0.0
    )


def withdrawn(review: Review, *, waiter: str, now: float) -> Review | None:
    """Whoever asked or called took the request back; None if there is nothing to withdraw for this waiter."""
    if review.state != "pending" or review.waiter not in (None, waiter):
        return None
    return msgspec.structs.replace(review, state="withdrawn", decided=now, door="gate", waiter=None, held_until=0.0)


def standing(review: Review, waiter: str, now: float, own: str = "") -> Literal["decided", "pending", "none"]:
    """What a waiter for a request with its ``lookup`` finds: a verdict that it may take, a review that it may wait for,
    or nothing for it.

    ``own``: the id of the review that the request waited for before it was put off; its verdict is never late for it.
    """
    free = review.waiter in (None, waiter) or now >= review.held_until
    if not free or review.used_by is not None:
        return "none"
    if review.state in DECIDED and review.decided is not None:
        # whoever waited while it was decided is in time whatever `late` says
        return (
            "decided" if now < review.decided + review.late or review.waiter == waiter or review.id == own else "none"
        )
    return "pending" if review.state == "pending" and now < review.expires else "none"


def held(review: Review, *, waiter: str, now: float, seconds: float, until: float | None = 0.0) -> Review:
    """The waiter says that it is there, for as many seconds; what it waits for it waits for until ``until`` (None: as
    long as the review does)."""
    answers = None if review.answers_until is None or until is None else max(review.answers_until, until)
    return msgspec.structs.replace(review, waiter=waiter, held_until=now + seconds, answers_until=answers)


def left(review: Review, waiter: str) -> Review | None:
    """The waiter goes: its request has ended, or it cannot use the verdict. None if it is not the waiter, or has used
    it."""
    if review.waiter != waiter or review.used_by is not None:
        return None
    return msgspec.structs.replace(review, waiter=None, held_until=0.0)


def used(review: Review, *, waiter: str, decision_id: str, now: float) -> Review | None:
    """The verdict is released, once; None if it is not this waiter's any more."""
    if review.state not in DECIDED or review.used_by is not None or review.waiter != waiter:
        return None
    return msgspec.structs.replace(review, used_by=decision_id, used=now, waiter=None, held_until=0.0)
