"""The memory of a running gate: state about its peers is bounded in bytes, and the memory of frames is freed."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.both_ends import modern
from tests.fakes.daemon import ACCEPT
from tests.fakes.hostile_frames import MIB, SIZE
from tests.fakes.hostile_traffic import MODERN, MOST_GROWTH, PATH, SMALL, At, load, resident, traffic
from tests.fakes.stdio_traffic import exchange, running, settled

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
ECHO = {**MODERN, "mcp-name": "echo"}
CALLS = 128
PUSHES = 64
"""MiB that one session's calls in flight and its server's open requests may hold."""


@pytest.mark.anyio
async def test_memory_comes_back_after_hostile_frames(tmp_path: Path) -> None:
    async with traffic(tmp_path) as at:
        await load(at, 100, SMALL)
        before = at.resident()
        statuses = await load(at, 100, SMALL)
        large = await load(at, 10, SIZE, first=13)
        after = await at.settled(before + MOST_GROWTH)
    assert statuses.keys() | large.keys() == {200, 400}
    assert 5 <= large[200], "no large frame reached the server, so this shows nothing"
    assert MOST_GROWTH > after - before


@pytest.mark.anyio
async def test_declarations_are_not_remembered_by_their_bytes(tmp_path: Path) -> None:
    """Each frame declares a different text. Those of 15 MiB are refused. Those of 60 KiB are accepted, and only the
    last of them are kept."""
    async with traffic(tmp_path) as at:
        await load(at, 50, SMALL)
        before = at.resident()
        large = [await at.post(_declaring(number, 15 * MIB), ECHO) for number in range(8)]
        small = [await at.post(_declaring(number, 60 * 1024), ECHO) for number in range(300)]
        after = await at.settled(before + MOST_GROWTH)
    assert MOST_GROWTH > after - before
    assert [400] * 8 == large
    assert [200] * 300 == small


@pytest.mark.anyio
async def test_calls_in_flight_over_http_are_bounded_in_bytes_and_held_once(tmp_path: Path) -> None:
    async with traffic(tmp_path, server="holding.py") as at:
        await at.post(_held(0, 15 * MIB, "echo"), ECHO)
        before = at.resident()
        calls = []
        for number in range(12):
            calls.append(asyncio.create_task(_answer(at, _held(number, 15 * MIB))))
            await asyncio.wait(calls[-1:], timeout=0.3)
            await at.post(_held(100 + number, 100, "echo"), ECHO)  # answered after the server has read the others
        waiting = calls
        for _ in range(300):
            waiting = [call for call in calls if not call.done()]
            if len(waiting) <= 8:
                break
            await asyncio.sleep(0.1)
        refused = [call.result() for call in calls if call.done()]
        during = await at.settled(before + CALLS + MOST_GROWTH)
        assert 200 == await at.post(_held(99, 100, "echo"), ECHO), "a small call has no room"
        for call in waiting:
            call.cancel()
        after = await at.settled(before + MOST_GROWTH)
    assert [-32603] * 4 == [frame["error"]["code"] for frame in refused]
    assert all("128 MiB" in frame["error"]["message"] for frame in refused)
    assert 8 == len(waiting)
    assert CALLS + MOST_GROWTH > during - before
    assert MOST_GROWTH > after - before


def _text(size: int) -> str:
    return "x" * size


def _held(number: int, size: int, tool: str = "hold") -> bytes:
    return modern(number, "tools/call", name=tool, arguments={"text": _text(size)}).replace(b'"name": ', b'"name":')


def _declaring(number: int, size: int) -> bytes:
    return modern(
        number, "tools/call", {"experimental": {f"n{number}": {"text": _text(size)}}}, name="echo", arguments={}
    )


async def _answer(at: At, body: bytes) -> dict[str, Any]:
    async with at.http.post(
        at.gate.url + PATH, data=io.BytesIO(body), headers={**ACCEPT, **MODERN, "mcp-name": "hold"}
    ) as response:
        text = await response.text()
        found: dict[str, Any] = json.loads(
            text.partition("data: ")[2] if text.startswith(("event", ":", "data")) else text
        )
        return found


# -- run
# ----------------------------------------------------------------------------------------------------------------------


LEFT = 8.0  # MiB that may stay after the calls; one of them has 15


def _push(number: int, size: int) -> bytes:
    content = {"type": "text", "text": _text(size)}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 5}
    return json.dumps(
        {"jsonrpc": "2.0", "id": f"p{number}", "method": "sampling/createMessage", "params": params}
    ).encode()


def test_open_requests_of_a_server_are_bounded_in_bytes(tmp_path: Path) -> None:
    with running(tmp_path, "legacy") as (at, client, server):
        before = resident(at.pid)
        for number in range(10):
            at.server.write(_push(number, 8 * MIB))
        asked = client.until(3, b"sampling/createMessage")
        refused = server.until(7, b'"error"')
        during = settled(at.pid, before + PUSHES + MOST_GROWTH)
        at.server.write(_push(10, 100))
        client.until(4, b"sampling/createMessage")
        for line in asked:
            id = json.loads(line[: line.index(b',"method"')] + b"}")["id"]
            answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
            at.client.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": answer}).encode())
        server.until(3, b'"role"')
        at.server.write(_push(11, 8 * MIB))
        client.until(5, b"sampling/createMessage")
    assert 3 == len(asked)
    assert all(b'"code":-1,' in line and b"64 MiB" in line for line in refused)
    assert PUSHES + MOST_GROWTH > during - before
    assert "64 MiB" in (tmp_path / "stderr").read_text()


def test_calls_in_flight_over_stdio_are_bounded_in_bytes(tmp_path: Path) -> None:
    with running(tmp_path, "modern") as (at, client, server):
        before = resident(at.pid)
        for number in range(1, 13):
            at.client.write(_held(number, 15 * MIB))
        refused = client.until(4, b'"error"')
        calls = server.until(8, b"tools/call")
        during = settled(at.pid, before + CALLS + MOST_GROWTH)
        time.sleep(2)  # the heap is trimmed while the calls are still open, and again after their answers
        for line in calls:
            at.server.write(b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[]}}' % _id(line))
        client.until(8, b'"result"')
        after = settled(at.pid, before + LEFT)
    assert all(b"-32603" in line and b"128 MiB" in line for line in refused)
    assert 8 == len(calls)
    assert CALLS + MOST_GROWTH > during - before
    assert LEFT > after - before
    assert "128 MiB" in (tmp_path / "stderr").read_text()


def _id(line: bytes) -> int:
    return int(line.partition(b'"id":')[2].partition(b",")[0])


def test_memory_of_run_comes_back_after_large_frames_in_both_directions(tmp_path: Path) -> None:
    with running(tmp_path, "legacy") as (at, client, server):
        exchange(at, client, server, 20, SMALL)
        before = resident(at.pid)
        exchange(at, client, server, 100, SMALL)
        exchange(at, client, server, 10, SIZE)
        after = settled(at.pid, before + MOST_GROWTH)
    assert MOST_GROWTH > after - before
