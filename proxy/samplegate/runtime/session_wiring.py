"""Wiring of one conversation: its session, gate and relay, and the gate's ports.

The ports are bound to the resources that the process shares: clock, models, limits, decision log and metrics. No
decisions are made here.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from samplegate.audit.record import MAX_CALLS, MAX_NAME, Record
from samplegate.errors import Unavailable
from samplegate.gate.gate import Gate
from samplegate.gate.ports import Ports, RequestSpan
from samplegate.gate.request import PendingRequest
from samplegate.policy.capabilities import SessionRules
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import SampleRequest, SampleResult
from samplegate.protocol import capabilities
from samplegate.protocol.bridge.calls import SessionProtocol
from samplegate.protocol.frames import MODERN
from samplegate.protocol.identity import LOCAL, Identity
from samplegate.protocol.outcomes import CallDrawn, Reason
from samplegate.protocol.rawjson import NOT_JSON
from samplegate.protocol.requests import Offer
from samplegate.protocol.rounds import Conclusion, Note, Round, TaskStep
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState
from samplegate.protocol.task_state import TaskRecord, paying, spending
from samplegate.runtime.process import ProcessContext, Rules
from samplegate.runtime.relay import Relay
from samplegate.tasks.store import MemoryTasks, TaskStore
from samplegate.telemetry.log import Level
from samplegate.telemetry.observers import COUNTED, NoteLog

_WARNED: Final = frozenset({Reason.MODEL, Reason.TIMEOUT, Reason.LIMIT, Reason.RECORDS, Reason.REVIEW, Reason.ERROR})
UNNAMED: Final = "default"
"""Name of a wrapped server if the command line and the settings give none."""


class SessionWiring:
    """One conversation's session, gate and relay. ``leave`` unregisters it from the process."""

    def __init__(
        self,
        context: ProcessContext,
        server: str,
        *,
        identity: Identity = LOCAL,
        realm: str = "",
        maps_ids: bool = False,
        streams: bool = False,
        outlived: bool = False,
        session: Callable[[SessionState], SessionProtocol] = Session,
        observe: Callable[[Note], object] = lambda _: None,
    ) -> None:
        """``observe`` receives every note of the session, in addition to the log and the metrics."""
        self.context = context
        self.server = server
        self._realm = realm
        self._transport = "tcp" if streams else "pipe"
        self._observe = observe
        self.notes = NoteLog(context.log, context.metrics, server)
        self.state = SessionState(
            SessionRules(context.rules.compiled, context.has_page),
            server,
            secrets.token_hex(4),
            context.keys,
            epoch=time.time() - time.monotonic(),
            identity=identity,
            maps_ids=maps_ids,
            streams=streams,
            outlived=outlived,
            process_bytes=context.held,
            tasks=True,
        )
        # a stdio server ends with this process, and with it its tasks
        self._tasks: TaskStore = context.tasks if streams else MemoryTasks()
        self._scope = f"{server} {realm}"
        self.relay = Relay(
            session(self.state),
            self._round,
            clock=time.monotonic,
            note=self._note,
            tasks=self._step,
        )
        self._rules = context.rules
        self.began = time.monotonic()
        self.rounds: dict[str, Mapping[str, PendingRequest]] = {}
        """The requests that are being answered, by round and key."""
        self._gate = self._gate_of(context.rules)
        if context.playback is None and any(model.warm for model in context.rules.policy.policy.models):
            self.relay.first_call = context.rules.models.warm
        self.relay.first_answer = self._opened
        context.enter(self)

    def _opened(self) -> None:
        """Note the server's first answer. The log's details have who speaks, in which version and with which
        capabilities; in 2026-07-28, these are declared with each call."""
        if self.context.run:
            self.context.first_answer()
        state = self.state
        declared = capabilities.withheld_from(state.client, Offer(), state.revision)
        withheld = capabilities.withheld_from(state.client, state.offered, state.revision)
        self.context.log.debug(
            "session.opened",
            server=self.server,
            session=state.token,
            caller=state.caller,
            protocol=state.revision or MODERN[-1],
            client=state.client_name,
            capabilities=declared,
            advertised=[name for name in declared if name not in withheld],
        )

    @property
    def works_for_tasks(self) -> bool:
        """Whether something is under way that tasks would lose if the gate ended: a model's answer, a call of the gate
        at the server, or what the store is told of them. A round that waits for a person loses nothing."""
        rounds = ({one.wait.what for one in round.values() if one.wait is not None} for round in self.rounds.values())
        return (
            self.relay.is_storing
            or self.state.inflight.at_server_for_tasks
            or any("model" in waits or waits.isdisjoint(("reviewer", "client")) for waits in rounds)
        )

    def swap(self) -> None:
        """Adopt the policy in force after a reload: rounds that begin from now on are decided by it."""
        self._rules = self.context.rules
        self._gate = self._gate_of(self._rules)
        self.state.policy = SessionRules(self._rules.compiled, self.context.has_page)
        if self.relay.first_call is not None:
            self.relay.first_call = self._rules.models.warm

    @property
    def held(self) -> int:
        """Bytes of memory for the session's open requests."""
        return self.state.held

    def leave(self) -> None:
        """Unregister the conversation when it ends."""
        self.context.leave(self)

    def _gate_of(self, rules: Rules) -> Gate:
        context = self.context
        ports = Ports(
            sample=partial(self._sample, rules),
            reserve=partial(self._reserve, rules),
            settle=partial(self._settle, rules),
            call_drawn=self.context.admission.call_drawn,
            restore_drawn=self.context.admission.restore_drawn,
            when_lost=self.context.admission.when_lost,
            progress=self.relay.tokens,
            note=self._note,
            ask_client=self.relay.ask_client,
            read_ui=self.relay.read_ui if context.has_page else None,
            record=self._record,
            clock=time.monotonic,
            wall=time.time,
            random=secrets.token_bytes,
            log=context.log,
            in_force=lambda: context.rules.compiled,
            realm=self._realm,
            replay=None if context.playback is None else context.playback.answer_forwarded,
            reviews=context.reviews,
            pay=self._pay,
            wait_long=self.relay.wait_long,
            trace=None if context.traces is None else partial(context.traces.spans.start, transport=self._transport),
        )
        return Gate(rules.compiled, rules.hash, ports, context.brakes, self.rounds)

    async def _round(self, round: Round) -> Conclusion:
        self.context.metrics.count("samplegate_rounds_total", server=round.origin.server, door=round.door)
        rules, gate = self._rules, self._gate
        rules.open += 1
        self.context.open_requests(len(round.items))
        try:
            return await gate.run(round)
        finally:
            rules.open -= 1
            self.context.open_requests(-len(round.items))
            if rules is not self.context.rules:
                self.relay.start(self.relay.beside, partial(self.context.retire, rules))

    async def _step(self, step: TaskStep) -> TaskRecord | None:
        return await (self.context.tasks if step.own else self._tasks).step(self._scope, step)

    async def _pay(self, round: Round, key: str, drawn: tuple[CallDrawn, ...]) -> None:
        if round.own:
            step = TaskStep("", round.own, spending(self.state.token), own=True)
        else:
            assert round.task is not None
            step = TaskStep("", round.task, paying(key, self.state.token, drawn))
        if await self._step(step) is None:
            raise Unavailable("the task is no longer known")

    def _note(self, note: Note) -> None:
        self.notes.count(note)
        self._observe(note)
        self._count(note)
        if note.event == "request.failed":
            self.context.metrics.count("samplegate_rounds_failed_total", server=self.server, door=note.fields["door"])
            self.context.tally.count_fault(note.fields["round"])
        if note.event in COUNTED and not _is_banner(note):
            self.context.tally.count_dropped()
        self.context.publish()

    def _count(self, note: Note) -> None:
        metrics = self.context.metrics
        match note.event:
            case "brake.tripped":
                metrics.count("samplegate_brakes_total", server=note.fields["server"], brake=note.fields["brake"])
            case "secrets.found":
                for pattern, count in note.fields["patterns"].items():
                    metrics.count("samplegate_redactions_total", count, pattern=pattern, where=note.fields["where"])
            case "remote.failed":
                self.context.tally.count_unanswered_call("a request over HTTP", None)
                metrics.count("samplegate_calls_lost_total", server=self.server, reason="unreachable")
            case "call.timed_out":
                metrics.count("samplegate_calls_lost_total", server=self.server, reason="timeout")
                self.context.tally.count_unanswered_call(note.fields["method"], note.fields["tool"])
            case "frame.refused" if note.fields["side"] == "client":
                self.context.tally.count_refused_batch(note.fields.get("requests", 0), note.fields["fault"])
            case "notification.unattributed":
                metrics.count("samplegate_notifications_dropped_total", server=self.server)
            case "limit.warned":
                metrics.count("samplegate_limit_warnings_total", limit=note.fields["limit"])

    async def _reserve(self, rules: Rules, draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        started = time.monotonic()
        answer = await self.context.admission.reserve(draws, wait, rules.compiled.limit_specs)
        try:
            self.context.limit_metrics.count_reservation(
                draws, answer, None if wait is None else time.monotonic() - started
            )
        except Exception:  # an error here would leak the reservation
            self.context.log.error("metrics.failed", exc_info=True)  # noqa: G201
        return answer

    async def _settle(self, rules: Rules, reserved: Reserved, actual: Sequence[Draw]) -> None:
        await self.context.admission.settle(reserved, actual)
        try:
            for name in self.context.limit_metrics.count_settlement(reserved, actual, rules.compiled.limit_specs):
                self._note(Note("limit.overrun", {"limit": name}))
        except Exception:  # the port never raises; the settlement itself succeeded
            self.context.log.error("metrics.failed", exc_info=True)  # noqa: G201

    async def _sample(
        self, rules: Rules, request: SampleRequest, heard: Callable[[int], None], span: RequestSpan | None
    ) -> SampleResult:
        metrics, started, first = self.context.metrics, time.monotonic(), True
        name = request.model
        result: SampleResult | None = None
        exemplar = None if span is None else {"trace_id": span.trace_id, "span_id": span.span_id}
        call = None if span is None else span.model_call(name, rules.compiled.model(name), request.params)

        def on_tokens(tokens: int) -> None:
            nonlocal first
            if first:
                first = False
                metrics.observe("samplegate_model_first_token_seconds", time.monotonic() - started, model=name)
            heard(tokens)

        try:
            answer = result = await (self.context.playback or rules.models).sample(request, on_tokens)
        finally:
            elapsed = time.monotonic() - started
            metrics.observe("samplegate_model_call_duration_seconds", elapsed, exemplar, model=name)
            if call is not None:
                call.end(result)
        for direction in ("input", "output"):
            tokens = getattr(answer, f"{direction}_tokens", None)
            if tokens:
                metrics.count("samplegate_model_tokens_total", tokens, model=name, direction=direction)
        return answer

    async def _record(self, record: Record) -> None:
        """Write a record and count its outcome. A write that is cancelled counts nothing."""
        context = self.context
        record = replace(record, run=context.run or None, settings_hash=context.settings_hash or None)
        try:
            await context.decisions.write(record)
        except Exception as problem:
            context.metrics.count("samplegate_records_failed_total", server=record.server)
            self._recorded(
                record
                if record.outcome == "withdrawn"
                else replace(record, outcome="unanswered", reason=Reason.RECORDS)
            )
            if isinstance(problem, Unavailable):
                raise
            context.log.error("record.faulty", decision_id=record.decision_id, exc_info=True)  # noqa: G201
            raise Unavailable(
                f"decision log: internal error while writing ({type(problem).__name__}); see the log"
            ) from problem
        context.tally.count_recorded()
        self._recorded(record)

    def _recorded(self, record: Record) -> None:
        self.context.recorded(record)
        getattr(self.context.log, _level(record))("request.decided", **_log_fields(record))


def _is_banner(note: Note) -> bool:
    """Whether a server printed a line that is no JSON, as many do at their start."""
    return note.event == "frame.refused" and note.fields["side"] == "server" and note.fields["fault"] == NOT_JSON


def _level(record: Record) -> Level:
    """Log level of a record: error for an operator's mistake, warning for a request that lacked a model, a limit, a
    record or a reviewer."""
    if any(attempt.result in ("bad_key", "unknown_model") for attempt in record.attempts):
        return "error"
    return "warning" if record.outcome == "unanswered" and record.reason in _WARNED else "info"


def _log_fields(record: Record) -> dict[str, Any]:
    fields = ("decision_id", "server", "caller", "session", "kind", "effect", "rule", "outcome", "reason", "detail")
    last = ("model", "refused_by", "trace_id", "span_id")
    found = {name: value for name in (*fields, *last) if (value := getattr(record, name))}
    tools = ", ".join(call.tool or call.method for call in record.calls[:MAX_CALLS])[:MAX_NAME]
    return {**found, "tool": tools} if tools else found


def realm_of(server: str, command: Sequence[str], url: str | None) -> str:
    """Distinguishes unnamed servers, so that a verdict for one server is not valid for the same request of another.
    Empty for a named server."""
    return "" if server != UNNAMED else json.dumps([list(command), url])
