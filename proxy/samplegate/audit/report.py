"""Pure. Summary of decision logs: requests, models, cost, refusals, limits and reviews by server.

The sums stay small for any number of lines: distinct names are bounded, and durations are counted in buckets of 2%.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, get_args

from samplegate.audit.record import RecordedTry, RecordLine, Released, comes_again
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import Failure

MAX_NAMES: Final = 1_000
"""Distinct names of one sort that are counted separately: peers name tools, and a log may come from anywhere."""
OTHERS: Final = "(others)"
OTHER: Final = "other"
OUTCOMES: Final = get_args(Released)
NO_CALL: Final = "(no call)"
UNDECIDED: Final = "undecided"
MAX_HANDED_ON: Final = 100_000  # requests whose second record is still to come
_CLASS: Final = math.log(1.02)
_MIN_DURATION: Final = 0.001  # milliseconds
_MAX_COST: Final = 1e12  # dollars
_FAILURES: Final = frozenset({*get_args(Failure), "cancelled"})


class Durations:
    """Durations of requests, in buckets of 2%."""

    def __init__(self) -> None:
        self._classes: Counter[int] = Counter()

    def add(self, milliseconds: float) -> None:
        """Count a duration."""
        self._classes[round(math.log(max(milliseconds, _MIN_DURATION)) / _CLASS)] += 1

    def quantile(self, share: float) -> float | None:
        """The quantile in milliseconds, within 1%; None without durations."""
        wanted, seen = math.ceil(share * self._classes.total()), 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= wanted:
                return math.exp(number * _CLASS)
        return None


class Names(dict[str, Counter[str]]):
    """Counters by name, at most MAX_NAMES; all other names share OTHERS."""

    def of(self, name: str) -> Counter[str]:
        """The counter for a name."""
        if name not in self and len(self) >= MAX_NAMES:
            name = OTHERS
        return self.setdefault(name, Counter())


class KindReport:
    """The requests of one kind from one server."""

    def __init__(self) -> None:
        self.requests = 0
        self.outcomes: Counter[str] = Counter()
        self.durations = Durations()


class ServerReport:
    """The requests of one server."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindReport] = {}
        self.callers = Names()
        self.rules = Names()
        """By ``effect`` and rule, such as ``allow: docs may summarise``."""
        self.tools = Names()
        """The tools, or calls of other methods, during which it asked. All candidates of a request count."""
        self.refusals = Names()
        """Why requests were denied or not answered: reason and rule."""
        self.limits = Names()
        """Limits without room."""
        self.models = Names()
        """Models that answered, by their provider's name: requests, input_tokens, output_tokens."""
        self.attempts = Names()
        """Calls of models, by the policy's name: calls, input_tokens, output_tokens, units (of ``ledger.SCALE``),
        unpriced, and failures by name."""
        self.reviews = Names()
        """Reviews by reviewer: reviews, approved, answered, rejected, and UNDECIDED for those without a verdict."""
        self.doors = Names()
        """How reviewers decided."""
        self.reviewed = Durations()
        """Waits for verdicts that were used, including verdicts that existed before."""
        self.usd = 0.0
        self.unpriced = 0
        """Requests that called a model with an unknown price."""

    @property
    def requests(self) -> int:
        """The number of requests of all kinds."""
        return sum(kind.requests for kind in self.kinds.values())


class Report:
    """Sums the records of several logs. ``record.settled`` merges revoked records first."""

    def __init__(self, since: str = "") -> None:
        """``since``: the earliest time to count, in the format of the records."""
        self.servers: dict[str, ServerReport] = {}
        self.first = ""
        self.last = ""
        self._since = since
        self._handed_on: dict[str, str] = {}

    def add(self, line: RecordLine) -> None:
        """Count one record. The two records of a request that the client retries count as one request."""
        if line.time < self._since:
            return
        self.first = min(self.first or line.time, line.time)
        self.last = max(self.last, line.time)
        server = self._server(line.server)
        kind = server.kinds.setdefault(line.kind, KindReport())
        before = self._handed_on.pop(line.decision_id, None)
        if before is not None:
            kind.outcomes[before] -= 1
        else:
            kind.requests += 1
            _count_request(server, line)
        if comes_again(line.outcome, line.door):
            self._hand_on(line.decision_id, line.outcome)
        kind.outcomes[line.outcome if line.outcome in OUTCOMES else OTHER] += 1
        if line.duration_ms is not None and line.outcome not in ("forwarded", "put_off"):
            kind.durations.add(line.duration_ms)
        _count_outcome(server, line, paid=before == "put_off")

    def _server(self, name: str) -> ServerReport:
        if name not in self.servers and len(self.servers) >= MAX_NAMES:
            name = OTHERS
        return self.servers.setdefault(name, ServerReport())

    def _hand_on(self, decision_id: str, outcome: str) -> None:
        self._handed_on[decision_id] = outcome
        if len(self._handed_on) > MAX_HANDED_ON:
            del self._handed_on[next(iter(self._handed_on))]


