"""Pure. Limits and what is drawn on them: reserve the worst case, settle the true figure, never let more through than
the limit. Pure: time is passed in.

Amounts are whole numbers of small units (``SCALE``), so that nothing is lost by rounding. All times are Unix seconds
(wall clock). Not the store (``limits/``), not what a request draws (``claims.py``), not the slots of ``concurrent``.

An account is one limit for one key (what its ``by`` comes to). Every draw is charged at its worst case when it is
reserved, and that charge is what a crash leaves behind. Settling corrects it: an overrun is booked (the account may go
beyond its limit: overdraft), a rest is given back as far as it has not drained already: ``max(0, rest - drained
since)`` for a bucket, the whole within the same window of a calendar, nothing in a later one. So what is admitted never
exceeds ``most`` within a window of a calendar, nor ``most + most * span / period`` over any span of a bucket.

**The clock going back** frees nothing. By at most ``SKEW`` it is a process that read the time before another one wrote:
the account keeps its time. By more, the account takes the earlier time, so that a clock that was wrong for a while
blocks nobody for years; a window that had begun by the wrong time begins again by the right one.

Days and months are those of a calendar in any time zone, as Unix seconds: a day has 23 to 25 hours where clocks are
changed, and begins with the change where there is no midnight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from math import ceil, inf
from types import MappingProxyType
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

Window: TypeAlias = Literal["day", "month"]


def zone(name: str) -> tzinfo:
    """The time zone of that IANA name; ``UTC`` needs no database. Raises ValueError, with the name, for one that is not
    known here."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; no name at all; a folder of the database
        raise ValueError(name) from None


def window_start(window: Window, tz: str, now: float) -> float:
    """When the day or month that holds ``now`` began."""
    return _around(window, tz, now)[0]


def window_end(window: Window, tz: str, now: float) -> float:
    """When the next day or month begins."""
    return _around(window, tz, now)[1]


def _around(window: Window, tz: str, now: float) -> tuple[float, float]:
    here = zone(tz)
    first = datetime.fromtimestamp(now, here).date()
    if window == "month":
        first = first.replace(day=1)
    second = _next(window, first)
    if (edge := _begins(second, here)) <= now:  # clocks set back over midnight show the old date once more
        return edge, _begins(_next(window, second), here)
    return _begins(first, here), edge


def _next(window: Window, first: date) -> date:
    return first + timedelta(days=1) if window == "day" else (first + timedelta(days=31)).replace(day=1)


def _begins(day: date, here: tzinfo) -> float:
    """Midnight: the first of two, and the change itself where clocks skip it (what ``fold=0`` means)."""
    return datetime(day.year, day.month, day.day, tzinfo=here).timestamp()


Quantity: TypeAlias = Literal["requests", "input_tokens", "output_tokens", "usd", "concurrent"]
SCALE: Final[dict[Quantity, int]] = {
    "requests": 10**6,
    "input_tokens": 10**6,
    "output_tokens": 10**6,
    "usd": 10**12,
    "concurrent": 1,
}
"""Units in one of each: a dollar is 10**12, so a million-token price of 0.01 dollars is 10_000 a token."""
MOST: Final = 10**18
"""Units that a limit can have at most: a million dollars, 10**12 tokens. A level of four times that still fits a
database's 64 bits."""
SKEW: Final = 10.0
"""Seconds by which the times of two processes on one state may be out of order: each reads the clock, then waits some
seconds for the state."""
FORGOTTEN: Final = 24 * 3600.0
"""Seconds after which a call, or a session, that drew nothing more counts as over."""
_CEILING: Final = 4 * MOST  # a provider may report any number of tokens; the level stays one that can be stored
# a second; a float holds such a time exactly until the year 2242, and whole numbers keep the draining exact
_TICKS: Final = 2**20


