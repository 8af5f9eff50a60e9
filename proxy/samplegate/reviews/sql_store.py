"""The SQL implementation of ``store.ReviewTransactions``: one transaction per method.

A method reads rows, applies the transitions in ``review.py``, and writes the result with its event. The command line
calls it directly, ``async_store.py`` in threads.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from samplegate.key_file import combined_key
from samplegate.policy.schema import Stage
from samplegate.reviews import review as states
from samplegate.reviews import sql_schema
from samplegate.reviews.review import (
    DECIDED,
    Conflict,
    Delivery,
    Door,
    Filter,
    Review,
    ReviewEvent,
    ReviewUi,
    State,
    Verdict,
    VoteRefused,
    scrub_verdict,
)
from samplegate.reviews.sql_database import OutcomeUnknown, database_of
from samplegate.reviews.sql_schema import (
    DELIVERIES,
    EVENTS,
    FACTS,
    REVIEWS,
    UIS,
    storable_text,
    storable_texts,
)
from samplegate.reviews.votes import vote_text, voted

What: TypeAlias = Literal[
    "opened",
    "joined",
    "voted",
    "approved",
    "rejected",
    "answered",
    "expired",
    "withdrawn",
    "used",
    "given back",
    "told",
    "untold",
    "ui ready",
    "ui failed",
]

ENDED_SESSION: Final = "ended session "
"""The beginning of a fact's name: ``number`` is when it expires, ``value`` the hash of its token."""
FAILED_SIGN_INS: Final = "failed sign-ins of "
"""The beginning of a fact's name: ``value`` is how many count at the time ``number`` (in milliseconds)."""
FORGOTTEN: Final = 86_400.0
MAX_ENDED: Final = 10_000
USED_LINK: Final = "used link to a UI "
"""The beginning of a fact's name: ``number`` is when its token expires."""
LEADER: Final = "leader of "
"""The beginning of a fact's name: ``number`` is the end of the lease in milliseconds, ``value`` its holder."""
PROCESS: Final = 32  # characters of a waiter's name that identify its process
AT_A_TIME: Final = 200  # reviews per transaction when many end at once, so that other transactions do not wait longer
MAX_LISTED: Final = 1_000
MAX_DELIVERIES: Final = 1_000
_LETTERS: Final = string.ascii_letters + string.digits
_r: Final = REVIEWS.c
_d: Final = DELIVERIES.c
_BY_ID: Final = select(REVIEWS).where(_r.id == bindparam("wanted"))


