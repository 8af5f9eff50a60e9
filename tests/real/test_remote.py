"""The link to remote servers against real ones: the Python SDK 1 and 2 and server-everything over Streamable HTTP, in
the eras they speak."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from samplegate.protocol.frames import Frame
from samplegate.protocol.rounds import Note
from samplegate.transport.http_client.connection import Remote, pool
from tests.links.remote.server import META, Heard
from tests.real import http_peers

pytestmark = pytest.mark.anyio

CAPABILITIES: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": {"name": "t", "version": "1"}}
ENVELOPE = META | {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
ANSWERS = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "fine"},
        "model": "m",
        "stopReason": "endTurn",
    },
    "elicitation/create": {"action": "accept", "content": {"confirm": True, "reason": "r"}},
    "ping": {},
}


class Client(Heard):
    """Sends as a client would and answers what a server asks on the stream it asks on."""

    remote: Remote

    def received(self, lane: int, line: bytes | Frame) -> None:
        super().received(lane, line)
        frame = json.loads(line if isinstance(line, bytes) else line.raw)
        if "method" in frame and "id" in frame:
            self.send(lane, id=frame["id"], result=ANSWERS[frame["method"]])

    def send(self, lane: int, **members: Any) -> None:
        self.remote.send(lane, json.dumps({"jsonrpc": "2.0", **members}).encode())

    async def ask(self, lane: int, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; its answer."""
        self.send(lane, id=lane, method=method, params=params)
        await self.until(lambda: any(frame.get("id") == lane and "method" not in frame for frame in self.frames(lane)))
        (answer,) = [frame for frame in self.frames(lane) if frame.get("id") == lane and "method" not in frame]
        return answer

    async def call(self, lane: int, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> str:
        """Call a tool; the text of its result."""
        answer = await self.ask(lane, "tools/call", name=tool, arguments=arguments, _meta=meta or {})
        return str(answer["result"]["content"][0]["text"]) if "result" in answer else str(answer["error"])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Client, list[Note]]]:
    client, notes = Client(), list[Note]()
    async with pool() as http:
        client.remote = Remote(url, client, http=http, note=notes.append)
        try:
            yield client, notes
        finally:
            await client.remote.aclose()


