"""Reviewers at a real daemon: its settings, a client of the REST API and the page, calls that need a review, and the
store as another process opens it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.daemon import ASK_FORM, BOUND, FORM, META, SAMPLE, VERSION, Client, Gate, asking, serving

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
ACCEPTED: Final = {"action": "accept", "content": {"confirm": True}}
HANGS: Final = 400.0  # seconds: the same for a crowd
SLOW: Final = 40.0  # seconds: the bound of what must not hang, on a machine that does nine other things
T = TypeVar("T")
ANSWERS: Final = """
cases:
  - {text_contains: edited, answer: to the edited}
  - {text_contains: slowly, answer: from a slow model, delay: 2s}
  - {answer: from a model}
"""


def settings(
    folder: Path, *, timeout: str = "15m", patience: str = "60s", policy: str = POLICY, **also: Any
) -> list[str]:
    """The arguments of a daemon with a reviewers' page. Writes its files to ``folder``. ``also`` are more settings."""
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
    folder: Path,
    eras: str = "legacy+modern",
    *,
    program: Sequence[str] = ("-m", "samplegate"),
    forked: bool | None = None,
    **wanted: Any,
) -> AsyncIterator[Gate]:
    """A daemon with a reviewers' page in front of a server of these protocol versions. It is forked if its
    program can be."""
    words = (*settings(folder, **wanted), "--", *asking(eras))
    async with serving(
        folder, *words, program=program, forked=program[0] in ("-m", "-c") if forked is None else forked
    ) as gate:
        await gate.said("reviews on")
        yield gate


async def reload(gate: Gate, folder: Path, policy: str) -> None:
    """Put a policy in force in a daemon that does not watch its files."""
    before = len(gate.lines)
    (folder / "policy.yaml").write_text(policy)
    gate.process.send_signal(signal.SIGHUP)
    said = await gate.said('"reload.', before)
    assert "reload.taken" in said, said