class SqlReviewStore:
    """The review store in a SQL database, opened at first use. For one thread at a time. All methods raise Unavailable.

    ``make``: whether to create a store that does not exist. ``clock``: the store's time
    in Unix seconds, by default this machine's. ``file_key``: see ``key_file.combined_key``.
    """

    def __init__(
        self,
        url: str,
        *,
        make: bool = True,
        clock: Callable[[], float] | None = None,
        file_key: bytes | None = None,
    ) -> None:
        self.database = database_of(url, make=make, clock=clock)
        self._file_key = file_key
        self.changed = 0
        """The number of changes so far that watchers must hear of."""

    def close(self) -> None:
        """Close the database; a later call opens it again."""
        self.database.close()

    def wall(self) -> float:
        """The store's time now, in Unix seconds."""
        return self.database.wall()

    # -- the gate
    # ------------------------------------------------------------------------------------------------------------------

    def seek(
        self,
        lookup: str,
        *,
        stage: Stage,
        waiter: str,
        seconds: float,
        gives_up: float | None = 0.0,
        own: str = "",
    ) -> Review | None:
        with self.database.writing() as db:
            now = self.database.now(db)
            self._register(waiter)
            self._release_dead(db, lookup, now)
            for found in _candidates(db, lookup, stage=stage, waiter=waiter, now=now, own=own):
                if states.verdict_for(found, waiter, now, own) != "none":
                    taken = states.held(found, waiter=waiter, now=now, seconds=seconds, gives_up=gives_up)
                    _write(db, found, taken)
                    if found.state == "pending" and found.waiter != taken.waiter:
                        append_event(db, taken, "joined", now)
                        self.changed += 1
                    return taken
        return None

    def _register(self, waiter: str) -> None:
        """Announce that this process runs. Waiters' names begin with its name."""
        if len(waiter) > PROCESS:
            self.database.register(waiter[:PROCESS])

    def _release_dead(self, db: Connection, lookup: str, now: float) -> None:
        """End the leases of dead processes, so that the same request joins a review that one of them opened."""
        held = and_(
            _r.lookup == storable_text(lookup), _r.used_by.is_(None), _r.waiter.is_not(None), _r.held_until > now
        )
        waiters = [
            waiter
            for waiter in db.execute(select(_r.waiter).where(held).distinct()).scalars()
            if waiter and len(waiter) > PROCESS
        ]
        dead = self.database.dead({waiter[:PROCESS] for waiter in waiters})
        gone = [waiter for waiter in waiters if waiter[:PROCESS] in dead]
        if gone:
            db.execute(update(REVIEWS).where(_r.waiter.in_(gone), _r.used_by.is_(None)).values(held_until=now))

    def open(self, review: Review, *, announce: bool, most: int, also: Sequence[str] = ()) -> Review | None:
        with self.database.writing() as db:
            review = states.opened(review, self.database.now(db))
            self._register(review.waiter or "")
            waiting = (
                select(func.count()).select_from(REVIEWS).where(_r.state == "pending", _r.expires > review.created)
            )
            if db.execute(waiting).scalar_one() >= most:
                return None
            db.execute(insert(REVIEWS), sql_schema.row(review, announced=announce))
            if announce:
                _deliver(db, review, "review.opened", review.created)
            for name in also if review.also_from is not None else ():
                _deliver(db, review, "review.opened", review.created, to=name, due=review.also_from)
            append_event(db, review, "opened", review.created)
        self.changed += 1
        return review

    def renew(self, waiters: Sequence[str], *, seconds: float) -> None:
        with self.database.writing() as db:
            now = self.database.now(db)
            for first in range(0, len(waiters), AT_A_TIME):
                theirs = update(REVIEWS).where(
                    _r.waiter.in_(storable_texts(waiters[first : first + AT_A_TIME])), _r.used_by.is_(None)
                )
                db.execute(theirs.values(held_until=now + seconds))

    def leave(self, id: str, *, waiter: str) -> None:
        with self.database.writing() as db:
            self._leave(db, _found(db, id), waiter, self.database.now(db))

    def _leave(self, db: Connection, review: Review | None, waiter: str, now: float) -> None:
        freed = None if review is None else states.left(review, waiter)
        if review is None or freed is None:
            return
        _write(db, review, freed)
        if freed.state in DECIDED:
            append_event(db, freed, "given back", now)
        self.changed += 1

    def withdraw(self, id: str, *, waiter: str, why: str) -> bool:
        with self.database.writing() as db:
            now = self.database.now(db)
            review = _found(db, id)
            gone = None if review is None else states.withdrawn(review, waiter=waiter, now=now)
            if review is None or gone is None:
                self._leave(db, review, waiter, now)
                return False
            self._end(db, review, gone, "review.withdrawn", now, detail=why)
        return True

    def use(self, uses: Sequence[tuple[str, str, str]]) -> bool:
        try:
            return self._use(uses)
        except OutcomeUnknown:  # ask again, or a verdict could be marked as used and never released
            return self._use(uses)

    def _use(self, uses: Sequence[tuple[str, str, str]]) -> bool:
        with self.database.writing() as db:
            now = self.database.now(db)
            found = [(_found(db, id), waiter, decision_id) for id, waiter, decision_id in sorted(uses)]
            spent = [
                (review, states.used(review, waiter=waiter, decision_id=decision_id, now=now), decision_id)
                for review, waiter, decision_id in found
                if review is not None
            ]
            if len(spent) < len(uses) or any(after is None for _, after, _ in spent):
                return False
            again = sum(after is review for review, after, _ in spent)
            if 0 < again < len(uses) or len({review.id for review, _, _ in spent}) < len(uses):
                return False
            scrub = again > 0  # the process may have ended before it erased the secrets
            for review, after, decision_id in () if again else spent:
                assert after is not None
                clean = scrub_verdict(after)  # erase secrets at once
                scrub = scrub or clean != after
                _write(db, review, clean)
                append_event(db, after, "used", now, detail=decision_id)
        self.changed += not again
        if scrub:
            self.database.scrub()
        return True

    def ready(self, lookup: str, *, stage: Stage, waiter: str) -> bool:
        with self.database.reading() as db:
            now = self.database.now(db)
            return any(
                states.verdict_for(review, waiter, now) == "decided"
                for review in _candidates(db, lookup, stage=stage, waiter=waiter, now=now)
            )

    # -- verdicts and ends
    # ------------------------------------------------------------------------------------------------------------------

    def decide(
        self,
        id: str,
        verdict: Verdict,
        *,
        who: str,
        door: Door,
        seen: str | None = None,
        callers: Collection[str] = (),
        subject: str = "",
    ) -> Review | Conflict | VoteRefused | None:
        with self.database.writing() as db:
            now = self.database.now(db)
            review = _found(db, id)
            if review is None:
                return None
            outcome = voted(
                review,
                verdict,
                who=who,
                door=door,
                seen=seen or review.digest,
                callers=callers,
                subject=subject,
                now=now,
            )
            match outcome:
                case VoteRefused():
                    pass
                case Conflict(review=ended):
                    if ended is not review:
                        self._end(db, review, ended, "review.expired", now)
                case Review(state="pending"):
                    _write(db, review, outcome)
                    append_event(db, outcome, "voted", now, detail=vote_text(outcome))
                    self.changed += 1
                case Review():
                    self._end(db, review, outcome, "review.decided", now)
        return outcome

    def attach_ui(self, id: str, ui: ReviewUi, body: bytes) -> Review | None:
        with self.database.writing() as db:
            now = self.database.now(db)
            review = _found(db, id)
            shown = None if review is None else states.with_ui(review, ui, body, now)
            if review is None or shown is None:
                return None
            _write(db, review, shown)
            if ui.state == "ready":
                db.execute(insert(UIS), {"review": shown.id, "body": body})
            what: What = "ui ready" if ui.state == "ready" else "ui failed"
            append_event(db, shown, what, now, detail=states.ui_detail(ui))
        self.changed += 1
        return shown

    def ui_body(self, id: str) -> bytes | None:
        with self.database.reading() as db:
            return _ui_body(db, storable_text(id))

    def open_ui(self, id: str, sha256: str, *, token: str, until: float) -> bytes | None:
        with self.database.claiming() as db:
            now = self.database.now(db)
            review = _found(db, id)
            ui = None if review is None else states.ready_ui(states.expired(review, now) or review)
            if review is None or ui is None or ui.sha256 != sha256 or now >= until:
                return None
            db.execute(delete(FACTS).where(_named(USED_LINK), FACTS.c.number <= now))
            values = {"name": storable_text(f"{USED_LINK}{token}"), "number": ceil(until)}
            if db.execute(_insert_once(db, values)).first() is None:
                return None
            return _ui_body(db, review.id)

    def expire(self) -> Sequence[Review]:
        with self.database.reading() as db:
            now = self.database.now(db)
            over = select(_r.id).where(_r.state == "pending", _r.expires <= now).order_by(_r.expires, _r.id)
            ids = db.execute(over).scalars().all()
        return [
            gone
            for first in range(0, len(ids), AT_A_TIME)
            for gone in self._expire_some(ids[first : first + AT_A_TIME])
        ]

    def _expire_some(self, ids: Sequence[str]) -> Sequence[Review]:
        over = []
        with self.database.writing() as db:
            now = self.database.now(db)
            for id in ids:
                review = _found(db, id)
                gone = None if review is None else states.expired(review, now)
                if review is not None and gone is not None:
                    self._end(db, review, gone, "review.expired", now)
                    over.append(gone)
        return over

    def _end(
        self,
        db: Connection,
        before: Review,
        after: Review,
        event: Literal["review.decided", "review.expired", "review.withdrawn"],
        now: float,
        *,
        detail: str = "",
    ) -> None:
        """Write the end of a review and its event.

        Queue a notification if the reviewer was notified of the opening.
        """
        _write(db, before, after)
        if db.execute(select(_r.announced).where(_r.id == after.id)).scalar():
            _deliver(db, after, event, now)
        for name in _also_told(db, after, now) if after.also else ():
            _deliver(db, after, event, now, to=name)
        append_event(db, after, after.state, now, detail=detail)
        self.changed += 1

    def purge(self, keep: float) -> int:
        count = 0
        while some := self._purge_some(keep):
            count += some
        if count:
            self.database.scrub()
        return count

    def _purge_some(self, keep: float) -> int:
        with self.database.writing() as db:
            ended = select(_r.id).where(_r.decided < self.database.now(db) - keep).order_by(_r.decided, _r.id)
            ids = db.execute(ended.limit(AT_A_TIME)).scalars().all()
            if ids:
                for column in (EVENTS.c.review, _d.review, UIS.c.review, _r.id):
                    db.execute(delete(column.table).where(column.in_(ids)))
        return len(ids)

    def key(self) -> bytes:
        ours = select(FACTS.c.value).where(FACTS.c.name == "key")
        with self.database.reading() as db:
            key: bytes | None = db.execute(ours).scalar()
        if key is None:
            with self.database.writing() as db:
                key = db.execute(ours).scalar()
                if key is None:
                    key = secrets.token_bytes(32)
                    db.execute(insert(FACTS), {"name": "key", "value": key})
        return combined_key(key, self._file_key)

    # -- queries
    # ------------------------------------------------------------------------------------------------------------------

    def get(self, id: str) -> Review | None:
        with self.database.reading() as db:
            return _found(db, id)

    def ids_with_prefix(self, begin: str, most: int) -> Sequence[str]:
        """At most ``most`` IDs with this prefix, for users who type them. IDs are ASCII, so U+FFFF sorts after them."""
        begin = storable_text(begin)
        statement = select(_r.id).where(_r.id >= begin, _r.id < begin + "\uffff").order_by(_r.id).limit(most)
        with self.database.reading() as db:
            return db.execute(statement).scalars().all()

    def list(self, filter: Filter) -> Sequence[Review]:
        # each state uses its own index, so that a few of many reviews are found quickly
        limit = min(max(filter.limit, 0), MAX_LISTED)
        with self.database.reading() as db:
            beyond = (
                None
                if filter.before is None
                else db.execute(select(_r.created, _r.id).where(_r.id == storable_text(filter.before))).first()
            )
            if limit == 0 or (filter.before is not None and beyond is None):
                return ()
            states: Sequence[str | None] = sorted(set(filter.states)) or (None,)
            now = self.database.now(db)
            pages = [db.execute(page(filter, state, beyond, limit, now)).all() for state in states]
            ids = [
                id
                for _, id in sorted(
                    ((found.created, found.id) for some in pages for found in some), reverse=not filter.oldest_first
                )[:limit]
            ]
            found = {row.id: sql_schema.review(row) for row in db.execute(select(REVIEWS).where(_r.id.in_(ids)))}
            return [found[id] for id in ids]

    def history(self, id: str) -> Sequence[ReviewEvent]:
        with self.database.reading() as db:
            found = db.execute(select(EVENTS).where(EVENTS.c.review == storable_text(id)).order_by(EVENTS.c.number))
            return [sql_schema.event(row) for row in found]

    def last_change(self) -> int:
        with self.database.reading() as db:
            return db.execute(select(FACTS.c.number).where(FACTS.c.name == "events")).scalar_one() or 0

    def changes(self, after: int, limit: int) -> Sequence[ReviewEvent]:
        statement = select(EVENTS).where(EVENTS.c.number > after).order_by(EVENTS.c.number).limit(max(limit, 0))
        with self.database.reading() as db:
            return [sql_schema.event(row) for row in db.execute(statement)]

    def pending(self) -> Mapping[str, tuple[int, float]]:
        statement = (
            select(_r.reviewer, func.count(), func.min(_r.created)).where(_r.state == "pending").group_by(_r.reviewer)
        )
        with self.database.reading() as db:
            return {reviewer: (count, oldest) for reviewer, count, oldest in db.execute(statement)}

    # -- the page
    # ------------------------------------------------------------------------------------------------------------------

    def end_session(self, id: str, *, token: str, until: float) -> None:
        with self.database.claiming() as db:
            db.execute(delete(FACTS).where(_named(ENDED_SESSION), FACTS.c.number <= self.database.now(db)))
            values = {"name": f"{ENDED_SESSION}{id}", "number": ceil(until), "value": token.encode()}
            db.execute(_upsert(db, values))

    def ended_sessions(self) -> Sequence[tuple[str, str, float]]:
        with self.database.reading() as db:
            ended = select(FACTS).where(_named(ENDED_SESSION), FACTS.c.number > self.database.now(db))
            rows = db.execute(ended.order_by(FACTS.c.number.desc()).limit(MAX_ENDED)).all()
        return [(row.name.removeprefix(ENDED_SESSION), row.value.decode(), float(row.number)) for row in rows]

    def failed_sign_in(self, buckets: Mapping[str, tuple[float, float]]) -> float:
        names = sorted(storable_text(f"{FAILED_SIGN_INS}{name}") for name in buckets)
        paces = {storable_text(f"{FAILED_SIGN_INS}{name}"): pace for name, pace in buckets.items()}
        with self.database.claiming() as db:
            # in their order, and before they are read, so that two transactions never wait for each other
            for name in names:
                values = {"name": name, "number": 0, "value": b"0"}
                db.execute(_upsert(db, values, changed={"name": name}))
            now = self.database.now(db)
            idle = FACTS.c.number <= round((now - FORGOTTEN) * 1_000)
            rows = {row.name: row for row in db.execute(select(FACTS).where(FACTS.c.name.in_(names)))}
            spent: dict[str, float] = {}
            for name in names:
                _, rate = paces[name]
                since = rows[name].number / 1_000
                spent[name] = max(0.0, float(rows[name].value) - max(0.0, now - since) * rate)
            wait: float = max((spent[name] + 1 - burst) / rate for name, (burst, rate) in paces.items())
            if wait > 0:
                return wait
            for name in names:
                changed = {"number": round(now * 1_000), "value": repr(spent[name] + 1).encode()}
                db.execute(update(FACTS).where(FACTS.c.name == name).values(**changed))
            db.execute(delete(FACTS).where(_named(FAILED_SIGN_INS), FACTS.c.name.not_in(names), idle))
        return 0.0

    # -- deliveries
    # ------------------------------------------------------------------------------------------------------------------

    def lead(self, roles: Sequence[str], *, holder: str, seconds: float) -> Sequence[str]:
        if not self.database.fleet:
            return roles
        names = {storable_text(f"{LEADER}{role}"): role for role in roles}
        with self.database.claiming() as db:
            now = self.database.now(db)
            until = {"number": round((now + seconds) * 1_000), "value": holder.encode()}
            free = or_(FACTS.c.value == holder.encode(), FACTS.c.number <= round(now * 1_000))
            led: list[str] = []
            for name in sorted(names):
                taken = (
                    postgresql.insert(FACTS)
                    .values(name=name, **until)
                    .on_conflict_do_update(index_elements=[FACTS.c.name], set_=until, where=free)
                    .returning(FACTS.c.name)
                )
                led += db.execute(taken).scalars().all()
        return [names[name] for name in led]

    def resign(self, *, holder: str) -> None:
        if self.database.fleet:
            with self.database.claiming() as db:
                theirs = FACTS.c.name.startswith(LEADER, autoescape=True), FACTS.c.value == holder.encode()
                db.execute(delete(FACTS).where(*theirs))

    def take_deliveries(
        self, reviewers: Sequence[str], *, taker: str, seconds: float, limit: int
    ) -> Sequence[Delivery]:
        with self.database.claiming() as db:
            now = self.database.now(db)
            free = or_(_d.taker.is_(None), _d.held_until <= now)
            due = select(DELIVERIES).where(
                _d.state == "waiting", _d.due <= now, _d.reviewer.in_(storable_texts(reviewers)), free
            )
            found = [
                sql_schema.delivery(row)
                for row in db.execute(
                    due.order_by(_d.due, _d.id)
                    .limit(min(max(limit, 0), MAX_DELIVERIES))
                    .with_for_update(skip_locked=True)  # SQLite locks the whole file, and has no such clause
                )
            ]
            taken = [replace(one, taker=storable_text(taker), held_until=now + seconds) for one in found]
            for one in taken:
                _update_delivery(db, one.id, taker=one.taker, held_until=one.held_until)
        return taken

    def hold_delivery(self, delivery: Delivery, *, seconds: float) -> bool:
        with self.database.claiming() as db:
            kept = _waiting(db, delivery)
            if kept is None or kept.taker != delivery.taker:
                return False
            _update_delivery(db, kept.id, held_until=self.database.now(db) + seconds)
            return True

    def delivered(self, delivery: Delivery, *, said: str) -> None:
        self._end_delivery(delivery, "done", said)

    def give_up(self, delivery: Delivery, *, said: str) -> None:
        self._end_delivery(delivery, "failed", said)

    def _end_delivery(self, delivery: Delivery, state: Literal["done", "failed"], said: str) -> None:
        """Mark a delivery as done, whatever its lease is, or as failed if the taker still has the lease."""
        with self.database.writing() as db:
            kept = _waiting(db, delivery)
            if kept is None or (state == "failed" and kept.taker != delivery.taker):
                return
            _update_delivery(
                db, kept.id, state=state, tries=kept.tries + 1, taker=None, held_until=0.0, said=storable_text(said)
            )
            review = _found(db, kept.review)
            if review is not None:
                what: What = "told" if state == "done" else "untold"
                to = "" if kept.reviewer == storable_text(review.reviewer) else f" ({kept.reviewer})"
                append_event(db, review, what, self.database.now(db), detail=f"{kept.event}{to}: {said}")
            self.changed += 1

    def postpone(self, delivery: Delivery, *, wait: float, said: str) -> None:
        with self.database.writing() as db:
            due = self.database.now(db) + wait
            kept = _waiting(db, delivery)
            if kept is not None and kept.taker == delivery.taker:
                _update_delivery(
                    db, kept.id, due=due, tries=kept.tries + 1, taker=None, held_until=0.0, said=storable_text(said)
                )


