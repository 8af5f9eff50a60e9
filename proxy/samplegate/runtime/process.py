"""State that all conversations of one process share: limits, loop detection, models, decision log, metrics and the
policy in force.

A reload replaces the policy as a whole. Everything new is built before anything live changes, and open rounds end under
the policy that they began with.

`run`, `serve` and the other commands load and compile policies with the functions at the end, so that commands test
what runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from samplegate.audit.cassette import Cassette
from samplegate.audit.decision_log import DecisionLog
from samplegate.audit.playback import Playback
from samplegate.audit.record import Record
from samplegate.audit.runs import GateFile
from samplegate.audit.verdict import STRICT, FailOn
from samplegate.gate.ports import ReviewPort
from samplegate.limits.brakes import BrakeState
from samplegate.limits.limiter import Limiter
from samplegate.policy import redaction
from samplegate.policy.file import load
from samplegate.policy.match import CompiledPolicy, compile_policy
from samplegate.policy.redaction import Redactor
from samplegate.protocol.seals import INSTANCE_BYTES, KEY_BYTES, SealKeys
from samplegate.runtime import secret_patterns
from samplegate.sampler import litellm_prices
from samplegate.sampler.client import Models, load_rule_scripts
from samplegate.telemetry.log import EventLog
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.observers import LimitMetrics, Tally

if TYPE_CHECKING:
    from samplegate.tasks.store import TaskStore
    from samplegate.telemetry.otlp import Traces


LAST_SPANS: Final = 0.2
"""Seconds that the summary and the last metrics wait for the export of spans. The process itself waits longer."""


class Rules(msgspec.Struct, eq=False):
    """A policy and what was built from it. ``open`` counts the rounds that run under it."""

    policy: load.LoadedPolicy
    compiled: CompiledPolicy
    models: Models
    open: int = 0
    withheld: Redactor | None = None
    """Finds secrets in notifications of reviewers; built on first use."""

    @property
    def hash(self) -> str:
        """Hash of the policy, for records and metrics."""
        return self.policy.hash


class ReloadTarget(Protocol):
    """A conversation, as a reload and the memory bound see it."""

    def swap(self) -> None: ...
    @property
    def held(self) -> int: ...


class ProcessContext:
    """State of one process. ``keys`` encrypt sealed rounds, 32 bytes each: the first seals, all open. The default is a
    random key, so that no other process can open them. ``gate_file``: what a gate of a run tells about itself.
    ``fail_on``: what the summary lists."""

    def __init__(
        self,
        rules: Rules,
        *,
        state: Path,
        database: str | None = None,
        decisions: DecisionLog,
        log: EventLog,
        cassette: Cassette | None = None,
        playback: Playback | None = None,
        keys: Sequence[bytes] = (),
        metrics: Metrics | None = None,
        gate_file: GateFile | None = None,
        fail_on: Sequence[FailOn] = STRICT,
        settings_hash: str = "",
        traces: Traces | None = None,
    ) -> None:
        self.rules = rules
        self.state = state
        self.database = database
        """The URL of the shared database; None without one."""
        self.database_problems: tuple[str, ...] = ()
        """What the watch over the database has found last."""
        self.withdrawn: frozenset[bytes] = frozenset()
        """The SHA-256 of tokens that were withdrawn at a gate with the same database."""
        self.decisions = decisions
        self.settings_hash = settings_hash
        """The hash of the settings in force; empty if there are none."""
        self.log = log
        self.cassette = cassette
        self.playback = playback
        """A cassette that answers in place of models and clients."""
        self.keys = SealKeys(keys or (secrets.token_bytes(KEY_BYTES),), secrets.token_bytes(INSTANCE_BYTES))
        self.metrics = Metrics() if metrics is None else metrics
        self.traces = traces
        """The export of spans; None if traces are off."""
        self.tally = Tally(self.metrics, fail_on)
        self.gate_file = gate_file
        self.run = "" if gate_file is None else gate_file.state.run
        """The ID of the process's run; empty without one."""
        self._open = 0
        self._served = False
        self.limit_metrics = LimitMetrics(rules.compiled.limit_specs, self.metrics)
        self.admission = Limiter(
            rules.compiled.limit_specs, state=state, clock=time.time, log=log, run=self.run, database=database
        )
        self.brakes = BrakeState(rules.compiled.policy.brakes)
        self._tasks: TaskStore | None = None
        self.reviews: ReviewPort | None = None
        """The review service, if the process has one."""
        self.has_page = False
        """Whether reviewers have a page, which can show servers' own UIs."""
        self._conversations: set[ReloadTarget] = set()
        self._retired: set[Rules] = set()
        rules.models.report_failed_starts(self._worker_failed)
        self.publish()

    @property
    def tasks(self) -> TaskStore:
        """The store for tasks of servers at a URL, which outlive the process."""
        if self._tasks is None:
            self._tasks = _task_store(self.state, self.database)
        return self._tasks

    def enter(self, conversation: ReloadTarget) -> None:
        """Register a conversation, which is notified of reloads until ``leave``."""
        self._conversations.add(conversation)

    def leave(self, conversation: ReloadTarget) -> None:
        """Unregister a conversation."""
        self._conversations.discard(conversation)

    @property
    def conversations(self) -> Collection[ReloadTarget]:
        """The conversations that are registered."""
        return self._conversations

    def held(self) -> int:
        """Bytes of memory for the open requests of all conversations."""
        return sum(conversation.held for conversation in self._conversations)

    def replace(self, rules: Rules) -> Rules:
        """Put another policy in force; returns the old one, which the caller retires. Unchanged limits and brakes keep
        their state."""
        same = self.rules.compiled.policy.brakes == rules.compiled.policy.brakes
        brakes = self.brakes if same else BrakeState(rules.compiled.policy.brakes)
        old, self.rules, self.brakes = self.rules, rules, brakes
        self._retired.add(old)
        rules.models.report_failed_starts(self._worker_failed)
        self.admission.update_limits(rules.compiled.limit_specs)
        self.limit_metrics.update_limits(rules.compiled.limit_specs)
        for conversation in list(self._conversations):
            try:
                conversation.swap()
            except Exception:  # one failure must not leave the others under the old policy
                self.log.error("policy.not_swapped", exc_info=True)  # noqa: G201
        return old

    async def retire(self, rules: Rules) -> None:
        """Close the models of a replaced policy once no round runs under it."""
        if rules is not self.rules and not rules.open and rules in self._retired:
            self._retired.discard(rules)
            await rules.models.aclose()

    def _worker_failed(self, problem: str) -> None:
        self.log.error("sampler.not_started", problem=problem)

    def first_answer(self) -> None:
        """Note that a server has answered a request."""
        if not self._served:
            self._served = True
            self.publish()

    def open_requests(self, number: int) -> None:
        """Count requests that are being decided from now on; negative when they are over."""
        self._open += number
        self.publish()

    def publish(self) -> None:
        """Bring the gate's file up to date, if the process belongs to a run."""
        if self.gate_file is None:
            return
        tally, played = self.tally, self.playback
        unused = {} if played is None else {"unused_cases": played.unused, "fails_unused": played.fails_if_unused}
        if not self.gate_file.update(
            open=self._open,
            counts=tally.counts,
            recorded=tally.recorded,
            handed_on=tally.handed_on,
            served=self._served,
            **unused,
        ):
            self.log.error("run.not_written", run=self.run)

    def recorded(self, record: Record) -> None:
        """Count a written record, and add it to the cassette if there is one."""
        self.tally.count(record)
        self.publish()
        if self.cassette is not None:
            self.cassette.add_record(record)

    async def aclose(self) -> None:
        """Close the models, the limits and the decision log, and send the last spans. Reservations that are not settled
        stay charged at their upper bound."""
        if self.traces is not None:
            self.traces.close(0.0)  # a thread sends them meanwhile
        for rules in (self.rules, *self._retired):
            await rules.models.aclose()
        await self.admission.aclose()
        if self._tasks is not None:
            self._tasks.close()
        await self.decisions.aclose()
        if self.traces is not None:
            self.traces.close(LAST_SPANS)


