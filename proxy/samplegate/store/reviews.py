"""The store of reviews, one transaction a call: a row is read, the law of ``core.review.states`` asked, what follows written with its event.

The names and meanings are those of ``ports.ReviewStore``, without ``async``: for the command line, and for the thread behind ``threads.py``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from samplegate.core.review import states
from samplegate.core.review.cleared import cleared
from samplegate.core.review.review import DECIDED, Delivery, Door, Event, Filter, Review, Stage, Verdict
from samplegate.core.review.states import Conflict
from samplegate.holders import Holder
from samplegate.store import finding, outbox, rows
from samplegate.store.engine import Database
from samplegate.store.schema import DELIVERIES, EVENTS, FACTS, REVIEWS
from samplegate.store.telling import tell

PROCESS: Final = 32  # characters of a waiter's name that stand for its process
AT_A_TIME: Final = 200  # reviews of one transaction where many end at once: others wait no longer than for that


class Reviews:
    """Opened by its first call. For one thread at a time. ``make``: whether a store that is not there is made. All raise Unavailable."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self.database = Database(url, make=make)
        self._holder = Holder(self.database.path.with_name(f"{self.database.path.name}-holders"))
        self.changed = 0
        """Grows with every change that others may want to hear of."""

    def close(self) -> None:
        """Close the database; a later call opens it again."""
        self.database.close()
        self._holder.close(remove=True)

    def seek(self, lookup: str, *, stage: Stage, waiter: str, now: float, seconds: float, until: float | None = 0.0, own: str = "") -> Review | None:
        """The oldest verdict that this waiter may take, else the oldest pending review that it may wait for, held for it from here on; else None."""
        with self.database.writing() as db:
            self._register(waiter)
            self._free_of_dead(db, lookup, now)
            for found in finding.free(db, lookup, stage=stage, waiter=waiter, now=now, own=own):
                if states.standing(found, waiter, now, own) != "none":
                    return self._hold(db, found, states.held(found, waiter=waiter, now=now, seconds=seconds, until=until), now)
        return None

    def _register(self, waiter: str) -> None:
        """This process lives as long as the file of its name is locked; a waiter's name begins with it (``ports.ReviewStore``)."""
        if len(waiter) > PROCESS:
            self._holder.register(waiter[:PROCESS])

    def _free_of_dead(self, db: Connection, lookup: str, now: float) -> None:
        """The leases of processes that run no more end now, so that the same request joins the review that one of them opened."""
        waiters = finding.waiters(db, lookup, now)
        dead = set(self._holder.dead({waiter[:PROCESS] for waiter in waiters if len(waiter) > PROCESS}))
        gone = [waiter for waiter in waiters if len(waiter) > PROCESS and waiter[:PROCESS] in dead]
        if gone:
            db.execute(update(REVIEWS).where(REVIEWS.c.waiter.in_(gone), REVIEWS.c.used_by.is_(None)).values(held_until=now))

    def _hold(self, db: Connection, found: Review, taken: Review, now: float) -> Review:
        _write(db, found, taken)
        if found.state == "pending" and found.waiter != taken.waiter:
            tell(db, taken, "joined", now)
            self.changed += 1
        return taken

    def open(self, review: Review, *, announce: bool, most: int) -> bool:
        """Keep a new one. ``announce``: put its first delivery into the outbox. False where ``most`` are pending already."""
        with self.database.writing() as db:
            self._register(review.waiter or "")
            if finding.waiting(db, review.created) >= most:
                return False
            db.execute(insert(REVIEWS), rows.row(review, announced=announce))
            if announce:
                outbox.announce(db, review, "review.opened", review.created)
            tell(db, review, "opened", review.created)
        self.changed += 1
        return True

    def renew(self, waiters: Sequence[str], *, now: float, seconds: float) -> None:
        """These waiters are there: what they hold is theirs for so long again."""
        with self.database.writing() as db:
            for first in range(0, len(waiters), AT_A_TIME):
                some = rows.plains(waiters[first : first + AT_A_TIME])
                theirs = update(REVIEWS).where(REVIEWS.c.waiter.in_(some), REVIEWS.c.used_by.is_(None))
                db.execute(theirs.values(held_until=now + seconds))

    def leave(self, id: str, *, waiter: str, now: float) -> None:
        """The waiter goes; review and verdict stay."""
        with self.database.writing() as db:
            self._leave(db, finding.one(db, id), waiter, now)

    def _leave(self, db: Connection, review: Review | None, waiter: str, now: float) -> None:
        freed = None if review is None else states.left(review, waiter)
        if review is None or freed is None:
            return
        _write(db, review, freed)
        if freed.state in DECIDED:
            tell(db, freed, "given back", now)
        self.changed += 1

    def withdraw(self, id: str, *, waiter: str, now: float, why: str) -> bool:
        """Take it back while it is pending; else only leave it."""
        with self.database.writing() as db:
            review = finding.one(db, id)
            gone = None if review is None else states.withdrawn(review, waiter=waiter, now=now)
            if review is None or gone is None:
                self._leave(db, review, waiter, now)
                return False
            _write(db, review, gone)
            outbox.follow_up(db, gone, "review.withdrawn", now)
            tell(db, gone, "withdrawn", now, detail=why)
        self.changed += 1
        return True

    def use(self, id: str, *, waiter: str, decision_id: str, now: float) -> bool:
        """The verdict is released by this waiter: once, or False. What was a secret in it is kept no longer."""
        return self.use_all([(id, waiter, decision_id)], now=now)

    def use_all(self, uses: Sequence[tuple[str, str, str]], *, now: float) -> bool:
        """The verdicts of these (id, waiter, decision_id) are released, all of them or none."""
        scrub = False
        with self.database.writing() as db:
            found = [(finding.one(db, id), waiter, decision_id) for id, waiter, decision_id in uses]
            spent = [
                (review, states.used(review, waiter=waiter, decision_id=decision_id, now=now), decision_id)
                for review, waiter, decision_id in found
                if review is not None
            ]
            if len(spent) < len(uses) or any(after is None for _, after, _ in spent):
                return False
            for review, after, decision_id in spent:
                assert after is not None
                clean = cleared(after)
                scrub = scrub or clean != after
                _write(db, review, clean)
                tell(db, after, "used", now, detail=decision_id)
        self.changed += 1
        if scrub:
            self.database.scrub()
        return True

    def ready(self, lookup: str, *, stage: Stage, waiter: str, now: float) -> bool:
        """Whether there is a verdict that this waiter may take. Changes nothing."""
        with self.database.reading() as db:
            return any(states.standing(review, waiter, now) == "decided" for review in finding.free(db, lookup, stage=stage, waiter=waiter, now=now))

    def decide(self, id: str, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict | None:
        """Give a verdict; None where there is no such review. One that comes after its time leaves the review expired."""
        with self.database.writing() as db:
            review = finding.one(db, id)
            if review is None:
                return None
            said = states.decided(review, verdict, who=who, door=door, now=now)
            if isinstance(said, Conflict):
                if said.review is not review:
                    self._expire(db, review, said.review, now)
                return said
            _write(db, review, said)
            outbox.follow_up(db, said, "review.decided", now)
            tell(db, said, said.state, now)
        self.changed += 1
        return said

    def expire(self, now: float) -> Sequence[Review]:
        """Those whose time is over become ``expired``; which."""
        with self.database.reading() as db:
            ids = finding.over(db, now)
        return [gone for first in range(0, len(ids), AT_A_TIME) for gone in self._expire_some(ids[first : first + AT_A_TIME], now)]

    def _expire_some(self, ids: Sequence[str], now: float) -> Sequence[Review]:
        over = []
        with self.database.writing() as db:
            for id in ids:
                review = finding.one(db, id)
                gone = None if review is None else states.expired(review, now)
                if review is not None and gone is not None:
                    self._expire(db, review, gone, now)
                    over.append(gone)
        return over

    def _expire(self, db: Connection, review: Review, gone: Review, now: float) -> None:
        _write(db, review, gone)
        outbox.follow_up(db, gone, "review.expired", now)
        tell(db, gone, "expired", now)
        self.changed += 1

    def purge(self, before: float) -> int:
        """Forget those that ended before, with their history and deliveries; how many."""
        count = 0
        while some := self._purge_some(before):
            count += some
        if count:
            self.database.scrub()
        return count

    def _purge_some(self, before: float) -> int:
        old = select(REVIEWS.c.id).where(REVIEWS.c.decided < before).limit(AT_A_TIME)
        with self.database.writing() as db:
            ids = db.execute(old).scalars().all()
            if ids:
                for column in (EVENTS.c.review, DELIVERIES.c.review, REVIEWS.c.id):
                    db.execute(delete(column.table).where(column.in_(ids)))
        return len(ids)

    def key(self) -> bytes:
        """32 random bytes, made once for all processes of this store."""
        ours = select(FACTS.c.value).where(FACTS.c.name == "key")
        with self.database.reading() as db:
            key: bytes | None = db.execute(ours).scalar()
        if key is None:
            with self.database.writing() as db:
                key = db.execute(ours).scalar()
                if key is None:
                    key = secrets.token_bytes(32)
                    db.execute(insert(FACTS), {"name": "key", "value": key})
        return key

    def get(self, id: str) -> Review | None:
        """The review of this id."""
        with self.database.reading() as db:
            return finding.one(db, id)

    def starting(self, begin: str, most: int) -> Sequence[str]:
        """At most so many ids that begin so: for people who type them. Not of the port."""
        with self.database.reading() as db:
            return finding.starting(db, begin, most)

    def list(self, filter: Filter) -> Sequence[Review]:
        """A page of reviews, newest first."""
        with self.database.reading() as db:
            return finding.listed(db, filter)

    def history(self, id: str) -> Sequence[Event]:
        """What happened to one review, in order."""
        with self.database.reading() as db:
            return finding.history(db, id)

    def last_change(self) -> int:
        """The number of the newest event, 0 for none."""
        with self.database.reading() as db:
            return finding.last_change(db)

    def changes(self, after: int, limit: int) -> Sequence[Event]:
        """Events with a higher number, in order."""
        with self.database.reading() as db:
            return finding.changes(db, after, limit)

    def pending(self) -> Mapping[str, tuple[int, float]]:
        """By reviewer: how many are pending, and when the oldest was created."""
        with self.database.reading() as db:
            return finding.pending(db)

    def take_deliveries(self, reviewers: Sequence[str], *, taker: str, now: float, seconds: float, limit: int) -> Sequence[Delivery]:
        """Deliveries to these reviewers that are due and nobody's, held for the taker."""
        with self.database.writing() as db:
            return outbox.take(db, reviewers, taker=taker, now=now, seconds=seconds, limit=limit)

    def hold_delivery(self, delivery: Delivery, *, now: float, seconds: float) -> bool:
        """Its taker is still at it, for so long again; False: it is not this taker's any more."""
        with self.database.writing() as db:
            return outbox.hold(db, delivery, now=now, seconds=seconds)

    def delivered(self, delivery: Delivery, *, said: str, now: float) -> None:
        """It arrived."""
        with self.database.writing() as db:
            self.changed += outbox.end(db, delivery, "done", said=said, now=now)

    def give_up(self, delivery: Delivery, *, said: str, now: float) -> None:
        """It never will."""
        with self.database.writing() as db:
            self.changed += outbox.end(db, delivery, "failed", said=said, now=now)

    def postpone(self, delivery: Delivery, *, due: float, said: str, now: float) -> None:
        """It is tried again at ``due``."""
        with self.database.writing() as db:
            outbox.postpone(db, delivery, due=due, said=said)


def _write(db: Connection, before: Review, after: Review) -> None:
    changed = rows.changes(before, after)
    if changed:
        db.execute(update(REVIEWS).where(REVIEWS.c.id == after.id).values(**changed))