class LimitSpec(msgspec.Struct, frozen=True):
    """A limit of the policy, ready to be drawn on."""

    name: str
    quantity: Quantity
    most: int
    """In units."""
    per: Literal["bucket", "day", "month", "call", "process", "slots"]
    period: float = 0.0
    """``bucket``: the seconds in which ``most`` drains."""
    tz: str = "UTC"
    by: tuple[str, ...] = ()
    warn_at: float | None = None
    shared: bool = False
    """Lives in the state, for all processes; else in this process. Never for ``call`` and ``process``."""


class Draw(msgspec.Struct, frozen=True, order=True):
    """What one request takes of one account."""

    limit: str
    key: str
    """JSON array of the values of the limit's ``by``, in its order, with the call's name last for ``per: call``:
    ``["docs","local"]``, ``[]``."""
    amount: int
    """In units."""


class Reserved(msgspec.Struct, frozen=True):
    """Draws that were charged, all of them."""

    id: str
    """Of this reservation, for the store that keeps slots."""
    draws: tuple[Draw, ...]
    at: float
    """The time that ``reserve`` was told."""
    warned: tuple[str, ...] = ()
    """Limits that came over their ``warn_at`` by it, for the first time in their window."""
    fill: Mapping[str, float] = {}
    """By limit, the share of it that is drawn now; of several keys the fullest."""


class Refused(msgspec.Struct, frozen=True):
    """Nothing was charged."""

    limit: str
    why: Literal["full", "never", "unavailable", "waiting"]
    """``never``: one request is more than the whole limit. ``unavailable``: the state cannot be asked. ``waiting``:
    others wait for it already."""
    retry_after: float | None = None
    """Seconds until it may fit, where that can be told."""
    detail: str = ""
    """For the log: no key, no content."""


class Account(msgspec.Struct, frozen=True, array_like=True):
    """What is drawn on one account. Stored as it is: a change of its meaning is a change of the state's version."""

    level: int
    """Units drawn in the window, or that have not drained yet; over the limit after an overrun."""
    stamp: float
    """``bucket``: until when it has drained; ``day`` and ``month``: the start of its window; else when it was last
    drawn on."""
    warned: bool = False
    """Whether it came over ``warn_at`` in this window."""


Look: TypeAlias = Callable[[str, str], Account | None]
"""The account of a limit (by name) and key, None where nothing was ever drawn."""
Changes: TypeAlias = dict[tuple[str, str], Account]
"""Accounts as they are to be kept, by limit and key."""
Rates: TypeAlias = Mapping[str, tuple[int, int]]
"""By limit whose ``most`` was changed after a reservation: the least and the greatest that was in force since."""


def reserve(
    terms: Mapping[str, LimitSpec], look: Look, draws: Sequence[Draw], now: float
) -> tuple[Changes, tuple[str, ...]] | Refused:
    """Charge all of the draws, or none: the changed accounts and the limits that are to be warned of. For all but
    ``slots``.

    Draws on one account count together, and a draw of nothing always fits. Of several refusals the one that lasts
    longest is told.
    """
    changes: Changes = {}
    warned: dict[str, None] = {}
    refused: list[Refused] = []
    for (name, key), want in _summed(draws).items():
        limit = terms.get(name)
        if limit is None:
            return Refused(name, "unavailable", detail=f"limit {name}: the policy has none of this name")
        if limit.per == "slots" or not want:
            continue
        account = _at(limit, look(name, key), now)
        if account.level + want > limit.most:
            refused.append(_refusal(limit, account, want, now))
            continue
        level = account.level + want
        over = _over(limit, level)
        if over and not account.warned:
            warned[name] = None
        changes[name, key] = msgspec.structs.replace(account, level=level, warned=account.warned or over)
    if refused:
        return max(refused, key=_lasting)
    return changes, tuple(warned)


