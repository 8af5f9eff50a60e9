"""Pending reviews while the review store fails briefly or for long, or is replaced: no verdict is lost, and none is
invented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.outcomes import Answered, Reason, Unanswered
from samplegate.reviews import service
from samplegate.reviews.review import Filter, Review, Verdict
from tests.fakes.gate_ports import pushed
from tests.fakes.review_store import MemoryReviews
from tests.fakes.reviewed_gate import ASK, POLICY, ReviewedGate, wall

pytestmark = pytest.mark.anyio
IMPATIENT: dict[str, Any] = {**POLICY, "servers": {"default": {"peer_timeout": "400ms"}}}


class Failing(MemoryReviews):
    """A store whose next calls of some names fail. Each sets ``failed``. ``looked`` counts a waiter's searches for an
    earlier verdict."""

    def __init__(self) -> None:
        super().__init__(wall)
        self.fails: dict[str, int] = {}
        self.failed = anyio.Event()
        self.looked, self.looking = 0, anyio.Event()

    def fail(self, name: str) -> None:
        if self.fails.get(name, 0) > 0:
            self.fails[name] -= 1
            self.failed.set()
            raise Unavailable("store: another process has locked it; stop that process, or wait for it")

    def ready(self, lookup: str, **values: Any) -> bool:
        self.fail("ready")
        self.looked += 1
        self.looking.set()
        return super().ready(lookup, **values)

    def get(self, id: str) -> Review | None:
        self.fail("get")
        return super().get(id)

    def renew(self, waiters: Any, **values: Any) -> None:
        self.fail("renew")
        super().renew(waiters, **values)

    def last_change(self) -> int:
        self.fail("last_change")
        return super().last_change()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the service do its periodic work every few milliseconds in place of seconds."""
    monkeypatch.setattr(service, "LEASE", 0.05)
    monkeypatch.setattr(service, "POLL", 0.01)
    monkeypatch.setattr(service, "LEASES_BETWEEN_CHECKS", 1)


def gate() -> tuple[ReviewedGate, Failing]:
    found, store = ReviewedGate(), Failing()
    found.store = store
    found.service = found.new_service()
    return found, store


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["ready", "get", "renew", "last_change"])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_store_that_fails_for_a_while_takes_no_waiting_request_away_from_its_person(
    name: str, times: int
) -> None:
    r, store = gate()

    async def fails_then_answers() -> None:
        await r.pending()
        store.fails[name] = times
        while store.fails[name]:
            await store.failed.wait()
            store.failed = anyio.Event()
        await r.decides("approve")()

    release = await r.settled(*pushed(ASK, policy=POLICY), fails_then_answers)
    assert isinstance(release.outcome, Answered), release
    (review,) = store.list(Filter())
    assert ("approved", release.decision_id) == (review.state, review.used_by)


@pytest.mark.usefixtures("quick")
async def test_a_store_that_fails_until_the_peers_give_up_leaves_the_request_unanswered_in_time() -> None:
    r, store = gate()

    async def fails() -> None:
        await r.pending()
        store.fails = {"ready": 10**6, "get": 10**6, "renew": 10**6, "last_change": 10**6}

    release = await r.settled(*pushed(ASK, policy=IMPATIENT), fails)
    assert isinstance(release.outcome, Unanswered)
    assert release.outcome.reason in (Reason.REVIEW, Reason.TIMEOUT)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("emptied", [lambda store: store.reviews.clear()])
async def test_a_review_that_is_in_the_store_no_more_is_never_approved(emptied: Callable[[Failing], None]) -> None:
    r, store = gate()

    async def forgets() -> None:
        await r.pending()
        emptied(store)

    release = await r.settled(*pushed(ASK, policy=POLICY), forgets)
    assert isinstance(release.outcome, Unanswered)
    assert [] == r.ports.asked


@pytest.mark.usefixtures("quick")
async def test_a_review_of_the_same_that_nobody_waits_for_is_left_alone_by_who_waits_for_another() -> None:
    """The review may be between two tries of a call that is put off. If another waiter claimed it even briefly, that
    call would open a new review."""
    r, store = gate()
    await r.settled(*pushed(ASK, policy=IMPATIENT))
    (before,) = store.list(Filter())
    store.reviews[before.id] = msgspec.structs.replace(before, waiter="another", held_until=wall() + 60)
    touched: list[int] = []

    async def waits_and_answers() -> None:
        while not (fresh := [one for one in store.list(Filter(states=("pending",))) if one.id != before.id]):
            await anyio.lowlevel.checkpoint()
        # the process of the other waiter dies, and its lease ends
        store.reviews[before.id] = msgspec.structs.replace(store.reviews[before.id], held_until=wall() - 1)
        since = store.looked
        while store.looked < since + 12:
            await store.looking.wait()
            store.looking = anyio.Event()
        touched.append(sum(event.review == before.id and event.what == "joined" for event in store.events))
        store.decide(fresh[0].id, Verdict(word="approve"), who="ana", door="page")

    release = await r.settled(*pushed(ASK, policy=POLICY), waits_and_answers)
    assert isinstance(release.outcome, Answered)
    assert [0] == touched
    assert {before.id: "pending"} == {one.id: one.state for one in store.list(Filter()) if one.used_by is None}
