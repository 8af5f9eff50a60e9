"""Traces of `samplegate serve`: contexts of HTTP and of `_meta`, reviews, exemplars, and the drain."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import ASK_SAMPLE, Client, Gate, admin, asking, client, serving
from tests.fakes.daemon_reviews import ACCEPTED, POLICY, form, people, settings
from tests.fakes.otlp_receiver import Receiver, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALL: Final = f"00-{TRACE}-b7ad6b7169203331-01"
HTTP: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OPENMETRICS: Final = "application/openmetrics-text;version=1.0.0"
MODELS: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [m]}}
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@asynccontextmanager
async def daemon(folder: Path, receiver: Receiver, *, policy: str = MODELS, **more: Any) -> AsyncIterator[Gate]:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    given = [*settings(folder, policy=policy, **more), "--", *asking("legacy+modern")]
    async with serving(folder, *given, env=env) as gate:
        yield gate


def sampled(c: Client, era: str, traceparent: str | None) -> Any:
    meta = {} if traceparent is None else {"traceparent": traceparent}
    if era == "modern":
        return c.modern("tools/call", 1, meta, name="do", arguments=ASK_SAMPLE)
    return c.legacy("tools/call", 1, name="do", arguments=ASK_SAMPLE, _meta=meta)


CONTEXTS: Final[tuple[tuple[str, str | None, str | None, str, list[str]], ...]] = (
    ("both", CALL, HTTP, CALL, [HTTP]),
    ("_meta", CALL, None, CALL, []),
    ("HTTP", None, HTTP, HTTP, []),
    ("the same", CALL, CALL, CALL, []),
)
"""The context in `_meta` and that of the HTTP request; then the parent of the span, and its links."""


async def test_the_context_in_meta_is_the_parent_and_that_of_http_a_link(tmp_path: Path, receiver: Receiver) -> None:
    ids = ""
    async with daemon(tmp_path, receiver) as gate:
        for era, version in (("legacy", "2025-11-25"), ("modern", "2026-07-28")):
            for case, meta, header, parent, links in CONTEXTS:
                async with client(gate, capabilities={"sampling": {}}) as c:
                    c.headers |= {} if header is None else {"traceparent": header}
                    if era == "legacy":
                        await c.begin()
                    assert "result" in await sampled(c, era, meta)
                chat, request = sorted(await asyncio.to_thread(receiver.wait, 2), key=lambda span: span.kind)
                receiver.spans.clear()
                assert (parent[3:35], parent[36:52], [(link[3:35], link[36:52]) for link in links]) == (
                    request.trace_id,
                    request.parent,
                    request.links,
                ), (era, case)
                assert ("sampling/createMessage do", version) == (
                    request.name,
                    request.attributes["mcp.protocol.version"],
                )
                assert (request.trace_id, request.span_id) == (chat.trace_id, chat.parent)
                ids = f'span_id="{request.span_id}",trace_id="{request.trace_id}"'
        body = (await admin(gate, "/metrics", accept=OPENMETRICS))[1]
        plain = (await admin(gate, "/metrics", accept="text/plain"))[1]
    assert {"samplegate_request_duration_seconds_bucket", "samplegate_model_call_duration_seconds_bucket"} == {
        line.partition("{")[0] for line in body.splitlines() if ids in line
    }
    assert "trace_id" not in plain
    assert 'samplegate_spans_total{result="exported"} 16.0' in plain


async def test_the_try_that_uses_a_verdict_links_to_the_one_that_opened_its_review(
    tmp_path: Path, receiver: Receiver
) -> None:
    """The review is read from its store by then."""
    async with (
        daemon(tmp_path, receiver, policy=POLICY, timeout="15m", patience="300ms") as gate,
        client(gate, capabilities={"elicitation": {"form": {}}}) as c,
    ):
        await gate.said("reviews on")
        await c.begin()
        late = await c.call("legacy", 1, **form("canary-question?"))
        async with people(gate) as person:
            await person.decide(verdict="answer", **ACCEPTED)
        again = await c.call("legacy", 2, **form("canary-question?"))
        await asyncio.to_thread(receiver.wait, 2)
    assert late != again
    first, second = sorted(receiver.spans, key=lambda span: span.ended)
    [(event, opened)] = first.events
    assert ("samplegate.review.opened", "ops") == (event, opened["samplegate.reviewer"])
    assert ([], [(first.trace_id, first.span_id)]) == (second.events, second.links)
    assert [("unanswered", "timeout", True), ("answered", None, False)] == [
        (span.attributes["samplegate.outcome"], span.attributes.get("error.type"), span.failed)
        for span in (first, second)
    ]
    assert opened["samplegate.review"] == second.attributes["samplegate.review"]
    assert [] == [body for body in receiver.bodies if b"canary" in body]


async def test_a_drain_waits_for_a_receiver_that_hangs_for_a_second_at_most(tmp_path: Path, receiver: Receiver) -> None:
    """The bound tells a flush of 1 s from the 10 s of the SDK's own timeout, also on a busy machine."""
    receiver.behave = "hang"
    async with daemon(tmp_path, receiver) as gate, client(gate, capabilities={"sampling": {}}) as c:
        await sampled(c, "modern", CALL)
        await asyncio.to_thread(receiver.wait_for_requests, 1)
        assert "result" in await sampled(c, "modern", CALL)
        started = len(gate.lines)
        assert 0 == await gate.end()
        now = dt.datetime.now(dt.UTC)
    lines = [json.loads(line) for line in gate.lines[started:]]
    [dropped] = [line for line in lines if line["event"] == "traces.dropped"]
    [ended] = [dt.datetime.fromisoformat(line["time"]) for line in lines if line["event"] == "daemon.ended"]
    assert (4, True) == (dropped["spans"], now - ended < dt.timedelta(seconds=6))