def settle(
    terms: Mapping[str, LimitSpec],
    look: Look,
    reserved: Reserved,
    actual: Sequence[Draw],
    now: float,
    *,
    rates: Rates = MappingProxyType({}),
) -> Changes:
    """The accounts corrected to what was really drawn (an account without an actual draw: nothing). For all but
    ``slots``.

    Why a bucket never admits too much by what is given back: compare its level with the one that it would have if the
    truth had been charged at first. At the reservation they differ by the rest. From then on both drain at the same
    rate and take the same draws, so the difference shrinks only while the lower one is empty, and then at the rate.
    After ``elapsed`` it is at least ``rest - rate * elapsed``; that is what is given back (or less, by rounding), so
    the level never falls below the one that the truth would have left. Where ``most`` was changed meanwhile, the rate
    is the greatest that there was.
    """
    changes: Changes = {}
    was, came = _summed(reserved.draws), _summed(actual)
    for name, key in {**was, **came}:
        limit = terms.get(name)
        if limit is None or limit.per == "slots":
            continue
        before = look(name, key)
        account = _at(limit, before, now)
        more = came.get((name, key), 0) - was.get((name, key), 0)
        if more < 0:
            more = (
                0
                if before is None
                else -_returned(limit, account, -more, reserved.at, max(now, before.stamp), rates=rates.get(name))
            )
        if more:
            changes[name, key] = msgspec.structs.replace(account, level=min(max(0, account.level + more), _CEILING))
    return changes


def set_back(terms: Mapping[str, LimitSpec], look: Look, draws: Sequence[Draw], now: float) -> Changes:
    """Accounts that lie in the future because the clock was set back, brought to ``now``. To be kept where ``reserve``
    refused the same draws.

    A refusal changes nothing, so without this a full account would stay full until the clock has come back to where it
    was.
    """
    changes: Changes = {}
    for name, key in _summed(draws):
        limit, account = terms.get(name), look(name, key)
        if (
            limit is not None
            and account is not None
            and limit.per in ("bucket", "day", "month")
            and now < account.stamp
        ):
            current = _at(limit, account, now)
            if current != account:
                changes[name, key] = current
    return changes


def drawn(terms: LimitSpec, account: Account, now: float) -> int:
    """The units that are drawn at ``now`` and have not drained."""
    return _at(terms, account, now).level


def merged(terms: LimitSpec, one: Account | None, other: Account, now: float) -> Account:
    """Two accounts of one limit and key as one, on which all is drawn that was drawn on either."""
    first, second = _at(terms, one, now), _at(terms, other, now)
    return Account(
        min(first.level + second.level, _CEILING), max(first.stamp, second.stamp), first.warned or second.warned
    )


def idle(terms: LimitSpec, account: Account, now: float) -> bool:
    """Whether an account says no more than one that does not exist, so that it can be forgotten.

    What a process drew stays for as long as it runs, unless it is counted by session: sessions come and go without end.
    """
    match terms.per:
        case "call":
            return now - account.stamp >= FORGOTTEN
        case "process":
            return "session" in terms.by and now - account.stamp >= FORGOTTEN
        case _:
            # another process's clock may be that much behind, and would find it full again
            current = _at(terms, account, now - SKEW)
            return current.level == 0 and not current.warned


def amount_text(terms: LimitSpec, units: int) -> str:
    """An amount for a person: ``0.0125 USD``, ``12 requests``."""
    amount = Decimal(units) / SCALE[terms.quantity]
    if terms.quantity != "usd":
        amount = round(amount, 2)
    number = f"{amount:,f}"
    number = number.rstrip("0").rstrip(".") if "." in number else number
    words = {"usd": "USD", "concurrent": "at a time"}.get(terms.quantity, terms.quantity.replace("_", " "))
    return f"{number} {words.removesuffix('s') if number == '1' else words}"


