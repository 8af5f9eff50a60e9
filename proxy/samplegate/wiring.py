"""The gate's ports, bound to this process: its clock, its models, its decision log, its counters. It decides nothing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from samplegate.core.decisions import Reason
from samplegate.core.ledger import Draw, Refused, Reserved
from samplegate.core.record import Record
from samplegate.core.samples import SampleRequest, SampleResult
from samplegate.core.session.rounds import Conclusion, Note, Round
from samplegate.core.session.session import Session
from samplegate.core.session.state import State
from samplegate.gate import Gate
from samplegate.limits.admission import Admission
from samplegate.ports import Ports, Unavailable
from samplegate.preparation import Run
from samplegate.records.draws import Draws
from samplegate.records.metrics import Metrics
from samplegate.records.notes import Notes
from samplegate.records.tally import Tally
from samplegate.relay import Relay


class Wires:
    """One conversation's session, gate and relay, wired together, and what is counted of it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.metrics = Metrics()
        self.tally = Tally(self.metrics)
        self.notes = Notes(run.log, self.metrics, run.settings.server)
        state = State(run.book, run.settings.server, secrets.token_hex(4), secrets.token_bytes(32), epoch=time.time() - time.monotonic())
        self.relay = Relay(Session(state), self._round, clock=time.monotonic, note=self._note)
        self._draws = Draws(run.book.terms, self.metrics)
        self.admission = Admission(run.book.terms, state=run.settings.state, clock=time.time, log=run.log)
        ports = Ports(
            sample=self._sample,
            reserve=self._reserve,
            settle=self._settle,
            progress=self.relay.tokens,
            note=self._note,
            ask_client=self.relay.ask_client,
            record=self._record,
            clock=time.monotonic,
            wall=time.time,
            random=secrets.token_bytes,
            log=run.log,
        )
        if any(model.warm for model in run.policy.policy.models):
            self.relay.first_call = run.models.warm
        self._gate = Gate(run.book, run.policy.hash, ports)

    async def _round(self, round: Round) -> Conclusion:
        self.metrics.count("samplegate_rounds_total", server=round.origin.server, door=round.door)
        return await self._gate.run(round)

    def _note(self, note: Note) -> None:
        self.notes.take(note)
        self._count(note)
        if note.event == "request.failed":
            self.metrics.count("samplegate_rounds_failed_total", server=self._run.settings.server, door=note.fields["door"])
            self.tally.fault(note.fields["round"])

    def _count(self, note: Note) -> None:
        match note.event:
            case "brake.tripped":
                self.metrics.count("samplegate_brakes_total", server=note.fields["server"], brake=note.fields["brake"])
            case "secrets.found":
                for pattern, count in note.fields["patterns"].items():
                    self.metrics.count("samplegate_redactions_total", count, pattern=pattern, where=note.fields["where"])
            case "limit.warned":
                self.metrics.count("samplegate_limit_warnings_total", limit=note.fields["limit"])

    async def _reserve(self, draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        started = time.monotonic()
        answer = await self.admission.reserve(draws, wait)
        try:
            self._draws.reserved(draws, answer, None if wait is None else time.monotonic() - started)
        except Exception:  # nobody would ever settle what was reserved
            self._run.log.error("metrics.failed", exc_info=True)  # noqa: G201
        return answer

    async def _settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        await self.admission.settle(reserved, actual)
        for name in self._draws.settled(reserved, actual):
            self._note(Note("limit.overrun", {"limit": name}))

    async def _sample(self, request: SampleRequest, heard: Callable[[int], None]) -> SampleResult:
        started = time.monotonic()
        first = True

        def told(tokens: int) -> None:
            nonlocal first
            if first:
                first = False
                self.metrics.observe("samplegate_model_first_token_seconds", time.monotonic() - started, model=request.model)
            heard(tokens)

        try:
            answer = await self._run.models.sample(request, told)
        finally:
            self.metrics.observe("samplegate_model_call_duration_seconds", time.monotonic() - started, model=request.model)
        for direction in ("input", "output"):
            tokens = getattr(answer, f"{direction}_tokens", None)
            if tokens:
                self.metrics.count("samplegate_model_tokens_total", tokens, model=request.model, direction=direction)
        return answer

    async def _record(self, record: Record) -> None:
        """Write one; a record that was cancelled before it stood is none, and nothing is counted of it."""
        try:
            await self._run.decisions.write(record)
        except Exception as problem:
            self.metrics.count("samplegate_records_failed_total", server=record.server)
            self._recorded(record if record.outcome == "withdrawn" else replace(record, outcome="unanswered", reason=Reason.RECORDS))
            if isinstance(problem, Unavailable):
                raise
            self._run.log.error("record.faulty", decision_id=record.decision_id, exc_info=True)  # noqa: G201
            raise Unavailable(f"decision log: a fault while writing ({type(problem).__name__}); the log has it") from problem
        self._recorded(record)

    def _recorded(self, record: Record) -> None:
        self.tally.take(record)
        if self._run.tape is not None:
            self._run.tape.take_record(record)
        self._run.log.info("request.decided", **_told(record))


def _told(record: Record) -> dict[str, Any]:
    fields = ("decision_id", "server", "kind", "effect", "rule", "outcome", "reason", "detail", "model", "refused_by")
    return {name: value for name in fields if (value := getattr(record, name))}
