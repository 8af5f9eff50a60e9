"""Tasks of the gate at a real daemon: a call waits for a person as a task, also through a kill and at another gate."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import BOUND, SHORT_CLAIMS, Client, admin, client
from tests.fakes.daemon_reviews import ACCEPTED, daemon, form, people, sample

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
TASKS: Final[dict[str, Any]] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


async def begun(c: Client, text: str, **more: Any) -> str:
    """The ID of the task that a call becomes."""
    made = (await c.modern("tools/call", 1, name="do", arguments={**form(text), **more}))["result"]
    assert ("task", "working") == (made["resultType"], made["status"])
    return str(made["taskId"])


async def ended(c: Client, id: str) -> dict[str, Any]:
    """The task at its end."""
    async with asyncio.timeout(BOUND):
        while True:
            task: dict[str, Any] = (await c.modern("tasks/get", 2, taskId=id))["result"]
            if task["status"] not in ("working", "input_required"):
                return task
            await asyncio.sleep(0.1)


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line for file in (folder / "state" / "decisions").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    return [record for line in lines if "outcome" in (record := json.loads(line))]


async def test_a_call_that_waits_for_a_person_is_a_task(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern") as gate, client(gate, capabilities=TASKS) as c, people(gate) as ana:
        id = await begun(c, "as a task?")
        await ana.decide(verdict="answer", **ACCEPTED)
        task = await ended(c, id)
        assert ("completed", ACCEPTED) == (task["status"], task["result"]["structuredContent"]["result"])
        assert task == await ended(c, id), "until its ttl is over"
    assert ["answered"] == [record["outcome"] for record in records(tmp_path)]


async def test_a_rejection_ends_the_task(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern") as gate, client(gate, capabilities=TASKS) as c, people(gate) as ana:
        id = await begun(c, "rejected?")
        await ana.decide(verdict="reject")
        task = await ended(c, id)
        assert {"action": "decline"} == task["result"]["structuredContent"]["result"]


async def test_an_approved_request_is_answered_by_a_model(tmp_path: Path) -> None:
    sampling = {**TASKS, "sampling": {}}
    async with daemon(tmp_path, "modern") as gate, client(gate, capabilities=sampling) as c, people(gate) as ana:
        made = (await c.modern("tools/call", 1, name="do", arguments=sample("approved?")))["result"]
        await ana.decide(verdict="approve")
        assert "completed" == (await ended(c, made["taskId"]))["status"]
    assert ["answered"] == [record["outcome"] for record in records(tmp_path)]


async def test_a_cancelled_task_withdraws_its_review(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern") as gate, client(gate, capabilities=TASKS) as c, people(gate) as ana:
        id = await begun(c, "cancelled?")
        review = await ana.pending()
        await c.modern("tasks/cancel", 3, taskId=id)
        assert "withdrawn" == (await ana.over(review["id"]))["state"]
        assert "cancelled" == (await ended(c, id))["status"]


async def test_another_gate_finishes_the_task_of_one_that_was_killed(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern", program=SHORT_CLAIMS) as gate, client(gate, capabilities=TASKS) as c:
        id = await begun(c, "killed?", stateless=True)
        async with people(gate) as ana:
            review = await ana.pending()
        gate.process.kill()
        await gate.process.wait()
        gate.ending = True
    async with daemon(tmp_path, "modern", program=SHORT_CLAIMS) as gate, client(gate, capabilities=TASKS) as c:
        async with people(gate) as ana:
            status, _ = await ana.say(review, verdict="answer", **ACCEPTED)
            assert 200 == status
        task = await ended(c, id)
        assert ACCEPTED == task["result"]["structuredContent"]["result"]
    assert ["answered"] == [record["outcome"] for record in records(tmp_path)], "once"


async def test_a_drain_leaves_the_task_to_the_next_process(tmp_path: Path) -> None:
    async with daemon(tmp_path, "modern", program=SHORT_CLAIMS) as gate, client(gate, capabilities=TASKS) as c:
        id = await begun(c, "drained?", stateless=True)
        assert 0 == await gate.end(signal.SIGTERM)
    async with daemon(tmp_path, "modern", program=SHORT_CLAIMS) as gate, client(gate, capabilities=TASKS) as c:
        assert "working" == (await c.modern("tasks/get", 2, taskId=id))["result"]["status"]
        async with people(gate) as ana:
            await ana.decide(verdict="answer", **ACCEPTED)
        assert ACCEPTED == (await ended(c, id))["result"]["structuredContent"]["result"]


async def test_a_drain_waits_for_the_model_of_a_task(tmp_path: Path) -> None:
    sampling = {**TASKS, "sampling": {}}
    async with daemon(tmp_path, "modern", drain_delay=0) as gate, client(gate, capabilities=sampling) as c:
        made = await c.modern("tools/call", 1, name="do", arguments={**sample("slowly"), "stateless": True})
        async with people(gate) as ana:
            await ana.decide(verdict="approve")
        async with asyncio.timeout(BOUND):
            while True:
                _, status = await admin(gate, "/status", accept="application/json")
                if '"model"' in status:
                    break
                await asyncio.sleep(0.05)
        assert 0 == await gate.end(signal.SIGTERM)
    async with daemon(tmp_path, "modern") as gate, client(gate, capabilities=sampling) as c:
        task = await ended(c, made["result"]["taskId"])
        assert "from a slow model" in json.dumps(task["result"])


# -- before a legacy server: the gate holds the open call
# ----------------------------------------------------------------------------------------------------------------------


async def test_before_a_legacy_server_the_open_call_is_a_task(tmp_path: Path) -> None:
    async with daemon(tmp_path, "legacy", patience="none") as gate, client(gate, capabilities=TASKS) as c:
        found = (await c.modern("server/discover", 0))["result"]["capabilities"]
        assert TASKS["extensions"] == found["extensions"], "the gate answers it"
        id = await begun(c, "held?")
        async with people(gate) as ana:
            await ana.decide(verdict="answer", **ACCEPTED)
        task = await ended(c, id)
        assert "complete" == task["result"]["resultType"]
        assert ACCEPTED.items() <= task["result"]["structuredContent"]["result"].items()
        assert -32602 == (await c.modern("tasks/get", 4, taskId="another"))["error"]["code"]


async def test_an_idle_session_keeps_its_held_call(tmp_path: Path) -> None:
    idle = daemon(tmp_path, "legacy", patience="none", session_idle=1)
    async with idle as gate, client(gate, capabilities=TASKS) as c, people(gate) as ana:
        id = await begun(c, "held for long?")
        await asyncio.sleep(3)
        await ana.decide(verdict="answer", **ACCEPTED)
        assert "completed" == (await ended(c, id))["status"]


async def test_a_held_call_is_never_repeated_after_a_kill(tmp_path: Path) -> None:
    async with daemon(tmp_path, "legacy", patience="none", program=SHORT_CLAIMS) as gate:
        async with client(gate, capabilities=TASKS) as c:
            id = await begun(c, "held and killed?")
        gate.process.kill()
        await gate.process.wait()
        gate.ending = True
    again = daemon(tmp_path, "legacy", patience="none", program=SHORT_CLAIMS)
    async with again as gate, client(gate, capabilities=TASKS) as c:
        task = await ended(c, id)
        assert ("failed", True) == (task["status"], "has ended" in task["error"]["message"])
        assert task == await ended(c, id)


async def test_a_cancelled_held_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with daemon(tmp_path, "legacy", patience="none") as gate, client(gate, capabilities=TASKS) as c:
        id = await begun(c, "held and cancelled?")
        async with people(gate) as ana:
            review = await ana.pending()
            await c.modern("tasks/cancel", 3, taskId=id)
            assert "withdrawn" == (await ana.over(review["id"]))["state"]
        assert "cancelled" == (await ended(c, id))["status"]
