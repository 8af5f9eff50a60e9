"""``samplegate report --run``: the verdict on a run, as text, JSON, JUnit XML, a Markdown summary and annotations.

``audit/verdict.py`` computes the verdict. Whatever cannot be read or written makes the exit code 2, unless the run
failed anyway.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from samplegate.audit.reader import Logs
from samplegate.audit.record import settled
from samplegate.audit.runs import read_gates
from samplegate.audit.verdict import (
    MEANINGS,
    STRICT,
    FailOn,
    FoundGate,
    Row,
    RunRecords,
    RunVerdict,
    fail_on_words,
    judge,
)
from samplegate.ci import markdown
from samplegate.ci.annotations import Annotation, annotation_lines
from samplegate.ci.junit import Case, Suite, junit_xml
from samplegate.ci.run_id import VARIABLE, check_run_id, run_id_of_ci
from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.files import (
    STDOUT,
    count,
    plain,
    print_error,
    print_lines,
    read,
    state_of,
    workspace_path,
    write_json,
    write_report,
)
from samplegate.cli.progress import Progress
from samplegate.errors import InputError
from samplegate.files import SQLITE
from samplegate.policy.decisions import detail_without_rule
from samplegate.printable import printable
from samplegate.yamlfile.tree import Mapping as Tree
from samplegate.yamlfile.tree import Scalar, Unreadable, compose
from samplegate.yamlfile.tree import Sequence as Items

ENDING: Final = 10.0  # seconds for gates that still run: their client has just ended them
CLOCK: Final = 7 * 86_400.0  # seconds that a log's time may be before the start of a gate: clocks are set
EXIT_CODES: Final = {"pass": OK, "fail": FAILED, "unknown": UNREADABLE}
MAX_SUMMARY: Final = 900_000  # bytes; GitHub drops a summary over 1 MiB as a whole
MAX_POLICY: Final = 16 * 1024 * 1024
ROWS: Final = 20  # rows of a table; the files have more
OPTIONS: Final = ("fail_on", "expect_gates", "junit", "summary", "annotations")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a run's verdict."""
    run = parser.add_argument_group("verdict on a run")
    run.add_argument(
        "--run",
        nargs="?",
        const="",
        metavar="ID",
        help="judge one run by all of its gates (default ID: SAMPLEGATE_RUN, or that of the CI job)",
    )
    run.add_argument(
        "--fail-on",
        type=_words,
        metavar="WORDS",
        help="exit with 1 if the run meets one of these, separated by commas: denied, unanswered, escalated, limit,"
        " unpriced, no_requests, dropped, or none (default: denied,unanswered)",
    )
    run.add_argument(
        "--expect-gates",
        type=_number,
        metavar="N",
        help="exit with 2 if fewer than N servers have answered through a gate",
    )
    run.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, with a case for each request")
    run.add_argument("--summary", type=Path, metavar="FILE", help="append a Markdown summary to this file")
    run.add_argument("--annotations", choices=("github",), help="print annotations for GitHub Actions")


def _words(text: str) -> tuple[FailOn, ...]:
    try:
        return fail_on_words(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:7]) <= 1_000 and len(text) <= 4):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number from 1 to 1000")
    return int(text)


def command(args: argparse.Namespace) -> int:
    """Judge the run. Returns 0, 1 if it meets a word, or 2 if that cannot be told or a file cannot be written."""
    try:
        if args.json == STDOUT and args.annotations:
            raise InputError("--json: annotations would be between the lines of the JSON; give --json a file")
        found = verdict(args, os.environ)
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    problems = list(_written(args, found))  # before anything is printed: stdout may be closed, or full
    if args.json == STDOUT:
        write_json(STDOUT, as_json(found))
    else:
        print_lines(_text(found))
    if args.annotations:
        print("\n".join(annotation_lines(_annotations(found))))
    for one in (*found.problems, *problems):
        print_error(one)
    return EXIT_CODES[found.word] or (UNREADABLE if problems else OK)


