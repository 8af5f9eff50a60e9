"""Observers that feed the metrics, the log and the summary: HTTP requests, notes of sessions, reservations on limits,
records.

Peers choose names, and how often events happen. So metrics use classes of names, and the log has the first events of a
kind and then only counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from samplegate.audit.record import Record, Released, comes_again, may_be_revoked
from samplegate.audit.verdict import MEANINGS, STRICT, FailOn, RunCounts, words_of
from samplegate.errors import Log
from samplegate.money import dollars
from samplegate.policy.decisions import detail_without_rule
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Refused, Reserved
from samplegate.protocol.frames import CALLS
from samplegate.protocol.rounds import Note
from samplegate.telemetry.metrics import Metrics

_BEGIN: Final = frozenset({"initialize", "server/discover"})
_LISTEN: Final = "subscriptions/listen"


def method_class(http: str, method: str | None) -> str:
    """``begin``, ``call``, ``end``, ``message``, ``stream`` or ``other``, from the HTTP verb and the JSON-RPC method
    (None for a response)."""
    if http != "POST":
        return {"GET": "stream", "DELETE": "end"}.get(http, "other")
    if method is None or method.startswith("notifications/"):
        return "message"
    if method in CALLS:
        return "call"
    if method in _BEGIN:
        return "begin"
    return "stream" if method == _LISTEN else "other"


def status_class(status: int | None) -> str:
    """``2xx`` and so on; ``gone`` for None, ``other`` for a number that is no HTTP status."""
    if status is None:
        return "gone"
    return f"{status // 100}xx" if 100 <= status < 600 else "other"


MAX_LOGGED: Final = 20  # of an event; after that the 100th, the 1000th and so on
DROPPED: Final = "samplegate_frames_dropped_total"
COUNTED: Final[Mapping[str, str]] = {
    "frame.refused": "samplegate_frames_refused_total",
    "frame.unasked": DROPPED,
    "frame.oversized": DROPPED,
    "frame.failed": DROPPED,
}
"""Events of lost or refused frames, and their metrics. The metric's ``reason`` is the second half of the event."""


class NoteLog:
    """Counts and logs the notes of one session. ``count`` must be called while a fault is handled, so that its
    traceback is logged."""

    def __init__(self, log: Log, metrics: Metrics, server: str) -> None:
        self._log = log
        self._metrics = metrics
        self._server = server
        self._seen: Counter[str] = Counter()

    def count(self, note: Note) -> None:
        """Count a note, and log it unless there were too many of its event."""
        if note.event in COUNTED:
            reason = note.event.partition(".")[2]
            self._metrics.count(COUNTED[note.event], server=self._server, side=note.fields.get("side"), reason=reason)
        if not note.warn:
            self._log.debug(note.event, **note.fields)
            return
        self._seen[note.event] += 1
        count = self._seen[note.event]
        if count <= MAX_LOGGED:
            self._tell(note, {})
        elif _is_round(count):
            self._tell(note, {"count": count})

    def summary(self) -> str:
        """``not every event is in the log: 5120 frame.refused``; empty if the log has all."""
        many = ", ".join(f"{count} {event}" for event, count in sorted(self._seen.items()) if count > MAX_LOGGED)
        return f"not every event is in the log: {many}" if many else ""

    def _tell(self, note: Note, more: Mapping[str, object]) -> None:
        tell = self._log.error if "exc_info" in note.fields else self._log.warning
        tell(note.event, **note.fields, **more)


def _is_round(count: int) -> bool:
    """Whether a count is a power of ten."""
    return str(count).strip("0") == "1"


MIN_WAIT: Final = 0.05  # seconds: less is the store's own time, not a wait for room
USED: Final = "samplegate_limit_used_ratio"


