"""Exemplars in a real Prometheus: it finds the span of a request that was slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deployment.prometheus import BOUND, scraping
from tests.fakes.daemon import ASK_SAMPLE, asking, client, serving
from tests.fakes.otlp_receiver import Receiver, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
rules: [{name: models, match: {kind: sampling}, effect: allow, with: {models: [m]}}]
"""
METRICS: Final = ("samplegate_request_duration_seconds_bucket", "samplegate_model_call_duration_seconds_bucket")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


async def test_prometheus_finds_the_span_of_a_request(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "answers.yaml").write_text("cases: [{answer: from a model}]\n")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    arguments = ("--policy", "policy.yaml", "--", *asking("legacy+modern"))
    began = time.time()
    async with serving(tmp_path, *arguments, env=env) as gate, client(gate, capabilities={"sampling": {}}) as c:
        assert "result" in await c.call("modern", 1, **ASK_SAMPLE)
        await asyncio.to_thread(receiver.wait, 2)
        [request] = receiver.named("sampling/createMessage")
        target = gate.admin.removeprefix("http://")
        async with scraping(tmp_path, target, "--enable-feature=exemplar-storage") as prometheus:
            for metric in METRICS:
                found: list[dict[str, Any]] = []
                async with asyncio.timeout(BOUND):
                    while not found:
                        end = str(time.time() + 1)
                        found = await prometheus.api("query_exemplars", query=metric, start=str(began), end=end)
                        await asyncio.sleep(0 if found else 0.2)
                assert [{"trace_id": request.trace_id, "span_id": request.span_id}] == [
                    one["labels"] for series in found for one in series["exemplars"]
                ]
