"""State that conversations share across a policy reload: open rounds end under the old policy, and its models are
closed after them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from samplegate.audit.decision_log import NoDecisionLog
from samplegate.policy.ledger import Draw, Reserved
from samplegate.protocol.frames import Frame
from samplegate.runtime.process import ProcessContext, Rules, compile_loaded, load_policy
from samplegate.runtime.session_wiring import SessionWiring
from samplegate.sampler.client import Models
from samplegate.telemetry.log import EventLog
from tests.fakes.dialogue import request, result, sample
from tests.fakes.limits import all_blocked

pytestmark = pytest.mark.anyio
ROOM = "room: {concurrent: 1, by: []}"


class TrackedModels(Models):
    """Models that count how often they were closed."""

    ended = 0

    async def aclose(self) -> None:
        self.ended += 1
        await super().aclose()


class Client:
    """A client that reads every line."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None: ...
    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def over(self, stream: int) -> None: ...
    def close(self) -> None: ...


class Server:
    """A server that reads every line and keeps it."""

    full = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.changed = anyio.Event()

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        self.sent.append(json.loads(line))
        self.changed.set()
        self.changed = anyio.Event()

    def close_stream(self, stream: int) -> None: ...

    async def answer(self, id: int) -> Any:
        """The text that the model wrote for this request."""
        with anyio.fail_after(20):
            while True:
                for frame in self.sent:
                    if frame.get("id") == id and "method" not in frame:
                        return frame["result"]["content"]["text"] if "result" in frame else frame["error"]
                await self.changed.wait()


def rules(folder: Path, says: str, limits: str = ROOM, more: str = "") -> Rules:
    """A policy in which every request waits for a slot, with the text that its model writes."""
    (folder / f"{says}.yaml").write_text(f"cases: [{{answer: {says}}}]\n")
    drawn = ", ".join(part.split(":")[0].strip() for part in limits.split("\n") if part.strip())
    text = (
        f"""
version: 1
models: [{{name: m, model: scripted, cases: {says}.yaml}}]
limits:
"""
        + "".join(f"  {line}\n" for line in limits.split("\n"))
        + f"""
rules:
  - {{name: all, match: {{kind: sampling}}, effect: allow, with: {{models: [m]}}, limits: [{drawn}], on_limit: wait}}
{more}
"""
    )
    loaded = load_policy(text, file="policy.yaml", environment={})
    models = TrackedModels(loaded.policy.models, folder=folder, environment={})
    return Rules(loaded, compile_loaded(loaded, folder), models)


def ended(rules: Rules) -> int:
    assert isinstance(rules.models, TrackedModels)
    return rules.models.ended


def process_context(first: Rules, folder: Path) -> ProcessContext:
    return ProcessContext(first, state=folder / "state", decisions=NoDecisionLog(), log=EventLog("error", "json"))