def _named(begin: str) -> ColumnElement[bool]:
    return FACTS.c.name.startswith(begin, autoescape=True)


def _upsert(db: Connection, values: Mapping[str, Any], changed: Mapping[str, Any] | None = None) -> Executable:
    """Write a fact, or change an existing one: by default, to the same values."""
    changes = dict(values if changed is None else changed)
    if db.dialect.name == "postgresql":
        fact = postgresql.insert(FACTS).values(**values)
        return fact.on_conflict_do_update(index_elements=[FACTS.c.name], set_=changes)
    return sqlite.insert(FACTS).values(**values).on_conflict_do_update(index_elements=[FACTS.c.name], set_=changes)


def _insert_once(db: Connection, values: Mapping[str, Any]) -> Executable:
    """Write a fact, and return its name; nothing if it exists."""
    if db.dialect.name == "postgresql":
        return postgresql.insert(FACTS).values(**values).on_conflict_do_nothing().returning(FACTS.c.name)
    return sqlite.insert(FACTS).values(**values).on_conflict_do_nothing().returning(FACTS.c.name)


def _ui_body(db: Connection, id: str) -> bytes | None:
    found: bytes | None = db.execute(select(UIS.c.body).where(UIS.c.review == id)).scalar()
    return None if found is None else bytes(found)


