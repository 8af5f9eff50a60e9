"""Traces of `samplegate run` as a process, at a receiver of OTLP: their shape, what is in them, and a receiver that
fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.fakes.otlp_receiver import Receiver, receiving
from tests.fakes.run_command import SAMPLE, RunCommand

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALL: Final = f"00-{TRACE}-b7ad6b7169203331-01"
OWN: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
FOREIGN: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
CANARY: Final = "canary-7f3a91"
MISSING: Final = (
    "import sys; sys.modules['opentelemetry.sdk'] = None; from samplegate.cli.main import main; sys.exit(main())"
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def told(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "SAMPLEGATE_LOG_FORMAT": "json", **more}


def call(asked: dict[str, Any], traceparent: str | None = CALL) -> dict[str, Any]:
    meta = {} if traceparent is None else {"_meta": {"traceparent": traceparent}}
    return {"name": "t", "arguments": {"ask": asked}, **meta}


def sampling(traceparent: str | None = None, text: str = "hello") -> dict[str, Any]:
    meta = {} if traceparent is None else {"_meta": {"traceparent": traceparent}}
    params = {**SAMPLE, "messages": [{"role": "user", "content": {"type": "text", "text": text}}], **meta}
    return {"method": "sampling/createMessage", "params": params}


def test_a_request_and_its_model_call_are_spans_below_the_servers_span(run: RunCommand, receiver: Receiver) -> None:
    client = run(environment=told(receiver))
    client.initialize()
    client.write(id=7, method="tools/call", params=call(sampling(OWN)))
    assert 7 == client.read()["id"]
    code, said = client.end()
    assert 0 == code, said
    request, chat = sorted(receiver.wait(2), key=lambda span: span.kind, reverse=True)
    record = run.records()[0]
    assert ("sampling/createMessage t", "server", TRACE, "00f067aa0ba902b7", []) == (
        request.name,
        request.kind,
        request.trace_id,
        request.parent,
        request.links,
    )
    assert {
        "mcp.method.name": "sampling/createMessage",
        "mcp.protocol.version": "2025-11-25",
        "jsonrpc.request.id": request.attributes["jsonrpc.request.id"],
        "network.transport": "pipe",
        "gen_ai.tool.name": "t",
        "samplegate.server": "default",
        "samplegate.door": "push",
        "samplegate.round": record["round"],
        "samplegate.decision_id": record["decision_id"],
        "samplegate.rule": "models",
        "samplegate.effect": "allow",
        "samplegate.outcome": "answered",
        "samplegate.reason": "rule",
    } == request.attributes
    assert ("chat scripted", "client", TRACE, request.span_id, False) == (
        chat.name,
        chat.kind,
        chat.trace_id,
        chat.parent,
        chat.failed,
    )
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": 10,
        "gen_ai.response.model": "scripted",
        "samplegate.model": "trial",
    } == {name: value for name, value in chat.attributes.items() if "usage" not in name and "finish" not in name}
    assert ("samplegate", ["/v1/traces"]) == (request.resource["service.name"], receiver.paths)
    assert (CALL, TRACE, request.span_id) == (record["traceparent"], record["trace_id"], record["span_id"])
    logged = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(TRACE, request.span_id)] == [
        (line["trace_id"], line["span_id"]) for line in logged if line["event"] == "request.decided"
    ]
