"""The shape of spans: names, parents, links and attributes, with the SDK's in-memory exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, format_span_id, format_trace_id

from samplegate.gate.ports import RequestSpan
from samplegate.policy.prompt import Sampled, SampleFailed
from samplegate.protocol.requests import Call
from samplegate.protocol.rounds import Round
from samplegate.reviews.review import Filter
from samplegate.telemetry import spans
from tests.fakes.dialogue import form, sample
from tests.fakes.gate_ports import SAMPLED, FakePorts, Silent, asked, pushed
from tests.fakes.reviewed_gate import ASK, POLICY, ReviewedGate
from tests.fakes.virtual_time import VIRTUAL
from tests.paths import ROOT

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALL: Final = f"00-{TRACE}-b7ad6b7169203331-01"
OWN: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
FOREIGN: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
AMBIENT: Final = "00-11111111111111111111111111111111-2222222222222222-01"
MODELS: Final = [
    {"name": "cheap", "model": "openai/gpt-5-mini", "price": {"input": 1, "output": 1}},
    {"name": "smart", "model": "bedrock/claude", "price": {"input": 1, "output": 1}},
]
ALLOW: Final = {"name": "r", "match": {"kind": "sampling"}, "effect": "allow", "with": {"models": ["cheap", "smart"]}}


class World:
    """A tracer whose spans are kept, as the gate's port."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler or ParentBased(ALWAYS_ON), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.log = Silent()
        self.tracer = spans.RequestTracer(provider.get_tracer("test"), self.log)

    def start(self, round: Round, key: str = "", decision_id: str = "d1") -> RequestSpan | None:
        return self.tracer.start(round, key or next(iter(round.items)), decision_id, transport="pipe")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def played(self, d: Any, round: Round, **ports: Any) -> list[ReadableSpan]:
        """The spans of a round that the gate runs."""
        fake = FakePorts(trace=self.start, **ports)

        async def run() -> None:
            await fake.gate(d).run(round)

        anyio.run(run)
        return self.ended


def context(span: ReadableSpan) -> SpanContext:
    found: SpanContext | None = span.context
    assert found is not None
    return found


def w3c(found: SpanContext | None) -> str:
    assert found is not None
    return f"00-{format_trace_id(found.trace_id)}-{format_span_id(found.span_id)}-{int(found.trace_flags):02x}"


def traced(round: Round, trace: str = "", ambient: str = "", tool: str | None = None) -> Round:
    calls = () if tool is None else (Call("tools/call", tool),)
    origin = msgspec.structs.replace(round.origin, trace=trace, ambient=ambient, calls=calls)
    return msgspec.structs.replace(round, origin=origin)


def by_own(traceparent: object) -> Round:
    """A round whose server gave this trace context with its request."""
    round: Round = pushed(ALLOW, params={**sample(), "_meta": {"traceparent": traceparent}}, policy=policy())[1]
    return round


def policy(**more: Any) -> Mapping[str, Any]:
    return {"models": MODELS, **more}


def test_the_names_are_these() -> None:
    """The conventions are in development. A dashboard relies on these names, so a change belongs in the changelog."""
    names = {name: value for name, value in vars(spans).items() if name.isupper() and isinstance(value, str)}
    assert {
        "METHOD": "mcp.method.name",
        "PROTOCOL": "mcp.protocol.version",
        "REQUEST_ID": "jsonrpc.request.id",
        "STATUS_CODE": "rpc.response.status_code",
        "TRANSPORT": "network.transport",
        "TOOL": "gen_ai.tool.name",
        "ERROR": "error.type",
        "OPERATION": "gen_ai.operation.name",
        "PROVIDER": "gen_ai.provider.name",
        "REQUEST_MODEL": "gen_ai.request.model",
        "MAX_TOKENS": "gen_ai.request.max_tokens",
        "RESPONSE_MODEL": "gen_ai.response.model",
        "FINISH_REASONS": "gen_ai.response.finish_reasons",
        "INPUT_TOKENS": "gen_ai.usage.input_tokens",
        "OUTPUT_TOKENS": "gen_ai.usage.output_tokens",
        "SERVER": "samplegate.server",
        "DOOR": "samplegate.door",
        "ROUND": "samplegate.round",
        "DECISION_ID": "samplegate.decision_id",
        "RULE": "samplegate.rule",
        "EFFECT": "samplegate.effect",
        "OUTCOME": "samplegate.outcome",
        "REASON": "samplegate.reason",
        "REVIEW": "samplegate.review",
        "REVIEWER": "samplegate.reviewer",
        "STAGE": "samplegate.review.stage",
        "MODEL": "samplegate.model",
        "OPENED": "samplegate.review.opened",
        "CHAT": "chat",
        "CANCELLED": "cancelled",
        "UNKNOWN": "unknown",
        "SCRIPTED": "scripted",
    } == names
    page = (ROOT / "deploy" / "metrics.md").read_text("utf-8").partition("## Traces")[2]
    assert [] == [name for name in names.values() if "." in name and f"`{name}`" not in page]


