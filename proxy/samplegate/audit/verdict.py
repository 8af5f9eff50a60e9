"""Pure. The verdict on a run: which words of `--fail-on` it meets, from the counts of its gates and its records.

Two sources that do not depend on each other count the same requests: each gate, and the decision logs. A word is met if
either has a request for it. If the logs have fewer requests than the gates, nothing can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from samplegate.audit.record import RecordLine, comes_again, without_contents

FailOn: TypeAlias = Literal["denied", "unanswered", "escalated", "limit", "unpriced", "no_requests", "dropped"]
WORDS: Final[tuple[FailOn, ...]] = get_args(FailOn)
STRICT: Final[tuple[FailOn, ...]] = ("denied", "unanswered")
"""What `run --strict` fails on."""
MEANINGS: Final[dict[FailOn, str]] = {
    "denied": "a request was denied",
    "unanswered": "a request or a call was not answered",
    "escalated": "a reviewer was asked",
    "limit": "a limit was reached",
    "unpriced": "a model with an unknown price was called",
    "no_requests": "no server made a request",
    "dropped": "a message was refused or dropped",
}
VERSION: Final = 1
"""The version of gates' files."""
MAX_ROWS: Final = 1_000
"""Requests that are listed of those that meet a word, and of the others; all are counted."""
MAX_HANDED_ON: Final = 100_000  # requests whose second record is still to come
MAX_SERVERS: Final = 2_000  # servers whose lines are counted separately; above MAX_GATES of a run (runs.py)
OTHERS: Final = "(others)"
_UNANSWERED: Final = frozenset[FailOn]({"unanswered"})
_KEPT: Final = frozenset[FailOn]({"escalated", "limit", "unpriced"})
"""Words that only the first of two records of a request may meet."""


def fail_on_words(text: str) -> tuple[FailOn, ...]:
    """The words of a comma-separated list, each once; ``none`` is no word. Raises ValueError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    if unknown := [name for name in names if name not in WORDS]:
        raise ValueError(f"{unknown[0][:60]!r} is not one of {', '.join(WORDS)}")
    if not names:
        raise ValueError(f"the list is empty; name some of {', '.join(WORDS)}, or none")
    return tuple(word for word in WORDS if word in names)


class RunCounts(msgspec.Struct, frozen=True):
    """Counts of one gate or of a whole run. A request may be in several."""

    requests: int = 0
    denied: int = 0
    unanswered: int = 0
    """Requests, and calls of clients that no server answered."""
    escalated: int = 0
    limit: int = 0
    unpriced: int = 0
    dropped: int = 0

    def __add__(self, other: RunCounts) -> RunCounts:
        return RunCounts(*map(add, *map(msgspec.structs.astuple, (self, other))))

    def __or__(self, other: RunCounts) -> RunCounts:
        """The greater count of each."""
        return RunCounts(*map(max, *map(msgspec.structs.astuple, (self, other))))

    def met(self, words: Iterable[FailOn]) -> list[FailOn]:
        """Those of the words that these counts meet."""
        return [word for word in words if (not self.requests if word == "no_requests" else getattr(self, word))]


def words_of(
    *, outcome: str, effect: str, review: str | None, refused_by: str | None, unpriced: bool
) -> frozenset[FailOn]:
    """The words that one request meets."""
    met = {
        "denied": outcome == "denied",
        "unanswered": outcome == "unanswered",
        "escalated": effect == "escalate" or review is not None,
        "limit": refused_by is not None,
        "unpriced": unpriced,
    }
    return frozenset(word for word in WORDS if met.get(word))


class GateState(msgspec.Struct, frozen=True):
    """What a gate tells about itself."""

    run: str
    gate: str
    """The name of its file."""
    command: Literal["run", "serve"]
    server: str
    """The server's name; for `serve` empty."""
    key: str
    """The hash of what it wraps: gates of one server have the same."""
    policy: str
    decision_log: str | None
    """The log as `report --log` reads it; None if there is none."""
    started: str
    """RFC 3339 in UTC."""
    pid: int
    started_up: bool = True
    """False: it could not start its server, or a setting or the policy was wrong."""
    served: bool = False
    """Whether a server has answered a request."""
    version: int = VERSION
    ended: str | None = None
    """None: it runs, or it was killed."""
    exit_code: int | None = None
    open: int = 0
    """Requests that are being decided or carried out."""
    counts: RunCounts = RunCounts()
    recorded: int = 0
    """Lines that it has written to the decision log."""
    handed_on: int = 0
    """Requests that the client is to answer or to retry, and has not returned yet."""
    failed: tuple[str, ...] = ()
    """At its end: why it failed by its own `--fail-on` or `--unused`, in words."""
    unused_cases: int = 0
    """Cases of the cassette that were not replayed."""
    fails_unused: bool = False


