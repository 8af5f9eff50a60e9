"""The four pairs of eras over HTTP in front, with a process or a URL behind: sampling and forms answered, forwarded and
denied by policy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.gate import ASK_FORM, ASK_SAMPLE, Client, asking, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ABLE: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}}}
PASS = "version: 1\nrules:\n  - {name: all, effect: forward, match: {not: {mode: url}}}\n"
SCRIPT = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [m]}}
  - {name: forms, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: true}}
"""
ANSWERS = "cases:\n  - {answer: from a model}\n"
DENY = "version: 1\nrules:\n  - {name: never, effect: deny, match: {not: {mode: url}}}\n"
PAIRS = [(front, back, "stdio") for front in ("legacy", "modern") for back in ("legacy", "modern")]
PAIRS += [(front, back, "http") for front, back in (("legacy", "legacy"), ("legacy", "modern"), ("modern", "modern"))]
"""Behind HTTP a gate stands here, which speaks both eras itself: a legacy-only server over HTTP is among the real
counterparts."""


@asynccontextmanager
async def between(
    folder: Path, policy: str, behind: str, eras: str, capabilities: dict[str, Any]
) -> AsyncIterator[Client]:
    """A client of a gate under a policy, before a server of these eras: a process, or a second gate that passes
    everything."""
    (folder / "policy.yaml").write_text(policy)
    (folder / "pass.yaml").write_text(PASS)
    (folder / "answers.yaml").write_text(ANSWERS)
    if behind == "stdio":
        async with (
            serving(folder, "--policy", "policy.yaml", "--", *asking(eras)) as gate,
            client(gate, capabilities=capabilities) as c,
        ):
            yield c
        return
    async with serving(folder, "--policy", "pass.yaml", "--", *asking(eras)) as inner:
        url = f"{inner.url}/mcp"
        async with (
            serving(folder, "--policy", "policy.yaml", "--url", url) as gate,
            client(gate, capabilities=capabilities) as c,
        ):
            yield c


@pytest.mark.parametrize(("front", "back", "behind"), PAIRS)
async def test_policy_answers_in_every_pair_of_eras(tmp_path: Path, front: str, back: str, behind: str) -> None:
    async with between(tmp_path, SCRIPT, behind, back, {}) as c:
        if front == "legacy":
            await c.begin()
        form = (await c.call(front, 1, **ASK_FORM))["result"]
        assert {"action": "accept", "content": {"confirm": True}}.items() <= form["structuredContent"]["result"].items()
        sampled = (await c.call(front, 2, **ASK_SAMPLE))["result"]["structuredContent"]["result"]
        assert "from a model" == sampled["content"]["text"]


@pytest.mark.parametrize(("front", "back", "behind"), PAIRS)
async def test_policy_denies_in_every_pair_of_eras(tmp_path: Path, front: str, back: str, behind: str) -> None:
    async with between(tmp_path, DENY, behind, back, ABLE) as c:
        if front == "legacy":
            await c.begin()
        answer = await c.call(front, 1, **ASK_SAMPLE)
        assert "from a" not in str(answer)
        assert [] == [frame for frame in c.heard if "id" in frame]


@pytest.mark.parametrize("behind", ["stdio", "http"])
@pytest.mark.parametrize("back", ["legacy", "modern"])
async def test_a_legacy_client_is_asked_what_policy_forwards(tmp_path: Path, back: str, behind: str) -> None:
    async with between(tmp_path, PASS, behind, back, ABLE) as c:
        await c.begin()
        form = (await c.call("legacy", 1, **ASK_FORM))["result"]["structuredContent"]["result"]
        assert "accept" == form["action"]
        sampled = (await c.call("legacy", 2, **ASK_SAMPLE))["result"]["structuredContent"]["result"]
        assert "a person" == sampled["content"]["text"]
        assert ["elicitation/create", "sampling/createMessage"] == [
            frame["method"] for frame in c.heard if "id" in frame
        ]


@pytest.mark.parametrize("behind", ["stdio", "http"])
async def test_a_modern_client_is_asked_what_policy_forwards_by_a_modern_server(tmp_path: Path, behind: str) -> None:
    async with between(tmp_path, PASS, behind, "modern", ABLE) as c:
        asked = (await c.call("modern", 1, **ASK_FORM))["result"]
        assert "input_required" == asked["resultType"]
        assert "elicitation/create" == asked["inputRequests"]["k"]["method"]
        answers = {"k": {"action": "accept", "content": {"confirm": True}}}
        done = await c.modern(
            "tools/call", 2, name="do", arguments=ASK_FORM, inputResponses=answers, requestState=asked["requestState"]
        )
        assert answers["k"] == done["result"]["structuredContent"]["result"]


async def test_what_policy_forwards_is_refused_between_a_modern_client_and_a_legacy_server(tmp_path: Path) -> None:
    async with between(tmp_path, PASS, "stdio", "legacy", ABLE) as c:
        answer = (await c.call("modern", 1, **ASK_SAMPLE))["result"]["structuredContent"]
        assert {"error"} == answer.keys()