@pytest.mark.parametrize(
    ("own", "call", "ambient", "parent", "links"),
    [
        (None, "", "", None, []),
        (None, CALL, "", CALL, []),
        (OWN, "", "", OWN, []),
        (OWN, CALL, "", OWN, []),
        (FOREIGN, CALL, "", CALL, [FOREIGN]),
        (None, CALL, AMBIENT, CALL, [AMBIENT]),
        (FOREIGN, CALL, AMBIENT, CALL, [FOREIGN, AMBIENT]),
        (OWN[:-2] + "00", CALL, "", OWN, []),
        ("00-" + "0" * 32 + OWN[35:], CALL, "", CALL, []),
        (["00"], "ff" + CALL[2:], "", None, []),
    ],
    ids=[
        "none", "the call's", "the server's", "the server's within the call's trace", "the server's in another trace",
        "the call's, with another of HTTP", "all three", "a server cannot unsample", "zeros", "none by their form",
    ],
)  # fmt: skip
def test_the_parent_of_a_request_is_the_servers_context_within_the_trace_of_the_call(
    own: object, call: str, ambient: str, parent: str | None, links: list[str]
) -> None:
    world = World()
    found = world.start(traced(by_own(own), call, ambient))
    assert found is not None
    found.end(pending_decision(), None, None, "sampling")
    [span] = world.ended
    assert (parent, links) == (
        None if span.parent is None else w3c(span.parent),
        [w3c(link.context) for link in span.links],
    )
    assert found.traceparent == w3c(context(span))
    assert found.traceparent.startswith(f"00-{found.trace_id}-{found.span_id}-0")


def pending_decision() -> Any:
    d, round = pushed(ALLOW, policy=policy())
    return FakePorts().gate(d)._pending(round, next(iter(round.items))).decision


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_ON)])
def test_a_request_that_is_not_sampled_has_no_span(sampler: Sampler) -> None:
    d, round = pushed(ALLOW, policy=policy())
    ports = FakePorts(trace=World(sampler).start)
    unsampled = traced(round, CALL[:-2] + "00")
    anyio.run(lambda: ports.gate(d).run(unsampled))
    assert [(None, None)] == [(record.trace_id, record.span_id) for record in ports.records]


class Broken(Sampler):
    """A sampler of a plugin that fails."""

    def should_sample(self, *args: object, **kwargs: object) -> SamplingResult:
        raise RuntimeError("a fault of the plugin")

    def get_description(self) -> str:
        return "broken"


def test_an_error_of_tracing_changes_no_answer() -> None:
    d, round = pushed(ALLOW, policy=policy())
    world = World(Broken())
    ports = FakePorts(trace=world.start)
    anyio.run(lambda: ports.gate(d).run(round))
    assert (["answered"], [("traces.failed", {"exc_info": True})]) == (
        [record.outcome for record in ports.records],
        world.log.events,
    )


