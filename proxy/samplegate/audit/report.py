"""Pure. What decision logs come to: who asks, how often, with which models, at what cost, and what came of it. Sums of
lines; pure, and not their print.

However many lines there are, the sums stay small: distinct names are bounded, and durations are counted in classes of 2
%.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, get_args

from samplegate.audit.record import RecordedTry, RecordLine, Released, comes_again
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import Failure

MAX_NAMES: Final = 1_000
"""Distinct names of one sort that are counted by themselves: tools are named by peers, and a log may be anybody's."""
OTHERS: Final = "(others)"
OTHER: Final = "other"
OUTCOMES: Final = get_args(Released)
NO_CALL: Final = "(no call)"
UNDECIDED: Final = "undecided"
MAX_HANDED_ON: Final = 100_000  # forwards whose second record is still to come
_CLASS: Final = math.log(1.02)
_LEAST: Final = 0.001  # milliseconds
_MOST: Final = 1e12  # dollars
_FAILURES: Final = frozenset({*get_args(Failure), "cancelled"})


class Durations:
    """How long requests took, in classes of 2 %."""

    def __init__(self) -> None:
        self._classes: Counter[int] = Counter()

    def add(self, milliseconds: float) -> None:
        """Count one."""
        self._classes[round(math.log(max(milliseconds, _LEAST)) / _CLASS)] += 1

    def quantile(self, share: float) -> float | None:
        """Milliseconds within which that share of them was done, within 1 %; None without any."""
        wanted, seen = math.ceil(share * self._classes.total()), 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= wanted:
                return math.exp(number * _CLASS)
        return None


class Names(dict[str, Counter[str]]):
    """Counters by name, at most MAX_NAMES of them; the rest is one, OTHERS."""

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
    """What one server asked."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindReport] = {}
        self.callers = Names()
        self.rules = Names()
        """By ``effect`` and rule, as ``allow: docs may summarise``."""
        self.tools = Names()
        """The tools during which it asked, or the calls that are no tool's; of several candidates each."""
        self.refusals = Names()
        """Why requests were denied or left unanswered: reason and rule."""
        self.limits = Names()
        """Limits that had no room."""
        self.models = Names()
        """Models that answered, as their providers call them: requests, input_tokens, output_tokens."""
        self.attempts = Names()
        """Calls of models, by our names: calls, input_tokens, output_tokens, units (of ``ledger.SCALE``), unpriced, and
        failures by their names."""
        self.reviews = Names()
        """What came of reviews, by reviewer: reviews, and of them approved, answered, rejected and without a verdict as
        UNDECIDED."""
        self.doors = Names()
        """By what ways people decided."""
        self.reviewed = Durations()
        """How long requests waited for a verdict that came in time, or had come before."""
        self.usd = 0.0
        self.unpriced = 0
        """Requests for which a model was called at a price nobody knows."""

    @property
    def requests(self) -> int:
        """All its requests."""
        return sum(kind.requests for kind in self.kinds.values())


class Report:
    """Takes every record of some logs, those that were revoked as ``record.settled`` has them."""

    def __init__(self, since: str = "") -> None:
        """``since``: records before that moment, as their time is written, are left out."""
        self.servers: dict[str, ServerReport] = {}
        self.first = ""
        self.last = ""
        self._since = since
        self._handed_on: dict[str, str] = {}

    def take(self, line: RecordLine) -> None:
        """Count one record. The two of a request whose client comes back are one request."""
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
            _asked(server, line)
        if comes_again(line.outcome, line.door):
            self._hand_on(line.decision_id, line.outcome)
        kind.outcomes[line.outcome if line.outcome in OUTCOMES else OTHER] += 1
        if line.duration_ms is not None and line.outcome not in ("forwarded", "put_off"):
            kind.durations.add(line.duration_ms)
        _came(server, line, paid=before == "put_off")

    def _server(self, name: str) -> ServerReport:
        if name not in self.servers and len(self.servers) >= MAX_NAMES:
            name = OTHERS
        return self.servers.setdefault(name, ServerReport())

    def _hand_on(self, decision_id: str, outcome: str) -> None:
        self._handed_on[decision_id] = outcome
        if len(self._handed_on) > MAX_HANDED_ON:
            del self._handed_on[next(iter(self._handed_on))]


def _asked(server: ServerReport, line: RecordLine) -> None:
    server.callers.of(line.caller)["requests"] += 1
    server.rules.of(f"{line.effect}: {'no rule' if line.rule is None else line.rule}")["requests"] += 1
    for name in dict.fromkeys(call.tool or call.method for call in line.calls) or [NO_CALL]:
        server.tools.of(name)["requests"] += 1


def _came(server: ServerReport, line: RecordLine, *, paid: bool) -> None:
    """``paid``: what its model cost stands in the record before."""
    if line.outcome in ("denied", "unanswered"):
        server.refusals.of(f"{line.reason}: {'no rule' if line.rule is None else line.rule}")["requests"] += 1
    if line.refused_by is not None:
        server.limits.of(line.refused_by)["requests"] += 1
    for tried in line.attempts:
        _called(server.attempts.of(tried.model), tried)
    if line.reviewer is not None and line.outcome != "put_off":
        _reviewed(server, line, line.reviewer, paid=paid)
    if line.effect == "allow" or line.attempts:  # a model whose time ran out was paid too, whoever answered then
        _spent(server, line, paid=paid)


def _reviewed(server: ServerReport, line: RecordLine, reviewer: str, *, paid: bool) -> None:
    server.reviews.of(reviewer).update({"reviews": 1, _verdict(line, paid=paid): 1})
    if line.review_door is not None and not line.revokes:
        server.doors.of(line.review_door)["requests"] += 1
        if line.reviewed_ms is not None:
            server.reviewed.add(line.reviewed_ms)


def _verdict(line: RecordLine, *, paid: bool) -> str:
    """What a person said, as far as a record tells it; an approved request may have failed all the same. A verdict
    counts where it was used."""
    if line.review_door is None or line.revokes:
        return UNDECIDED
    if line.outcome == "denied" and line.reason == "review":
        return "rejected"
    return "answered" if line.outcome == "answered" and not (line.attempts or paid) else "approved"


def _called(counts: Counter[str], tried: RecordedTry) -> None:
    counts.update({"calls": 1, "input_tokens": tried.input_tokens or 0, "output_tokens": tried.output_tokens or 0})
    if _is_known(tried.cost_usd):
        counts["units"] += round((tried.cost_usd or 0) * SCALE["usd"])
    else:
        counts["unpriced"] += 1
    if tried.result != "ok":
        counts[tried.result if tried.result in _FAILURES else OTHER] += 1


def _spent(server: ServerReport, line: RecordLine, *, paid: bool) -> None:
    """What models were paid, also for answers that were not used. Of several calls what is known is summed, and what is
    not is counted."""
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
    """A log may be anybody's: a number that is none is no price."""
    return cost is not None and 0 <= cost < _MOST
