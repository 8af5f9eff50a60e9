"""The accounts of a case: all draws or none, slots beside the ledger, and requests that end at their own time."""

from __future__ import annotations

from typing import Final

from samplegate.core.ledger import SCALE, Draw, Refused, Reserved, Terms
from samplegate.core.trials.accounts import Accounts

TERMS: Final = {
    "words": Terms("words", "output_tokens", 600 * SCALE["output_tokens"], "bucket", 60.0),
    "open": Terms("open", "concurrent", 1, "slots"),
    "day": Terms("day", "requests", SCALE["requests"], "day"),
}
NOON: Final = 1_768_478_400.0
SLOT: Final = Draw("open", "[]", 1)
ONE: Final = Draw("day", "[]", SCALE["requests"])


def words(count: int) -> Draw:
    return Draw("words", "[]", count * SCALE["output_tokens"])


def reserved(accounts: Accounts, *draws: Draw, now: float = NOON) -> Reserved:
    found = accounts.reserve(draws, now)
    assert isinstance(found, Reserved)
    return found


def test_nothing_is_taken_where_one_of_several_has_no_room() -> None:
    accounts = Accounts(TERMS)
    reserved(accounts, ONE)
    refused = accounts.reserve([SLOT, ONE], NOON)
    assert isinstance(refused, Refused)
    assert ("day", 0.0) == (refused.limit, accounts.drawn("open", "[]", NOON))
    held = reserved(accounts, SLOT)
    assert isinstance(accounts.reserve([SLOT, words(10)], NOON), Refused)
    assert 0.0 == accounts.drawn("words", "[]", NOON)
    accounts.settle(held, [SLOT], NOON)
    reserved(accounts, SLOT)


def test_what_is_held_ends_at_its_own_time_and_in_that_order() -> None:
    accounts = Accounts(TERMS)
    accounts.hold(reserved(accounts, words(300)), (words(0),), NOON + 20)
    accounts.hold(reserved(accounts, words(300)), (words(0),), NOON + 10)
    accounts.hold(reserved(accounts, SLOT), (SLOT,), None)
    accounts.advance(NOON + 5)
    assert 550.0 == accounts.drawn("words", "[]", NOON + 5)
    accounts.advance(NOON + 30)  # a tenth drains in six seconds, and what has drained is not given back again
    assert (0.0, 1.0) == (accounts.drawn("words", "[]", NOON + 30), accounts.drawn("open", "[]", NOON + 30))


def test_another_day_has_drawn_nothing_and_looking_back_changes_nothing() -> None:
    accounts = Accounts(TERMS)
    reserved(accounts, ONE)
    assert (1.0, 0.0, 1.0) == tuple(accounts.drawn("day", "[]", NOON + hours * 3600) for hours in (11, 12, 0))
    assert 0.0 == accounts.drawn("day", '["another"]', NOON)
