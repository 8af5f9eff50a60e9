"""What came of a process's requests, counted: for the line at the end, for ``--strict`` and for the metrics. Not the decision log."""

from __future__ import annotations

from collections import Counter
from typing import Final

from samplegate.core.record import Record
from samplegate.records.metrics import Metrics

MAX_LISTED: Final = 50  # what --strict lists; the decision log has them all


class Tally:
    """Sees every record of a process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._outcomes: Counter[str] = Counter()
        self._failed: list[Record] = []
        self._faults = 0
        self._faulty: list[str] = []

    def take(self, record: Record) -> None:
        """Count one record."""
        self._outcomes[record.outcome] += 1
        if record.outcome in ("denied", "unanswered"):
            self._failed.append(record) if len(self._failed) < MAX_LISTED else None
        self._count(record)

    def fault(self, round: str) -> None:
        """Count one round that a fault of the gate's own ended, which may have no record."""
        self._faults += 1
        if len(self._faulty) < MAX_LISTED:
            self._faulty.append(f"round {round}: unanswered by a fault in the gate; the log has it")

    @property
    def failed(self) -> int:
        """How many requests ended Denied or Unanswered, and rounds by a fault."""
        return self._outcomes["denied"] + self._outcomes["unanswered"] + self._faults

    def summary(self) -> str:
        """``3 requests: 2 answered, 1 denied``, and ``1 round ended by a fault`` where there was one."""
        total = sum(self._outcomes.values())
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))
        requests = f"{total} request{'s' if total > 1 else ''}: {parts}" if total else "no requests"
        return f"{requests}; {self._faults} round{'s' if self._faults > 1 else ''} ended by a fault" if self._faults else requests

    def failures(self) -> list[str]:
        """One line for each request that ended Denied or Unanswered."""
        lines = [*(_line(record) for record in self._failed), *self._faulty]
        rest = self.failed - len(lines)
        return [*lines, f"and {rest} more; the decision log has them"] if rest else lines

    def _count(self, record: Record) -> None:
        decided_by = record.decided_by or "none"
        self._metrics.count(
            "samplegate_requests_total",
            server=record.server,
            kind=record.kind,
            effect=record.effect,
            outcome=record.outcome,
            reason=record.reason.value,
            decided_by=decided_by,
        )
        if record.duration_ms is not None:
            seconds = record.duration_ms / 1000
            self._metrics.observe("samplegate_request_duration_seconds", seconds, server=record.server, kind=record.kind, effect=record.effect)
        for shadow in record.shadows:
            self._metrics.count("samplegate_shadow_decisions_total", server=record.server, kind=record.kind, effect=shadow.effect)


def _line(record: Record) -> str:
    rule = f"rule {record.rule!r}" if record.rule is not None else "no rule"
    during = ", ".join(call.tool or call.method for call in record.calls) or "no call"
    said = f": {record.detail}" if record.detail else ""
    return f"{record.kind} during {during}: {record.outcome} ({record.reason.value}, {rule}){said} [decision {record.decision_id}]"