class FoundGate(msgspec.Struct, frozen=True):
    """A gate of a run, as found."""

    state: GateState
    runs: bool
    """Whether its process still runs."""


class Row(msgspec.Struct, frozen=True):
    """One request of a run."""

    line: RecordLine
    words: frozenset[FailOn]


class RunRecords:
    """The requests of one run in the decision logs. ``record.settled`` merges revoked records first."""

    def __init__(self, run: str, fail_on: Sequence[FailOn]) -> None:
        self.counts = RunCounts()
        self.lines = Counter[str]()
        """Lines of the run in the logs, by server: a request may have several."""
        self._run = run
        self._fail_on = frozenset(fail_on)
        self._listed: dict[bool, dict[str, Row]] = {True: {}, False: {}}
        self.unlisted = Counter[bool]()
        """The requests that are not listed: those that failed (True), and the others."""
        self._handed_on: dict[str, frozenset[FailOn]] = {}

    def add(self, line: RecordLine) -> None:
        """Add a record. Those of other runs are ignored."""
        if line.run != self._run:
            return
        words = words_of(
            outcome=line.outcome,
            effect=line.effect,
            review=line.review,
            refused_by=line.refused_by,
            unpriced=any(attempt.cost_usd is None for attempt in line.attempts),
        )
        if (before := self._handed_on.pop(line.decision_id, None)) is not None:
            words |= before & _KEPT
            self._drop(line.decision_id, before)
        self._add(Row(without_contents(line), words))
        if comes_again(line.outcome, line.door):
            self._handed_on[line.decision_id] = words
            if len(self._handed_on) > MAX_HANDED_ON:
                del self._handed_on[next(iter(self._handed_on))]

    def counted(self, lines: Iterable[RecordLine]) -> Iterator[RecordLine]:
        """The same lines, of which those of the run are counted."""
        for line in lines:
            if line.run == self._run:
                known = line.server in self.lines or len(self.lines) < MAX_SERVERS
                self.lines[line.server if known else OTHERS] += 1
            yield line

    def end(self) -> None:
        """Count requests that the client was to return, or to retry, and never did: they are unanswered."""
        for id, before in self._handed_on.items():
            words = before | _UNANSWERED
            if (row := self._drop(id, before)) is None:  # not listed
                self._count(words, 1)
                self.unlisted[bool(words & self._fail_on)] += 1
            else:
                self._add(Row(row.line, words))
        self._handed_on.clear()

    @property
    def failed(self) -> list[Row]:
        """The first requests that meet a word of `--fail-on`."""
        return list(self._listed[True].values())

    @property
    def others(self) -> list[Row]:
        """The first of the other requests."""
        return list(self._listed[False].values())

    def _add(self, row: Row) -> None:
        self._count(row.words, 1)
        failed = bool(row.words & self._fail_on)
        if len(self._listed[failed]) < MAX_ROWS:
            self._listed[failed][row.line.decision_id] = row
        else:
            self.unlisted[failed] += 1

    def _drop(self, id: str, words: frozenset[FailOn]) -> Row | None:
        """Take a request back; returns its row if it is listed."""
        self._count(words, -1)
        failed = bool(words & self._fail_on)
        row = self._listed[failed].pop(id, None)
        if row is None:
            self.unlisted[failed] -= 1
        return row

    def _count(self, words: Iterable[FailOn], number: int) -> None:
        numbers: dict[str, int] = dict.fromkeys(words, number)
        self.counts += RunCounts(requests=number, **numbers)


class RunVerdict(msgspec.Struct, frozen=True):
    """The verdict on a run, and what it is based on."""

    run: str
    fail_on: tuple[FailOn, ...]
    counts: RunCounts
    met: tuple[FailOn, ...]
    """The words of ``fail_on`` that the run meets."""
    unused_cases: int
    """Cases of cassettes that were not replayed, in gates that fail on them."""
    failed_gates: tuple[str, ...]
    """Gates that failed by their own `--fail-on` or `--unused`, with the reason."""
    problems: tuple[str, ...]
    """Why nothing can be told."""
    notes: tuple[str, ...]
    gates: tuple[FoundGate, ...]
    failed: tuple[Row, ...]
    others: tuple[Row, ...]
    unlisted: tuple[int, int]
    """Further requests that are not listed: those that failed, and the others."""

    @property
    def word(self) -> Literal["pass", "fail", "unknown"]:
        """``fail`` if the run meets a word, whatever else cannot be told."""
        if self.met or self.unused_cases or self.failed_gates:
            return "fail"
        return "unknown" if self.problems else "pass"