def _found(db: Connection, id: str) -> Review | None:
    found = db.execute(_BY_ID, {"wanted": storable_text(id)}).first()
    return None if found is None else sql_schema.review(found)


def _candidates(
    db: Connection, lookup: str, *, stage: Stage, waiter: str, now: float, own: str = ""
) -> Iterator[Review]:
    """The candidates for a waiter: reviews with verdicts by age of the verdict, then pending ones by age.

    ``review.verdict_for`` decides about each.
    """
    unheld = or_(_r.waiter.is_(None), _r.waiter == storable_text(waiter), _r.held_until <= now)
    unused = and_(_r.lookup == storable_text(lookup), _r.used_by.is_(None), _r.stage == stage, unheld)
    in_time = or_(now < _r.decided + _r.late, _r.waiter == storable_text(waiter), _r.id == storable_text(own))
    verdicts = select(_r.id).where(unused, _r.state.in_(sorted(DECIDED)), in_time).order_by(_r.decided, _r.id)
    waiting = select(_r.id).where(unused, _r.state == "pending", _r.expires > now).order_by(_r.created, _r.id)
    for statement in (verdicts, waiting):
        for id in db.execute(statement).scalars().all():
            found = _found(db, id)
            if found is not None:
                yield found


def page(filter: Filter, state: str | None, beyond: Any, limit: int, now: float = 0.0) -> Select[float, str]:
    """A query for the creation times and IDs of the first reviews of one state, which an index alone can answer."""
    conditions: list[ColumnElement[bool]] = [] if state is None else [_r.state == state]
    if beyond is not None:
        # the first condition is for the index
        if filter.oldest_first:
            conditions += [_r.created >= beyond.created, or_(_r.created > beyond.created, _r.id > beyond.id)]
        else:
            conditions += [_r.created <= beyond.created, or_(_r.created < beyond.created, _r.id < beyond.id)]
    if filter.reviewers is not None:
        conditions.append(or_(_r.reviewer.in_(storable_texts(filter.reviewers)), _r.id.in_(_also(filter, now))))
    if filter.server is not None:
        conditions.append(_r.server == storable_text(filter.server))
    if filter.kind is not None:
        conditions.append(_r.kind == filter.kind)
    order = (_r.created, _r.id) if filter.oldest_first else (_r.created.desc(), _r.id.desc())
    return select(_r.created, _r.id).where(*conditions).order_by(*order).limit(limit)


