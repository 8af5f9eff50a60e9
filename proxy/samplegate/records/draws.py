"""What is drawn on limits, counted: reservations, waits, how full they are, overruns. Not the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.records.metrics import Metrics

WAITED: Final = 0.05  # seconds: less is the store's own time, not a wait for room
USED: Final = "samplegate_limit_used_ratio"


class Draws:
    """Counts for the limits of one policy."""

    def __init__(self, terms: Mapping[str, Terms], metrics: Metrics) -> None:
        self._terms = terms
        self._metrics = metrics

    def reserved(self, draws: Sequence[Draw], answer: Reserved | Refused, wait: float | None) -> None:
        """A reservation and what came of it; ``wait`` is the seconds that it took where it might wait, else None."""
        waited = (wait or 0.0) > WAITED
        if isinstance(answer, Refused):
            names, result = [answer.limit], "unavailable" if answer.why == "unavailable" else "refused"
        else:
            names, result = sorted({draw.limit for draw in draws}), "waited" if waited else "granted"
            for name, share in answer.fill.items():
                self._metrics.set(USED, share, limit=name)
        for name in names:
            self._metrics.count("samplegate_limit_reservations_total", limit=name, result=result)
            if wait is not None and (waited or isinstance(answer, Refused)):
                self._metrics.observe("samplegate_limit_wait_seconds", wait, limit=name)

    def settled(self, reserved: Reserved, actual: Sequence[Draw]) -> list[str]:
        """A correction; the limits that it came over what was reserved on. Slots are free again, whatever is said of them."""
        true = {(draw.limit, draw.key): draw.amount for draw in actual}
        over: list[str] = []
        for draw in reserved.draws:
            terms = self._terms[draw.limit]
            amount = 0 if terms.per == "slots" else true.get((draw.limit, draw.key), 0)
            self._metrics.set(USED, max(0.0, self._metrics.value(USED, limit=draw.limit) + (amount - draw.amount) / terms.most), limit=draw.limit)
            if amount > draw.amount:
                self._metrics.count("samplegate_limit_overruns_total", limit=draw.limit)
                over.append(draw.limit)
        return over
