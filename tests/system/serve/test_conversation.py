"""A conversation of the daemon with an internal error: it ends, its waiters get an error, and other conversations
continue."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from samplegate.audit.decision_log import NoDecisionLog
from samplegate.runtime.process import ProcessContext, Rules, compile_loaded, load_policy
from samplegate.runtime.relay import Relay
from samplegate.runtime.session_wiring import SessionWiring
from samplegate.sampler.client import Models
from samplegate.server.conversation import ServerConversation
from samplegate.telemetry.log import EventLog

pytestmark = pytest.mark.anyio
POLICY = "version: 1\nrules: [{name: all, effect: deny}]\n"
PING = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping"}).encode()


class Stream:
    """The frames that a client received."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.closed = False

    def send(self, line: bytes, last: bool) -> None:
        self.lines.append(json.loads(line))

    def ask(self, id: str | int, line: bytes) -> None:
        self.send(line, False)

    def cancel(self, id: str | int, line: bytes) -> None:
        self.send(line, False)

    def over(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Behind:
    """A server side that fails before it is open, or on request."""

    streams = False
    realm = ""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.fail = anyio.Event()

    def problem(self) -> str | None:
        return None

    @asynccontextmanager
    async def open(self, relay: Relay) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        if self.at_once:
            raise RuntimeError("a bug")

        async def ended() -> None:
            await self.fail.wait()
            raise RuntimeError("a bug")

        yield ended


def conversation(folder: Path, behind: Behind) -> ServerConversation:
    loaded = load_policy(POLICY, file="policy.yaml", environment={})
    rules = Rules(loaded, compile_loaded(loaded, folder), Models((), folder=folder, environment={}))
    context = ProcessContext(rules, state=folder, decisions=NoDecisionLog(), log=EventLog("error", "json"))
    return ServerConversation(SessionWiring(context, "default", outlived=True), behind)


async def test_a_fault_while_it_is_opened_is_a_start_that_failed(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        found = conversation(tmp_path, Behind(at_once=True))
        with anyio.fail_after(20):
            await group.start(found.run)
        assert "internal error in the gate; see the log" in str(found.failed)
        assert found.over


async def test_a_fault_later_ends_it_and_nothing_else(tmp_path: Path) -> None:
    behind, stream, over = Behind(at_once=False), Stream(), anyio.Event()
    async with anyio.create_task_group() as group:
        found = conversation(tmp_path, behind)
        await group.start(found.run)
        found.received(found.open_stream(stream), PING)
        found.on_end(over.set)
        behind.fail.set()
        with anyio.fail_after(20):
            await over.wait()
    assert [(7, -32603)] == [(line["id"], line["error"]["code"]) for line in stream.lines]
    assert stream.closed
