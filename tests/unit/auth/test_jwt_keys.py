"""An issuer's keys over time: fresh, old, withdrawn, unknown, and while the issuer does not respond."""

from __future__ import annotations

import asyncio

import pytest

from samplegate.auth.jwt import FRESH, GRACE, RETRY, UNKNOWN, Keys, KeySet, parse
from samplegate.errors import Unavailable
from tests.fakes.issuer import key_set, public

pytestmark = pytest.mark.anyio

OLD = parse(key_set(public("old", "ES256")))
NEW = parse(key_set(public("new", "ES256")))


class Issuer:
    """A fake key source and clock."""

    def __init__(self, answer: KeySet | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.now = 0.0
        self.told: list[str | None] = []
        self.open = asyncio.Event()
        self.open.set()
        self.begun = asyncio.Event()
        self.keys = Keys(self.source, clock=lambda: self.now, on_fetch=self.told.append)

    async def source(self) -> KeySet:
        self.asked += 1
        answer = self.answer
        self.begun.set()
        await self.open.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reload(self) -> None:
        """Reload with other settings for the same issuer, whose keys may have changed."""
        self.keys = Keys(self.source, clock=lambda: self.now, on_fetch=self.told.append, before=self.keys)

    async def names(self, kid: str) -> list[str | None]:
        return [key.key_id for key in await self.keys.fitting(kid, "ES256")]

    async def settled(self) -> None:
        """Wait for the keys that are fetched in the background."""
        await asyncio.wait_for(self.keys.fetched(), 5)


async def test_keys_are_fetched_once_and_held() -> None:
    assert (600, 60, 3600) == (FRESH, UNKNOWN, GRACE), "seconds, as the reference promises"
    issuer = Issuer(OLD)
    assert not issuer.keys.usable
    assert ["old"] == await issuer.names("old")
    issuer.now = FRESH - 1
    assert ["old"] == await issuer.names("old")
    assert (1, True, [None]) == (issuer.asked, issuer.keys.usable, issuer.told)


async def test_many_callers_at_once_cause_one_fetch() -> None:
    issuer = Issuer(OLD)
    assert [["old"]] * 50 == await asyncio.gather(*(issuer.names("old") for _ in range(50)))
    assert 1 == issuer.asked


async def test_old_keys_are_fetched_again_beside_the_call() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.answer, issuer.now = NEW, FRESH
    issuer.open.clear()
    assert ["old"] == await issuer.names("old")
    issuer.open.set()
    await issuer.settled()
    assert ["new"] == await issuer.names("new")
    assert [] == await issuer.names("old")


async def test_a_rotated_key_is_fetched_when_it_is_first_seen() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.answer = NEW
    assert ["new"] == await issuer.names("new")
    assert 2 == issuer.asked


async def test_names_that_nobody_knows_cause_at_most_one_fetch_a_minute() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    for number in range(1_000):
        assert [] == await issuer.names(f"guess-{number}")
    assert 2 == issuer.asked
    issuer.now += UNKNOWN
    await asyncio.gather(*(issuer.names(f"guess-{number}") for number in range(100)))
    assert 3 == issuer.asked


async def test_old_keys_hold_while_the_issuer_is_silent_and_then_no_longer() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.answer, issuer.now = Unavailable("down"), GRACE - 1
    assert ["old"] == await issuer.names("old")
    await issuer.settled()
    issuer.now = GRACE
    assert not issuer.keys.usable
    with pytest.raises(Unavailable):
        await issuer.names("old")
    issuer.answer, issuer.now = NEW, GRACE + RETRY
    assert ["new"] == await issuer.names("new")


async def test_an_issuer_that_is_down_is_asked_again_only_after_a_while() -> None:
    issuer = Issuer(Unavailable("down"))
    for _ in range(100):
        with pytest.raises(Unavailable):
            await issuer.names("old")
    assert (1, ["down"]) == (issuer.asked, issuer.told)
    issuer.answer, issuer.now = OLD, RETRY
    assert ["old"] == await issuer.names("old")


async def test_what_goes_wrong_unforeseen_keeps_the_old_keys() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.answer, issuer.now = ZeroDivisionError("secret"), FRESH
    await issuer.names("old")
    await issuer.settled()
    assert ["old"] == await issuer.names("old")
    assert [None, "the issuer's keys cannot be read: ZeroDivisionError"] == issuer.told


async def test_a_caller_that_leaves_does_not_stop_the_fetch_for_the_others() -> None:
    issuer = Issuer(OLD)
    issuer.open.clear()
    first, second = asyncio.ensure_future(issuer.names("old")), asyncio.ensure_future(issuer.names("old"))
    await asyncio.wait_for(issuer.begun.wait(), 5)
    first.cancel()
    await asyncio.wait([first])
    issuer.open.set()
    assert ["old"] == await asyncio.wait_for(second, 5)


async def test_keys_that_may_have_changed_are_fetched_before_the_next_answer() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.reload()
    issuer.answer = NEW
    assert [[], [], ["new"]] == await asyncio.gather(*(issuer.names(name) for name in ("old", "old", "new")))


async def test_a_fetch_that_began_before_they_may_have_changed_is_not_enough() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.now = FRESH
    issuer.open.clear()
    issuer.begun.clear()
    assert ["old"] == await issuer.names("old")
    await asyncio.wait_for(issuer.begun.wait(), 5)
    issuer.reload()
    issuer.answer = NEW
    waiting = asyncio.ensure_future(issuer.names("old"))
    issuer.open.set()
    assert [] == await asyncio.wait_for(waiting, 5)


async def test_keys_that_may_have_changed_are_asked_for_again_until_they_come() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.reload()
    issuer.answer = Unavailable("down")
    for _ in range(10):
        assert ["old"] == await issuer.names("old")
    assert 2 == issuer.asked
    issuer.answer, issuer.now = NEW, RETRY
    await issuer.names("old")
    await issuer.settled()
    assert [] == await issuer.names("old")


async def test_keys_that_may_have_changed_hold_as_long_as_others_while_the_issuer_is_silent() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.reload()
    issuer.answer, issuer.now = Unavailable("down"), GRACE - 1
    assert ["old"] == await issuer.names("old")
    await issuer.settled()
    assert ["old"] == await issuer.names("old")


async def test_warming_fetches_and_a_failure_keeps_nobody() -> None:
    issuer = Issuer(Unavailable("down"))
    await issuer.keys.warm()
    assert not issuer.keys.usable
    issuer.answer = OLD
    await issuer.keys.warm()
    assert issuer.keys.usable


async def test_an_end_leaves_nothing_under_way_and_whoever_waits_goes_without() -> None:
    issuer = Issuer(OLD)
    issuer.open.clear()
    waiting = asyncio.ensure_future(issuer.names("old"))
    await asyncio.wait_for(issuer.begun.wait(), 5)
    await asyncio.wait_for(issuer.keys.aclose(), 5)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(issuer.keys.fetched(), 5)


async def test_asking_for_problems_gets_keys_though_nobody_calls() -> None:
    issuer = Issuer(Unavailable("down"))
    assert "the issuer's keys are not available" == issuer.keys.problem()
    await issuer.settled()
    assert "the issuer's keys are not available" == issuer.keys.problem()
    issuer.answer, issuer.now = OLD, RETRY
    assert "the issuer's keys are not available" == issuer.keys.problem()
    await issuer.settled()
    assert issuer.keys.problem() is None


async def test_hours_without_a_word_are_no_problem_of_the_issuers() -> None:
    issuer = Issuer(OLD)
    await issuer.names("old")
    issuer.now = 10 * GRACE
    assert issuer.keys.problem() is None
    await issuer.settled()
    assert issuer.keys.usable