class Conversation:
    """One conversation: a server that sends requests, and a client without capabilities."""

    def __init__(self, context: ProcessContext) -> None:
        self.wiring = SessionWiring(context, "default")
        self.server = Server()
        self.wiring.relay.connect_client(Client())
        self.wiring.relay.connect_server(self.server)

    def begin(self) -> None:
        info = {"name": "x", "version": "1"}
        self.wiring.relay.handle(
            "client", 0, line(request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info))
        )
        capable = result(1, protocolVersion="2025-11-25", capabilities={}, serverInfo=info)
        self.wiring.relay.handle("server", 0, line({**capable, "id": self.server.sent[0]["id"]}))
        self.wiring.relay.handle("client", 0, line({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    async def ask(self, id: int) -> None:
        self.wiring.relay.handle("server", 0, line(request(id, "sampling/createMessage", **sample())))
        await all_blocked()


def line(frame: Any) -> bytes:
    return json.dumps(frame).encode()


@asynccontextmanager
async def conversation(context: ProcessContext) -> AsyncIterator[Conversation]:
    """A conversation until the block ends."""
    talk, over = Conversation(context), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(talk.wiring.relay.run, over.wait)
        await all_blocked()
        talk.begin()
        yield talk
        over.set()
    talk.wiring.leave()


async def all_slots(context: ProcessContext) -> Reserved:
    """Take the one slot, so that other requests wait."""
    held = await context.admission.reserve([Draw("room", "[]", 1)], None)
    assert isinstance(held, Reserved)
    return held


async def test_rounds_that_are_open_end_under_the_policy_they_began_with_and_its_models_with_the_last(
    tmp_path: Path,
) -> None:
    old, new = rules(tmp_path, "old"), rules(tmp_path, "new")
    context = process_context(old, tmp_path)
    async with conversation(context) as one, conversation(context) as other:
        held = await all_slots(context)
        await one.ask(7)
        await other.ask(8)
        await context.retire(context.replace(new))
        await other.ask(9)
        assert (0, 2) == (ended(old), old.open)
        await context.admission.settle(held, [])
        assert "old" == await one.server.answer(7)
        assert "old" == await other.server.answer(8)
        assert "new" == await other.server.answer(9)
        await all_blocked()
        assert (1, 0) == (ended(old), ended(new))
        assert (0, 0) == (old.open, new.open)
        await context.retire(context.replace(third := rules(tmp_path, "third")))
        assert (1, 1, 0) == (ended(old), ended(new), ended(third))
    await context.aclose()
    assert (1, 1, 1) == (ended(old), ended(new), ended(third))


async def test_the_models_of_a_policy_that_no_round_runs_under_end_at_once(tmp_path: Path) -> None:
    old, new = rules(tmp_path, "old"), rules(tmp_path, "new")
    context = process_context(old, tmp_path)
    await context.retire(context.replace(new))
    assert (1, 0) == (ended(old), ended(new))
    await context.aclose()


async def test_a_round_that_is_withdrawn_lets_the_old_models_go_too(tmp_path: Path) -> None:
    old = rules(tmp_path, "old")
    context = process_context(old, tmp_path)
    async with conversation(context) as talk:
        await all_slots(context)
        await talk.ask(7)
        await context.retire(context.replace(rules(tmp_path, "new")))
        assert 0 == ended(old)
    assert 1 == ended(old)
    await context.aclose()


async def test_a_round_that_waits_for_a_limit_the_new_policy_lacks_is_refused(tmp_path: Path) -> None:
    old, new = rules(tmp_path, "old"), rules(tmp_path, "new", "other: {requests: 5, per: 1m, by: []}")
    context = process_context(old, tmp_path)
    async with conversation(context) as talk:
        held = await all_slots(context)
        await talk.ask(7)
        await context.retire(context.replace(new))
        assert -1 == (await talk.server.answer(7))["code"]
        await all_blocked()
        assert 1 == ended(old)
        await talk.ask(8)
        assert "new" == await talk.server.answer(8)
        await context.admission.settle(held, [])
    await context.aclose()


async def test_what_is_drawn_goes_on_and_brakes_that_are_the_same_too(tmp_path: Path) -> None:
    limit, brakes = "often: {requests: 2, per: day, tz: UTC, by: []}", "brakes: {repeats: 9}"
    context = process_context(rules(tmp_path, "old", limit, brakes), tmp_path)
    before = context.brakes
    async with conversation(context) as talk:
        await talk.ask(7)
        assert "old" == await talk.server.answer(7)
        await context.retire(context.replace(rules(tmp_path, "new", limit, brakes)))
        assert before is context.brakes
        await talk.ask(8)
        assert "new" == await talk.server.answer(8)
        refused = await context.admission.reserve([Draw("often", "[]", 1)], None)
        assert not isinstance(refused, Reserved)
        await context.retire(context.replace(rules(tmp_path, "third", limit, "brakes: {repeats: 8}")))
        assert before is not context.brakes
    await context.aclose()
