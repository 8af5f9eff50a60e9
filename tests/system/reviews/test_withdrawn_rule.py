"""A reload that removes a rule while its review is pending: every door rejects a verdict on it, with the reason."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import ASK_FORM, BOUND, Gate, asking, client, serving
from tests.fakes.daemon_reviews import POLICY, people, settings
from tests.fakes.shell import samplegate

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
CONTENT: Final[dict[str, Any]] = {"verdict": "answer", "action": "accept", "content": {"confirm": True}}
OTHER: Final = POLICY.replace("name: people", "name: others").replace("effect: escalate, reviewer: ops", "effect: deny")
WHY: Final = "the policy"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, because it shares one daemon."""
    return "asyncio"


class ReviewDaemon:
    """A daemon whose policy each test writes anew."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder, self.gate = folder, gate
        self._policies = count()

    async def reload(self, policy: str, patience: str = "60s") -> None:
        text = policy.replace("TIMEOUT", "15m").replace("PATIENCE", patience)
        (self.folder / "policy.yaml").write_text(f"# {next(self._policies)}\n{text}")
        before = len(self.gate.lines)
        self.gate.process.send_signal(signal.SIGHUP)  # or it has noticed the change of the file by itself
        await self.gate.said("reload.taken", before)


@pytest.fixture(scope="module")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ReviewDaemon]:
    folder = tmp_path_factory.mktemp("daemon")
    line = settings(folder)
    (folder / "settings.yaml").write_text(
        json.dumps({**json.loads((folder / "settings.yaml").read_text()), "watch": False})
    )
    async with serving(folder, *line, "--", *asking("legacy+modern"), forked=True) as gate:
        await gate.said("reviews on")
        yield ReviewDaemon(folder, gate)


@pytest.mark.parametrize("waits", [True, False], ids=["its request waits", "its request has ended"])
async def test_a_verdict_on_a_rule_that_is_gone_is_refused_with_the_reason(daemon: ReviewDaemon, waits: bool) -> None:
    patience = "60s" if waits else "1s"
    await daemon.reload(POLICY, patience)
    async with client(daemon.gate) as c, people(daemon.gate) as person:
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
        review = await person.pending()
        if not waits:
            await asyncio.wait_for(call, BOUND)
        await daemon.reload(OTHER, patience)
        status, said = await person.say(review, **CONTENT)
        assert (409, "withdrawn") == (status, said["review"]["state"])
        assert WHY in said["detail"]
        state = str(daemon.folder / "state")
        ended = samplegate(
            daemon.folder, "reviews", "answer", review["id"], "--accept", "confirm=yes", "--state", state
        )
        assert (1, True, True) == (ended.code, "already withdrawn" in ended.err, WHY in ended.err)
        if waits:
            assert "now gets this decision" not in ended.out + ended.err
            answer = await asyncio.wait_for(call, BOUND)
            assert "error" in json.dumps(answer) or "cancel" in json.dumps(answer)


async def test_a_reload_that_keeps_the_rule_keeps_its_review(daemon: ReviewDaemon) -> None:
    await daemon.reload(POLICY)
    async with client(daemon.gate) as c, people(daemon.gate) as person:
        await c.begin()
        call = asyncio.ensure_future(c.call("legacy", 1, **ASK_FORM))
        review = await person.pending()
        await daemon.reload(POLICY.replace("rules:", "rules:\n  - {name: first, effect: deny, match: {tool: other}}"))
        assert 200 == (await person.say(review, **CONTENT))[0]
        answered = await asyncio.wait_for(call, BOUND)
        assert "accept" == answered["result"]["structuredContent"]["result"]["action"]