def verdict(args: argparse.Namespace, environ: Mapping[str, str]) -> RunVerdict:
    """Read everything that the gates of the run wrote. Raises InputError."""
    run = _run(args.run, environ)
    if args.since is not None:
        raise InputError("--since: a run has all of its records; remove --since or --run")
    state = state_of(args.state, environ)
    if state is None:
        raise InputError("--state: the home folder is unknown; pass the state folder of the gates with --state")
    gates, problems = read_gates(state, run, seconds=ENDING)
    fail_on: tuple[FailOn, ...] = STRICT if args.fail_on is None else args.fail_on
    records = RunRecords(run, fail_on)
    for names in [args.log] if args.log else _logs(gates):
        # a pipe or a device may never end
        if not args.log and (path := Path(names[0])).exists() and not (path.is_file() or path.is_dir()):
            problems.append(f"{path}: it is no longer a regular file; keep the logs until the report")
            continue
        problems += _read_log(names, run, gates, records)
    records.end()
    return judge(run, str(state), fail_on, gates, records, problems=problems, expected=args.expect_gates)


def _run(given: str, environ: Mapping[str, str]) -> str:
    run = given or environ.get(VARIABLE) or run_id_of_ci(environ)
    if run is None:
        raise InputError(f"--run: no run is known; pass its ID, or set {VARIABLE}")
    try:
        check_run_id(run)
    except ValueError as problem:
        raise InputError(f"{'--run' if given else VARIABLE}: {problem}") from None
    return run


def _logs(gates: Sequence[FoundGate]) -> Iterator[list[str]]:
    """The logs of the gates, each once. A gate without requests may have none."""
    requests: Counter[str] = Counter()
    for gate in gates:
        if gate.state.decision_log is not None:
            requests[gate.state.decision_log] += gate.state.counts.requests + gate.state.open
    for name, number in requests.items():
        if number or Path(name.removeprefix(SQLITE)).exists():
            yield [name]


def _read_log(names: Sequence[str], run: str, gates: Sequence[FoundGate], records: RunRecords) -> list[str]:
    """Read the records of a log. Returns the problems."""
    since = min((datetime.fromisoformat(gate.state.started).timestamp() for gate in gates), default=CLOCK) - CLOCK
    try:
        with Progress("records") as progress:
            logs = Logs(names, run=run, since=since, passed=progress.step)
            for line in settled(records.counted(logs)):
                records.add(line)
    except InputError as problem:
        return [str(problem)]
    return list(logs.complaints())


# -- text
# ----------------------------------------------------------------------------------------------------------------------


def _text(found: RunVerdict) -> Iterator[str]:
    yield f"run {found.run}: {headline(found)}"
    for gate in found.gates:
        yield f"  {_gate_name(gate)}: {count(gate.state.counts.requests, 'request')}, {_end(gate)}"
    yield from (f"  {text}" for text in (*found.failed_gates, *found.notes))
    yield from (f"  {_row_text(row)}" for row in found.failed[:ROWS])
    if more := max(len(found.failed) - ROWS, 0) + found.unlisted[0]:
        yield f"  and {more} more"


def headline(found: RunVerdict) -> str:
    """The verdict in a sentence."""
    met = [f"{word} ({_amount(found, word)})" for word in found.met]
    met += [f"{count(found.unused_cases, 'case')} of a cassette not replayed"] if found.unused_cases else []
    met += [f"{count(len(found.failed_gates), 'gate')} failed"] if found.failed_gates and not met else []
    if met:
        return f"failed: {', '.join(met)}"
    if found.problems:
        return f"unknown: {count(len(found.problems), 'problem')}"
    return f"passed: {count(found.counts.requests, 'request')} in {count(len(found.gates), 'gate')}"


def _amount(found: RunVerdict, word: FailOn) -> str:
    return MEANINGS[word] if word == "no_requests" else str(getattr(found.counts, word))


def _gate_name(gate: FoundGate) -> str:
    return "serve" if gate.state.command == "serve" else plain(gate.state.server) if gate.state.server else "(unknown)"


def _end(gate: FoundGate) -> str:
    state = gate.state
    end = "still running" if gate.runs else "killed" if state.ended is None else f"exit code {state.exit_code}"
    # no record tells of a call without an answer, so no other line shows which gate it was
    return f"{state.counts.unanswered} not answered, {end}" if state.counts.unanswered else end