def _also(filter: Filter, now: float) -> Select[str]:
    """The reviews that one of these reviewers decides, too, because they are pending for long."""
    late = REVIEWS.alias().c
    texts = [sql_schema.also_text([name]) for name in filter.reviewers or ()]
    named = (func.replace(late.also_names, text, "") != late.also_names for text in texts)  # LIKE may ignore the case
    return select(late.id).where(late.also_from <= now, or_(false(), *named))


def _write(db: Connection, before: Review, after: Review) -> None:
    changed = sql_schema.changes(before, after)
    if changed:
        db.execute(update(REVIEWS).where(_r.id == after.id).values(**changed))


def append_event(db: Connection, review: Review, what: What | State, at: float, *, detail: str = "") -> None:
    """Append an event to the review's history under the next number, never with content.

    Only a verdict's and a vote's event names the reviewer.
    """
    who, door = (review.who, review.door or "gate") if what in DECIDED else ("", "gate")
    if what == "voted":
        who, door = review.votes[-1].by, review.votes[-1].how
    count = update(FACTS).where(FACTS.c.name == "events").values(number=FACTS.c.number + 1).returning(FACTS.c.number)
    line = {
        "number": db.execute(count).scalar_one(),
        "review": review.id,
        "at": at,
        "what": what,
        "who": storable_text(who),
        "door": door,
        "detail": storable_text(detail),
    }
    db.execute(insert(EVENTS), line)


