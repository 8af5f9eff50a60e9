"""Pure. Ledger arithmetic of limits: reserve the maximum, settle to the actual amount, never admit more than the limit.

Amounts are whole numbers of small units (``SCALE``), so that rounding loses nothing. All times are Unix seconds (wall
clock). The store is in ``limits/``, and ``claims.py`` computes the draws of a request. The slots of ``concurrent`` are
not counted here.

An account is one limit for one key (the values of its ``by``). A reservation charges the maximum of every draw, and a
crash leaves that charge behind. Settling corrects it:

- An overrun is booked, so the account may exceed its limit (overdraft).
- A remainder is returned as far as it has not drained already. A bucket gets ``max(0, remainder - drained since)``, a
  calendar window all of it, and a later window nothing.

So the admitted amounts never exceed ``max_units`` within a calendar window, nor
``max_units + max_units * span / period`` over any span of a bucket.

**A clock that goes back** frees nothing. A difference of at most ``SKEW`` means that a process read the time before
another one wrote: the account keeps its time. With a larger difference, the account adopts the earlier time, so that a
temporarily wrong clock does not block requests for years. A window that began by the wrong time restarts by the right
one.

Days and months are calendar windows in any time zone, as Unix seconds. A day has 23 to 25 hours when clocks change. If
the change skips midnight, the day begins with the change.
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

from samplegate.money import UNITS, exact_dollars

Window: TypeAlias = Literal["day", "month"]


def zone(name: str) -> tzinfo:
    """The time zone of an IANA name; ``UTC`` needs no database. Raises ValueError with the name if it is unknown."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a valid name; a folder of the database
        raise ValueError(name) from None


def window_start(window: Window, tz: str, now: float) -> float:
    """The start of the day or month that contains ``now``."""
    return _around(window, tz, now)[0]


def window_end(window: Window, tz: str, now: float) -> float:
    """The start of the next day or month."""
    return _around(window, tz, now)[1]


def _around(window: Window, tz: str, now: float) -> tuple[float, float]:
    here = zone(tz)
    first = datetime.fromtimestamp(now, here).date()
    if window == "month":
        first = first.replace(day=1)
    second = _next(window, first)
    if (edge := _begins(second, here)) <= now:  # after clocks were set back over midnight, the old date shows again
        return edge, _begins(_next(window, second), here)
    return _begins(first, here), edge


def _next(window: Window, first: date) -> date:
    return first + timedelta(days=1) if window == "day" else (first + timedelta(days=31)).replace(day=1)


def _begins(day: date, here: tzinfo) -> float:
    """Midnight: the first of two, or the change itself if clocks skip midnight (``fold=0``)."""
    return datetime(day.year, day.month, day.day, tzinfo=here).timestamp()


Quantity: TypeAlias = Literal["requests", "input_tokens", "output_tokens", "usd", "concurrent"]
SCALE: Final[dict[Quantity, int]] = {
    "requests": 10**6,
    "input_tokens": 10**6,
    "output_tokens": 10**6,
    "usd": UNITS,
    "concurrent": 1,
}
"""Units per one of each quantity. A dollar has 10**12, so 0.01 dollars per million tokens are 10_000 units per
token."""
MAX_UNITS: Final = 10**18
"""Maximum units of a limit: a million dollars, 10**12 tokens. A level of four times that still fits into the 64 bits of
a database."""
SKEW: Final = 10.0
"""Seconds by which the times of two processes on one state may be out of order: each reads the clock, then waits up to
some seconds for the state."""
FORGET_AFTER: Final = 24 * 3600.0
"""Seconds without a draw after which a call or session counts as over."""
_CEILING: Final = 4 * MAX_UNITS  # a provider may report any number of tokens, but the level must stay storable
# ticks per second: a float is exact in them until the year 2242, and whole numbers keep the draining exact
_TICKS: Final = 2**20