class LimitMetrics:
    """Metrics of the limits in force."""

    def __init__(self, specs: Mapping[str, LimitSpec], metrics: Metrics) -> None:
        self._specs = specs
        self._metrics = metrics
        self._used: dict[str, float] = {}

    def update_limits(self, specs: Mapping[str, LimitSpec]) -> None:
        """Put another policy's limits in force: remove the series of limits that are gone, and rescale the used shares
        to the new amounts."""
        before, self._specs = self._specs, specs
        for name, was in before.items():
            now = specs.get(name)
            if now is None:
                self._used.pop(name, None)
                self._metrics.forget(limit=name)
            elif used := self._used.get(name):
                self._set_used(
                    name, used * was.max_units / now.max_units if _counts_the_same(was, now) and now.max_units else 0.0
                )

    def count_reservation(self, draws: Sequence[Draw], answer: Reserved | Refused, wait: float | None) -> None:
        """Count a reservation and its result. ``wait``: the seconds it took if it was allowed to wait, else None."""
        waited = (wait or 0.0) > MIN_WAIT
        if isinstance(answer, Refused):
            names, result = [answer.limit], "unavailable" if answer.why == "unavailable" else "refused"
        else:
            names, result = sorted({draw.limit for draw in draws}), "waited" if waited else "granted"
            for name, share in answer.fill.items():
                if name in self._specs:
                    self._set_used(name, share)
        for name in names:
            if name not in self._specs:
                continue  # from a round under an earlier policy: the series must stay removed
            self._metrics.count("samplegate_limit_reservations_total", limit=name, result=result)
            if wait is not None and (waited or isinstance(answer, Refused)):
                self._metrics.observe("samplegate_limit_wait_seconds", wait, limit=name)

    def count_settlement(
        self, reserved: Reserved, actual: Sequence[Draw], under: Mapping[str, LimitSpec] | None = None
    ) -> list[str]:
        """Count a settlement. Returns the limits whose actual draw exceeds the reservation. Slots are always freed,
        whatever ``actual`` has for them.

        ``under`` are the limits for which its draws were measured, if they may no longer be in force. A limit that is
        gone or counts something else now has no series to change.
        """
        true = {(draw.limit, draw.key): draw.amount for draw in actual}
        measured = self._specs if under is None else under
        over: list[str] = []
        for draw in reserved.draws:
            was, spec = measured.get(draw.limit), self._specs.get(draw.limit)
            if was is None:
                continue
            amount = 0 if was.per == "slots" else true.get((draw.limit, draw.key), 0)
            if amount > draw.amount:
                over.append(draw.limit)
            if spec is not None and _counts_the_same(was, spec):
                self._correct(spec, amount - draw.amount)
        return over

    def _correct(self, spec: LimitSpec, more: int) -> None:
        if spec.max_units:
            self._set_used(spec.name, max(0.0, self._used.get(spec.name, 0.0) + more / spec.max_units))
        if more > 0:
            self._metrics.count("samplegate_limit_overruns_total", limit=spec.name)

    def _set_used(self, name: str, share: float) -> None:
        self._used[name] = share
        self._metrics.set(USED, share, limit=name)


def _counts_the_same(was: LimitSpec, now: LimitSpec) -> bool:
    """Whether a limit counts the same as before; its amount may differ."""
    return (was.quantity, was.per, was.period, was.tz, was.by) == (now.quantity, now.per, now.period, now.tz, now.by)


MAX_HANDED_ON: Final = 10_000  # requests whose second record is still to come
MAX_REVIEWED: Final = 10_000  # outcomes of verdicts that may still be revoked, within seconds
MAX_LISTED: Final = 50  # lines that --strict lists; the decision log has all