def test_a_model_call_is_a_span_below_its_request() -> None:
    d, round = pushed(ALLOW, policy=policy())
    world = World()
    start = world.start(traced(round, tool="summarize"))
    assert start is not None
    call = start.model_call("cheap", d.compiled.model("cheap"), {"maxTokens": 10})
    assert call is not None
    call.end(Sampled(({"type": "text", "text": "hi"},), "gpt-5-mini-2026", "endTurn", 3, 4))
    start.end(pending_decision(), None, None, "sampling")
    chat, request = world.ended
    assert ("chat gpt-5-mini", SpanKind.CLIENT, StatusCode.UNSET) == (chat.name, chat.kind, chat.status.status_code)
    assert ("sampling/createMessage summarize", SpanKind.SERVER) == (request.name, request.kind)
    assert chat.parent is not None
    assert context(request).span_id == chat.parent.span_id
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.request.max_tokens": 10,
        "gen_ai.response.model": "gpt-5-mini-2026",
        "gen_ai.response.finish_reasons": ("endTurn",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "samplegate.model": "cheap",
    } == chat.attributes


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-5", "openai", "gpt-5"),
        ("bedrock/eu/claude", "aws.bedrock", "eu/claude"),
        ("Gemini/pro", "gcp.gemini", "pro"),
        ("hosted_vllm/local", "hosted_vllm", "local"),
        ("gpt-5", "unknown", "gpt-5"),
        ("scripted", "scripted", "scripted"),
    ],
)
def test_a_provider_has_the_conventions_name(model: str, provider: str, name: str) -> None:
    d, round = pushed(ALLOW, policy=policy())
    world = World()
    start = world.start(round)
    assert start is not None
    named = msgspec.structs.replace(d.compiled.model("cheap"), model=model)
    call = start.model_call("cheap", named, {"maxTokens": 10})
    assert call is not None
    call.end(None)
    [chat] = world.ended
    assert chat.attributes is not None
    assert (provider, name, f"chat {name}") == (
        chat.attributes["gen_ai.provider.name"],
        chat.attributes["gen_ai.request.model"],
        chat.name,
    )


@pytest.mark.parametrize(
    ("answer", "error"), [(SampleFailed("rate_limited", "429"), "rate_limited"), (None, "cancelled")]
)
def test_a_model_call_without_an_answer_is_an_error(answer: SampleFailed | None, error: str) -> None:
    d, round = pushed(ALLOW, policy=policy())
    world = World()
    start = world.start(round)
    assert start is not None
    call = start.model_call("cheap", d.compiled.model("cheap"), {"maxTokens": 10})
    assert call is not None
    call.end(answer)
    [chat] = world.ended
    assert chat.attributes is not None
    assert (error, StatusCode.ERROR, None) == (
        chat.attributes["error.type"],
        chat.status.status_code,
        chat.status.description,
    )


DENY: Final = {"name": "no", "match": {"text": "hello"}, "effect": "deny"}
DECLINE: Final = {"name": "no", "match": {"kind": "elicitation", "fields": ["confirm"]}, "effect": "deny"}
FIXED: Final = {"name": "yes", "effect": "answer", "content": {"confirm": True}}
REST: Final = {"name": "rest", "effect": "answer", "content": {"other": True}}
"""A rule for others, so that the kinds are declared."""


def told(span: ReadableSpan) -> dict[str, Any]:
    wanted = ("rule", "effect", "outcome", "reason")
    attributes = span.attributes or {}
    found: dict[str, Any] = {name: attributes.get(f"samplegate.{name}") for name in wanted}
    return found | {"error": attributes.get("error.type"), "code": attributes.get("rpc.response.status_code")}


@pytest.mark.parametrize(
    ("rule", "method", "ports", "expected"),
    [
        (ALLOW, "sampling/createMessage", {}, ("r", "allow", "answered", "rule", None, None)),
        (DENY, "sampling/createMessage", {}, ("no", "deny", "denied", "rule", None, "-1")),
        (DECLINE, "elicitation/create", {}, ("no", "deny", "denied", "rule", None, None)),
        (FIXED, "elicitation/create", {}, ("yes", "answer", "answered", "rule", None, None)),
        (
            ALLOW,
            "sampling/createMessage",
            {"answer": SampleFailed("refused", "no")},
            ("r", "allow", "unanswered", "model", "model", "-1"),
        ),
        (
            ALLOW,
            "sampling/createMessage",
            {"broken_log": True},
            ("r", "allow", "unanswered", "records", "records", "-1"),
        ),
    ],
    ids=["answered", "denied", "declined", "fixed", "the model refuses", "the log is broken"],
)
def test_a_span_tells_the_decision_and_its_outcome(
    rule: Mapping[str, Any], method: str, ports: Mapping[str, Any], expected: tuple[str | None, ...]
) -> None:
    d, round = pushed(rule, ALLOW, REST, method=method, policy=policy(), elicitation={"form": {}}, sampling={})
    spans_seen = World().played(d, round, **ports)
    assert [dict(zip(("rule", "effect", "outcome", "reason", "error", "code"), expected, strict=True))] == [
        told(span) for span in spans_seen if span.kind is SpanKind.SERVER
    ]


