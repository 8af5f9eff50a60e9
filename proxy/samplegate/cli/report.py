"""``samplegate report``: summarizes decision logs as tables or JSON. ``audit/report.py`` computes the sums."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from samplegate.audit.reader import Logs
from samplegate.audit.record import settled
from samplegate.audit.report import OTHER, OUTCOMES, UNDECIDED, Durations, KindReport, Names, Report, ServerReport
from samplegate.cli import OK, UNREADABLE, run_report
from samplegate.cli.database_argument import log_name
from samplegate.cli.files import STATE, STDOUT, count, plain, print_error, print_lines, state_of, write_json
from samplegate.cli.progress import counted
from samplegate.cli.since import since_argument, since_time
from samplegate.errors import InputError
from samplegate.money import dollars
from samplegate.policy.ledger import SCALE

ROWS: Final = 10  # rows of a table in text output; --json has all
# counters of a model's calls that are not failures; all others are
_SUMS: Final = frozenset({"calls", "input_tokens", "output_tokens", "units", "unpriced"})


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--log",
        type=log_name,
        nargs="+",
        metavar="LOG",
        help="decision logs: files, folders, globs, or the URL of a database (default: the logs in the state folder)",
    )
    since_argument(parser)
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="state folder of the gates (default: that of `samplegate run`)"
    )
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="print one JSON object, or write it to this file"
    )
    run_report.arguments(parser)


def command(args: argparse.Namespace) -> int:
    """Summarize all records, or judge a run. Returns 0, even without records, or 2 if a log is unreadable."""
    if args.run is not None:
        return run_report.command(args)
    try:
        for name in run_report.OPTIONS:
            if getattr(args, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} needs --run")
        logs = Logs(args.log or _default(state_of(args.state, os.environ)))
        report = Report(since_time(args.since, time.time()))
        for line in settled(counted(logs, "records")):
            report.add(line)
        if args.json is None:
            print_lines(_report(report, logs))
        else:
            write_json(args.json, _json(report, logs))
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    for complaint in logs.complaints():
        print_error(complaint)
    return OK


def _default(state: Path | None) -> list[str]:
    """The daily logs in the state folder."""
    if state is None:
        raise InputError(f"--log: the home folder is unknown; pass the log files with --log, or set {STATE}")
    if not (state / "decisions").is_dir():
        raise InputError(f"--log: {state / 'decisions'} does not exist; pass the log files with --log")
    return [str(state / "decisions")]


# -- text
# ----------------------------------------------------------------------------------------------------------------------


def _report(report: Report, logs: Logs) -> Iterator[str]:
    total = sum(server.requests for server in report.servers.values())
    span = f", {report.first} to {report.last}" if total else ""
    yield (
        f"{count(total, 'request')} from {count(len(report.servers), 'server')} in"
        f" {count(len(logs.files), 'log')}{span}"
    )
    for name, server in sorted(report.servers.items(), key=lambda pair: (-pair[1].requests, pair[0])):
        yield ""
        yield f"server {plain(name)}: {count(server.requests, 'request')}{_cost(server)}"
        yield from _kinds(server)
        yield from _ranked("rule", server.rules, server.requests)
        yield from _ranked("tool", server.tools, server.requests)
        if len(server.callers) > 1:
            yield from _ranked("caller", server.callers, server.requests)
        yield from _ranked("denied or unanswered", server.refusals, server.requests)
        yield from _ranked("limit reached", server.limits, server.requests)
        yield from _reviews(server)
        yield from _models(server)
        yield from _attempts(server)


def _cost(server: ServerReport) -> str:
    if not server.models and not server.usd:
        return ""
    known = f", {dollars(round(server.usd * SCALE['usd']))}" if server.usd or not server.unpriced else ""
    unknown = f", {server.unpriced} with unknown price" if server.unpriced else ""
    return known + unknown


def _kinds(server: ServerReport) -> Iterator[str]:
    outcomes = [name for name in (*OUTCOMES, OTHER) if any(kind.outcomes[name] for kind in server.kinds.values())]
    rows = [
        [name, str(kind.requests), *(str(kind.outcomes[one]) for one in outcomes), *_times(kind)]
        for name, kind in sorted(server.kinds.items())
    ]
    yield from _table(["kind", "requests", *outcomes, "p50", "p95"], rows)


def _times(kind: KindReport) -> tuple[str, str]:
    return _time(kind.durations.quantile(0.5)), _time(kind.durations.quantile(0.95))


def _time(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.3g} s"


def _ranked(title: str, names: Names, total: int) -> Iterator[str]:
    rows = [
        [name, str(counts["requests"]), f"{counts['requests'] / max(total, 1):.0%}"]
        for name, counts in _sorted_by(names, "requests")
    ]
    yield from _table([title, "requests", ""], rows)


def _reviews(server: ServerReport) -> Iterator[str]:
    columns = ("reviews", "approved", "answered", "rejected", UNDECIDED)
    rows = [
        [name, *(str(counts[column]) for column in columns)] for name, counts in _sorted_by(server.reviews, "reviews")
    ]
    yield from _table(["reviewer", *columns], rows)
    yield from _ranked("decided via", server.doors, sum(counts["requests"] for counts in server.doors.values()))
    if server.doors:
        p50, p95 = server.reviewed.quantile(0.5), server.reviewed.quantile(0.95)
        yield f"  time to decision: p50 {_time(p50)}, p95 {_time(p95)}"


def _models(server: ServerReport) -> Iterator[str]:
    columns = ("requests", "input_tokens", "output_tokens")
    rows = [
        [name, *(str(counts[column]) for column in columns)] for name, counts in _sorted_by(server.models, "requests")
    ]
    yield from _table(["answered by", "requests", "input tokens", "output tokens"], rows)


def _attempts(server: ServerReport) -> Iterator[str]:
    rows = [
        [
            name,
            *(str(counts[column]) for column in ("calls", "input_tokens", "output_tokens")),
            _dollars(counts),
            _failures(counts),
        ]
        for name, counts in _sorted_by(server.attempts, "calls")
    ]
    yield from _table(["model called", "calls", "input tokens", "output tokens", "cost", "failures"], rows)


def _dollars(counts: Counter[str]) -> str:
    """Cost of the calls of one model. An unknown part is shown as ``?``, never as zero."""
    known = dollars(counts["units"])
    if not counts["unpriced"]:
        return known
    return f"{known} + ?" if counts["units"] else "?"


def _failures(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common() if name not in _SUMS)


def _sorted_by(names: Names, by: str) -> list[tuple[str, Counter[str]]]:
    return sorted(names.items(), key=lambda pair: (-pair[1][by], pair[0]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A text table: the first column and failures left-aligned, numbers right-aligned. Empty without rows."""
    if not rows:
        return
    shown_rows = [[plain(cell) for cell in row] for row in rows[:ROWS]]
    widths = [max(map(len, column)) for column in zip(head, *shown_rows, strict=True)]
    for row in (head, *shown_rows):
        cells = [
            cell.ljust(width) if not index or head[index] == "failures" else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells).rstrip()}"
    if len(rows) > ROWS:
        yield f"  and {len(rows) - ROWS} more"