def _row_text(row: Row) -> str:
    line = row.line
    detail = detail_without_rule(line.detail, line.rule)
    detail = f": {detail}" if detail else ""
    words = ", ".join(sorted(row.words))
    return (
        f"[{words}] {line.server}: {line.kind} during {_during(row)}: {line.outcome} ({line.reason}, {_rule(row)})"
        f"{detail} [decision {line.decision_id}]"
    )


def _during(row: Row) -> str:
    return ", ".join(call.tool or call.method for call in row.line.calls[:5]) or "no call"


def _rule(row: Row) -> str:
    return "no rule" if row.line.rule is None else f"rule '{row.line.rule}'"


# -- files
# ----------------------------------------------------------------------------------------------------------------------


def _written(args: argparse.Namespace, found: RunVerdict) -> Iterator[str]:
    """Write the files; yields the problems."""
    writes: list[Callable[[], None]] = []
    if args.json not in (None, STDOUT):
        writes.append(lambda: write_json(args.json, as_json(found)))
    if args.junit is not None:
        writes.append(lambda: write_report("--junit", args.junit, junit_xml(_suites(found))))
    if args.summary is not None:
        writes.append(lambda: _append(args.summary, found))
    for write in writes:
        try:
            write()
        except InputError as problem:
            yield str(problem)


def _append(path: Path, found: RunVerdict) -> None:
    """Append the summary, because a step may write other parts of its own. Raises InputError."""
    try:
        with path.open("ab") as file:
            file.write(markdown.bounded(_summary(found), max(MAX_SUMMARY - file.tell(), 0)).encode())
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"--summary: {path} cannot be written: {reason}") from None


def as_json(found: RunVerdict) -> dict[str, Any]:
    """The verdict as JSON. ``requests`` lists the first of those that failed, then of the others."""
    return {
        "run": found.run,
        "verdict": found.word,
        "fail_on": list(found.fail_on),
        "met": list(found.met),
        "unused_cases": found.unused_cases,
        "failed_gates": list(found.failed_gates),
        "problems": list(found.problems),
        "notes": list(found.notes),
        "counts": {name: getattr(found.counts, name) for name in found.counts.__struct_fields__},
        "gates": [
            {
                "command": gate.state.command,
                "server": gate.state.server,
                "policy": gate.state.policy,
                "decision_log": gate.state.decision_log,
                "started": gate.state.started,
                "ended": gate.state.ended,
                "exit_code": gate.state.exit_code,
                "running": gate.runs,
                "requests": gate.state.counts.requests,
                "open": gate.state.open,
            }
            for gate in found.gates
        ],
        "requests": [_row_json(row) for row in (*found.failed, *found.others)],
        "unlisted": {"failed": found.unlisted[0], "others": found.unlisted[1]},
    }


def _row_json(row: Row) -> dict[str, Any]:
    line = row.line
    return {
        "words": sorted(row.words),
        "decision_id": line.decision_id,
        "time": line.time,
        "server": line.server,
        "kind": line.kind,
        "during": [call.tool or call.method for call in line.calls[:5]],
        "rule": line.rule,
        "effect": line.effect,
        "outcome": line.outcome,
        "reason": line.reason,
        "detail": line.detail,
        "limit": line.refused_by,
        "model": line.model,
        "cost_usd": line.cost_usd,
        "duration_ms": line.duration_ms,
    }


def _suites(found: RunVerdict) -> list[Suite]:
    """A suite for each server, and one for what belongs to no request."""
    servers: dict[str, list[Case]] = {}
    failing = set(map(id, found.failed))
    for row in (*found.failed, *found.others):
        servers.setdefault(row.line.server, []).append(_case(row, failed=id(row) in failing))
    run = [
        Case("the run can be judged", "samplegate", failure="; ".join(found.problems) or None),
        *(Case(word, "samplegate.run", failure=_failure(found, word)) for word in found.fail_on),
    ]
    if found.unused_cases:
        message = f"{count(found.unused_cases, 'case')} of a cassette not replayed"
        run.append(Case("all cases of cassettes are replayed", "samplegate.run", failure=message))
    if found.failed_gates:
        run.append(Case("the gates pass", "samplegate.run", failure="; ".join(found.failed_gates)))
    if any(found.unlisted):
        name = f"{count(sum(found.unlisted), 'more request')}"
        run.append(Case(name, "samplegate.run", failure=f"{found.unlisted[0]} failed" if found.unlisted[0] else None))
    return [Suite(f"run {found.run}", tuple(run)), *(Suite(name, tuple(cases)) for name, cases in servers.items())]


