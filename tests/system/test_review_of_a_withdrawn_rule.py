"""A reload that takes a rule away while its review is pending: every door refuses a verdict on it, and says why."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.gate import ASK_FORM, BOUND, Gate, asking, client, serving
from tests.daemon.reviewing import POLICY, people, settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
CONTENT: Final[dict[str, Any]] = {"verdict": "answer", "action": "accept", "content": {"confirm": True}}
OTHER: Final = POLICY.replace("name: people", "name: others").replace("effect: escalate, reviewer: ops", "effect: deny")
WHY: Final = "the policy"


async def command(folder: Path, *arguments: str) -> tuple[int | None, str]:
    line = (sys.executable, "-m", "samplegate", "reviews", *arguments, "--state", str(folder / "state"))
    process = await asyncio.create_subprocess_exec(
        *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await asyncio.wait_for(process.communicate(), BOUND))[0].decode()
    return process.returncode, said


async def reloaded(gate: Gate) -> None:
    """The policy file was changed: its change or the signal makes the daemon read it."""
    gate.process.send_signal(signal.SIGHUP)
    await gate.said("reload.taken")


@pytest.mark.parametrize("waits", [True, False], ids=["its request waits", "its request has ended"])
async def test_a_verdict_on_a_rule_that_is_gone_is_refused_with_the_reason(tmp_path: Path, waits: bool) -> None:
    patience = "60s" if waits else "1s"
    async with (
        serving(tmp_path, *settings(tmp_path, patience=patience), "--", *asking("legacy+modern")) as gate,
        client(gate) as c,
    ):
        await gate.said("reviews on")
        async with people(gate) as person:
            await c.begin()
            call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
            review = await person.pending()
            if not waits:
                await asyncio.wait_for(call, BOUND)
            (tmp_path / "policy.yaml").write_text(OTHER.replace("TIMEOUT", "15m").replace("PATIENCE", patience))
            await reloaded(gate)
            status, said = await person.say(review, **CONTENT)
            assert (409, "withdrawn") == (status, said["review"]["state"])
            assert WHY in said["detail"]
            code, printed = await command(tmp_path, "answer", review["id"], "--accept", "confirm=yes")
            assert (1, True, True) == (code, "was withdrawn" in printed, WHY in printed)
            if waits:
                assert "gets it now" not in printed
                ended = await asyncio.wait_for(call, BOUND)
                assert "error" in json.dumps(ended) or "cancel" in json.dumps(ended)


async def test_a_reload_that_keeps_the_rule_keeps_its_review(tmp_path: Path) -> None:
    async with serving(tmp_path, *settings(tmp_path), "--", *asking("legacy+modern")) as gate, client(gate) as c:
        await gate.said("reviews on")
        async with people(gate) as person:
            await c.begin()
            call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
            review = await person.pending()
            added = POLICY.replace("rules:", "rules:\n  - {name: first, effect: deny, match: {tool: other}}")
            (tmp_path / "policy.yaml").write_text(added.replace("TIMEOUT", "15m").replace("PATIENCE", "60s"))
            await reloaded(gate)
            assert 200 == (await person.say(review, **CONTENT))[0]
            answered = await asyncio.wait_for(call, BOUND)
            assert "accept" == answered["result"]["structuredContent"]["result"]["action"]
