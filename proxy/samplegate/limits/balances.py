"""Balances of limits for operators: what is drawn now on each account, in this process and in a state folder.

Reading changes nothing and delays no draw. A state folder has amounts that were drawn, but not the limits themselves:
those are in policies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from samplegate.limits.accounts import Account
from samplegate.policy import ledger
from samplegate.policy.ledger import LimitSpec
from samplegate.sqlite import SqliteFault

EXAMINED: Final = 2_000
"""Accounts of one limit that are looked at and counted."""


class Rows(Protocol):
    """A connection to a ledger's database. Placeholders are question marks."""

    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """A cursor on the rows."""
        ...


class Balance(msgspec.Struct, frozen=True):
    """What is drawn on one account, in units."""

    spec: LimitSpec
    known: bool
    """Whether the policy in force has the limit. If not, its maximum is unknown, and what has drained is not taken
    off."""
    key: str
    """As in ``ledger.Draw``."""
    drawn: int
    refilled: float | None
    """When all is available again, in Unix seconds."""

    @property
    def fill(self) -> float:
        """The used share of the limit."""
        return self.drawn / max(1, self.spec.max_units) if self.known else 0.0


class Balances(msgspec.Struct, frozen=True):
    """The fullest accounts, and how many there are (counted up to EXAMINED for each limit)."""

    fullest: tuple[Balance, ...] = ()
    total: int = 0


def account_of(level: object, stamp: object, warned: object) -> ledger.Account:
    """An account from its row. Raises SqliteFault for values that no ledger writes."""
    if isinstance(level, int) and level >= 0 and isinstance(stamp, float) and math.isfinite(stamp):
        return ledger.Account(level, stamp, bool(warned))
    raise SqliteFault("damaged", "it contains an unreadable account")


def balances(db: Rows, specs: Mapping[str, LimitSpec], now: float, most: int, *, dead: Iterable[str] = ()) -> Balances:
    """The balances of these limits (by identity) in a ledger's database. Slots of ``dead`` holders do not count."""
    found: list[Balance] = []
    total = 0
    gone = frozenset(dead)
    for identity, spec in specs.items():
        if spec.per == "slots":
            rows = [(key, taken) for (_, key), taken in _slots(db, identity, gone).items()]
            found += [Balance(spec, True, key, taken, None) for key, taken in rows]
            total += len(rows)
            continue
        table = "FROM accounts WHERE limit_name = ? AND stamp > ? AND level > 0"
        where = identity, _oldest(spec, now)
        total += db.execute(f"SELECT count(*) FROM (SELECT 1 {table} LIMIT {EXAMINED}) few", where).fetchone()[0]
        some = f"SELECT key, level, stamp, warned FROM (SELECT key, level, stamp, warned {table} LIMIT {EXAMINED}) few"
        for key, *rest in db.execute(f"{some} ORDER BY level DESC LIMIT ?", (*where, most)):
            account = account_of(*rest)
            found.append(
                Balance(spec, True, key, ledger.drawn(spec, account, now), ledger.refilled_at(spec, account, now))
            )
    return _fullest(found, total, most)


def _fullest(found: list[Balance], total: int, most: int) -> Balances:
    used = [one for one in found if one.drawn]
    used.sort(key=lambda one: (-one.fill, -one.drawn, one.spec.name, one.key))
    return Balances(tuple(used[:most]), total - (len(found) - len(used)))


def _oldest(spec: LimitSpec, now: float) -> float:
    """The time before which an account has nothing left of what was drawn."""
    match spec.per:
        case "day" | "month":
            return ledger.window_start(spec.per, spec.tz, now) - ledger.SKEW
        case "bucket":
            return now - 4 * spec.period - ledger.SKEW  # four times a limit is the most that an overrun books
        case _:
            return float("-inf")


def _slots(db: Rows, identity: str | None, dead: frozenset[str]) -> dict[Account, int]:
    """The slots in use by account."""
    where, values = ("", ()) if identity is None else (" WHERE limit_name = ?", (identity,))
    found: dict[Account, int] = {}
    for limit, key, holder, amount in db.execute(
        f"SELECT limit_name, key, holder, amount FROM slots{where} LIMIT {EXAMINED}",
        values,
    ):
        if holder not in dead:
            found[limit, key] = found.get((limit, key), 0) + amount
    return found


def other_balances(
    db: Rows, known: Mapping[str, LimitSpec], now: float, most: int, *, dead: Iterable[str] = ()
) -> Balances:
    """The balances of all limits but ``known``, without their maxima. At most EXAMINED accounts are looked at."""
    found: list[Balance] = []
    for limit, key, level, stamp, warned in db.execute(
        f"SELECT limit_name, key, level, stamp, warned FROM accounts WHERE level > 0 LIMIT {EXAMINED}"
    ):
        spec = None if limit in known else spec_of(limit)
        if spec is None:
            continue
        account = account_of(level, stamp, warned)
        if account.stamp <= _oldest(spec, now):
            continue
        if spec.per == "bucket":
            if account.stamp + spec.period > now:  # what has drained since depends on the limit's maximum
                found.append(Balance(spec, False, key, account.level, account.stamp + spec.period))
        else:
            refilled = ledger.refilled_at(spec, account, now)
            found.append(Balance(spec, False, key, ledger.drawn(spec, account, now), refilled))
    for (limit, key), taken in _slots(db, None, frozenset(dead)).items():
        spec = None if limit in known else spec_of(limit)
        if spec is not None:
            found.append(Balance(spec, False, key, taken, None))
    return _fullest(found, len(found), most)


def spec_of(identity: str) -> LimitSpec | None:
    """A limit by its identity, without its maximum; None for a text that is no identity."""
    try:
        name, quantity, per, period, zone, *by = json.loads(identity)
        if per in ("day", "month"):
            ledger.zone(zone)
        return msgspec.convert(
            {"name": name, "quantity": quantity, "max_units": 0, "per": per, "period": period, "tz": zone, "by": by},
            LimitSpec,
        )
    except (ValueError, TypeError, msgspec.ValidationError):
        return None


def key_values(spec: LimitSpec, key: str) -> dict[str, str]:
    """The values of a limit's ``by`` in an account's key, by name. A key that is too long to be kept is a hash."""
    try:
        values: Any = json.loads(key)
    except ValueError:
        return {"key": key}
    names = [*spec.by, *(["call"] if spec.per == "call" else [])]
    if not isinstance(values, list) or len(values) != len(names):
        return {"key": key} if values else {}
    return {name: str(value) for name, value in zip(names, values, strict=True)}