def _summed(draws: Iterable[Draw]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for draw in draws:
        sums[draw.limit, draw.key] = sums.get((draw.limit, draw.key), 0) + draw.amount
    return sums


def _at(limit: LimitSpec, account: Account | None, now: float) -> Account:
    """The account as it stands at ``now``: drained, or in its window."""
    match limit.per:
        case "bucket":
            return _drained(limit, account or Account(0, now), now)
        case "day" | "month":
            return _in_window(limit.per, limit, account, now)
        case _:
            return Account(0 if account is None else account.level, now, account is not None and account.warned)


def _in_window(per: Literal["day", "month"], limit: LimitSpec, account: Account | None, now: float) -> Account:
    begin = window_start(per, limit.tz, now)
    if account is None or begin > account.stamp:
        return Account(0, begin)
    if begin == account.stamp or account.stamp - now <= SKEW:
        return account
    return msgspec.structs.replace(account, stamp=begin)


def _drained(limit: LimitSpec, account: Account, now: float) -> Account:
    """Drained to ``now`` by whole units. The stamp moves only as far as they took, so that looking often loses
    nothing."""
    if now < account.stamp:
        return account if account.stamp - now <= SKEW else msgspec.structs.replace(account, stamp=_time(_ticks(now)))
    since, until, period = _ticks(account.stamp), _ticks(now), _period(limit)
    drained = (until - since) * limit.most // period
    if drained >= account.level:
        return Account(0, _time(until))
    level = account.level - drained
    stamp = since + _ceil(drained * period, limit.most)
    return Account(level, _time(stamp), account.warned and level > 0)


def _returned(
    limit: LimitSpec, account: Account, rest: int, at: float, latest: float, *, rates: tuple[int, int] | None
) -> int:
    """How much of a rest is given back."""
    match limit.per:
        case "bucket":
            if latest < at - SKEW:
                return 0  # the clock was set back since: how much has drained cannot be told
            elapsed = max(0, _ticks(latest) - _ticks(at))
            least, most = (
                (limit.most, limit.most) if rates is None else (min(limit.most, rates[0]), max(limit.most, rates[1]))
            )
            # one, where nothing was changed: the stamp may have been short of `at` by up to a unit
            short = _ceil(most, max(1, least))
            drained = elapsed * most // _period(limit) + short if elapsed or least != most else 0
            return max(0, rest - drained)
        case "day" | "month":
            return rest if window_start(limit.per, limit.tz, at) == account.stamp else 0
        case _:
            return rest


def _refusal(limit: LimitSpec, account: Account, want: int, now: float) -> Refused:
    if want > limit.most:
        detail = (
            f"limit {limit.name}: {amount_text(limit, want)} is more than the whole limit,"
            f" {amount_text(limit, limit.most)}"
        )
        return Refused(limit.name, "never", detail=detail)
    detail = (
        f"limit {limit.name}: {amount_text(limit, account.level)} of {amount_text(limit, limit.most)} are drawn, and"
        f" {amount_text(limit, want)} more do not fit"
    )
    return Refused(limit.name, "full", _wait(limit, account, want, now), detail)


def _wait(limit: LimitSpec, account: Account, want: int, now: float) -> float | None:
    match limit.per:
        case "bucket":
            needed = _ceil((account.level + want - limit.most) * _period(limit), limit.most)
            return _time(_ticks(account.stamp) + needed + 1) - now  # one tick more: what is added to `now` is rounded
        case "day" | "month":
            return window_end(limit.per, limit.tz, account.stamp) - now
        case _:
            return None


def _lasting(refused: Refused) -> tuple[bool, float]:
    return refused.why == "never", inf if refused.retry_after is None else refused.retry_after


def _over(limit: LimitSpec, level: int) -> bool:
    return limit.warn_at is not None and level >= limit.most * limit.warn_at


def _period(limit: LimitSpec) -> int:
    """The period in ticks."""
    return max(1, ceil(limit.period * _TICKS))


def _ticks(time: float) -> int:
    return int(time * _TICKS)


def _time(ticks: int) -> float:
    return ticks / _TICKS


def _ceil(amount: int, by: int) -> int:
    return -(-amount // by)
