"""Spans of the requests that the gate answers, after OpenTelemetry's conventions for MCP and generative AI.

A request is a span of kind SERVER: in the conventions for MCP, the side that answers a request is the server, and here
that is the gate. Each model call in it is a span of kind CLIENT. A review may last for days, so it has no span: the
request that opens it has an event, and the request that uses its verdict a link to the span of that event. Frames that
pass through have no spans.

The conventions are in development. So their names are constants here, and change only with a new version of the gate.
No content of messages is in a span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from samplegate.audit.record import Record
from samplegate.errors import Log
from samplegate.policy.catalogue import SCRIPTED
from samplegate.policy.decisions import Decision
from samplegate.policy.prompt import Sampled, SampleFailed, SampleResult
from samplegate.policy.schema import Model
from samplegate.protocol import rawjson
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.results import is_error
from samplegate.protocol.rounds import Round
from samplegate.reviews.review import Review

METHOD: Final = "mcp.method.name"
PROTOCOL: Final = "mcp.protocol.version"
REQUEST_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"
TRANSPORT: Final = "network.transport"
TOOL: Final = "gen_ai.tool.name"
ERROR: Final = "error.type"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

SERVER: Final = "samplegate.server"
DOOR: Final = "samplegate.door"
ROUND: Final = "samplegate.round"
DECISION_ID: Final = "samplegate.decision_id"
RULE: Final = "samplegate.rule"
EFFECT: Final = "samplegate.effect"
OUTCOME: Final = "samplegate.outcome"
REASON: Final = "samplegate.reason"
REVIEW: Final = "samplegate.review"
REVIEWER: Final = "samplegate.reviewer"
STAGE: Final = "samplegate.review.stage"
MODEL: Final = "samplegate.model"
OPENED: Final = "samplegate.review.opened"
"""The event of a request that opens a review."""

CHAT: Final = "chat"
CANCELLED: Final = "cancelled"
UNKNOWN: Final = "unknown"
"""The provider of a model whose name in the policy has none."""
PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers, where litellm has others."""
MAX_TEXT: Final = 256  # characters of a value that a peer chooses

_OUTCOMES: Final[Mapping[type[Outcome], str]] = {
    Answered: "answered",
    Denied: "denied",
    Unanswered: "unanswered",
    Withdrawn: "withdrawn",
}
_propagator: Final = TraceContextTextMapPropagator()

Attributes: TypeAlias = dict[str, str | int | list[str]]
P = ParamSpec("P")
T = TypeVar("T")


class _Logs(Protocol):
    log: Log


S = TypeVar("S", bound=_Logs)


