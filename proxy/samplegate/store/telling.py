"""A line of a review's history, within the transaction of what it tells of. Never content."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy import Connection, insert, update

from samplegate.core.review.review import DECIDED, Review, State
from samplegate.store.rows import plain
from samplegate.store.schema import EVENTS, FACTS

What: TypeAlias = Literal["opened", "joined", "approved", "rejected", "answered", "expired", "withdrawn", "used", "given back", "told", "untold"]


def tell(connection: Connection, review: Review, what: What | State, at: float, *, detail: str = "") -> None:
    """Write it down under the next number. Who decided stands at the verdict alone; the rest the gate did itself."""
    by_person = what in DECIDED
    count = update(FACTS).where(FACTS.c.name == "events").values(number=FACTS.c.number + 1).returning(FACTS.c.number)
    line = {
        "number": connection.execute(count).scalar_one(),
        "review": review.id,
        "at": at,
        "what": what,
        "who": plain(review.who) if by_person else "",
        "door": (review.door or "gate") if by_person else "gate",
        "detail": plain(detail),
    }
    connection.execute(insert(EVENTS), line)