class LimitSpec(msgspec.Struct, frozen=True):
    """A limit of the policy in units."""

    name: str
    quantity: Quantity
    max_units: int
    per: Literal["bucket", "day", "month", "call", "run", "process", "slots"]
    period: float = 0.0
    """``bucket``: seconds in which ``max_units`` drains."""
    tz: str = "UTC"
    by: tuple[str, ...] = ()
    warn_at: float | None = None
    shared: bool = False
    """Whether the account is in the shared state of all processes, else in this process. Never for ``call`` and
    ``process``."""


class Draw(msgspec.Struct, frozen=True, order=True):
    """The amount that one request draws on one account."""

    limit: str
    key: str
    """JSON array of the values of the limit's ``by``, in its order, with the call's name last for ``per: call``:
    ``["docs","local"]``, ``[]``."""
    amount: int
    """In units."""


class Reserved(msgspec.Struct, frozen=True):
    """A reservation: all of its draws are charged."""

    id: str
    """The reservation's ID, for the store of slots."""
    draws: tuple[Draw, ...]
    at: float
    """The time that was passed to ``reserve``."""
    warned: tuple[str, ...] = ()
    """Limits that reached their ``warn_at`` with it, for the first time in their window."""
    fill: Mapping[str, float] = {}
    """The drawn share of each limit; with several keys, the highest."""


class Refused(msgspec.Struct, frozen=True):
    """A refused reservation: nothing is charged."""

    limit: str
    why: Literal["full", "never", "unavailable", "waiting"]
    """``never``: the request needs more than the whole limit. ``unavailable``: the state cannot be read. ``waiting``:
    other requests already wait for the limit."""
    retry_after: float | None = None
    """Seconds until the request may fit, if known."""
    detail: str = ""
    """For the log, without keys and content."""


class Account(msgspec.Struct, frozen=True, array_like=True):
    """The state of one account. It is stored in this form: a change of its meaning needs a new version of the state."""

    level: int
    """Units drawn in the window, or not yet drained; above the limit after an overrun."""
    stamp: float
    """``bucket``: the time until which it has drained. ``day`` and ``month``: the start of its window. Otherwise, the
    time of the last draw."""
    warned: bool = False
    """Whether it reached ``warn_at`` in this window."""


Look: TypeAlias = Callable[[str, str], Account | None]
"""Looks up the account of a limit (by name) and key; None if it has no draws."""
Changes: TypeAlias = dict[tuple[str, str], Account]
"""Accounts to store, by limit and key."""
Rates: TypeAlias = Mapping[str, tuple[int, int]]
"""For each limit whose ``max_units`` changed after a reservation: the lowest and highest value since."""


def reserve(
    specs: Mapping[str, LimitSpec], look: Look, draws: Sequence[Draw], now: float
) -> tuple[Changes, tuple[str, ...]] | Refused:
    """Charge all of the draws, or none. Returns the changed accounts and the limits to warn about. Ignores ``slots``.

    Draws on one account are added up, and a draw of zero always fits. Of several refusals, the longest is returned.
    """
    changes: Changes = {}
    warned: dict[str, None] = {}
    refused: list[Refused] = []
    for (name, key), want in _summed(draws).items():
        limit = specs.get(name)
        if limit is None:
            return Refused(name, "unavailable", detail=f"limit {name}: the policy has no limit with this name")
        if limit.per == "slots" or not want:
            continue
        account = _at(limit, look(name, key), now)
        if account.level + want > limit.max_units:
            refused.append(_refusal(limit, account, want, now))
            continue
        level = account.level + want
        over = _reaches_warning(limit, level)
        if over and not account.warned:
            warned[name] = None
        changes[name, key] = msgspec.structs.replace(account, level=level, warned=account.warned or over)
    if refused:
        return max(refused, key=_lasting)
    return changes, tuple(warned)