def judge(
    run: str,
    folder: str,
    fail_on: Sequence[FailOn],
    gates: Sequence[FoundGate],
    records: RunRecords,
    *,
    problems: Sequence[str],
    expected: int | None,
) -> RunVerdict:
    """The verdict from the gates' files and the records. ``folder`` is the state folder, ``problems`` are those of
    reading, and ``expected`` is the number of servers behind gates."""
    states = [gate.state for gate in gates]
    total = sum((state.counts for state in states), RunCounts())
    pending = sum(gate.state.open for gate in gates if not gate.runs)
    counts = total | records.counts
    pending += sum(state.handed_on for state in states if state.decision_log is None)
    counts = msgspec.structs.replace(counts, unanswered=counts.unanswered + pending)
    unused = sum(state.unused_cases for state in states if state.fails_unused)
    return RunVerdict(
        run=run,
        fail_on=tuple(fail_on),
        counts=counts,
        met=tuple(counts.met(fail_on)),
        unused_cases=unused,
        failed_gates=tuple(f"{_name(gate)} failed: {why}" for gate in gates for why in gate.state.failed),
        problems=(
            *_gate_problems(run, folder, gates, expected),
            *problems,
            *_log_problems(run, folder, states, records),
        ),
        notes=tuple(_notes(gates)),
        gates=tuple(gates),
        failed=tuple(records.failed),
        others=tuple(records.others),
        unlisted=(records.unlisted[True], records.unlisted[False]),
    )


def _gate_problems(run: str, folder: str, gates: Sequence[FoundGate], expected: int | None) -> Iterator[str]:
    served = {gate.state.key for gate in gates if gate.state.served}
    if not gates:
        yield (
            f"run {run}: no gate of this run has used the state folder {folder}; start the gates with this run ID and"
            " this state folder"
        )
    elif expected is not None and len(served) < expected:
        yield (
            f"run {run}: {len(served)} of {expected} expected servers have answered through a gate in {folder}; see the"
            " gates' logs (stderr), which clients keep"
        )
    for gate in gates:
        state = gate.state
        if not state.started_up:
            yield f"{_name(gate)} did not start; the reason is on its stderr, which its client keeps"
        elif gate.runs and (state.command == "run" or state.open):
            yield f"{_name(gate)} still runs (process {state.pid}); end the client before the report"
        elif not gate.runs and not state.served and state.key not in served:
            yield f"{_name(gate)} ended before its server had answered any request"
        elif state.command == "serve" and state.exit_code:
            yield f"{_name(gate)} ended with exit code {state.exit_code}; the reason is in its log"


def _log_problems(run: str, folder: str, states: Sequence[GateState], records: RunRecords) -> Iterator[str]:
    """Lines that are missing, and servers whose gate has no file. A gate counts a line after it is written, so the logs
    never have fewer. Lines count by server, so that further lines of one do not make up for those of another."""
    logged = [state for state in states if state.decision_log is not None]
    wanted, found = Counter[str](), records.lines
    for state in logged:
        wanted[state.server] += state.recorded
    if any(state.command == "serve" for state in states):  # its lines have the names of its servers
        wanted, found = Counter({"": wanted.total()}), Counter({"": found.total()})
    elif unknown := sorted(found.keys() - {state.server for state in states}):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        yield (
            f"the decision logs have requests from server {unknown[0]!r}{more}, but its gate left no file in"
            f" {folder}/runs/{run}; use one state folder for all gates, and keep it until the report"
        )
    missing = wanted - found
    if lost := missing.total():
        logs = {str(state.decision_log) for state in logged if state.recorded and {state.server, ""} & missing.keys()}
        yield (
            f"the decision logs have {wanted.total() - lost} of the {wanted.total()} lines that the gates wrote"
            f" ({', '.join(sorted(logs))}); keep the logs until the report (see decision_log_keep), or name them with"
            " --log"
        )


def _notes(gates: Sequence[FoundGate]) -> Iterator[str]:
    for gate in gates:
        state = gate.state
        if gate.runs and state.command == "serve":
            yield f"{_name(gate)} still runs; the report has its requests until now"
        elif not gate.runs and state.ended is None and state.open:
            requests = "a request was" if state.open == 1 else f"{state.open} requests were"
            yield f"{_name(gate)} was killed while {requests} open"
        elif not gate.runs and state.ended is None:
            yield f"{_name(gate)} was killed; no request was open"
        if state.decision_log is None and state.counts.requests:
            yield f"{_name(gate)} keeps no decision log; its requests are counted, but not listed"


def _name(gate: FoundGate) -> str:
    state = gate.state
    if state.command == "serve":
        return "the gate of `serve`"
    return f"gate {state.server!r}" if state.server else "a gate with an invalid command line"