def _count_request(server: ServerReport, line: RecordLine) -> None:
    server.callers.of(line.caller)["requests"] += 1
    server.rules.of(f"{line.effect}: {'no rule' if line.rule is None else line.rule}")["requests"] += 1
    for name in dict.fromkeys(call.tool or call.method for call in line.calls) or [NO_CALL]:
        server.tools.of(name)["requests"] += 1


def _count_outcome(server: ServerReport, line: RecordLine, *, paid: bool) -> None:
    """Count an outcome. ``paid``: the earlier record has the model's cost."""
    if line.outcome in ("denied", "unanswered"):
        server.refusals.of(f"{line.reason}: {'no rule' if line.rule is None else line.rule}")["requests"] += 1
    if line.refused_by is not None:
        server.limits.of(line.refused_by)["requests"] += 1
    for tried in line.attempts:
        _count_attempt(server.attempts.of(tried.model), tried)
    if line.reviewer is not None and line.outcome != "put_off":
        _count_review(server, line, line.reviewer, paid=paid)
    if line.effect == "allow" or line.attempts:  # a model that timed out cost something, even if another rule answered
        _add_cost(server, line, paid=paid)


def _count_review(server: ServerReport, line: RecordLine, reviewer: str, *, paid: bool) -> None:
    server.reviews.of(reviewer).update({"reviews": 1, _verdict(line, paid=paid): 1})
    if line.review_door is not None and not line.revokes:
        server.doors.of(line.review_door)["requests"] += 1
        if line.reviewed_ms is not None:
            server.reviewed.add(line.reviewed_ms)


def _verdict(line: RecordLine, *, paid: bool) -> str:
    """The verdict as far as a record shows it: an approved request may have failed later. A verdict counts if it was
    used."""
    if line.review_door is None or line.revokes:
        return UNDECIDED
    if line.outcome == "denied" and line.reason == "review":
        return "rejected"
    return "answered" if line.outcome == "answered" and not (line.attempts or paid) else "approved"


def _count_attempt(counts: Counter[str], tried: RecordedTry) -> None:
    counts.update({"calls": 1, "input_tokens": tried.input_tokens or 0, "output_tokens": tried.output_tokens or 0})
    if _is_known(tried.cost_usd):
        counts["units"] += round((tried.cost_usd or 0) * SCALE["usd"])
    else:
        counts["unpriced"] += 1
    if tried.result != "ok":
        counts[tried.result if tried.result in _FAILURES else OTHER] += 1


def _add_cost(server: ServerReport, line: RecordLine, *, paid: bool) -> None:
    """Sum the cost of models, including unused answers. Calls with an unknown price are not summed; their request is
    counted."""
    costs_something = line.cost_usd is not None or (line.outcome == "answered" and not paid)
    costs = [tried.cost_usd for tried in line.attempts] or ([line.cost_usd] if costs_something else [])
    server.usd += sum(cost for cost in costs if cost is not None and _is_known(cost))
    if not all(map(_is_known, costs)):
        server.unpriced += 1
    if line.effect in ("allow", "escalate") and line.outcome in ("answered", "put_off") and line.model is not None:
        found = server.models.of(line.model)
        found.update(
            {
                "requests": int(line.outcome == "answered"),
                "input_tokens": line.input_tokens or 0,
                "output_tokens": line.output_tokens or 0,
            }
        )


def _is_known(cost: float | None) -> bool:
    """Whether a cost is a valid number: a log may come from anywhere."""
    return cost is not None and 0 <= cost < _MAX_COST
