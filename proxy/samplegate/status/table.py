"""Pure. Status as text: tables that fit the width of a terminal.

All text of peers is printable already (``snapshot.shown``). It is escaped again here, because a status may come from
another program.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Final

from samplegate.durations import duration_text
from samplegate.money import UNITS, dollars
from samplegate.printable import printable, without_hashes
from samplegate.status.snapshot import (
    MAX_LISTED,
    CallStatus,
    GateStatus,
    LimitStatus,
    Listed,
    Overview,
    RequestStatus,
    ReviewsStatus,
    ServerStatus,
    SessionStatus,
    WorkerStatus,
)

MIN_WIDTH: Final = 40
WIDTH: Final = 100
"""Columns if the width is not known."""
NO_GATE: Final = "no gate is running"
GAP: Final = "  "
NARROWEST: Final = 12  # columns of a cell that is cut; shorter ones are never cut

_GREEN, _RED, _YELLOW = 32, 31, 33
_COLORS: Final = {
    "ready": _GREEN,
    "starting": _YELLOW,
    "backoff": _YELLOW,
    "draining": _YELLOW,
    "failed": _RED,
    "problem": _RED,
}
"""Colors of our own words of state."""


def lines(
    overview: Overview, width: int = WIDTH, *, color: bool = False, most: int = MAX_LISTED, heading: str = ""
) -> list[str]:
    """All of an overview, as lines of at most ``width`` columns. ``color``: with the codes of a terminal. ``most``:
    rows of a table."""
    page = _Page(max(width, MIN_WIDTH), color, most)
    if heading:
        page.line(heading)
        page.line("")
    for gate in overview.gates:
        _gate(page, gate)
        page.line("")
    if not overview.gates:
        page.line(NO_GATE)
        page.line("")
    if overview.state is not None and (overview.limits.total or overview.reviews is not None):
        page.line(f"state {overview.state}")
        _limits(page, overview.limits)
        _reviews(page, overview.reviews)
        page.line("")
    for problem in overview.problems:
        page.problem(problem)
    if page.lines and not page.lines[-1]:
        page.lines.pop()
    return page.lines


def gate_lines(gate: GateStatus, width: int = WIDTH) -> list[str]:
    """One process."""
    page = _Page(max(width, MIN_WIDTH), color=False, most=MAX_LISTED)
    _gate(page, gate)
    return page.lines


def _gate(page: _Page, gate: GateStatus) -> None:
    state = "draining" if gate.draining else "problem" if gate.problems else "ready"
    page.line(f"{gate.command} {gate.version}: {state}, pid {gate.pid}, up {span(gate.uptime)}", state)
    page.fact("policy", f"{gate.policy} ({gate.policy_hash})")
    if gate.run is not None:
        page.fact("run", gate.run)
    if gate.state:
        page.fact("state", gate.state)
    if gate.settings_hash:
        page.fact("settings", gate.settings_hash)
    log = gate.decision_log
    page.fact("log", f"{log.path or 'none'}{f', {log.waiting} waiting' if log.waiting else ''}")
    for worker in gate.workers:
        page.fact("worker", _worker(worker))
    if gate.reload is not None:
        problems = f", {_count(gate.reload.problems, 'problem')}" if gate.reload.problems else ""
        page.fact("reload", f"{gate.reload.result} {span(gate.reload.age)} ago{problems}")
    for problem in (log.problem, *gate.problems):
        if problem is not None:
            page.problem(problem, "  ")
    _servers(page, gate.servers)
    _requests(page, gate.requests)
    _calls(page, gate.calls)
    _limits(page, gate.limits)
    _reviews(page, gate.reviews)
    _sessions(page, gate.sessions)


def span(seconds: float | None) -> str:
    """A duration in at most two units: ``1.2s``, ``9m10s``, ``26h3m``."""
    if seconds is None:
        return "-"
    if seconds >= 3600:
        seconds = round(seconds / 60) * 60  # minutes are enough
    return duration_text(seconds) or "0s"


def amount(quantity: str, value: float | None) -> str:
    """An amount in the unit of a limit: ``$12.50``, ``3,000``."""
    if value is None:
        return "?"
    if quantity == "usd":
        return dollars(round(value * UNITS))
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _servers(page: _Page, found: Listed[ServerStatus]) -> None:
    rows = [
        (one.name, one.state, str(one.sessions), str(one.calls), str(one.requests), one.protocol or "-")
        for one in found.items
    ]
    heads = ("server", "state", "sessions", "calls", "requests", "protocol")
    page.table("servers", heads, rows, found.total, states=1)
    for one in found.items:
        restarts = "" if one.restart_in is None else f"restarts in {span(one.restart_in)}"
        if why := "; ".join(filter(None, (one.problem, restarts))):
            page.problem(f"{one.name}: {why}", "    ")


def _sessions(page: _Page, found: Listed[SessionStatus]) -> None:
    rows = [
        (
            one.caller,
            span(one.age),
            one.server,
            str(one.calls),
            str(one.requests),
            one.id,
            one.client or "-",
            one.protocol or "-",
        )
        for one in found.items
    ]
    page.table(
        "sessions", ("caller", "age", "server", "calls", "requests", "session", "client", "protocol"), rows, found.total
    )


def _calls(page: _Page, found: Listed[CallStatus]) -> None:
    rows = [(one.tool or one.method, span(one.age), one.caller, one.server, one.session) for one in found.items]
    page.table("calls in flight", ("tool or method", "age", "caller", "server", "session"), rows, found.total)


def _requests(page: _Page, found: Listed[RequestStatus]) -> None:
    rows = []
    for one in found.items:
        waits = one.waits_for if one.name is None else f"{one.waits_for} {one.name}"
        left = "-" if one.expires_in is None else span(max(0.0, one.expires_in))
        rest = (one.rule or "-", one.effect, one.tool or "-", one.caller, one.server)
        rows.append((waits, span(one.age), left, one.decision_id[:12], one.kind, *rest))
    heads = ("waits for", "age", "expires", "decision", "kind", "rule", "effect", "during", "caller", "server")
    page.table("open requests", heads, rows, found.total)


def _limits(page: _Page, found: Listed[LimitStatus]) -> None:
    rows = []
    for one in found.items:
        unit = "slots" if one.quantity == "concurrent" else "" if one.quantity == "usd" else one.quantity
        key = ", ".join(f"{name} {value}" for name, value in one.key.items())
        of, left = (amount(one.quantity, each) for each in (one.max, one.left))
        used = amount(one.quantity, one.used)
        resets = "-" if one.resets_in is None else span(one.resets_in)
        per = "-" if one.per == "concurrent" else one.per
        rows.append((one.limit, used, of, left, unit, per, resets, str(one.waiting or "-"), key))
    heads = ("limit", "used", "of", "left", "unit", "per", "resets", "waiting", "for")
    page.table("limits", heads, rows, found.total)


def _reviews(page: _Page, found: ReviewsStatus | None) -> None:
    if found is None:
        return
    if found.problem is not None:
        page.problem(found.problem, "  ")
        return
    rows = [
        (one.reviewer, str(one.pending), span(one.oldest_age), span(one.next_expires_in)) for one in found.reviewers
    ]
    page.table("pending reviews", ("reviewer", "pending", "oldest", "next expires"), rows, len(rows))


def _worker(worker: WorkerStatus) -> str:
    words: list[str] = [worker.state]
    if worker.pid is not None:
        words.append(f"pid {worker.pid}, {_count(worker.calls, 'call')}")
    if worker.problem is not None:
        words.append(worker.problem)
    if worker.retry_in is not None:
        words.append(f"next start in {span(worker.retry_in)}")
    return ", ".join(words)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- layout
# ----------------------------------------------------------------------------------------------------------------------


class _Page:
    """Lines of at most ``width`` columns. Text is made safe before it gets a color."""

    def __init__(self, width: int, color: bool, most: int) -> None:
        self.lines: list[str] = []
        self._most = most
        self._width = width
        self._color = color

    def line(self, text: str, state: str = "") -> None:
        """A line. The first occurrence of ``state`` gets its color."""
        text = _cut(_safe(text), self._width)
        self.lines.append(text.replace(state, self._painted(state, state), 1) if state else text)

    def fact(self, name: str, value: str) -> None:
        """A name with its value."""
        self.line(f"  {name:9} {value}")

    def problem(self, text: str, indent: str = "") -> None:
        """A problem, on as many lines as it needs."""
        first, *more = textwrap.wrap(
            _safe(f"problem: {text}"), self._width, initial_indent=indent, subsequent_indent=f"{indent}  "
        )
        self.line(first, "problem")
        for line in more:
            self.line(line)

    def table(
        self, name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], total: int, *, states: int = -1
    ) -> None:
        """A table below its name. ``states`` is the column of words that get a color. Columns without a value are left
        out. If the others do not fit, those at the end are left out, and the widest are cut."""
        self.line(f"  {name}: {total or 'none'}")
        rows = rows[: self._most]
        if not rows:
            return
        cells = [[_safe(cell) for cell in row] for row in rows]
        filled = [at for at in range(len(heads)) if any(row[at] not in ("", "-") for row in cells)]
        sizes = {at: max(_width(heads[at]), *(_width(row[at]) for row in cells)) for at in filled}
        while len(sizes) > 2 and _total({at: min(size, NARROWEST) for at, size in sizes.items()}) > self._width - 4:
            sizes.popitem()
        while (over := _total(sizes) - (self._width - 4)) > 0:
            widest = max(sizes, key=lambda at: sizes[at])
            second = max((size for at, size in sizes.items() if at != widest), default=0)
            sizes[widest] -= max(1, min(over, sizes[widest] - max(second, NARROWEST)))
        self._row([heads[at] for at in sizes], [*sizes.values()], -1)
        for row in cells:
            self._row([row[at] for at in sizes], [*sizes.values()], [*sizes].index(states) if states in sizes else -1)
        if total > len(rows):
            self.line(f"    and {total - len(rows)} more")

    def _row(self, cells: Sequence[str], sizes: Sequence[int], states: int) -> None:
        fitted = [_padded(_cut(cell, size), size) for cell, size in zip(cells, sizes, strict=True)]
        if states >= 0:
            fitted[states] = self._painted(cells[states], fitted[states])
        self.lines.append("    " + GAP.join(fitted).rstrip())

    def _painted(self, state: str, text: str) -> str:
        return f"\x1b[{_COLORS[state]}m{text}\x1b[0m" if self._color and state in _COLORS else text


def _total(sizes: Mapping[int, int]) -> int:
    return sum(sizes.values()) + len(GAP) * max(0, len(sizes) - 1)


def _safe(text: str) -> str:
    return without_hashes(printable(text))


def _width(text: str) -> int:
    """The columns of a text: wide characters have two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    if text.isascii():
        return f"{text[: width - 1]}…"
    ends = takewhile(lambda used: used <= width - 1, accumulate(map(_columns, text)))
    return f"{text[: len(list(ends))]}…"
