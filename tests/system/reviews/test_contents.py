"""A reviewer's view of a sampling request at a real daemon: on the page, in the API, on the command line and in a
webhook."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from contextlib import AsyncExitStack
from html import unescape
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.fakes.daemon import BOUND, Gate, asking, client, serving
from tests.fakes.daemon_reviews import TOKEN, people, settings
from tests.fakes.shell import samplegate
from tests.fakes.webhook_endpoint import endpoint, ok

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECRET: Final = "sk-proj-" + "4f" * 24
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}, {name: other, model: scripted, cases: answers.yaml}]
reviewers: {ops: {webhook: {url: HOOK, secret_file: hook.key}}}
rules:
  - {name: people, effect: escalate, reviewer: ops}
"""
PARAMS: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    "maxTokens": 50,
    "modelPreferences": {
        "hints": [{"name": "other"}, {"name": "<b>bold</b>"}],
        "costPriority": 0.25,
        "intelligencePriority": 0.75,
    },
    "includeContext": "allServers",
    "metadata": {"ticket": "T-1", "api_key": SECRET},
}
ASK: Final = {"ask": {"method": "sampling/createMessage", "params": PARAMS}}
NOT_SENT: Final = "not sent to the model"


async def page_of(gate: Gate, id: str) -> str:
    """The text of the review's page for a signed-in reviewer."""
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=BOUND)
    ) as http:
        async with http.post(
            f"{gate.reviews}/reviews/sign-in", data={"token": TOKEN}, headers={"origin": gate.reviews}
        ) as signed_in:
            assert signed_in.status in (200, 303)
        async with http.get(f"{gate.reviews}/reviews/{id}") as page:
            return await page.text()


async def test_a_reviewer_sees_what_the_server_asked_beside_the_prompt_and_what_becomes_of_it(tmp_path: Path) -> None:
    (tmp_path / "hook.key").write_text("whsec_" + base64.b64encode(bytes(32)).decode())
    async with endpoint(ok(b"")) as hook, AsyncExitStack() as stack:
        arguments = settings(tmp_path, policy=POLICY.replace("HOOK", hook.url))
        told = json.loads((tmp_path / "settings.yaml").read_text())
        (tmp_path / "settings.yaml").write_text(json.dumps({**told, "webhook_networks": ["127.0.0.0/8"]}))
        async with (
            serving(tmp_path, *arguments, "--", *asking("legacy+modern"), forked=True) as gate,
            client(gate) as c,
        ):
            await gate.said("reviews on")
            person = await stack.enter_async_context(people(gate))
            call = asyncio.ensure_future(c.call("modern", 1, **ASK))
            review = await person.pending()
            preferences, context, metadata = review["unsent"]
            assert {"param": "modelPreferences", "value": PARAMS["modelPreferences"]} == {
                name: preferences[name] for name in ("param", "value")
            }
            assert "not sent to the model; the gate chose other: hint 'other' is its name" == preferences["effect"]
            assert {
                "param": "includeContext",
                "value": "allServers",
                "effect": "ignored: the gate has no context to include",
            } == context
            assert {"param": "metadata", "value": PARAMS["metadata"], "effect": "not sent to the model"} == metadata

            page = await page_of(gate, review["id"])
            assert "<b>bold</b>" not in page
            text = unescape(re.sub(r"<[^>]*>", "", page))
            for words in (
                "modelPreferences",
                "<b>bold</b>",
                '"costPriority": 0.25',
                "includeContext",
                "allServers",
                "metadata",
                '"ticket": "T-1"',
                NOT_SENT,
            ):
                assert words in text, words

            shown = samplegate(tmp_path, "reviews", "show", review["id"], "--state", str(tmp_path / "state"))
            text = shown.out
            for words in (
                "modelPreferences (not sent",
                '"costPriority": 0.25',
                "includeContext (ignored",
                "allServers",
                "metadata (not",
                "T-1",
            ):
                assert words in text, words

            async with asyncio.timeout(BOUND):
                while not hook.seen:
                    hook.came.clear()
                    await hook.came.wait()
            body = hook.seen[0].body.decode()
            assert SECRET not in body
            sent = {each["param"]: each["value"] for each in json.loads(body)["data"]["unsent"]}
            assert (0.25, "allServers", "T-1") == (
                sent["modelPreferences"]["costPriority"],
                sent["includeContext"],
                sent["metadata"]["ticket"],
            )
            assert (200, "rejected") == ((said := await person.say(review, verdict="reject"))[0], said[1]["state"])
            await asyncio.wait_for(call, BOUND)
