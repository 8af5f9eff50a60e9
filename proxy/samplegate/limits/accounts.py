"""Pure. Accounts of limits: the account of a draw, reservations, and room for concurrent requests.

An account belongs to a limit's identity, which defines its numbers: name, quantity, period, time zone and ``by``. The
amount is not part of the identity, so an account keeps its level when the amount changes. A settlement never reaches an
account with another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from samplegate.policy.claims import bounded
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved

MAX_KEY_BYTES: Final = 300  # bytes; a longer key is stored as its hash
NO_RUN: Final = "it counts per run, but this process has no run ID; set SAMPLEGATE_RUN or --run"
Account: TypeAlias = tuple[str, str]
"""The identity of a limit and a key."""


def identity(spec: LimitSpec, run: str = "") -> str:
    """The identity under which a limit's accounts are stored: its name and all that defines its numbers. ``run`` is the
    ID of the process's run, for limits per run."""
    meaning = [
        spec.name,
        spec.quantity,
        spec.per,
        spec.period,
        spec.tz if spec.per in {"day", "month"} else run if spec.per == "run" else "",
        *spec.by,
    ]
    return json.dumps(meaning, separators=(",", ":"))


def is_of_a_run(identity: str) -> bool:
    """Whether an identity is that of a limit per run."""
    try:
        return bool(json.loads(identity)[2] == "run")
    except (ValueError, LookupError, TypeError):
        return False


def is_never_given_back(spec: LimitSpec) -> bool:
    """Whether a limit never refills with time: limits per call, per run and per process."""
    return spec.per in {"call", "run", "process"}


class LimitVersions(msgspec.Struct, frozen=True, eq=False):
    """The limits in force, and earlier ones with open reservations."""

    ids: Mapping[str, str]
    """The identities of the limits in force, by name."""
    specs: Mapping[str, LimitSpec]
    """By identity."""
    run: str = ""
    """The ID of the process's run; empty without one."""

    def amended(self, wanted: Mapping[str, LimitSpec], used: Iterable[str]) -> LimitVersions:
        """The versions after a policy change. Of the old ones, the ``used`` identities are kept.

        A shared limit stays shared while the process runs, because other processes may have drawn on it.
        """
        specs = {id: self.specs[id] for id in used}
        ids = {name: identity(one, self.run) for name, one in wanted.items()}
        for name, id in ids.items():
            stays = id in self.specs and self.specs[id].shared
            specs[id] = msgspec.structs.replace(wanted[name], shared=True) if stays else wanted[name]
        return LimitVersions(ids, specs, self.run)


class ReservationRequest(msgspec.Struct, frozen=True):
    """A reservation to try, any number of times."""

    id: str
    number: int
    """The order of arrival."""
    draws: tuple[Draw, ...]
    """The draws as requested."""
    charged: tuple[Draw, ...]
    """The draws on identities, with keys that can be stored."""
    limits: LimitVersions
    """The limits in force when it was prepared."""
    under: Mapping[str, LimitSpec]
    """The limits for which its draws were measured."""

    @property
    def accounts(self) -> list[Account]:
        """The accounts that it draws on."""
        return [(draw.limit, draw.key) for draw in self.charged if draw.amount > 0]


class Reservation(msgspec.Struct):
    """A reservation that is charged, or being charged, and not settled yet."""

    ids: Mapping[str, str]
    """The charged identities, by limit name."""
    reserved: Reserved
    rates: Rates = {}
    """The least and the greatest amount by identity, if it has changed since."""
    lost: bool = False
    """Whether its slots were lost, so that other gates may have them."""
    tell: list[Callable[[], object]] = []
    """What to call if its slots are lost."""

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` when its slots are lost; at once if they are already."""
        if self.lost:
            tell()
        else:
            self.tell.append(tell)

    def lose(self) -> bool:
        """Its slots are lost, for good, even if the lease is renewed later. Returns whether this is news."""
        news, self.lost = not self.lost, True
        while self.tell:
            self.tell.pop()()
        return news

    def part(self, draws: Iterable[Draw]) -> Reserved:
        """Release and return those of these draws that are reserved."""
        found, left = [], list(self.reserved.draws)
        for draw in (on_identity(draw, self.ids[draw.limit]) for draw in draws if draw.limit in self.ids):
            if draw in left:
                left.remove(draw)
                found.append(draw)
        part = msgspec.structs.replace(self.reserved, draws=tuple(found))
        self.reserved = msgspec.structs.replace(self.reserved, draws=tuple(left))
        return part


def prepare(
    draws: Sequence[Draw], under: Mapping[str, LimitSpec], limits: LimitVersions, number: int, id: str
) -> ReservationRequest | Refused:
    """Prepare a reservation; Refused if the draws were measured for limits that count something else."""
    for draw in draws:
        if draw.limit not in limits.ids:
            return Refused(draw.limit, "unavailable", detail=f"limit {draw.limit}: not defined in the current policy")
        spec = limits.specs[limits.ids[draw.limit]]
        if spec.per == "run" and not limits.run:
            return Refused(draw.limit, "unavailable", detail=f"limit {draw.limit}: {NO_RUN}")
        was = under.get(draw.limit, spec)
        if (was.quantity, was.by, was.per == "call") != (spec.quantity, spec.by, spec.per == "call"):
            return Refused(
                draw.limit,
                "unavailable",
                detail=f"limit {draw.limit}: the policy in force counts something else under this name",
            )
    charged = tuple(on_identity(draw, limits.ids[draw.limit]) for draw in draws)
    return ReservationRequest(id, number, tuple(draws), charged, limits, under)


def on_identity(draw: Draw, id: str) -> Draw:
    """The draw on an identity, with a key that can be stored."""
    return Draw(id, bounded(draw.key, MAX_KEY_BYTES), draw.amount)


def widen_rates(
    rates: Rates, ids: Iterable[str], before: Mapping[str, LimitSpec], now: Mapping[str, LimitSpec]
) -> Rates:
    """The least and the greatest amounts since a reservation on these identities, updated for new limits."""
    out = dict(rates)
    for id in ids:
        was, most = before[id].max_units, now[id].max_units
        if was != most:
            least, greatest = out.get(id, (was, was))
            out[id] = min(least, most), max(greatest, most)
    return out


def sums(draws: Iterable[Draw]) -> dict[Account, int]:
    """The sum of the draws by account. A draw of zero is left out."""
    out: dict[Account, int] = {}
    for draw in draws:
        if draw.amount > 0:
            out[draw.limit, draw.key] = out.get((draw.limit, draw.key), 0) + draw.amount
    return out


def no_room(
    specs: Mapping[str, LimitSpec], taken: Callable[[str, str], int], wanted: Mapping[Account, int]
) -> tuple[Refused, Account] | None:
    """The first account without room for concurrent requests, or None. ``taken`` returns how many slots of an account
    are in use."""
    for (limit, key), amount in wanted.items():
        most, name = specs[limit].max_units, specs[limit].name
        if amount > most:
            return Refused(
                name, "never", detail=f"limit {name}: one request needs {amount} slots, more than the limit's {most}"
            ), (
                limit,
                key,
            )
        if taken(limit, key) + amount > most:
            return Refused(name, "full", detail=f"limit {name}: all {most} slots are in use"), (limit, key)
    return None


def shares(specs: Mapping[str, LimitSpec], drawn: Iterable[tuple[str, int]]) -> dict[str, float]:
    """The drawn share of each limit; the fullest account counts."""
    out: dict[str, float] = {}
    for limit, level in drawn:
        out[limit] = max(out.get(limit, 0.0), level / max(1, specs[limit].max_units))
    return out
