"""Fakes of the gate's ports, and dialogues with one open round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from samplegate.audit.record import Record
from samplegate.errors import Unavailable
from samplegate.gate.gate import Gate
from samplegate.gate.ports import Ports, Replay, RequestSpan, ReviewPort
from samplegate.policy.decide import CompiledPolicy
from samplegate.policy.prompt import Sampled, SampleRequest, SampleResult
from samplegate.protocol.outcomes import CallDrawn
from samplegate.protocol.rounds import ClientReply, Note, Open, Release, Round, Settled
from samplegate.protocol.ui_resources import UiResource
from tests.fakes.dialogue import Dialogue, ask, form, modern, one, request, result, sample
from tests.fakes.limits_port import FakeLimits

SAMPLED = Sampled(({"type": "text", "text": "hi"},), "gpt", "endTurn", 3, 4)


class Silent:
    """A log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    debug = info = error = warning


@dataclass
class FakePorts:
    """Fakes of the gate's ports."""

    answer: SampleResult | Callable[[SampleRequest], Awaitable[SampleResult]] = SAMPLED
    reply: ClientReply | None = None
    broken_log: bool = False
    now: float = 0.0
    asked: list[SampleRequest] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    log: Silent = field(default_factory=Silent)
    limits: FakeLimits = field(default_factory=FakeLimits)
    notes: list[Note] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    reviews: ReviewPort | None = None
    clock: Callable[[], float] | None = None
    wall: Callable[[], float] = lambda: 1e9
    in_force: Callable[[], CompiledPolicy] | None = None
    realm: str = ""
    replay: Replay | None = None
    pay: Callable[[Round, str, tuple[CallDrawn, ...]], Awaitable[None]] | None = None
    trace: Callable[[Round, str, str], RequestSpan | None] | None = None
    read_ui: Callable[[str, str, tuple[str, ...]], Awaitable[UiResource]] | None = None

    async def sample(
        self, request: SampleRequest, heard: Callable[[int], None], span: RequestSpan | None
    ) -> SampleResult:
        self.asked.append(request)
        heard(1)
        return await self.answer(request) if callable(self.answer) else self.answer

    async def ask_client(self, round: Round) -> ClientReply:
        if self.reply is None:
            await anyio.sleep_forever()
        assert self.reply is not None
        return self.reply

    async def record(self, record: Record) -> None:
        if self.broken_log:
            raise Unavailable("decision log: disk full")
        self.records.append(record)

    def gate(self, d: Dialogue) -> Gate:
        self.limits.specs = d.compiled.limit_specs
        ports = Ports(
            sample=self.sample,
            reserve=self.limits.reserve,
            settle=self.limits.settle,
            progress=lambda _, count: self.heard.append(count),
            ask_client=self.ask_client,
            record=self.record,
            note=self.notes.append,
            clock=self.clock or (lambda: self.now),
            wall=self.wall,
            random=bytes,
            log=self.log,
            reviews=self.reviews,
            in_force=self.in_force,
            realm=self.realm,
            replay=self.replay,
            pay=self.pay,
            trace=self.trace,
            read_ui=self.read_ui,
        )
        return Gate(d.compiled, "hash", ports)

    async def settled(self, d: Dialogue, round: Round) -> Mapping[str, Release]:
        conclusion = await self.gate(d).run(round)
        assert isinstance(conclusion, Settled)
        return conclusion.releases


def pushed(
    *rules: Mapping[str, Any],
    method: str = "sampling/createMessage",
    params: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    **capabilities: Any,
) -> Any:
    """A legacy dialogue with one open round. ``policy`` has the policy's keys besides the rules."""
    d = Dialogue(*rules, **(policy or {}))
    d.open_legacy(**capabilities)
    return d, one(
        d.server(request(7, method, **(params or (sample() if method.startswith("s") else form())))), Open
    ).round


def asked(
    *rules: Mapping[str, Any],
    capabilities: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    **keys: Mapping[str, Any],
) -> Any:
    """A modern dialogue with one open round of several keys."""
    d = Dialogue(*rules, **(policy or {}))
    d.client(modern(1, "tools/call", capabilities, name="x"))
    return d, one(
        d.server(
            result(1, resultType="input_required", inputRequests={k: ask(v) for k, v in keys.items()}, requestState="s")
        ),
        Open,
    ).round