class Tally:
    """Counts the records of a process for the summary, the metrics and the verdict on its run. ``fail_on``: the words
    whose requests ``failures`` lists."""

    def __init__(self, metrics: Metrics, fail_on: Sequence[FailOn] = STRICT) -> None:
        self._metrics = metrics
        self._fail_on = frozenset(fail_on)
        self._words: Counter[str] = Counter()
        self._recorded = 0
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

    def count(self, record: Record) -> None:
        """Count one record. The two records of a request that the client retries count as one request, and so do a
        record and the one that revokes it.

        ``samplegate_requests_total`` counts every record, because a counter cannot decrease.
        """
        repeated = self._uncount(record)
        if comes_again(record.outcome, record.door):
            _remember(self._handed_on, record, MAX_HANDED_ON)
        elif may_be_revoked(record.outcome, record.review):
            _remember(self._reviewed, record, MAX_REVIEWED)
        self._outcomes[record.outcome] += 1
        words = _words(record)
        if words & self._fail_on:
            self._failed.append(record) if len(self._failed) < MAX_LISTED else None
        self._words.update(words - COUNTED_BY_OUTCOME - ({"escalated"} if repeated else set()))
        self._count(record)
        if not record.revokes:  # cost and attempts are in the earlier record
            self._count_once(record)
            self._count_models(record)

    def _uncount(self, record: Record) -> bool:
        """Take back the request's earlier record. Returns whether it had one."""
        before = (self._reviewed if record.revokes else self._handed_on).pop(record.decision_id, None)
        if before is not None:
            self._outcomes[before] -= 1
        if record.revokes:
            self._failed = [one for one in self._failed if one.decision_id != record.decision_id]
        return before is not None

    def count_recorded(self) -> None:
        """Count a line that was written to the decision log."""
        self._recorded += 1

    def count_dropped(self) -> None:
        """Count a message that was refused or dropped."""
        self._words["dropped"] += 1

    def count_fault(self, round: str) -> None:
        """Count a round that an internal error ended. It may have no record."""
        self._faults += 1
        if len(self._faulty) < MAX_LISTED:
            self._faulty.append(f"round {round}: not answered because of an internal error; see the log")

    def count_unanswered_call(self, method: str, tool: str | None) -> None:
        """Count a client's request that its server never answered."""
        self._left += 1
        if len(self._left_first) < MAX_LISTED:
            self._left_first.append(f"{method}{'' if tool is None else f' {tool}'}: the server did not answer")

    def count_refused_batch(self, count: int, fault: str) -> None:
        """Count the requests of a client's refused batch."""
        self._refused += count
        room = max(MAX_LISTED - len(self._refused_first), 0)
        self._refused_first += [f"a call in a refused batch: {fault}"] * min(count, room)

    @property
    def recorded(self) -> int:
        """The number of lines in the decision log."""
        return self._recorded

    @property
    def handed_on(self) -> int:
        """The number of requests that the client is to answer or to retry, and has not returned yet."""
        return len(self._handed_on)

    @property
    def final_counts(self) -> RunCounts:
        """The counts at the end of the process. Requests that the client was to return, or to retry, and never did are
        unanswered; another process of a daemon could still get them."""
        counts = self.counts
        return msgspec.structs.replace(counts, unanswered=counts.unanswered + len(self._handed_on))

    @property
    def counts(self) -> RunCounts:
        """Counts for the verdict on a run. Rounds ended by a fault, unanswered calls and calls of refused batches are
        unanswered."""
        return RunCounts(
            requests=sum(self._outcomes.values()),
            denied=self._outcomes["denied"],
            unanswered=self._outcomes["unanswered"] + self._faults + self._left + self._refused,
            **self._words,
        )

    def summary(self) -> str:
        """``3 requests: 2 answered, 1 unanswered``, then the cost, the limits that refused requests, and faults, if
        any."""
        total = sum(self._outcomes.values())
        parts = ", ".join(
            f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(self._outcomes.items()) if count
        )
        requests = f"{total} request{_plural(total)}: {parts}" if total else "no requests"
        limits = (f"limit {name} refused {count}" for name, count in sorted(self._refused_by.items()))
        faults = f"{self._faults} round{_plural(self._faults)} ended by an internal error" if self._faults else ""
        left = f"{self._left} call{_plural(self._left)} without an answer" if self._left else ""
        refused = f"{self._refused} call{_plural(self._refused)} refused" if self._refused else ""
        return "; ".join(filter(None, (requests, self._cost(), *limits, faults, left, refused)))

    def _cost(self) -> str:
        """``$0.0042 and 1 model call with unknown price``: an unknown price is never counted as zero."""
        known = dollars(self._spent) if self._spent else ""
        unknown = f"{self._unpriced} model call{_plural(self._unpriced)} with unknown price" if self._unpriced else ""
        return " and ".join(filter(None, (known, unknown)))

    def failures(self) -> list[str]:
        """A line for each request that meets a word of `--fail-on`. Of unanswered ones also each round ended by a
        fault, each unanswered call, and each call of a refused batch."""
        unanswered = (*self._faulty, *self._left_first, *self._refused_first) if "unanswered" in self._fail_on else ()
        lines = [*(_line(record) for record in self._failed), *unanswered]
        counts = self.counts
        gone = len(self._handed_on) if "unanswered" in self._fail_on else 0
        rest = sum(getattr(counts, word) for word in COUNTED_BY_OUTCOME & self._fail_on) - len(lines)
        lines += [f"and {rest} more"] if rest > 0 else []
        lines += [f"{gone} request{_plural(gone)} for the client to answer or retry: it did not return"] if gone else []
        alone = counts.met(self._fail_on & {"no_requests", "dropped"})
        return [*lines, *(f"{word}: {MEANINGS[word]}" for word in sorted(alone))]

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
            ids = (record.trace_id, record.span_id)
            exemplar = {"trace_id": ids[0], "span_id": ids[1]} if ids[0] is not None and ids[1] is not None else None
            self._metrics.observe(
                "samplegate_request_duration_seconds",
                seconds,
                exemplar,
                server=record.server,
                kind=record.kind,
                effect=record.effect,
            )
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
            self._metrics.count(
                "samplegate_fallbacks_total", model_from=failed.model, model_to=following.model, reason=failed.result
            )


COUNTED_BY_OUTCOME: Final = frozenset[FailOn]({"denied", "unanswered"})


def _words(record: Record) -> frozenset[FailOn]:
    return words_of(
        outcome=record.outcome,
        effect=record.effect,
        review=record.review,
        refused_by=record.refused_by,
        unpriced=any(attempt.usd is None for attempt in record.attempts),
    )


def _remember(outcomes: dict[str, Released], record: Record, most: int) -> None:
    outcomes[record.decision_id] = record.outcome
    if len(outcomes) > most:
        del outcomes[next(iter(outcomes))]


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _line(record: Record) -> str:
    rule = f"rule {record.rule!r}" if record.rule is not None else "no rule"
    tools = ", ".join(call.tool or call.method for call in record.calls)
    during = f"during {tools}" if tools else "outside any call"
    detail = detail_without_rule(record.detail, record.rule)
    said = f": {detail}" if detail else ""
    return (
        f"{record.kind} {during}: {record.outcome} ({record.reason.value}, {rule}){said} [decision"
        f" {record.decision_id}]"
    )
