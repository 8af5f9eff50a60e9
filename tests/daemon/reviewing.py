"""People at a real daemon: the settings that let one in, and what one says over the REST API."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.daemon.gate import BOUND, Gate, asking, serving

TOKEN: Final = "sg_a-token-of-a-person"
POLICY: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
reviewers: {ops: {timeout: TIMEOUT}}
rules:
  - {name: people, effect: escalate, reviewer: ops, match: {not: {mode: url}}}
client: {peer_timeout: PATIENCE}
servers: {default: {peer_timeout: PATIENCE}}
"""
ANSWERS: Final = "cases:\n  - {text_contains: edited, answer: to the edited}\n  - {answer: from a model}\n"


def settings(
    folder: Path, *, timeout: str = "15m", patience: str = "60s", policy: str = POLICY, **also: Any
) -> list[str]:
    """The arguments of a daemon with a page, whose files are written to ``folder``. ``also``: more settings."""
    (folder / "policy.yaml").write_text(policy.replace("TIMEOUT", timeout).replace("PATIENCE", patience))
    (folder / "answers.yaml").write_text(ANSWERS)
    (folder / "seal.key").write_bytes(bytes(range(32)))
    person = {"name": "ana", "role": "reviewer", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}
    told = {
        "reviews_listen": "127.0.0.1:0",
        "people": {"tokens": [person]},
        "seal_key_file": "seal.key",
        "policy": "policy.yaml",
        **also,
    }
    (folder / "settings.yaml").write_text(json.dumps(told))
    return ["--settings", "settings.yaml"]


@asynccontextmanager
async def daemon(
    folder: Path, eras: str = "legacy+modern", url: str | None = None, **wanted: Any
) -> AsyncIterator[Gate]:
    """A daemon with a page before a server of these eras, or one at a URL."""
    behind = ["--", *asking(eras)] if url is None else ["--url", url]
    async with serving(folder, *settings(folder, **wanted), *behind) as gate:
        await gate.said("reviews on")
        yield gate


class People:
    """What a person does at one daemon."""

    def __init__(self, gate: Gate, http: aiohttp.ClientSession) -> None:
        self._url, self._http = f"{gate.reviews}/v1", http

    async def get(self, path: str) -> Any:
        """What the API says."""
        async with self._http.get(self._url + path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def status(self, path: str) -> int:
        """The status of what the API says."""
        async with self._http.get(self._url + path) as response:
            return response.status

    async def pending(self, **like: Any) -> dict[str, Any]:
        """The first pending review with these members, as soon as there is one."""
        async with asyncio.timeout(BOUND), self._http.get(f"{self._url}/reviews/events") as events:
            while True:
                for review in (await self.get("/reviews?state=pending"))["reviews"]:
                    if like.items() <= review.items():
                        return await self.get(f"/reviews/{review['id']}")  # type: ignore[no-any-return]
                await events.content.readuntil(b"\n\n")

    async def over(self, id: str) -> dict[str, Any]:
        """A review, once it waits no more."""
        async with asyncio.timeout(BOUND), self._http.get(f"{self._url}/reviews/events") as events:
            while (review := await self.get(f"/reviews/{id}"))["state"] == "pending":
                await events.content.readuntil(b"\n\n")
            return review  # type: ignore[no-any-return]

    async def say(self, review: dict[str, Any], **verdict: Any) -> tuple[int, Any]:
        """Give a verdict on what was shown."""
        body = {"digest": review["digest"], **verdict}
        async with self._http.post(f"{self._url}/reviews/{review['id']}/verdict", json=body) as response:
            return response.status, await response.json()

    async def decide(self, **verdict: Any) -> None:
        """Give a verdict on the next review that comes up."""
        status, said = await self.say(await self.pending(), **verdict)
        assert status == 200, said


@asynccontextmanager
async def people(gate: Gate) -> AsyncIterator[People]:
    """A person who may decide."""
    timeout = aiohttp.ClientTimeout(total=BOUND)
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}, timeout=timeout) as http:
        yield People(gate, http)
