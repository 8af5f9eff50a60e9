"""Traces of `samplegate run` as a process, at a receiver of OTLP: their shape, what is in them, and a receiver that
fails."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.fakes.otlp_receiver import Receiver, receiving
from tests.fakes.run_command import SAMPLE, RunCommand
from tests.paths import PROXY

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALL: Final = f"00-{TRACE}-b7ad6b7169203331-01"
OWN: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
FOREIGN: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
CANARY: Final = "canary-7f3a91"


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


FORMS: Final = """
version: 1
models:
  - {name: trial, model: scripted, cases: cases.yaml}
rules:
  - {name: forbidden, match: {kind: sampling, text: forbidden}, effect: deny}
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [trial]}}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""


def test_no_content_leaves_in_spans(run: RunCommand, receiver: Receiver) -> None:
    """Prompts, answers, forms, arguments of tools, the client's answers, and the texts of errors."""
    (run.folder / "policy.yaml").write_text(FORMS)
    (run.folder / "cases.yaml").write_text(f"cases:\n  - {{text: {CANARY} hello, answer: {CANARY} answer}}\n")
    client = run(environment=told(receiver))
    client.initialize(elicitation={}, sampling={})
    for text in ("hello", "forbidden", "no case"):
        client.ask("sampling/createMessage", sampling(text=f"{CANARY} {text}")["params"])
    form = {"message": CANARY, "requestedSchema": {"type": "object", "properties": {CANARY: {"type": "string"}}}}
    for answer in (
        {"result": {"action": "accept", "content": {CANARY: CANARY}}},
        {"error": {"code": 7, "message": CANARY}},
    ):
        client.write(id=9, method="tools/call", params=call({"method": "elicitation/create", "params": form}))
        client.write(id=client.read()["id"], **answer)
        assert 9 == client.read()["id"]
    assert 0 == client.end()[0]
    assert [
        ("answered", None),
        ("denied", None),
        ("unanswered", "model"),
        ("answered", None),
        ("unanswered", "client"),
    ] == [
        (span.attributes["samplegate.outcome"], span.attributes.get("error.type"))
        for span in sorted(receiver.wait(7), key=lambda span: span.ended)
        if span.kind == "server"
    ]
    assert [] == [body for body in receiver.bodies if CANARY.encode() in body]


def test_pass_through_calls_have_no_span(run: RunCommand, receiver: Receiver) -> None:
    client = run(environment=told(receiver))
    client.initialize()
    client.call(repeat=3)
    assert 0 == client.end()[0]
    assert [] == receiver.bodies


def test_the_standard_variables_apply(run: RunCommand, receiver: Receiver) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/custom",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=abc",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=ci",
        "OTEL_SERVICE_NAME": "gate-of-ci",
    }
    client = run(environment=told(receiver, **variables))
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    span = receiver.wait(2)[0]
    assert ("gate-of-ci", "ci", ["/custom"], "abc") == (
        span.resource["service.name"],
        span.resource["deployment.environment.name"],
        receiver.paths,
        receiver.headers[0]["api-key"],
    )


def test_a_sampler_of_the_environment_decides(run: RunCommand, receiver: Receiver) -> None:
    client = run(environment=told(receiver, OTEL_TRACES_SAMPLER="always_off"))
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    assert ([], False) == (receiver.bodies, "trace_id" in run.records()[0])


@pytest.mark.parametrize("behave", ["down", "refuse", "busy", "hang"])
def test_a_receiver_that_fails_delays_no_answer_and_the_end_by_a_second_at_most(
    run: RunCommand, receiver: Receiver, behave: Any
) -> None:
    """The figure is the process's own, from the end of its input: the bound only tells a flush of 1 s from the 10 s of
    the SDK's own timeout, also on a busy machine."""
    file = run.folder / "metrics.prom"
    receiver.behave = behave if behave != "down" else "accept"
    address = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"} if behave == "down" else {}
    client = run("--metrics-file", str(file), environment=told(receiver, OTEL_BSP_SCHEDULE_DELAY="10", **address))
    client.initialize()
    for number in range(3):
        assert "content" in client.ask("sampling/createMessage", SAMPLE)["result"], number
    if behave != "down":
        receiver.wait_for_requests(1)  # the exporter is held up, and the gate still answers
        assert "content" in client.ask("sampling/createMessage", SAMPLE)["result"]
    started = time.monotonic()
    code, said = client.end()
    seconds = time.monotonic() - started
    assert (0, True) == (code, seconds < 6), (seconds, said)
    events = [json.loads(line)["event"] for line in said.splitlines() if line.startswith("{")]
    assert [] == [line for line in said.splitlines() if "Traceback" in line or "opentelemetry" in line]
    wanted = {"refuse": "traces.failed", "hang": "traces.dropped", "busy": "traces.failed", "down": "traces.failed"}[
        behave
    ]
    assert 1 <= events.count(wanted) <= 2, said
    counted = re.findall(r'samplegate_spans_total\{result="(\w+)"\}', file.read_text())
    assert "exported" not in counted
    assert behave != "refuse" or ["failed"] == counted


def test_a_missing_extra_is_told_once_and_the_gate_runs(run: RunCommand, receiver: Receiver) -> None:
    fake = run.folder / "without" / "opentelemetry"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")  # an installation with the API only, as mcp brings it
    path = f"{fake.parent}{os.pathsep}{PROXY}"
    client = run(environment=told(receiver, PYTHONPATH=path))
    client.initialize()
    for _ in range(2):
        assert "content" in client.ask("sampling/createMessage", SAMPLE)["result"]
    code, said = client.end()
    told_of = [json.loads(line) for line in said.splitlines() if line.startswith("{") and "traces." in line]
    assert (0, [("error", "traces.unavailable")]) == (code, [(line["level"], line["event"]) for line in told_of])
    assert "install samplegate[otel]" in told_of[0]["problem"]


def test_nothing_of_opentelemetry_is_imported_if_traces_are_off(run: RunCommand) -> None:
    package = run.folder / "with" / "opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('OpenTelemetry was imported')\n")
    client = run(environment={"PYTHONPATH": f"{package.parent}{os.pathsep}{PROXY}"})
    client.initialize()
    assert "content" in client.ask("sampling/createMessage", SAMPLE)["result"]
    code, said = client.end()
    assert (0, False) == (code, "OpenTelemetry was imported" in said)