def test_each_request_of_a_round_has_its_own_span() -> None:
    d, round = asked(DECLINE, REST, capabilities={"elicitation": {"form": {}}}, one=form(), two=form())
    found = World().played(d, round)
    assert [(round.id, "denied")] * 2 == [
        (span.attributes["samplegate.round"], span.attributes["samplegate.outcome"])
        for span in found
        if span.attributes is not None
    ]
    assert 2 == len({context(span).span_id for span in found})


def test_a_request_that_the_client_is_to_answer_is_forwarded_without_an_error() -> None:
    forward = {"name": "f", "effect": "forward"}
    d, round = asked(forward, capabilities={"elicitation": {"form": {}}}, one=form())
    [span] = World().played(d, round)
    assert ("forwarded", None, StatusCode.UNSET) == (
        told(span)["outcome"],
        told(span)["error"],
        span.status.status_code,
    )


def test_what_a_peer_chooses_is_bounded_and_can_be_encoded() -> None:
    """A lone surrogate would make the SDK drop the whole batch."""
    d, round = pushed(ALLOW, policy=policy())
    long = msgspec.structs.replace(traced(round, tool="\ud800" + "x" * 1000), request_id="\udfff" * 1000)
    world = World()
    start = world.start(long)
    assert start is not None
    start.end(pending_decision(), None, None, "sampling")
    [span] = world.ended
    assert span.attributes is not None
    for text in (span.name, span.attributes["gen_ai.tool.name"], span.attributes["jsonrpc.request.id"]):
        assert isinstance(text, str)
        assert (True, text) == (len(text) <= 300, text.encode().decode())
    assert d.compiled is not None


def test_no_content_is_in_a_span() -> None:
    d, round = pushed(ALLOW, params=sample("canary-question"), policy=policy())
    answer = msgspec.structs.replace(SAMPLED, content=({"type": "text", "text": "canary-answer"},))
    found = World().played(d, round, answer=answer)
    assert "canary" not in "".join(span.to_json() for span in found)


REVIEWED: Final = {**POLICY, "servers": {"default": {"peer_timeout": "200ms"}}}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
async def test_a_review_is_an_event_at_its_opening_and_a_link_of_the_try_that_uses_the_verdict(
    anyio_backend: object,
) -> None:
    """The second try may be in another process: the store keeps the context of the span that opened the review."""
    world = World()
    gate = ReviewedGate(trace=world.start)
    await gate.settled(*pushed(ASK, policy=REVIEWED))
    await gate.decides("approve")()
    gate.service = gate.new_service()
    await gate.settled(*pushed(ASK, policy=REVIEWED))
    first, second = world.ended
    [review] = gate.store.list(Filter())
    known = {"samplegate.review": review.id, "samplegate.reviewer": "ops"}
    assert [("samplegate.review.opened", {**known, "samplegate.review.stage": "request"})] == [
        (event.name, dict(event.attributes or {})) for event in first.events
    ]
    assert ([], ()) == ([event.name for event in second.events], first.links)
    assert [(w3c(context(first)), {"samplegate.review": review.id})] == [
        (w3c(link.context), dict(link.attributes or {})) for link in second.links
    ]
    for span, outcome in ((first, "unanswered"), (second, "answered")):
        found = {name: (span.attributes or {}).get(name) for name in known}
        assert (known, outcome) == (found, told(span)["outcome"])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
async def test_a_verdict_within_the_request_that_asked_for_it_is_no_link(anyio_backend: object) -> None:
    world = World()
    gate = ReviewedGate(trace=world.start)
    await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("reject"))
    assert ("denied", "review", ()) == (
        *[told(world.ended[-1])[name] for name in ("outcome", "reason")],
        world.ended[-1].links,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
async def test_the_span_of_a_call_that_is_put_off_ends_without_an_error(anyio_backend: object) -> None:
    world = World()
    gate = ReviewedGate(trace=world.start)
    d, round = asked(
        ASK, capabilities={"sampling": {}}, policy={**REVIEWED, "client": {"peer_timeout": "200ms"}}, one=sample()
    )
    await gate.run(d, round)
    [span] = world.ended
    assert ("put_off", None, "people") == (told(span)["outcome"], told(span)["error"], told(span)["rule"])
