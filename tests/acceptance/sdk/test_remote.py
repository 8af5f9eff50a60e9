"""The link to real remote servers: the Python SDKs 1 and 2 and server-everything over Streamable HTTP, in their
versions. The other files here test the whole gate."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from samplegate.protocol.frames import Frame
from samplegate.protocol.rounds import Note
from samplegate.transport.http_client.connection import RemoteConnection, pool
from tests.acceptance.sdk.http_peers import Places
from tests.fakes.scripted_http_server import META, Heard

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
    """Sends as a client would, and answers a server's requests on their stream."""

    remote: RemoteConnection

    def received(self, stream: int, line: bytes | Frame) -> None:
        super().received(stream, line)
        frame = json.loads(line if isinstance(line, bytes) else line.raw)
        if "method" in frame and "id" in frame:
            self.send(stream, id=frame["id"], result=ANSWERS[frame["method"]])

    def send(self, stream: int, **members: Any) -> None:
        self.remote.send(stream, json.dumps({"jsonrpc": "2.0", **members}).encode())

    async def ask(self, stream: int, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.send(stream, id=stream, method=method, params=params)
        await self.until(
            lambda: any(frame.get("id") == stream and "method" not in frame for frame in self.frames(stream))
        )
        (answer,) = [frame for frame in self.frames(stream) if frame.get("id") == stream and "method" not in frame]
        return answer

    async def call(self, stream: int, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        answer = await self.ask(stream, "tools/call", name=tool, arguments=arguments, _meta=meta or {})
        return str(answer["result"]["content"][0]["text"]) if "result" in answer else str(answer["error"])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Client, list[Note]]]:
    client, notes = Client(), list[Note]()
    async with pool() as http:
        client.remote = RemoteConnection(url, client, http=http, note=notes.append)
        try:
            yield client, notes
        finally:
            await client.remote.aclose()


legacy = pytest.mark.parametrize("name", ["sdk1", "sdk2", "everything"])
"""The servers that have a handshake."""


async def begin(client: Client) -> None:
    assert "2025-11-25" == (await client.ask(1, "initialize", **HELLO))["result"]["protocolVersion"]
    client.send(0, method="notifications/initialized")


@legacy
async def test_a_legacy_session_lists_its_tools_and_ends(name: str, places: Places) -> None:
    async with connected(places.server(name).words[0]) as (client, notes):
        await begin(client)
        assert (await client.ask(2, "tools/list"))["result"]["tools"]
        await client.remote.aclose()
        assert [] == notes


@legacy
async def test_a_legacy_servers_requests_come_on_the_stream_of_the_call_and_are_answered(
    name: str, places: Places
) -> None:
    async with connected(places.server(name).words[0]) as (client, notes):
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


@legacy
async def test_a_session_that_the_server_does_not_know_is_over(name: str, places: Places) -> None:
    async with connected(places.server(name).words[0]) as (client, _):
        await begin(client)
        client.remote._legacy.id = "0" * 32
        assert "error" in await client.ask(2, "tools/list")
        if name != "everything":  # that one says 400
            assert 1 == client.ends


async def test_modern_requests_stand_alone_and_large_results_arrive_whole(places: Places) -> None:
    async with connected(places.server("sdk2").words[0]) as (client, notes):
        assert "2026-07-28" in (await client.ask(1, "server/discover", _meta=ENVELOPE))["result"]["supportedVersions"]
        assert "5" == await client.call(2, "add", ENVELOPE, a=2, b=3)
        asked = await client.ask(3, "tools/call", name="classify", arguments={"text": "x"}, _meta=ENVELOPE)
        assert "input_required" == asked["result"]["resultType"]
        assert -32601 == (await client.ask(5, "no/such", _meta=ENVELOPE))["error"]["code"]
        assert 10_000_000 == len(await client.call(6, "large", ENVELOPE, size=10_000_000))
        assert [] == notes