def settle(
    specs: Mapping[str, LimitSpec],
    look: Look,
    reserved: Reserved,
    actual: Sequence[Draw],
    now: float,
    *,
    rates: Rates = MappingProxyType({}),
) -> Changes:
    """The accounts corrected to the actual draws (zero for an account without one). Ignores ``slots``.

    A bucket never admits too much because of a return. Compare its level with the level that charging the actual amount
    at first would have led to. At the reservation they differ by the remainder. Then both drain at the same rate and
    get the same draws. So the difference shrinks only while the lower one is empty, and at most at that rate. After
    ``elapsed`` it is at least ``remainder - rate * elapsed``. At most that is returned, so the level never falls below
    the compared one. If ``max_units`` changed meanwhile, the rate is the highest since.
    """
    changes: Changes = {}
    reserved_amounts, actual_amounts = _summed(reserved.draws), _summed(actual)
    for name, key in {**reserved_amounts, **actual_amounts}:
        limit = specs.get(name)
        if limit is None or limit.per == "slots":
            continue
        before = look(name, key)
        account = _at(limit, before, now)
        more = actual_amounts.get((name, key), 0) - reserved_amounts.get((name, key), 0)
        if more < 0:
            more = (
                0
                if before is None
                else -_returned(limit, account, -more, reserved.at, max(now, before.stamp), rates=rates.get(name))
            )
        if more:
            changes[name, key] = msgspec.structs.replace(account, level=min(max(0, account.level + more), _CEILING))
    return changes


def set_back(specs: Mapping[str, LimitSpec], look: Look, draws: Sequence[Draw], now: float) -> Changes:
    """Accounts whose time is in the future after the clock was set back, moved to ``now``. Store them when ``reserve``
    refused the same draws.

    A refusal stores nothing. Without this, a full account would stay full until the clock reaches the old time again.
    """
    changes: Changes = {}
    for name, key in _summed(draws):
        limit, account = specs.get(name), look(name, key)
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


def drawn(spec: LimitSpec, account: Account, now: float) -> int:
    """The units that are drawn at ``now`` and have not drained."""
    return _at(spec, account, now).level


def refilled_at(spec: LimitSpec, account: Account, now: float) -> float | None:
    """When all of a limit is available again if nothing more is drawn, in Unix seconds. None if time does not give
    anything back, or nothing is drawn."""
    current = _at(spec, account, now)
    if not current.level:
        return None
    match spec.per:
        case "bucket":
            return current.stamp + _time(_ceil(current.level * _period(spec), max(1, spec.max_units)))
        case "day" | "month":
            return window_end(spec.per, spec.tz, current.stamp)
        case _:
            return None


def merged(spec: LimitSpec, one: Account | None, other: Account, now: float) -> Account:
    """Two accounts of one limit and key merged into one that has the draws of both."""
    first, second = _at(spec, one, now), _at(spec, other, now)
    return Account(
        min(first.level + second.level, _CEILING), max(first.stamp, second.stamp), first.warned or second.warned
    )


def idle(spec: LimitSpec, account: Account, now: float) -> bool:
    """Whether an account equals a missing one, so that it can be deleted.

    Accounts per process stay as long as it runs, except those counted by session, because sessions are unlimited in
    number. Accounts of a run are forgotten a day after its last draw.
    """
    match spec.per:
        case "call" | "run":
            return now - account.stamp >= FORGET_AFTER
        case "process":
            return "session" in spec.by and now - account.stamp >= FORGET_AFTER
        case _:
            # the clock of another process may be this much behind and would see the account full again
            current = _at(spec, account, now - SKEW)
            return current.level == 0 and not current.warned


def amount_text(spec: LimitSpec, units: int) -> str:
    """An amount for users: ``$0.0125``, ``12 requests``."""
    number = _number_text(spec, units)
    if spec.quantity == "usd":
        return number
    words = "at a time" if spec.quantity == "concurrent" else spec.quantity.replace("_", " ")
    return f"{number} {words.removesuffix('s') if number == '1' else words}"


