"""Which reviews there are: statements that read, each within a transaction of the caller's. What may follow what is not asked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, or_, select

from samplegate.core.review.review import DECIDED, Event, Filter, Review, Stage
from samplegate.store import rows
from samplegate.store.schema import EVENTS, FACTS, REVIEWS

MOST_LISTED: Final = 1_000
_c: Final = REVIEWS.c
_one: Final = select(REVIEWS).where(_c.id == bindparam("wanted"))


def one(connection: Connection, id: str) -> Review | None:
    """The review of this id."""
    found = connection.execute(_one, {"wanted": rows.plain(id)}).first()
    return None if found is None else rows.review(found)


def starting(connection: Connection, begin: str, most: int) -> Sequence[str]:
    """The ids that begin so, some of them: ids are ASCII, so all lie before the last of characters."""
    begin = rows.plain(begin)
    statement = select(_c.id).where(_c.id >= begin, _c.id < begin + "\uffff").order_by(_c.id).limit(most)
    return connection.execute(statement).scalars().all()


def free(connection: Connection, lookup: str, *, stage: Stage, waiter: str, now: float, own: str = "") -> Iterator[Review]:
    """What a waiter may find: verdicts as they were given, then what is pending by age. The law is asked of each, nobody's time spent on the rest."""
    unheld = or_(_c.waiter.is_(None), _c.waiter == rows.plain(waiter), _c.held_until <= now)
    of_it = and_(_c.lookup == rows.plain(lookup), _c.used_by.is_(None), _c.stage == stage, unheld)
    in_time = or_(now < _c.decided + _c.late, _c.waiter == rows.plain(waiter), _c.id == rows.plain(own))
    verdicts = select(_c.id).where(of_it, _c.state.in_(sorted(DECIDED)), in_time).order_by(_c.decided, _c.id)
    waiting = select(_c.id).where(of_it, _c.state == "pending", _c.expires > now).order_by(_c.created, _c.id)
    for statement in (verdicts, waiting):
        for id in connection.execute(statement).scalars().all():
            found = one(connection, id)
            if found is not None:
                yield found


def waiters(connection: Connection, lookup: str, now: float) -> Sequence[str]:
    """Who waits for reviews of the same request, or has taken a verdict on it."""
    held = and_(_c.lookup == rows.plain(lookup), _c.used_by.is_(None), _c.waiter.is_not(None), _c.held_until > now)
    return [waiter for waiter in connection.execute(select(_c.waiter).where(held).distinct()).scalars() if waiter is not None]


def listed(connection: Connection, filter: Filter) -> Sequence[Review]:
    """A page. Each state is walked along its own index, so that few of many are found as fast as many of few."""
    limit = min(max(filter.limit, 0), MOST_LISTED)
    beyond = None if filter.before is None else connection.execute(select(_c.created, _c.id).where(_c.id == rows.plain(filter.before))).first()
    if limit == 0 or (filter.before is not None and beyond is None):
        return ()
    states: Sequence[str | None] = sorted(set(filter.states)) or (None,)
    pages = [connection.execute(page(filter, state, beyond, limit)).all() for state in states]
    ids = [id for _, id in sorted(((found.created, found.id) for some in pages for found in some), reverse=not filter.oldest_first)[:limit]]
    found = {row.id: rows.review(row) for row in connection.execute(select(REVIEWS).where(_c.id.in_(ids)))}
    return [found[id] for id in ids]


def page(filter: Filter, state: str | None, beyond: Any, limit: int) -> Select[float, str]:
    """When the first of one state were created, and their ids: from an index alone."""
    said: list[ColumnElement[bool]] = [] if state is None else [_c.state == state]
    if beyond is not None:
        # the first of the two is for the index
        if filter.oldest_first:
            said += [_c.created >= beyond.created, or_(_c.created > beyond.created, _c.id > beyond.id)]
        else:
            said += [_c.created <= beyond.created, or_(_c.created < beyond.created, _c.id < beyond.id)]
    if filter.reviewers is not None:
        said.append(_c.reviewer.in_(rows.plains(filter.reviewers)))
    if filter.server is not None:
        said.append(_c.server == rows.plain(filter.server))
    if filter.kind is not None:
        said.append(_c.kind == filter.kind)
    order = (_c.created, _c.id) if filter.oldest_first else (_c.created.desc(), _c.id.desc())
    return select(_c.created, _c.id).where(*said).order_by(*order).limit(limit)


def over(connection: Connection, now: float) -> Sequence[str]:
    """The ids of those that are pending and whose time is over, the longest first."""
    statement = select(_c.id).where(_c.state == "pending", _c.expires <= now).order_by(_c.expires, _c.id)
    return connection.execute(statement).scalars().all()


def waiting(connection: Connection, now: float) -> int:
    """How many wait for a verdict and still may."""
    return connection.execute(select(func.count()).select_from(REVIEWS).where(_c.state == "pending", _c.expires > now)).scalar_one()


def pending(connection: Connection) -> Mapping[str, tuple[int, float]]:
    """By reviewer: how many are pending, and when the oldest was created."""
    statement = select(_c.reviewer, func.count(), func.min(_c.created)).where(_c.state == "pending").group_by(_c.reviewer)
    return {reviewer: (count, oldest) for reviewer, count, oldest in connection.execute(statement)}


def history(connection: Connection, id: str) -> Sequence[Event]:
    """What happened to one review, in order."""
    found = connection.execute(select(EVENTS).where(EVENTS.c.review == rows.plain(id)).order_by(EVENTS.c.number))
    return [rows.event(row) for row in found]


def changes(connection: Connection, after: int, limit: int) -> Sequence[Event]:
    """What happened to all of them after an event, in order."""
    statement = select(EVENTS).where(EVENTS.c.number > after).order_by(EVENTS.c.number).limit(max(limit, 0))
    return [rows.event(row) for row in connection.execute(statement)]


def last_change(connection: Connection) -> int:
    """The number of the newest event, 0 for none."""
    return connection.execute(select(FACTS.c.number).where(FACTS.c.name == "events")).scalar_one() or 0
