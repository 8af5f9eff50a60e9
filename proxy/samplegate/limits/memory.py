"""The accounts and slots of this process, gone with it. Neither their rules (``core/ledger.py``) nor what processes share (``shared.py``)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from samplegate.core import ledger
from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.limits.filling import levels, shares
from samplegate.limits.slots import Account, Arrival, no_room, sums

MOST_ACCOUNTS: Final = 1_000_000  # some 400 MiB; keys come from clients and servers, so there must be an end
LOOKED_AT: Final = 4  # accounts that a draw looks at for idle ones: more than it can add, so the idle never outnumber the others for long
WHEN_FULL: Final = 1_000
_NONE: Final = MappingProxyType[str, tuple[int, int]]({})


class Memory:
    """Accounts by limit and key. ``terms`` are those of the limits that are not shared, by what draws call them: the ids of their editions."""

    def __init__(self, terms: Mapping[str, Terms], most: int = MOST_ACCOUNTS) -> None:
        self._terms = terms
        self._most = most
        self._accounts: OrderedDict[Account, ledger.Account] = OrderedDict()  # a plain dict would walk over its holes to find the first
        self._slots: dict[Account, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._accounts) + len(self._slots)

    def amend(self, terms: Mapping[str, Terms]) -> None:
        """Other terms from here on. Accounts of limits that are not among them are forgotten little by little, as idle ones are."""
        self._terms = terms

    def leave(self, limits: Collection[str]) -> Arrival:
        """Take the accounts and slots of some limits out, for the state."""
        arrival = Arrival(
            {account: one for account, one in self._accounts.items() if account[0] in limits},
            {account: held for account, held in self._slots.items() if account[0] in limits},
        )
        for account in arrival.accounts:
            del self._accounts[account]
        for account in arrival.slots:
            del self._slots[account]
        return arrival

    def drawn(self, now: float) -> dict[Account, int]:
        """What is drawn on every account, and how many slots of it are held."""
        taken = {account: sum(held.values()) for account, held in self._slots.items()}
        return {(limit, key): ledger.drawn(self._terms[limit], account, now) for (limit, key), account in self._accounts.items()} | taken

    def reserve(self, id: str, draws: Sequence[Draw], now: float) -> Reserved | Refused:
        """Charge all of the draws, or none."""
        slots = sums(draw for draw in draws if self._terms[draw.limit].per == "slots")
        counted = [draw for draw in draws if self._terms[draw.limit].per != "slots"]
        self._forget_idle(now, LOOKED_AT * len(counted))
        full = no_room(self._terms, self._taken, slots)
        refused = self._too_many(draws, now) if full is None else full[0]
        if refused is not None:
            return refused
        charged = ledger.reserve(self._terms, self._look, counted, now)
        if isinstance(charged, Refused):
            self._accounts.update(ledger.set_back(self._terms, self._look, counted, now))
            return charged
        changes, warned = charged
        self._accounts.update(changes)
        for account, amount in slots.items():
            self._slots.setdefault(account, {})[id] = amount
        taken = {account: self._taken(*account) for account in slots}
        return Reserved(id, tuple(draws), now, warned, shares(self._terms, levels(changes, taken)))

    def settle(self, reserved: Reserved, actual: Sequence[Draw], now: float, rates: ledger.Rates = _NONE) -> None:
        """Correct what was charged, free the slots."""
        for draw in reserved.draws:
            self._free((draw.limit, draw.key), reserved.id)
        counted = msgspec.structs.replace(reserved, draws=tuple(draw for draw in reserved.draws if self._terms[draw.limit].per != "slots"))
        if counted.draws:
            true = [draw for draw in actual if self._terms[draw.limit].per != "slots"]
            self._accounts.update(ledger.settle(self._terms, self._look, counted, true, now, rates=rates))

    def undo(self, reserved: Reserved, now: float, rates: ledger.Rates = _NONE) -> None:
        """As if it had never been: a warning that nobody got is due again."""
        self.settle(reserved, (), now, rates)
        for draw in reserved.draws:
            account = self._accounts.get((draw.limit, draw.key))
            if account is not None and draw.limit in reserved.warned:
                self._accounts[draw.limit, draw.key] = msgspec.structs.replace(account, warned=False)

    def _look(self, limit: str, key: str) -> ledger.Account | None:
        return self._accounts.get((limit, key))

    def _taken(self, limit: str, key: str) -> int:
        return sum(self._slots.get((limit, key), {}).values())

    def _free(self, account: Account, id: str) -> None:
        held = self._slots.get(account)
        if held is not None:
            held.pop(id, None)
            if not held:
                del self._slots[account]

    def _too_many(self, draws: Sequence[Draw], now: float) -> Refused | None:
        wanted = {(draw.limit, draw.key) for draw in draws}
        new = {account for account in wanted if account not in self._accounts and account not in self._slots}
        if len(self) + len(new) <= self._most:
            return None
        self._forget_idle(now, WHEN_FULL)
        if len(self) + len(new) <= self._most:
            return None
        limit = self._terms[min(new)[0]].name
        return Refused(limit, "unavailable", detail=f"limit {limit}: {self._most} accounts are in use; count it by fewer things")

    def _forget_idle(self, now: float, count: int) -> None:
        """Look at the next accounts in turn; who is not idle goes to the end."""
        for _ in range(min(count, len(self._accounts))):
            (limit, key), account = self._accounts.popitem(last=False)
            terms = self._terms.get(limit)
            if terms is not None and not ledger.idle(terms, account, now):
                self._accounts[limit, key] = account
