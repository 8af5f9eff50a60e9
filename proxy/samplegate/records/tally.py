"""What came of a process's requests and what they cost, counted: for the line at the end, for ``--strict`` and for the metrics.

Not the decision log, and not how full limits are and how long models take: whoever asks them counts that.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Final

from samplegate.core.ledger import SCALE
from samplegate.core.record import Record, Released, comes_again, may_be_revoked
from samplegate.records.metrics import Metrics

MAX_HANDED_ON: Final = 10_000  # forwards whose second record is still to come
MAX_REVIEWED: Final = 10_000  # outcomes by a verdict that may be revoked yet, within seconds
MAX_LISTED: Final = 50  # what --strict lists; the decision log has them all


class Tally:
    """Sees every record of a process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._outcomes: Counter[str] = Counter()
        self._failed: list[Record] = []
        self._spent = 0
        self._unpriced = 0
        self._refused_by: Counter[str] = Counter()
        self._handed_on: dict[str, Released] = {}
        self._reviewed: dict[str, Released] = {}
        self._faults = 0
        self._faulty: list[str] = []
        self._left = 0
        self._left_first: list[str] = []
        self._refused = 0
        self._refused_first: list[str] = []

    def take(self, record: Record) -> None:
        """Count one record. The two of a request whose client comes back are one request, and so are a record and the one that revokes it.

        Except in the metrics, where nothing is taken back.
        """
        self._take_back(record)
        if comes_again(record.outcome, record.door):
            _keep(self._handed_on, record, MAX_HANDED_ON)
        elif may_be_revoked(record.outcome, record.review):
            _keep(self._reviewed, record, MAX_REVIEWED)
        self._outcomes[record.outcome] += 1
        if record.outcome in ("denied", "unanswered"):
            self._failed.append(record) if len(self._failed) < MAX_LISTED else None
        self._count(record)
        if not record.revokes:  # what was spent and tried stands in the record before
            self._count_once(record)
            self._count_models(record)

    def _take_back(self, record: Record) -> None:
        before = (self._reviewed if record.revokes else self._handed_on).pop(record.decision_id, None)
        if before is not None:
            self._outcomes[before] -= 1
        if record.revokes:
            self._failed = [one for one in self._failed if one.decision_id != record.decision_id]

    def fault(self, round: str) -> None:
        """Count one round that a fault of the gate's own ended, which may have no record."""
        self._faults += 1
        if len(self._faulty) < MAX_LISTED:
            self._faulty.append(f"round {round}: unanswered by a fault in the gate; the log has it")

    def left(self, method: str, tool: str | None) -> None:
        """Count one request of a client that its server never answered."""
        self._left += 1
        if len(self._left_first) < MAX_LISTED:
            self._left_first.append(f"{method}{'' if tool is None else f' {tool}'}: the server did not answer")

    def refused(self, count: int, fault: str) -> None:
        """Count the requests of a client's batch that was refused."""
        self._refused += count
        room = max(MAX_LISTED - len(self._refused_first), 0)
        self._refused_first += [f"a call in a batch: refused, because {fault}"] * min(count, room)

    @property
    def failed(self) -> int:
        """How many requests ended Denied or Unanswered, rounds by a fault, calls without an answer, and calls of refused batches."""
        return self._outcomes["denied"] + self._outcomes["unanswered"] + self._faults + self._left + self._refused

    def summary(self) -> str:
        """``3 requests: 2 answered, 1 unanswered``, then the cost, the limits that refused some, and faults, where there were any."""
        total = sum(self._outcomes.values())
        parts = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(self._outcomes.items()) if count)
        requests = f"{total} request{_s(total)}: {parts}" if total else "no requests"
        limits = (f"limit {name} refused {count}" for name, count in sorted(self._refused_by.items()))
        faults = f"{self._faults} round{_s(self._faults)} ended by a fault" if self._faults else ""
        left = f"{self._left} call{_s(self._left)} without an answer" if self._left else ""
        refused = f"{self._refused} call{_s(self._refused)} refused" if self._refused else ""
        return "; ".join(filter(None, (requests, self._cost(), *limits, faults, left, refused)))

    def _cost(self) -> str:
        """``0.0042 USD and 1 model call of unknown price``: what is unknown is said, never taken as nothing."""
        known = f"{dollars(self._spent)} USD" if self._spent else ""
        unknown = f"{self._unpriced} model call{_s(self._unpriced)} of unknown price" if self._unpriced else ""
        return " and ".join(filter(None, (known, unknown)))

    def failures(self) -> list[str]:
        """One line for each request that ended Denied or Unanswered, each call without an answer, and each call of a refused batch."""
        lines = [*(_line(record) for record in self._failed), *self._faulty, *self._left_first, *self._refused_first]
        rest = self.failed - len(lines)
        return [*lines, f"and {rest} more"] if rest else lines

    def _count(self, record: Record) -> None:
        self._metrics.count(
            "samplegate_requests_total",
            server=record.server,
            kind=record.kind,
            rule=record.rule,
            effect=record.effect,
            outcome=record.outcome,
            reason=record.reason.value,
            decided_by=record.decided_by,
        )

    def _count_once(self, record: Record) -> None:
        if record.refused_by is not None:
            self._refused_by[record.refused_by] += 1
        if record.duration_ms is not None:
            seconds = record.duration_ms / 1000
            self._metrics.observe("samplegate_request_duration_seconds", seconds, server=record.server, kind=record.kind, effect=record.effect)
        for shadow in record.shadows:
            labels = {"server": record.server, "kind": record.kind, "rule": shadow.rule, "effect": shadow.effect}
            self._metrics.count("samplegate_shadow_decisions_total", **labels)

    def _count_models(self, record: Record) -> None:
        for attempt in record.attempts:
            self._metrics.count("samplegate_model_calls_total", model=attempt.model, result=attempt.result)
            labels = {"server": record.server, "model": attempt.model, "rule": record.rule}
            if attempt.usd is None:
                self._unpriced += 1
                self._metrics.count("samplegate_unpriced_calls_total", **labels)
            else:
                self._spent += attempt.usd
                self._metrics.count("samplegate_cost_usd_total", attempt.usd / SCALE["usd"], **labels)
        for failed, following in pairwise(record.attempts):
            self._metrics.count("samplegate_fallbacks_total", model_from=failed.model, model_to=following.model, reason=failed.result)


def _keep(outcomes: dict[str, Released], record: Record, most: int) -> None:
    outcomes[record.decision_id] = record.outcome
    if len(outcomes) > most:
        del outcomes[next(iter(outcomes))]


def dollars(units: int) -> str:
    """``ledger.SCALE["usd"]`` units as dollars: two decimals from one dollar on, below that as many as two digits need."""
    amount = Decimal(units).scaleb(-12)
    places = 2 if not amount or amount >= 1 else 1 - amount.adjusted()
    return f"{amount:.{places}f}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _line(record: Record) -> str:
    rule = f"rule {record.rule!r}" if record.rule is not None else "no rule"
    during = ", ".join(call.tool or call.method for call in record.calls) or "no call"
    said = f": {record.detail}" if record.detail else ""
    return f"{record.kind} during {during}: {record.outcome} ({record.reason.value}, {rule}){said} [decision {record.decision_id}]"