def _task_store(state: Path, database: str | None) -> TaskStore:
    from samplegate.tasks.store import MemoryTasks, SqlTasks

    if database is not None:
        from samplegate.tasks.postgres_table import PostgresTable

        return SqlTasks(lambda: PostgresTable(database))
    if state == Path():
        return MemoryTasks()
    from samplegate.tasks.sqlite_table import SqliteTable

    return SqlTasks(lambda: SqliteTable(state))


def load_policy(
    text: str, *, file: str, environment: Mapping[str, str], missing: Literal["warn", "error"] = "warn"
) -> load.LoadedPolicy:
    """Read and validate a policy with litellm's model table. Raises PolicyError with every problem."""
    return load.load(text, file=file, environment=environment, missing=missing, look_up=litellm_prices.read_prices)


def compile_loaded(
    loaded: load.LoadedPolicy, folder: Path, environment: Mapping[str, str] | None = None
) -> CompiledPolicy:
    """Compile a policy for decisions, with its secret patterns and script files (paths relative to ``folder``).

    Raises PolicyError for problems in those files. ``environment`` replaces the loaded one, for test cases with their
    own.
    """
    policy = loaded.policy
    return compile_policy(
        policy,
        loaded.environment if environment is None else environment,
        catalogue=loaded.catalogue,
        detectors=secret_patterns.known() if redaction.searches_secrets(policy) else {},
        scripts=load_rule_scripts(policy, folder),
    )