class People:
    """A reviewer at one daemon, over the API and the page."""

    def __init__(self, gate: Gate, http: aiohttp.ClientSession) -> None:
        self._at, self._url, self._http = gate.reviews, f"{gate.reviews}/v1", http

    async def get(self, path: str) -> Any:
        """GET a path of the API and return the body."""
        async with self._http.get(self._url + path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def status(self, path: str) -> int:
        """The status of an API request."""
        async with self._http.get(self._url + path) as response:
            return response.status

    async def pending(self, **like: Any) -> dict[str, Any]:
        """Wait for a pending review with these members and return the first."""
        async with asyncio.timeout(BOUND), self._http.get(f"{self._url}/reviews/events") as events:
            while True:
                for review in (await self.get("/reviews?state=pending"))["reviews"]:
                    if like.items() <= review.items():
                        return await self.get(f"/reviews/{review['id']}")  # type: ignore[no-any-return]
                await events.content.readuntil(b"\n\n")

    async def over(self, id: str) -> dict[str, Any]:
        """Wait until a review is no longer pending, and return it."""
        async with asyncio.timeout(BOUND), self._http.get(f"{self._url}/reviews/events") as events:
            while (review := await self.get(f"/reviews/{id}"))["state"] == "pending":
                await events.content.readuntil(b"\n\n")
            return review  # type: ignore[no-any-return]

    async def say(self, review: dict[str, Any], **verdict: Any) -> tuple[int, Any]:
        """Decide a review as it was shown."""
        body = {"digest": review["digest"], **verdict}
        async with self._http.post(f"{self._url}/reviews/{review['id']}/verdict", json=body) as response:
            return response.status, await response.json()

    async def decide(self, **verdict: Any) -> None:
        """Wait for the next pending review and decide it."""
        status, said = await self.say(await self.pending(), **verdict)
        assert status == 200, said

    async def refused(self, review: dict[str, Any]) -> int:
        """The status of a verdict that is rejected."""
        body = {"digest": review["digest"], "verdict": "reject"}
        async with self._http.post(f"{self._url}/reviews/{review['id']}/verdict", json=body) as response:
            assert response.status >= 400
            return response.status

    async def sign_in(self) -> None:
        async with self._http.post(
            f"{self._at}/reviews/sign-in", data={"token": TOKEN}, headers={"origin": self._at}
        ) as response:
            assert response.status == 200, await response.text()

    async def page(self, path: str) -> str:
        async with self._http.get(self._at + path) as response:
            assert response.status == 200
            return await response.text()

    async def propose(self, review: dict[str, Any], **submitted: Any) -> dict[str, Any]:
        """Submit what the app of a review's UI submitted, as the page's script does."""
        token = re.search(r'name="form_token" value="([^"]+)"', await self.page(f"/reviews/{review['id']}"))
        assert token is not None
        body = {"form_token": token[1], "ui": review["ui"]["sha256"], **submitted}
        at = f"{self._at}/reviews/{review['id']}/ui/proposal"
        async with self._http.post(at, json=body, headers={"origin": self._at}) as response:
            assert response.status == 200, await response.text()
            return await response.json()  # type: ignore[no-any-return]

    @asynccontextmanager
    async def events(self) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        """Returns a function that returns the next event of the stream at each call."""
        async with self._http.get(f"{self._url}/reviews/events") as stream:

            async def next_event() -> str:
                return (await stream.content.readuntil(b"\n\n")).decode()

            yield next_event

    @asynccontextmanager
    async def told(self, what: str, number: int) -> AsyncIterator[None]:
        """Wait at the end of the block until this event has arrived for ``number`` reviews."""
        async with self.events() as next_event, asyncio.timeout(HANGS):
            await next_event()  # it listens
            yield
            while number > 0:
                number -= f'"what": "{what}"' in await next_event()


@asynccontextmanager
async def people(gate: Gate, token: str = TOKEN) -> AsyncIterator[People]:
    """A reviewer who may decide, also at the page."""
    jar = aiohttp.CookieJar(unsafe=True)  # for cookies of an address
    timeout = aiohttp.ClientTimeout(total=HANGS)
    async with aiohttp.ClientSession(
        headers={"authorization": f"Bearer {token}"}, timeout=timeout, cookie_jar=jar
    ) as http:
        yield People(gate, http)


@asynccontextmanager
async def crowd_of(gate: Gate) -> AsyncIterator[Client]:
    """A client with an unlimited number of connections."""
    timeout = aiohttp.ClientTimeout(total=HANGS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        yield Client(http, f"{gate.url}/mcp")


# -- calls that people are asked about
# ----------------------------------------------------------------------------------------------------------------------


def form(text: str) -> dict[str, Any]:
    """The arguments of a call during which the server asks for a form. No other test uses the same form."""
    return {"ask": {"method": "elicitation/create", "params": {**FORM, "message": text}}}


def sample(text: str) -> dict[str, Any]:
    """The arguments of a call during which the server asks for a sample."""
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"ask": {"method": "sampling/createMessage", "params": {**SAMPLE, "messages": messages}}}


def said(answer: dict[str, Any]) -> Any:
    """The answer that the server received."""
    return answer["result"]["structuredContent"]["result"]


async def timed(what: Awaitable[T]) -> T:
    """Await this with a timeout."""
    async with asyncio.timeout(SLOW):
        return await what


async def retry(c: Client, id: int, state: str, arguments: Mapping[str, Any] = ASK_FORM) -> dict[str, Any]:
    """The client's next retry, as modern clients make it by themselves."""
    own = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {}}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "do"}
    params = {"name": "do", "arguments": arguments, "requestState": state, "_meta": own}
    return (await c.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, headers))[1]


# -- the store
# ----------------------------------------------------------------------------------------------------------------------


def file_of(folder: Path) -> Path:
    return folder / "state" / "reviews.db"


@contextlib.contextmanager
def store(folder: Path) -> Iterator[SqlReviewStore]:
    """The same store, opened as another process opens it."""
    opened = SqlReviewStore(f"sqlite:{file_of(folder)}")
    try:
        yield opened
    finally:
        opened.close()


def reviews_of(folder: Path, text: str) -> list[Review]:
    """The reviews of forms with this text in their message, newest first."""
    with store(folder) as opened:
        return [one for one in opened.list(Filter(limit=1000)) if text in str(one.params.get("message"))]


def answer(folder: Path, id: str) -> None:
    """A verdict through another door."""
    with store(folder) as opened:
        opened.decide(id, Verdict(word="answer", result=ACCEPTED), who="ana", door="cli")


def answer_all(folder: Path) -> int:
    """Decide all pending reviews, and return how many there were."""
    with store(folder) as opened:
        count = 0
        while found := opened.list(Filter(states=("pending",), limit=500)):
            for one in found:
                opened.decide(one.id, Verdict(word="answer", result=ACCEPTED), who="ana", door="cli")
                count += 1
        return count
