"""An in-memory review store for tests: its transactions, and the asynchronous ``ReviewStore`` over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.policy.schema import Stage
from samplegate.reviews import review as states
from samplegate.reviews.review import (
    Conflict,
    Delivery,
    Door,
    Filter,
    Review,
    ReviewEvent,
    ReviewUi,
    Verdict,
    VoteRefused,
    scrub_verdict,
)
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.reviews.store import ReviewTransactions
from samplegate.reviews.votes import vote_text, voted
from tests.fakes.stored_reviews import NOW

T = TypeVar("T")


class TimedReviews(SqlReviewStore):
    """The real store at a time that ``at`` sets."""

    def __init__(self, url: str) -> None:
        super().__init__(url, clock=lambda: self.now)
        self.now = NOW

    def at(self, now: float) -> TimedReviews:
        """The store at this time."""
        self.now = now
        return self


class MemoryReviews:
    """``ReviewTransactions`` and ``ReviewStore`` over dicts and the states of ``review.py``. While ``fault`` is set,
    ``read`` and ``write`` raise Unavailable with it. ``clock``: the store's clock; without one, ``at`` sets the time.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.now = NOW
        self.clock = clock
        self.reviews: dict[str, Review] = {}
        self.events: list[ReviewEvent] = []
        self.deliveries: dict[str, Delivery] = {}
        self.announced: set[str] = set()
        self.fault: str | None = None
        self.ended: dict[str, tuple[str, float]] = {}
        self.uis: dict[str, bytes] = {}
        self.used_links: set[str] = set()
        self.wrong_tokens: dict[str, tuple[float, float]] = {}
        self._numbers = itertools.count(1)
        self._last = 0
        self._messages = itertools.count(1)
        self._nudges: list[Callable[[], None]] = []

    def wall(self) -> float:
        return self.now if self.clock is None else self.clock()

    def at(self, now: float) -> MemoryReviews:
        """The store at this time."""
        self.now, self.clock = now, None
        return self

    async def write(self, call: Callable[[ReviewTransactions], T]) -> T:
        if self.fault is not None:
            raise Unavailable(self.fault)
        return call(self)

    async def read(self, call: Callable[[ReviewTransactions], T]) -> T:
        return await self.write(call)

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
        now = self.wall()
        of_it = [review for review in self.reviews.values() if (review.lookup, review.stage) == (lookup, stage)]
        verdicts = [review for review in of_it if states.verdict_for(review, waiter, now, own) == "decided"]
        waiting = [review for review in of_it if states.verdict_for(review, waiter, now) == "pending"]
        best = min(verdicts, key=lambda review: (review.decided, review.id), default=None)
        best = best or min(waiting, key=lambda review: (review.created, review.id), default=None)
        if best is None:
            return None
        joins = best.state == "pending" and best.waiter != waiter
        best = self._put(states.held(best, waiter=waiter, now=now, seconds=seconds, gives_up=gives_up))
        if joins:
            self._tell(best, "joined", now)
        return best

    def open(self, review: Review, *, announce: bool, most: int, also: Sequence[str] = ()) -> Review | None:
        review = states.opened(review, self.wall())
        if sum(other.state == "pending" and other.expires > review.created for other in self.reviews.values()) >= most:
            return None
        self._put(review)
        if announce:
            self.announced.add(review.id)
            self._send(review, "review.opened", review.created)
        for name in also if review.also_from is not None else ():
            self._send(review, "review.opened", review.also_from or 0.0, to=name)
        self._tell(review, "opened", review.created)
        return review

    def renew(self, waiters: Sequence[str], *, seconds: float) -> None:
        for review in [one for one in self.reviews.values() if one.waiter is not None and one.waiter in waiters]:
            self._put(states.held(review, waiter=review.waiter or "", now=self.wall(), seconds=seconds))

    def leave(self, id: str, *, waiter: str) -> None:
        self._leave(id, waiter, self.wall())

    def withdraw(self, id: str, *, waiter: str, why: str) -> bool:
        now = self.wall()
        review = self.reviews.get(id)
        gone = None if review is None else states.withdrawn(review, waiter=waiter, now=now)
        if gone is None:
            self._leave(id, waiter, now)
            return False
        self._end(gone, "review.withdrawn", now, why)
        return True

    def use(self, uses: Sequence[tuple[str, str, str]]) -> bool:
        now = self.wall()
        found = [(self.reviews.get(id), waiter, decision_id) for id, waiter, decision_id in sorted(uses)]
        spent = [
            None if r is None else states.used(r, waiter=waiter, decision_id=name, now=now) for r, waiter, name in found
        ]
        if any(after is None for after in spent):
            return False
        again = sum(after is self.reviews[after.id] for after in spent if after is not None)
        if again not in (0, len(uses)) or len({id for id, _, _ in uses}) < len(uses):
            return False
        for after in () if again else spent:
            assert after is not None
            self._put(scrub_verdict(after))
            self._tell(after, "used", now, detail=after.used_by or "")
        return True

    def ready(self, lookup: str, *, stage: Stage, waiter: str) -> bool:
        now = self.wall()
        of_it = [review for review in self.reviews.values() if (review.lookup, review.stage) == (lookup, stage)]
        return any(states.verdict_for(review, waiter, now) == "decided" for review in of_it)

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
        now = self.wall()
        review = self.reviews.get(id)
        if review is None:
            return None
        said = voted(
            review, verdict, who=who, door=door, seen=seen or review.digest, callers=callers, subject=subject, now=now
        )
        if isinstance(said, Conflict):
            if said.review is not review:
                self._end(said.review, "review.expired", now)
        elif isinstance(said, Review) and said.state == "pending":
            self._put(said)
            self._tell(said, "voted", now, vote_text(said))
        elif isinstance(said, Review):
            self._end(said, "review.decided", now)
        return said

    def attach_ui(self, id: str, ui: ReviewUi, body: bytes) -> Review | None:
        now = self.wall()
        review = self.reviews.get(id)
        shown = None if review is None else states.with_ui(review, ui, body, now)
        if shown is not None:
            self._put(shown)
            if ui.state == "ready":
                self.uis[id] = body
            self._tell(shown, f"ui {ui.state}", now, states.ui_detail(ui))
        return shown

    def ui_body(self, id: str) -> bytes | None:
        return self.uis.get(id)

    def open_ui(self, id: str, sha256: str, *, token: str, until: float) -> bytes | None:
        review, now = self.reviews.get(id), self.wall()
        ui = None if review is None else states.ready_ui(states.expired(review, now) or review)
        if ui is None or ui.sha256 != sha256 or now >= until or token in self.used_links:
            return None
        self.used_links.add(token)
        return self.uis[id]

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        entry = lambda: nudge()  # noqa: E731 - a new function for each call, so that the same nudge may watch twice
        self._nudges.append(entry)
        return lambda: self._nudges.remove(entry) if entry in self._nudges else None

    def key(self) -> bytes:
        return bytes(range(32))

    def get(self, id: str) -> Review | None:
        return self.reviews.get(id)

    def list(self, filter: Filter) -> Sequence[Review]:
        found = sorted(
            (review for review in self.reviews.values() if _fits(review, filter, self.wall())),
            key=_age,
            reverse=not filter.oldest_first,
        )
        if filter.before is not None:
            last = self.reviews.get(filter.before)
            later = filter.oldest_first
            found = (
                []
                if last is None
                else [one for one in found if one.id != last.id and (_age(one) > _age(last)) is later]
            )
        return found[: filter.limit]

    def history(self, id: str) -> Sequence[ReviewEvent]:
        return [event for event in self.events if event.review == id]

    def last_change(self) -> int:
        return self._last

    def changes(self, after: int, limit: int) -> Sequence[ReviewEvent]:
        return [event for event in self.events if event.number > after][:limit]

    def expire(self) -> Sequence[Review]:
        now = self.wall()
        over = [gone for gone in (states.expired(review, now) for review in self.reviews.values()) if gone is not None]
        for gone in sorted(over, key=lambda review: (review.expires, review.id)):
            self._end(gone, "review.expired", now)
        return sorted(over, key=lambda review: (review.expires, review.id))

    def pending(self) -> Mapping[str, tuple[int, float]]:
        waiting = [review for review in self.reviews.values() if review.state == "pending"]
        by = {
            name: [review.created for review in waiting if review.reviewer == name]
            for name in {review.reviewer for review in waiting}
        }
        return {name: (len(times), min(times)) for name, times in by.items()}

    def purge(self, keep: float) -> int:
        before = self.wall() - keep
        gone = {review.id for review in self.reviews.values() if review.decided is not None and review.decided < before}
        self.reviews = {id: review for id, review in self.reviews.items() if id not in gone}
        self.events = [event for event in self.events if event.review not in gone]
        self.deliveries = {id: delivery for id, delivery in self.deliveries.items() if delivery.review not in gone}
        self.uis = {id: body for id, body in self.uis.items() if id not in gone}
        return len(gone)

    def end_session(self, id: str, *, token: str, until: float) -> None:
        self.ended[id] = token, until

    def ended_sessions(self) -> Sequence[tuple[str, str, float]]:
        return [(id, token, until) for id, (token, until) in self.ended.items() if until > self.wall()]

    def failed_sign_in(self, buckets: Mapping[str, tuple[float, float]]) -> float:
        now = self.wall()
        spent = {
            name: max(0.0, count - max(0.0, now - since) * buckets[name][1])
            for name, (count, since) in ((name, self.wrong_tokens.get(name, (0.0, now))) for name in buckets)
        }
        wait = max((spent[name] + 1 - burst) / rate for name, (burst, rate) in buckets.items())
        if wait <= 0:
            self.wrong_tokens |= {name: (count + 1, now) for name, count in spent.items()}
        return max(0.0, wait)

    def lead(self, roles: Sequence[str], *, holder: str, seconds: float) -> Sequence[str]:
        return roles

    def resign(self, *, holder: str) -> None:
        pass

    def take_deliveries(
        self, reviewers: Sequence[str], *, taker: str, seconds: float, limit: int
    ) -> Sequence[Delivery]:
        now = self.wall()
        due = [
            one
            for one in self.deliveries.values()
            if one.state == "waiting" and one.due <= now and one.reviewer in reviewers
        ]
        free = [one for one in due if one.taker is None or one.held_until <= now]
        taken = [
            replace(one, taker=taker, held_until=now + seconds)
            for one in sorted(free, key=lambda one: (one.due, one.id))[:limit]
        ]
        self.deliveries.update((one.id, one) for one in taken)
        return taken

    def hold_delivery(self, delivery: Delivery, *, seconds: float) -> bool:
        kept = self.deliveries.get(delivery.id)
        if kept is None or kept.state != "waiting" or kept.taker != delivery.taker:
            return False
        self.deliveries[kept.id] = replace(kept, held_until=self.wall() + seconds)
        return True

    def delivered(self, delivery: Delivery, *, said: str) -> None:
        self._ended(delivery, "done", said, self.wall())

    def give_up(self, delivery: Delivery, *, said: str) -> None:
        self._ended(delivery, "failed", said, self.wall())

    def postpone(self, delivery: Delivery, *, wait: float, said: str) -> None:
        due = self.wall() + wait
        kept = self.deliveries.get(delivery.id)
        if kept is not None and kept.state == "waiting" and kept.taker == delivery.taker:
            self.deliveries[kept.id] = replace(
                kept, due=due, tries=kept.tries + 1, taker=None, held_until=0.0, said=said
            )

    def _put(self, review: Review) -> Review:
        self.reviews[review.id] = review
        return review

    def _leave(self, id: str, waiter: str, now: float) -> None:
        review = self.reviews.get(id)
        freed = None if review is None else states.left(review, waiter)
        if freed is None:
            return
        self._put(freed)
        if freed.state in ("approved", "rejected", "answered"):
            self._tell(freed, "given back", now)
        else:
            self._nudge()

    def _end(self, review: Review, event: Any, now: float, detail: str = "") -> None:
        """The review is no longer pending."""
        self._put(review)
        if review.id in self.announced:
            self._send(review, event, now)
        told = [one for one in self.deliveries.values() if (one.review, one.event) == (review.id, "review.opened")]
        for one in [one for one in told if one.reviewer != review.reviewer]:
            if one.due > now and one.tries == 0 and one.state == "waiting":
                del self.deliveries[one.id]
            else:
                self._send(review, event, now, to=one.reviewer)
        self._tell(review, review.state, now, detail=detail)

    def _tell(self, review: Review, what: Any, now: float, detail: str = "") -> None:
        who, door = (
            (review.who, review.door or "gate") if what in ("approved", "rejected", "answered") else ("", "gate")
        )
        if what == "voted":
            who, door = review.votes[-1].by, review.votes[-1].how
        self._last = next(self._numbers)
        self.events.append(
            ReviewEvent(number=self._last, review=review.id, at=now, what=what, who=who, door=door, detail=detail)
        )
        self._nudge()

    def _nudge(self) -> None:
        for nudge in list(self._nudges):
            nudge()

    def _send(self, review: Review, event: Any, now: float, to: str | None = None) -> None:
        id = f"msg_{next(self._messages):024d}"
        self.deliveries[id] = Delivery(
            id=id, review=review.id, reviewer=to or review.reviewer, event=event, created=now, due=now
        )

    def _ended(self, delivery: Delivery, state: Any, said: str, now: float) -> None:
        kept = self.deliveries.get(delivery.id)
        if kept is None or kept.state != "waiting" or (state == "failed" and kept.taker != delivery.taker):
            return
        self.deliveries[kept.id] = replace(
            kept, state=state, tries=kept.tries + 1, taker=None, held_until=0.0, said=said
        )
        review = self.reviews[kept.review]
        to = "" if kept.reviewer == review.reviewer else f" ({kept.reviewer})"
        self._tell(review, "told" if state == "done" else "untold", now, detail=f"{kept.event}{to}: {said}")


def _reviewers(review: Review, now: float) -> list[str]:
    late = review.also_from is not None and review.also_from <= now
    return [review.reviewer, *(one.reviewer for one in review.also if late)]


def _fits(review: Review, filter: Filter, now: float) -> bool:
    return (
        (not filter.states or review.state in filter.states)
        and (filter.reviewers is None or not {*_reviewers(review, now)}.isdisjoint(filter.reviewers))
        and filter.server in (None, review.server)
        and filter.kind in (None, review.kind)
    )


def _age(review: Review) -> tuple[float, str]:
    return review.created, review.id
