"""Deliveries to reviewers: put in with what they tell of, taken by one at a time, kept until done or given up. Nothing is sent here."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace
from sqlalchemy import Connection, insert, or_, select, update

from samplegate.core.review.review import Delivery, Review
from samplegate.store import finding, rows
from samplegate.store.rows import plain, plains
from samplegate.store.schema import DELIVERIES, REVIEWS
from samplegate.store.telling import tell

MOST_TAKEN: Final = 1_000
_LETTERS: Final = string.ascii_letters + string.digits
_c: Final = DELIVERIES.c


def announce(connection: Connection, review: Review, event: Literal["review.opened"], now: float) -> None:
    """The first delivery of a review."""
    _put(connection, review, event, now)


def follow_up(connection: Connection, review: Review, event: Literal["review.decided", "review.expired", "review.withdrawn"], now: float) -> None:
    """What became of it, where its reviewer was told that it was opened."""
    if connection.execute(select(REVIEWS.c.announced).where(REVIEWS.c.id == review.id)).scalar():
        _put(connection, review, event, now)


def take(connection: Connection, reviewers: Sequence[str], *, taker: str, now: float, seconds: float, limit: int) -> Sequence[Delivery]:
    """Those that are due and nobody's, the longest first, held for the taker."""
    if not reviewers:
        return ()
    free = or_(_c.taker.is_(None), _c.held_until <= now)
    due = select(DELIVERIES).where(_c.state == "waiting", _c.due <= now, _c.reviewer.in_(plains(reviewers)), free)
    found = [rows.delivery(row) for row in connection.execute(due.order_by(_c.due, _c.id).limit(min(max(limit, 0), MOST_TAKEN)))]
    taken = [replace(one, taker=plain(taker), held_until=now + seconds) for one in found]
    for one in taken:
        _change(connection, one.id, taker=one.taker, held_until=one.held_until)
    return taken


def hold(connection: Connection, delivery: Delivery, *, now: float, seconds: float) -> bool:
    """Its taker is still at it; False where it is not this taker's any more."""
    kept = _waiting(connection, delivery)
    if kept is None or kept.taker != delivery.taker:
        return False
    _change(connection, kept.id, held_until=now + seconds)
    return True


def end(connection: Connection, delivery: Delivery, state: Literal["done", "failed"], *, said: str, now: float) -> bool:
    """It was delivered, whoever holds it now; or its taker gives it up. False where it had ended, or is another's to give up."""
    kept = _waiting(connection, delivery)
    if kept is None or (state == "failed" and kept.taker != delivery.taker):
        return False
    _change(connection, kept.id, state=state, tries=kept.tries + 1, taker=None, held_until=0.0, said=plain(said))
    review = finding.one(connection, kept.review)
    if review is not None:
        tell(connection, review, "told" if state == "done" else "untold", now, detail=f"{kept.event}: {said}")
    return True


def postpone(connection: Connection, delivery: Delivery, *, due: float, said: str) -> None:
    """Its taker tries again later, or somebody else does."""
    kept = _waiting(connection, delivery)
    if kept is not None and kept.taker == delivery.taker:
        _change(connection, kept.id, due=due, tries=kept.tries + 1, taker=None, held_until=0.0, said=plain(said))


def _put(connection: Connection, review: Review, event: str, now: float) -> None:
    id = "msg_" + "".join(secrets.choice(_LETTERS) for _ in range(24))
    values = {"id": id, "review": review.id, "reviewer": plain(review.reviewer), "event": event, "created": now, "due": now}
    connection.execute(insert(DELIVERIES), {**values, "tries": 0, "state": "waiting", "held_until": 0.0, "said": ""})


def _waiting(connection: Connection, delivery: Delivery) -> Delivery | None:
    found = connection.execute(select(DELIVERIES).where(_c.id == plain(delivery.id), _c.state == "waiting")).first()
    return None if found is None else rows.delivery(found)


def _change(connection: Connection, id: str, **values: Any) -> None:
    connection.execute(update(DELIVERIES).where(_c.id == id).values(**values))
