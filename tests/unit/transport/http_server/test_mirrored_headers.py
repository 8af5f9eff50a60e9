"""Tool arguments mirrored in headers: learned from the tool lists that passed, checked on each call."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from samplegate.protocol.frames import Frame
from samplegate.transport.http_server import modern as mirrored
from samplegate.transport.http_server.modern import Mirrored
from tests.fakes.http_front import Conversation, Front, Served, echoes, note, result

pytestmark = pytest.mark.anyio


def tool(name: str, header: str | None = "Region") -> dict[str, object]:
    extra = {} if header is None else {"x-mcp-header": header}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"region": {"type": "string", **extra}}}}


class ToolServer(Served):
    """A server whose list can change."""

    def __init__(self, *tools: dict[str, object], streams: bool = False) -> None:
        super().__init__(self._answer)
        self.tools = list(tools)
        self.streams = streams

    def _answer(self, conversation: Conversation, stream: int, frame: Frame) -> None:
        if frame.method != "tools/list":
            return echoes(conversation, stream, frame)
        if self.streams:
            conversation.streams[stream].send(note("soon"), False)
        return conversation.streams[stream].send(result(frame.id, {"tools": self.tools}), True)


async def called(
    front: Front, arguments: Mapping[str, object], caller: str = "", name: str = "t", **headers: str
) -> tuple[int, int | None]:
    """The status of a call and its error code."""
    call = await front.modern(
        "tools/call", {"name": name, "arguments": arguments}, caller=caller, mcp_name=name, **headers
    ).done()
    return call.status, call.json.get("error", {}).get("code")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_must_mirror_what_the_list_said(streams: bool) -> None:
    front = Front(ToolServer(tool("t"), streams=streams))
    await front.modern("tools/list").done()
    assert (200, None) == await called(front, {"region": "eu"}, mcp_param_region="eu")
    assert (200, None) == await called(front, {"region": "eu"}, mcp_param_region="=?base64?ZXU=?=")
    assert (200, None) == await called(front, {})
    for arguments, header in [
        ({"region": "eu"}, ""),
        ({"region": "eu"}, "us"),
        ({"region": "eu"}, "=?base64?ZXU?="),
        ({}, "eu"),
    ]:
        assert (400, -32020) == await called(front, arguments, mcp_param_region=header)


async def test_headers_that_no_tool_names_count_for_nothing() -> None:
    front = Front(ToolServer(tool("t"), tool("u", None)))
    await front.modern("tools/list").done()
    assert (200, None) == await called(front, {"region": "eu"}, name="u", mcp_param_region="us")
    assert (200, None) == await called(front, {"region": "eu"}, name="unlisted", mcp_param_region="us")
    assert (200, None) == await called(front, {"region": "eu"}, mcp_param_region="eu", mcp_param_other="x")


async def test_each_caller_is_held_to_what_it_was_told_itself() -> None:
    front = Front(ToolServer(tool("t")))
    await front.modern("tools/list", caller="ann").done()
    assert (400, -32020) == await called(front, {"region": "eu"}, "ann")
    assert (200, None) == await called(front, {"region": "eu"}, "bob")


async def test_a_list_that_has_changed_counts() -> None:
    served = ToolServer(tool("t"))
    front = Front(served)
    await front.modern("tools/list").done()
    served.tools = [tool("t", None)]
    await front.modern("tools/list").done()
    assert (200, None) == await called(front, {"region": "eu"})


@pytest.mark.parametrize(
    "line", [b"", b"[", b'{"jsonrpc":"2.0","id":1,"result":{"tools":[1],"tools":"x-mcp-header"}}', b'"x-mcp-header"']
)
def test_a_list_that_cannot_be_read_says_nothing(line: bytes) -> None:
    known = Mirrored()
    known.learn("ann", line)
    assert not known.knows("ann")


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "MAX_TOOLS", 2)
    monkeypatch.setattr(mirrored, "MAX_CALLERS", 2)
    known = Mirrored()
    for caller in "abc":
        known.learn(caller, result(1, {"tools": [tool(str(n)) for n in range(5)]}))
    assert [False, True, True] == [known.knows(caller) for caller in "abc"]
    arguments = json.dumps({"region": "eu"}).encode()
    assert [True, False] == [known.fault("c", name, [], arguments) is None for name in ("0", "4")]


def test_what_is_known_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "MAX_SIZE", 20_000)
    monkeypatch.setattr(mirrored, "MAX_ALL_SIZE", 50_000)
    known = Mirrored()
    for caller in "abcd":
        known.learn(caller, result(1, {"tools": [tool(str(n) + "x" * 2000) for n in range(5)]}))
    assert [False, False, True, True] == [known.knows(caller) for caller in "abcd"]
    arguments = json.dumps({"region": "eu"}).encode()
    assert [True, False] == [known.fault("d", name + "x" * 2000, [], arguments) is None for name in ("0", "4")]