# -- JSON
# ----------------------------------------------------------------------------------------------------------------------


def _json(report: Report, logs: Logs) -> dict[str, Any]:
    return {
        "requests": sum(server.requests for server in report.servers.values()),
        "first": report.first or None,
        "last": report.last or None,
        "logs": logs.files,
        "unreadable_lines": logs.bad,
        "servers": {name: _server_json(server) for name, server in sorted(report.servers.items())},
    }


def _server_json(server: ServerReport) -> dict[str, Any]:
    kinds = {
        name: {
            "requests": kind.requests,
            "outcomes": {one: number for one, number in kind.outcomes.items() if number},
            **_times_json(kind.durations),
        }
        for name, kind in sorted(server.kinds.items())
    }
    counted = ("callers", "rules", "tools", "refusals", "limits")
    return {
        "requests": server.requests,
        "kinds": kinds,
        **{
            name: {one: counts["requests"] for one, counts in _sorted_by(getattr(server, name), "requests")}
            for name in counted
        },
        "reviews": {name: dict(counts) for name, counts in _sorted_by(server.reviews, "reviews")},
        "reviewed": {
            "doors": {name: counts["requests"] for name, counts in _sorted_by(server.doors, "requests")},
            **_times_json(server.reviewed),
        },
        "models": {name: dict(counts) for name, counts in _sorted_by(server.models, "requests")},
        "attempts": {name: _attempts_json(counts) for name, counts in _sorted_by(server.attempts, "calls")},
        "cost_usd": round(server.usd, 9),
        "without_price": server.unpriced,
    }


def _attempts_json(counts: Counter[str]) -> dict[str, int | float]:
    counted = {
        "without_price" if name == "unpriced" else name: number
        for name, number in counts.items()
        if number and name != "units"
    }
    return {**counted, "cost_usd": round(counts["units"] / SCALE["usd"], 9)}


def _times_json(durations: Durations) -> dict[str, float | None]:
    p50, p95 = durations.quantile(0.5), durations.quantile(0.95)
    return {"p50_ms": None if p50 is None else round(p50, 3), "p95_ms": None if p95 is None else round(p95, 3)}