def _failure(found: RunVerdict, word: FailOn) -> str | None:
    return f"{MEANINGS[word]}: {_amount(found, word)}" if word in found.met else None


def _case(row: Row, *, failed: bool) -> Case:
    line = row.line
    return Case(
        name=f"{line.kind} during {_during(row)}: {_rule(row)}",
        classname=f"samplegate.{line.server}",
        seconds=None if line.duration_ms is None else line.duration_ms / 1000,
        failure=f"{line.outcome} ({line.reason}): {', '.join(sorted(row.words))}" if failed else None,
        details=f"{line.detail}\ndecision {line.decision_id}".strip() if failed else "",
    )


def _summary(found: RunVerdict) -> Iterator[str]:
    """The blocks of the summary. All text of peers is code."""
    mark = {"pass": "passed", "fail": "failed", "unknown": "unknown"}[found.word]
    yield f"## samplegate: run {markdown.code(found.run)} {mark}"
    yield headline(found)
    yield "\n".join(
        f"- {markdown.code(text)}" for text in (*found.failed_gates, *found.problems[:ROWS], *found.notes[:ROWS])
    )
    rows = [
        [
            markdown.code(line.server),
            line.kind,
            markdown.code(_during(row)),
            line.outcome if line.outcome.isalpha() else markdown.code(line.outcome),
            markdown.code(line.rule or "no rule"),
            markdown.code(line.detail or line.reason),
            markdown.code(line.decision_id),
        ]
        for row in found.failed
        for line in [row.line]
    ]
    if found.unlisted[0]:
        yield f"{count(found.unlisted[0], 'more request')} failed."
    head = ["server", "kind", "during", "outcome", "rule", "detail", "decision"]
    yield markdown.table(head, rows, most=200)
    gates = [[markdown.code(_gate_name(gate)), str(gate.state.counts.requests), _end(gate)] for gate in found.gates]
    yield markdown.table(["gate", "requests", "end"], gates, most=200)


# -- annotations
# ----------------------------------------------------------------------------------------------------------------------


def _annotations(found: RunVerdict) -> Iterator[Annotation]:
    if found.word != "pass":
        yield Annotation("error", headline(found), title=f"samplegate: run {found.run}")
    yield from (Annotation("error", printable(problem)) for problem in (*found.failed_gates, *found.problems))
    yield from (Annotation("notice", printable(note)) for note in found.notes)
    places = _Places(found.gates)
    for row in found.failed:
        file, line = places.of(row)
        yield Annotation(
            "error", printable(_row_text(row)), title=f"samplegate: {row.line.outcome}", file=file, line=line
        )


class _Places:
    """The lines of rules in the gates' policies, as they are now."""

    def __init__(self, gates: Sequence[FoundGate]) -> None:
        self._files = {
            gate.state.server: Path(gate.state.policy) for gate in reversed(gates) if gate.state.command == "run"
        }
        self._lines: dict[Path, dict[str, int]] = {}

    def of(self, row: Row) -> tuple[str | None, int | None]:
        """The file below the workspace and the line of the row's rule; None where unknown."""
        policy = self._files.get(row.line.server)
        if policy is None:
            return None, None
        if policy not in self._lines:
            self._lines[policy] = _rule_lines(policy)
        return workspace_path(policy), self._lines[policy].get(row.line.rule or "")


def _rule_lines(policy: Path) -> dict[str, int]:
    try:
        if policy.stat().st_size > MAX_POLICY:
            return {}
        root, _ = compose(read(policy))
    except (OSError, InputError, Unreadable):
        return {}
    rules = root.entries["rules"].node if isinstance(root, Tree) and "rules" in root.entries else None
    found: dict[str, int] = {}
    for rule in rules.items if isinstance(rules, Items) else []:
        if isinstance(rule, Tree) and "name" in rule.entries and isinstance(name := rule.entries["name"].node, Scalar):
            found.setdefault(name.text, rule.mark.line)
    return found