def _also_told(db: Connection, review: Review, now: float) -> Sequence[str]:
    """The reviewers in ``also`` whose notification was due by now. That of the others is cancelled."""
    theirs = and_(_d.review == review.id, _d.reviewer != storable_text(review.reviewer), _d.event == "review.opened")
    db.execute(delete(DELIVERIES).where(theirs, _d.state == "waiting", _d.tries == 0, _d.due > now))
    return db.execute(select(_d.reviewer).where(theirs).order_by(_d.reviewer)).scalars().all()


def _deliver(
    db: Connection, review: Review, event: str, now: float, *, to: str | None = None, due: float | None = None
) -> None:
    id = "msg_" + "".join(secrets.choice(_LETTERS) for _ in range(24))
    values = {
        "id": id,
        "review": review.id,
        "reviewer": storable_text(review.reviewer if to is None else to),
        "event": event,
        "created": now if due is None else due,
        "due": now if due is None else due,
    }
    db.execute(insert(DELIVERIES), {**values, "tries": 0, "state": "waiting", "held_until": 0.0, "said": ""})


def _waiting(db: Connection, delivery: Delivery) -> Delivery | None:
    waiting = select(DELIVERIES).where(_d.id == storable_text(delivery.id), _d.state == "waiting").with_for_update()
    found = db.execute(waiting).first()
    return None if found is None else sql_schema.delivery(found)


def _update_delivery(db: Connection, id: str, **values: Any) -> None:
    db.execute(update(DELIVERIES).where(_d.id == id).values(**values))
