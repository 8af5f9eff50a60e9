"""Workers of a daemon. With `warm: true`, one runs before the daemon is ready, outlives reloads, and the first sample
needs no start. tests/unit/sampler/test_reload.py has the reload with another environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.daemon import ASK_SAMPLE, BOUND, Client, Gate, admin, asking, client, serving
from tests.fakes.openai_endpoint import Endpoint
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
POLICY = """
version: 1
models: [{{name: m, model: openai/normal, api_base: "{url}", api_key_env: A_KEY, warm: true}}]
rules: [{{name: {rule}, match: {{kind: sampling}}, effect: allow}}]
"""


def write(folder: Path, url: str, rule: str = "first", **more: Any) -> str:
    command, *arguments = asking("legacy+modern")
    (folder / "keys.env").write_text("A_KEY=" + "k" * 20 + "\n")
    settings = {
        "policy": "policy.yaml",
        "env_file": "keys.env",
        "watch": False,
        "servers": {"one": {"command": command, "args": arguments}},
        **more,
    }
    (folder / "samplegate.yaml").write_text(json.dumps(settings))
    (folder / "policy.yaml").write_text(POLICY.format(url=url, rule=rule))
    return "samplegate.yaml"


def workers(gate: Gate) -> list[int]:
    """The process IDs of the daemon's workers."""
    children = Path(f"/proc/{gate.process.pid}/task/{gate.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if "samplegate.sampler.worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def loaded(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident(pid: int) -> float:
    """Memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


async def sampled(c: Client, id: int) -> Any:
    answer = await c.call("modern", id, **ASK_SAMPLE)
    return answer["result"]["structuredContent"]["result"]["content"]["text"]


async def reloaded(gate: Gate) -> None:
    before = len(gate.lines)
    gate.process.send_signal(signal.SIGHUP)
    await gate.said("reload.taken", before)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
async def test_the_worker_is_warm_before_the_daemon_is_ready_and_outlives_reloads(tmp_path: Path) -> None:
    with Endpoint() as endpoint:
        async with serving(tmp_path, "--settings", write(tmp_path, endpoint.url)) as gate, client(gate) as c:
            (first,) = workers(gate)
            assert (200, "ready\n") == await admin(gate, "/readyz")
            started = loaded(first)
            assert "you said: hello" == await sampled(c, 1)
            assert loaded(first) - started < started / 4, "what litellm loads at its first call is loaded already"
            assert resident(gate.process.pid) < 130, "the reference promises about 100 MiB"
            assert resident(first) < 290, "and about 230 MiB"

            (tmp_path / "policy.yaml").write_text((tmp_path / "policy.yaml").read_text() + "# a comment\n")
            await reloaded(gate)
            assert [first] == workers(gate)
            write(tmp_path, endpoint.url, rule="second")
            await reloaded(gate)
            assert [first] == workers(gate)
            assert "you said: hello" == await sampled(c, 2)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
async def test_several_workers_are_in_the_status_change_at_a_reload_and_end_with_the_daemon(tmp_path: Path) -> None:
    with Endpoint() as endpoint:
        settings = write(tmp_path, endpoint.url, model_workers=2, drain_timeout=1)
        policy = tmp_path / "policy.yaml"
        policy.write_text(policy.read_text().replace("openai/normal", "openai/hang"))
        async with serving(tmp_path, "--settings", settings) as gate, client(gate) as c:
            (first,) = workers(gate)
            calls = [asyncio.ensure_future(c.call("modern", id, **ASK_SAMPLE)) for id in range(6)]
            for _ in calls:
                await asyncio.to_thread(endpoint.next)
            async with asyncio.timeout(BOUND):
                while 2 != len(await ready(gate)):  # noqa: ASYNC110 - a daemon's status gives no event
                    await asyncio.sleep(0.01)
            calls += [asyncio.ensure_future(c.call("modern", id, **ASK_SAMPLE)) for id in range(6, 12)]
            for _ in calls[6:]:
                await asyncio.to_thread(endpoint.next)
            both = workers(gate)
            assert first == both[0]
            assert dict.fromkeys(both, 6) == await ready(gate)

            write(tmp_path, endpoint.url, model_workers=1, drain_timeout=1)
            await reloaded(gate)
            assert ["model_workers"] == json.loads(await gate.said("reload.taken"))["settings"]
            assert {*both} < {*workers(gate)}, "the calls in flight keep their workers"
            (third,) = {*workers(gate)} - {*both}
            assert "you said: hello" == await sampled(c, 12)
            assert {third: 0} == await ready(gate)
            await gate.end()
            assert not any(map(is_running, (*both, third)))
            await asyncio.gather(*calls, return_exceptions=True)


async def ready(gate: Gate) -> dict[int, int]:
    """The calls in flight at each worker that is ready, by its process ID."""
    _, body = await admin(gate, "/status", accept="application/json")
    return {worker["pid"]: worker["calls"] for worker in json.loads(body)["workers"] if worker["state"] == "ready"}


async def test_a_worker_that_cannot_start_is_an_error_in_the_log_and_the_daemon_serves_the_rest(tmp_path: Path) -> None:
    (tmp_path / "broken" / "litellm").mkdir(parents=True)
    (tmp_path / "broken" / "litellm" / "__init__.py").write_text("raise ImportError('broken', name='litellm')\n")
    settings = write(tmp_path, "http://127.0.0.1:9/v1")
    paths = os.pathsep.join([str(ROOT / "proxy"), str(tmp_path / "broken")])
    async with serving(tmp_path, "--settings", settings, env={"PYTHONPATH": paths}) as gate:
        line = json.loads(await gate.said("sampler.not_started"))
        assert ("error", True) == (line["level"], "litellm cannot be imported" in line["problem"])
        async with aiohttp.ClientSession() as http, http.get(f"{gate.admin}/readyz") as response:
            assert 200 == response.status