def _number_text(spec: LimitSpec, units: int) -> str:
    """An amount without its unit, except for dollars: ``$0.0125``, ``12``."""
    if spec.quantity == "usd":
        return exact_dollars(units)
    number = f"{round(Decimal(units) / SCALE[spec.quantity], 2):,f}"
    return number.rstrip("0").rstrip(".") if "." in number else number


def _summed(draws: Iterable[Draw]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for draw in draws:
        sums[draw.limit, draw.key] = sums.get((draw.limit, draw.key), 0) + draw.amount
    return sums


def _at(limit: LimitSpec, account: Account | None, now: float) -> Account:
    """The account at ``now``: drained, or in its window."""
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
    """The account drained to ``now`` by whole units. The stamp moves only by the time that these took, so that frequent
    reads lose nothing."""
    if now < account.stamp:
        return account if account.stamp - now <= SKEW else msgspec.structs.replace(account, stamp=_time(_ticks(now)))
    since, until, period = _ticks(account.stamp), _ticks(now), _period(limit)
    drained = (until - since) * limit.max_units // period
    if drained >= account.level:
        return Account(0, _time(until))
    level = account.level - drained
    stamp = since + _ceil(drained * period, limit.max_units)
    return Account(level, _time(stamp), account.warned and level > 0)


def _returned(
    limit: LimitSpec, account: Account, rest: int, at: float, latest: float, *, rates: tuple[int, int] | None
) -> int:
    """The part of a remainder to return."""
    match limit.per:
        case "bucket":
            if latest < at - SKEW:
                return 0  # the clock was set back since: the drained amount is unknown
            elapsed = max(0, _ticks(latest) - _ticks(at))
            least, most = (
                (limit.max_units, limit.max_units)
                if rates is None
                else (min(limit.max_units, rates[0]), max(limit.max_units, rates[1]))
            )
            # 1 if nothing changed: the stamp may have been before `at` by up to one unit
            short = _ceil(most, max(1, least))
            drained = elapsed * most // _period(limit) + short if elapsed or least != most else 0
            return max(0, rest - drained)
        case "day" | "month":
            return rest if window_start(limit.per, limit.tz, at) == account.stamp else 0
        case _:
            return rest


def _refusal(limit: LimitSpec, account: Account, want: int, now: float) -> Refused:
    if want > limit.max_units:
        detail = (
            f"limit {limit.name}: {amount_text(limit, want)} is more than the whole limit,"
            f" {amount_text(limit, limit.max_units)}"
        )
        return Refused(limit.name, "never", detail=detail)
    level, most = _number_text(limit, account.level), amount_text(limit, limit.max_units)
    use = "in use" if limit.quantity == "concurrent" else "used"
    detail = f"limit {limit.name}: {level} of {most} {use}, {_number_text(limit, want)} more would exceed it"
    return Refused(limit.name, "full", _wait(limit, account, want, now), detail)


def _wait(limit: LimitSpec, account: Account, want: int, now: float) -> float | None:
    match limit.per:
        case "bucket":
            needed = _ceil((account.level + want - limit.max_units) * _period(limit), limit.max_units)
            return _time(_ticks(account.stamp) + needed + 1) - now  # one tick more, as the sum with `now` is rounded
        case "day" | "month":
            return window_end(limit.per, limit.tz, account.stamp) - now
        case _:
            return None


def _lasting(refused: Refused) -> tuple[bool, float]:
    return refused.why == "never", inf if refused.retry_after is None else refused.retry_after


def _reaches_warning(limit: LimitSpec, level: int) -> bool:
    return limit.warn_at is not None and level >= limit.max_units * limit.warn_at


def _period(limit: LimitSpec) -> int:
    """The period in ticks, at least 1."""
    return max(1, ceil(limit.period * _TICKS))


def _ticks(time: float) -> int:
    return int(time * _TICKS)


def _time(ticks: int) -> float:
    return ticks / _TICKS


def _ceil(amount: int, by: int) -> int:
    return -(-amount // by)