@pytest.fixture(scope="module", params=["sdk1", "sdk2", "everything"])
def legacy(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A server that has a handshake, and its name."""
    with http_peers.serving(request.param) as server:
        yield request.param, server.words[0]


@pytest.fixture(scope="module")
def modern() -> Iterator[str]:
    with http_peers.serving("sdk2") as server:
        yield server.words[0]


async def begin(client: Client) -> None:
    assert "2025-11-25" == (await client.ask(1, "initialize", **HELLO))["result"]["protocolVersion"]
    client.send(0, method="notifications/initialized")


async def test_a_legacy_session_lists_its_tools_and_ends(legacy: tuple[str, str]) -> None:
    async with connected(legacy[1]) as (client, notes):
        await begin(client)
        assert (await client.ask(2, "tools/list"))["result"]["tools"]
        await client.remote.aclose()
        assert [] == notes


async def test_a_legacy_servers_requests_come_on_the_stream_of_the_call_and_are_answered(
    legacy: tuple[str, str],
) -> None:
    name, url = legacy
    async with connected(url) as (client, notes):
        await begin(client)
        if name == "everything":
            assert "fine" in await client.call(2, "trigger-sampling-request", prompt="x", maxTokens=10)
        else:
            assert "m|endTurn|fine" == await client.call(2, "classify", text="x")
            assert "accept|True|r" == await client.call(3, "confirm")
            assert ["sampling/createMessage"] == [
                frame["method"] for frame in client.frames(2) if "method" in frame and "id" in frame
            ]
        assert [] == [note for note in notes if note.event != "frame.refused"]


async def test_progress_comes_on_the_stream_of_its_call_before_the_answer(legacy: tuple[str, str]) -> None:
    name, url = legacy
    async with connected(url) as (client, _):
        await begin(client)
        if name == "everything":
            await client.call(2, "trigger-long-running-operation", {"progressToken": "p"}, duration=0.2, steps=2)
        else:
            assert "2" == await client.call(2, "count", {"progressToken": "p"}, to=2)
        told = [
            frame["params"]["progress"] for frame in client.frames(2) if frame.get("method") == "notifications/progress"
        ]
        assert [1, 2] == told
        assert "result" in client.frames(2)[-1]


async def test_a_legacy_call_is_cancelled_by_a_notification(legacy: tuple[str, str]) -> None:
    name, url = legacy
    async with connected(url) as (client, _):
        await begin(client)
        if name == "everything":  # it has no tool that says whether it was cancelled: what comes after is answered
            operation = {
                "name": "trigger-long-running-operation",
                "arguments": {"duration": 30, "steps": 30},
                "_meta": {"progressToken": "p"},
            }
            client.send(3, id=3, method="tools/call", params=operation)
            await client.of(3)
            client.send(0, method="notifications/cancelled", params={"requestId": 3})
            assert "after" in await client.call(4, "echo", message="after")
            return
        before = int(await client.call(2, "cancelled"))
        client.send(
            3, id=3, method="tools/call", params={"name": "slow", "arguments": {}, "_meta": {"progressToken": "p"}}
        )
        await client.of(3)
        client.send(0, method="notifications/cancelled", params={"requestId": 3})
        await counted(client, before + 1)


async def counted(client: Client, wanted: int, meta: dict[str, Any] | None = None) -> None:
    """Ask until the server has noticed."""
    async with asyncio.timeout(20):
        lane = 100
        while int(await client.call(lane, "cancelled", meta)) < wanted:
            lane += 1


async def test_a_session_that_the_server_does_not_know_is_over(legacy: tuple[str, str]) -> None:
    async with connected(legacy[1]) as (client, _):
        await begin(client)
        client.remote._legacy.id = "0" * 32
        assert "error" in await client.ask(2, "tools/list")
        if legacy[0] != "everything":  # that one says 400
            assert 1 == client.ends


async def test_modern_requests_stand_alone(modern: str) -> None:
    async with connected(modern) as (client, notes):
        assert "2026-07-28" in (await client.ask(1, "server/discover", _meta=ENVELOPE))["result"]["supportedVersions"]
        assert "5" == await client.call(2, "add", ENVELOPE, a=2, b=3)
        asked = await client.ask(3, "tools/call", name="classify", arguments={"text": "x"}, _meta=ENVELOPE)
        assert "input_required" == asked["result"]["resultType"]
        read = await client.ask(4, "resources/read", uri="counterpart://greeting", _meta=ENVELOPE)
        assert "hello from a resource" == read["result"]["contents"][0]["text"]
        assert -32601 == (await client.ask(5, "no/such", _meta=ENVELOPE))["error"]["code"]
        assert [] == notes


async def test_a_modern_call_reports_progress_and_logs_on_its_stream(modern: str) -> None:
    async with connected(modern) as (client, _):
        meta = ENVELOPE | {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}
        assert "2" == await client.call(2, "count", meta, to=2)
        assert [1, 2] == [
            frame["params"]["progress"] for frame in client.frames(2) if frame.get("method") == "notifications/progress"
        ]


async def test_a_modern_call_is_cancelled_by_the_end_of_its_stream(modern: str) -> None:
    async with connected(modern) as (client, _):
        before = int(await client.call(2, "cancelled", ENVELOPE))
        client.send(
            3,
            id=3,
            method="tools/call",
            params={"name": "slow", "arguments": {}, "_meta": ENVELOPE | {"progressToken": "p"}},
        )
        await client.of(3)
        client.remote.close_lane(3)
        await counted(client, before + 1, ENVELOPE)
        assert 1 == len(client.frames(3))


async def test_a_result_of_ten_megabytes_arrives_whole(modern: str) -> None:
    async with connected(modern) as (client, _):
        await begin(client)
        assert 10_000_000 == len(await client.call(2, "large", size=10_000_000))
        assert 10_000_000 == len(await client.call(3, "large", ENVELOPE, size=10_000_000))
