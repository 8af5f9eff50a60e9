"""What is drawn on limits, counted: reservations, waits, how full they are, overruns. Not the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.records.metrics import Metrics

WAITED: Final = 0.05  # seconds: less is the store's own time, not a wait for room
USED: Final = "samplegate_limit_used_ratio"


class Draws:
    """Counts for the limits of the policy in force."""

    def __init__(self, terms: Mapping[str, Terms], metrics: Metrics) -> None:
        self._terms = terms
        self._metrics = metrics
        self._used: dict[str, float] = {}

    def amend(self, terms: Mapping[str, Terms]) -> None:
        """Another policy is in force: the series of limits that it lacks are gone, and how full the others are is told of their new amounts."""
        before, self._terms = self._terms, terms
        for name, was in before.items():
            now = terms.get(name)
            if now is None:
                self._used.pop(name, None)
                self._metrics.forget(limit=name)
            elif used := self._used.get(name):
                self._set_used(name, used * was.most / now.most if _goes_on(was, now) and now.most else 0.0)

    def reserved(self, draws: Sequence[Draw], answer: Reserved | Refused, wait: float | None) -> None:
        """A reservation and what came of it; ``wait`` is the seconds that it took where it might wait, else None."""
        waited = (wait or 0.0) > WAITED
        if isinstance(answer, Refused):
            names, result = [answer.limit], "unavailable" if answer.why == "unavailable" else "refused"
        else:
            names, result = sorted({draw.limit for draw in draws}), "waited" if waited else "granted"
            for name, share in answer.fill.items():
                if name in self._terms:
                    self._set_used(name, share)
        for name in names:
            if name not in self._terms:
                continue  # a round of a policy that is not in force any more: its series is forgotten, and stays so
            self._metrics.count("samplegate_limit_reservations_total", limit=name, result=result)
            if wait is not None and (waited or isinstance(answer, Refused)):
                self._metrics.observe("samplegate_limit_wait_seconds", wait, limit=name)

    def settled(self, reserved: Reserved, actual: Sequence[Draw], under: Mapping[str, Terms] | None = None) -> list[str]:
        """A correction; the limits that it came over what was reserved on. Slots are free again, whatever is said of them.

        ``under`` are the terms that its draws were measured for, where those may not be in force any more. A limit that there is not now, or that
        counts something else, has no series that it could change.
        """
        true = {(draw.limit, draw.key): draw.amount for draw in actual}
        measured = self._terms if under is None else under
        over: list[str] = []
        for draw in reserved.draws:
            was, terms = measured.get(draw.limit), self._terms.get(draw.limit)
            if was is None:
                continue
            amount = 0 if was.per == "slots" else true.get((draw.limit, draw.key), 0)
            if amount > draw.amount:
                over.append(draw.limit)
            if terms is not None and _goes_on(was, terms):
                self._correct(terms, amount - draw.amount)
        return over

    def _correct(self, terms: Terms, more: int) -> None:
        if terms.most:
            self._set_used(terms.name, max(0.0, self._used.get(terms.name, 0.0) + more / terms.most))
        if more > 0:
            self._metrics.count("samplegate_limit_overruns_total", limit=terms.name)

    def _set_used(self, name: str, share: float) -> None:
        self._used[name] = share
        self._metrics.set(USED, share, limit=name)


def _goes_on(was: Terms, now: Terms) -> bool:
    """Whether a limit counts the same as before, whatever its amount is."""
    return (was.quantity, was.per, was.period, was.tz, was.by) == (now.quantity, now.per, now.period, now.tz, now.by)