def _harmless(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | None]:
    """A method whose errors are only logged, because no error of a span may change an answer."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception:
            self.log.error("traces.failed", exc_info=True)  # noqa: G201
            return None

    return call


class RequestTracer:
    """Starts the spans of requests."""

    def __init__(self, tracer: Tracer, log: Log) -> None:
        self._tracer = tracer
        self.log = log

    @_harmless
    def start(self, round: Round, key: str, decision_id: str, *, transport: str) -> RequestSpan | None:
        """Start the span of a request; None if it is not sampled. ``transport``: of the server, ``pipe`` or ``tcp``."""
        item, origin = round.items[key], round.origin
        tool = origin.calls[0].tool if len(origin.calls) == 1 else None
        attributes: Attributes = {
            METHOD: item.method,
            TRANSPORT: transport,
            SERVER: _text(origin.server),
            DOOR: round.door,
            ROUND: round.id,
            DECISION_ID: decision_id,
        }
        if origin.revision:
            attributes[PROTOCOL] = _text(origin.revision)
        if tool is not None:
            attributes[TOOL] = _text(tool)
        if round.request_id is not None:
            attributes[REQUEST_ID] = _text(str(round.request_id))
        meta = None if isinstance(item.request, BadRequest) else item.request.params.get("_meta")
        own = meta.get("traceparent") if isinstance(meta, dict) else None
        parent, links = _contexts(_context(own), _context(origin.trace), _context(origin.ambient))
        span = self._tracer.start_span(
            item.method if tool is None else f"{item.method} {_text(tool)}",
            context=Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context()),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[Link(link) for link in links],
        )
        sampled = span.get_span_context().trace_flags.sampled
        return RequestSpan(self._tracer, self.log, span, round.door == "push") if sampled else None


def _context(traceparent: object) -> SpanContext | None:
    """The context in a ``traceparent``; None if there is none, or it is invalid."""
    if not isinstance(traceparent, str) or not traceparent:
        return None
    found = get_current_span(_propagator.extract({"traceparent": traceparent}, Context())).get_span_context()
    return found if found.is_valid else None


def _contexts(
    own: SpanContext | None, call: SpanContext | None, ambient: SpanContext | None
) -> tuple[SpanContext | None, list[SpanContext]]:
    """The parent of a request, and the links: ``own`` is the context in the server's request, ``call`` that of the
    client's call, and ``ambient`` that of the HTTP request with the call.

    A server may name a span below the call's trace, but cannot move the request out of that trace or unsample it.
    """
    parent = own or call
    if own is not None and call is not None:
        parent = (
            SpanContext(own.trace_id, own.span_id, is_remote=True, trace_flags=call.trace_flags)
            if own.trace_id == call.trace_id
            else call
        )
    used = None if parent is None else parent.span_id
    linked = (own if parent is call else None, ambient)
    return parent, [one for one in linked if one is not None and one.span_id != used]


class RequestSpan:
    """The span of a request, from its decision to its release. Sampled, so that it is exported at its end."""

    def __init__(self, tracer: Tracer, log: Log, span: Span, pushed: bool) -> None:
        context = span.get_span_context()
        self._tracer = tracer
        self._span = span
        self._pushed = pushed
        self.log = log
        self.trace_id = format_trace_id(context.trace_id)
        self.span_id = format_span_id(context.span_id)
        self.traceparent = f"00-{self.trace_id}-{self.span_id}-{context.trace_flags:02x}"
        """Its context for reviews, which may be used by another request in another process."""

    @_harmless
    def model_call(self, name: str, model: Model, params: Mapping[str, Any]) -> ModelSpan | None:
        """Start the span of a model call with these createMessage params. ``name`` is the policy's name of the
        model."""
        provider, slash, rest = model.model.partition("/")
        litellm = provider.lower() if slash or provider == SCRIPTED else UNKNOWN
        asked = _text(rest if slash else model.model)
        attributes: Attributes = {
            OPERATION: CHAT,
            PROVIDER: PROVIDERS.get(litellm, litellm),
            REQUEST_MODEL: asked,
            MAX_TOKENS: int(params["maxTokens"]),
            MODEL: _text(name),
        }
        span = self._tracer.start_span(
            f"{CHAT} {asked}",
            context=set_span_in_context(self._span, Context()),
            kind=SpanKind.CLIENT,
            attributes=attributes,
        )
        return ModelSpan(span, self.log)

    @_harmless
    def ask_reviewer(self, review: Review, *, opened: bool) -> None:
        """Note the review that the request waits for; ``opened``: the request opened it."""
        self._span.set_attribute(REVIEW, review.id)
        self._span.set_attribute(REVIEWER, _text(review.reviewer))
        if opened:
            self._span.add_event(OPENED, {REVIEW: review.id, REVIEWER: _text(review.reviewer), STAGE: review.stage})

    @_harmless
    def use_verdict(self, review: Review) -> None:
        """Link to the request that opened the review, if that was another one."""
        opener = _context(review.traceparent)
        if opener is not None and review.traceparent != self.traceparent:
            self._span.add_link(opener, {REVIEW: review.id})

    @_harmless
    def end(self, decision: Decision, record: Record | None, outcome: Outcome | None, kind: str) -> None:
        """End the span. ``record``: as written to the decision log, if it was. ``outcome``: as released; None if the
        client is to retry."""
        word = "put_off" if outcome is None else _OUTCOMES[type(outcome)]
        if record is not None and not isinstance(outcome, Unanswered):
            word = record.outcome
        reason = (decision if record is None else record).reason
        if isinstance(outcome, Denied | Unanswered):
            reason = outcome.reason
            if self._pushed and is_error(kind, outcome):
                code = outcome.code if outcome.error is None else rawjson.lookup(outcome.error, "code")
                self._span.set_attribute(STATUS_CODE, code.decode() if isinstance(code, bytes) else str(code))
        rule = decision.rule if record is None else record.rule
        if rule is not None:
            self._span.set_attribute(RULE, _text(rule))
        self._span.set_attribute(EFFECT, decision.effect if record is None else record.effect)
        self._span.set_attribute(OUTCOME, word)
        self._span.set_attribute(REASON, reason.value)
        if word == "unanswered":
            self._span.set_attribute(ERROR, reason.value)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class ModelSpan:
    """The span of one model call."""

    def __init__(self, span: Span, log: Log) -> None:
        self._span = span
        self.log = log

    @_harmless
    def end(self, answer: SampleResult | None) -> None:
        """End the span with the model's answer; None if the call was cancelled."""
        span = self._span
        for name, tokens in (
            (INPUT_TOKENS, getattr(answer, "input_tokens", None)),
            (OUTPUT_TOKENS, getattr(answer, "output_tokens", None)),
        ):
            if tokens is not None:
                span.set_attribute(name, tokens)
        if isinstance(answer, Sampled):
            if answer.model is not None:
                span.set_attribute(RESPONSE_MODEL, _text(answer.model))
            if answer.stop_reason is not None:
                span.set_attribute(FINISH_REASONS, [_text(answer.stop_reason)])
        else:
            span.set_attribute(ERROR, answer.failure if isinstance(answer, SampleFailed) else CANCELLED)
            span.set_status(StatusCode.ERROR)
        span.end()


def _text(value: Any) -> str:
    """A bounded text without lone surrogates, which protobuf cannot encode."""
    return str(value)[:MAX_TEXT].encode("utf-8", "replace").decode()
