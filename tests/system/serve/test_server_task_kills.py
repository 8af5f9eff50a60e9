"""A daemon that is killed with `kill -9` while it answers the requests of a server's task, and the one that goes on.

Both have the same state folder (or the same database) and stand before one HTTP server. Their policies give different
answers, so that each answer tells which of them decided it. The second daemon's clock is 61 seconds fast: the claims of
the first have expired. What happens between two writes is tested by locking the file of the second.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from samplegate.files import locked_file
from samplegate.tasks.sqlite_table import FILE
from tests.conformance.listening import listening
from tests.fakes.daemon import BOUND, SHORT_CLAIMS, Client, Gate, admin, client, serving
from tests.fakes.daemon_reviews import answer_all, reviews_of
from tests.fakes.postgresql import postgresql, url
from tests.paths import PROGRAMS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "sampling": {},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
"""Of a client that could be shown every request."""
POLICY: Final = """
version: 1
reviewers: {{ops: {{timeout: 15m}}}}
models: [{{name: m, model: scripted, cases: {name}.yaml, price: {{input: 1000, output: 1000}}}}]
limits:
  dollars: {{usd: 1000, per: run}}
  requests: {{requests: 1000, per: run}}
rules:
  - {{name: forms, match: {{kind: elicitation, mode: form}}, effect: {forms}, limits: [requests]}}
  - {{name: samples, match: {{kind: sampling}}, effect: allow, limits: [dollars, requests]}}
"""
FIXED: Final = {name: f"answer, content: {{confirm: {yes}}}" for name, yes in (("first", "true"), ("second", "false"))}
TOKENS: Final = {"input_tokens": 8, "output_tokens": 2}
COST: Final = 0.01
"""US dollars for these tokens."""
MAX_COST: Final = 0.057
"""What is reserved for the request: 47 tokens for its text, and the 10 that it permits."""
PROGRAM: Final = ("-m", "samplegate")
LATER: Final = (
    "-c",
    "import sys, time; now = time.time; time.time = lambda: now() + 61;"  # noqa: ISC004 # one program
    " from samplegate.cli.main import main; sys.exit(main(sys.argv[1:]))",
)
"""A gate a minute later."""


async def until(true: Callable[[], Any]) -> Any:
    """Wait until another process has written something, and return it."""
    async with asyncio.timeout(BOUND):
        while not (found := true()):  # noqa: ASYNC110 - the other process tells nothing
            await asyncio.sleep(0.01)
        return found


def lines(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a log."""
    text = file.read_text("utf-8") if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]


@dataclass
class World:
    """A server with tasks, its gates, and what the client has seen."""

    folder: Path
    url: str
    views: list[dict[str, Any]] = field(default_factory=list)

    @asynccontextmanager
    async def gate(
        self,
        name: str,
        *,
        forms: str = "",
        delay: str = "0s",
        database: str | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> AsyncIterator[tuple[Gate, Client]]:
        """A gate whose policy answers with its name, and a client. Gates with a ``database`` share no folder."""
        policy, cases = self.folder / f"{name}-policy.yaml", self.folder / f"{name}.yaml"
        policy.write_text(POLICY.format(name=name, forms=forms or FIXED[name]))
        cases.write_text(json.dumps({"cases": [{"answer": name, "delay": delay, **TOKENS}]}))
        log = ("--decision-log", str(self.folder / "decisions.jsonl"))
        words = ("--policy", str(policy), *log, "--run", "kills", "--url", self.url)
        env = {"SAMPLEGATE_DATABASE": database} if database else {}
        folder = self.folder / name if database else self.folder
        folder.mkdir(exist_ok=True)
        at = serving(folder, *words, env=env, program=program, forked=program != LATER)
        async with at as gate, client(gate, capabilities=CAPABILITIES) as c:
            yield gate, c

    async def create(self, c: Client, tool: str, **arguments: Any) -> str:
        """The ID of the task that a call becomes. Its ttl is longer than the gates' difference in time."""
        made = await c.modern("tools/call", 1, name=tool, arguments={"ttlMs": 3_600_000, **arguments})
        assert "task" == made.get("result", {}).get("resultType"), made
        return str(made["result"]["taskId"])

    async def poll(self, c: Client, task: str) -> dict[str, Any]:
        """A view of the task, as the client sees it."""
        reply = await c.modern("tasks/get", 2, taskId=task)
        self.views.append(reply.get("result") or reply)
        return self.views[-1]

    async def until(self, c: Client, task: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Poll until the view is as expected, and return it."""
        async with asyncio.timeout(BOUND):
            while not true(view := await self.poll(c, task)):  # noqa: ASYNC110 - a task is polled
                await asyncio.sleep(0.02)
            return view

    async def end(self, c: Client, task: str) -> dict[str, Any]:
        """The task at its end."""
        return await self.until(c, task, lambda view: view["status"] not in ("working", "input_required"))

    async def until_shown(self, c: Client, task: str) -> None:
        """Poll until the client has to answer the form."""
        await self.until(c, task, lambda view: ["k1"] == list(view.get("inputRequests", {})))

    async def answer(self, c: Client, task: str, *, confirm: bool = True) -> dict[str, Any]:
        """The response to the client's answer to the form."""
        accepted = {"action": "accept", "content": {"confirm": confirm}}
        return await c.modern("tasks/update", 3, taskId=task, inputResponses={"k1": accepted})

    def received(self, method: str, task: str | None = None) -> list[dict[str, Any]]:
        """The params of the server's lines with this method, of one task or of all."""
        found = [frame["params"] for frame in lines(self.folder / "received.jsonl") if frame["method"] == method]
        return [params for params in found if task in (None, params.get("taskId"))]

    def updates(self, task: str) -> list[dict[str, Any]]:
        """What each update said that the server has read."""
        return [told(params["inputResponses"]) for params in self.received("tasks/update", task)]

    def worked(self, task: str) -> list[dict[str, Any]]:
        """The answers with which the tool did its work."""
        return [told(params["answers"]) for params in self.received("ran", task)]

    def records(self) -> list[tuple[str, str, str, int]]:
        """The rule, outcome and reason of each record in the decision log, and how many models were asked for it."""
        found = [record for record in lines(self.folder / "decisions.jsonl") if "outcome" in record]
        return [(one.get("rule", ""), one["outcome"], one["reason"], len(one.get("attempts", ()))) for one in found]

    def shown(self) -> list[dict[str, Any]]:
        """The views that have requests for the client."""
        return [view for view in self.views if "inputRequests" in view or view["status"] == "input_required"]

    def keys(self, task: str) -> dict[str, dict[str, Any]]:
        """What the gates keep of the task's requests."""
        with closing(sqlite3.connect(self.folder / "state" / FILE)) as db:
            ((record,),) = db.execute("SELECT record FROM tasks WHERE id = ?", (task,)).fetchall()
        return json.loads(record).get("keys", {})  # type: ignore[no-any-return]

    def states(self, task: str) -> set[str]:
        """The states of the task's requests."""
        return {key.get("state", "deciding") for key in self.keys(task).values()}

    @contextmanager
    def store_locked(self) -> Iterator[None]:
        """No gate can write what it keeps of tasks."""
        with closing(sqlite3.connect(self.folder / "state" / FILE, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def log_locked(self) -> Iterator[None]:
        """No gate can write to the decision log."""
        with locked_file(self.folder / "decisions.jsonl", lambda: BOUND):
            yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    program = (sys.executable, str(PROGRAMS / "tasks_server.py"), "http", str(tmp_path / "received.jsonl"))
    with listening(program) as server:
        yield World(tmp_path, server.url)


async def killed(gate: Gate) -> None:
    gate.process.kill()
    gate.ending = True
    await gate.process.wait()


async def spent(gate: Gate) -> dict[str, float]:
    """What is used of each limit."""
    code, text = await admin(gate, "/status", accept="application/json")
    assert 200 == code, text
    return {one["limit"]: round(one["used"], 9) for one in json.loads(text)["limits"]["items"]}


def told(answers: dict[str, Any]) -> dict[str, Any]:
    """The form's value and the model's text among the answers of an update."""
    form, sample = answers["k1"], answers.get("k2")
    return {"k1": form["content"]["confirm"], **({} if sample is None else {"k2": sample["content"]["text"]})}


FIRST: Final = {"k1": True, "k2": "first"}
REVIEWED: Final = "escalate, reviewer: ops"
SECOND_FORM: Final = {"k1": False}
FORM_ANSWERED: Final = ("forms", "answered", "rule", 0)
SAMPLE_ANSWERED: Final = ("samples", "answered", "rule", 1)


# -- after the answers are stored
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A place where the first gate is killed: the state of the requests then, and how many updates the server has read
    then and at the end."""

    state: str
    read: int
    read_at_end: int


PLACES: Final = {
    "reading": Place("answered", 0, 1),  # before the update reaches the server
    "taking": Place("answered", 1, 2),  # before the server handles it
    "acknowledging": Place("answered", 1, 1),  # before the acknowledgment
    "viewing": Place("done", 1, 1),  # after it, before the client's next poll is answered
}


async def test_the_server_gets_the_first_decision_and_nothing_is_paid_twice(world: World) -> None:
    """One kill, with a task at each place."""
    async with world.gate("first") as (gate, c):
        tasks = {place: await world.create(c, "asks_both", hold=place) for place in PLACES}
        for task in tasks.values():
            await world.poll(c, task)
        await until(lambda: {"done"} == world.states(tasks["viewing"]))
        waiting = asyncio.ensure_future(world.poll(c, tasks["viewing"]))
        await until(lambda: PLACES.keys() == {params["place"] for params in world.received("held")})
        await killed(gate)
        with pytest.raises(aiohttp.ClientError):
            await waiting
    for name, task in tasks.items():
        place = PLACES[name]
        assert (name, {place.state}, place.read) == (name, world.states(task), len(world.updates(task)))
    async with world.gate("second", program=LATER) as (gate, c):
        ended = {name: await world.end(c, task) for name, task in tasks.items()}
        assert {"dollars": COST * len(PLACES), "requests": 2 * len(PLACES)} == await spent(gate)
    for name, task in tasks.items():
        assert (name, FIRST) == (name, told(json.loads(ended[name]["result"]["content"][0]["text"])))
        assert (name, [FIRST]) == (name, world.worked(task)), "the tool does its work once"
        assert (name, [FIRST] * PLACES[name].read_at_end) == (name, world.updates(task))
    assert len(PLACES) == len(world.received("tools/call"))
    assert sorted([FORM_ANSWERED, SAMPLE_ANSWERED] * len(PLACES)) == sorted(world.records())
    assert [] == world.shown()


# -- before the answers are stored
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [False, True], ids=["not-recorded", "recorded"])
async def test_what_cost_nothing_and_was_not_stored_is_decided_again(world: World, recorded: bool) -> None:
    async with world.gate("first") as (gate, c):
        task = await world.create(c, "asks")
        with ExitStack() as store:
            with world.log_locked():
                await world.poll(c, task)  # its view is stored, and what follows waits for the log
                store.enter_context(world.store_locked())
                if not recorded:
                    await killed(gate)
            if recorded:
                await until(world.records)
                await killed(gate)
    assert ({"deciding"}, []) == (world.states(task), world.updates(task))
    async with world.gate("second", program=LATER) as (gate, c):
        assert "completed" == (await world.end(c, task))["status"]
    assert [SECOND_FORM] == world.worked(task)
    assert [SECOND_FORM] == world.updates(task)
    assert [FORM_ANSWERED] * (1 + recorded) == world.records()
    assert [] == world.shown()


@pytest.mark.parametrize("recorded", [False, True], ids=["asked", "recorded"])
async def test_a_model_is_not_asked_again_and_the_task_ends_as_an_error(world: World, recorded: bool) -> None:
    async with world.gate("first", delay="0s" if recorded else "1h") as (gate, c):
        task = await world.create(c, "asks_both")
        with ExitStack() as store:
            with world.log_locked():
                await world.poll(c, task)
                await until(lambda: [True] == [key["paid"] for key in world.keys(task).values() if "paid" in key])
                store.enter_context(world.store_locked())
            if recorded:
                await until(lambda: 2 == len(world.records()))
            paid = await spent(gate)
            await killed(gate)
    records = [FORM_ANSWERED, SAMPLE_ANSWERED] if recorded else []
    assert records == sorted(world.records())
    async with world.gate("second", program=LATER) as (gate, c):
        ended = await world.end(c, task)
        assert paid == await spent(gate)
    assert ("completed", True) == (ended["status"], ended["result"]["isError"])
    assert "sampling request not answered: internal error" in ended["result"]["content"][0]["text"]
    assert (COST if recorded else MAX_COST, 2) == (paid["dollars"], paid["requests"])
    withdrawn = ("forms", "withdrawn", "rule", 0)
    assert sorted([*records, withdrawn, ("", "unanswered", "error", 0)]) == sorted(world.records())
    assert ([], []) == (world.updates(task), world.worked(task))
    assert [task] == [params["taskId"] for params in world.received("tasks/cancel")]
    assert [] == world.shown()


async def test_a_reviewer_decides_once_what_waited_at_the_first_gate(world: World) -> None:
    async with world.gate("first", forms=REVIEWED) as (gate, c):
        task = await world.create(c, "asks")
        await world.poll(c, task)
        (review,) = await until(lambda: reviews_of(world.folder, "sure?"))
        await killed(gate)
    async with world.gate("second", forms=REVIEWED, program=LATER) as (gate, c):
        await world.poll(c, task)
        assert 1 == answer_all(world.folder)
        assert "completed" == (await world.end(c, task))["status"]
    assert [review.id] == [one.id for one in reviews_of(world.folder, "sure?")]
    assert [{"k1": True}] == world.worked(task)
    assert [("forms", "answered", "rule", 0)] == world.records()
    assert [] == world.shown()


# -- the client's own answers
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_clients_answer_is_not_lost_once_it_is_acknowledged(world: World) -> None:
    async with world.gate("first", forms="forward") as (gate, c):
        task = await world.create(c, "asks", hold="reading")
        await world.until_shown(c, task)
        assert {"resultType": "complete"} == (await world.answer(c, task))["result"]
        await until(lambda: world.received("held"))
        await killed(gate)
    assert ({"answered"}, []) == (world.states(task), world.updates(task))
    world.views.clear()
    async with world.gate("second", forms="forward", program=LATER) as (gate, c):
        assert "completed" == (await world.end(c, task))["status"]
    assert [] == world.shown(), "the client is not asked again"
    assert [{"k1": True}] == world.worked(task)
    assert [{"k1": True}] == world.updates(task)
    assert [("forms", "forwarded", "rule", 0), FORM_ANSWERED] == world.records()


async def test_a_client_whose_answer_was_not_stored_is_asked_again(world: World) -> None:
    async with world.gate("first", forms="forward") as (gate, c):
        task = await world.create(c, "asks")
        await world.until_shown(c, task)
        with ExitStack() as store:
            with world.log_locked():
                answering = asyncio.ensure_future(world.answer(c, task))
                await until(lambda: {"answering"} == world.states(task))
                store.enter_context(world.store_locked())
            await until(lambda: FORM_ANSWERED in world.records())
            await killed(gate)
        with pytest.raises(aiohttp.ClientError):  # it was not acknowledged
            await answering
    assert [] == world.updates(task)
    async with world.gate("second", forms="forward", program=LATER) as (gate, c):
        await world.until_shown(c, task)
        assert {"resultType": "complete"} == (await world.answer(c, task, confirm=False))["result"]
        assert "completed" == (await world.end(c, task))["status"]
    assert [SECOND_FORM] == world.worked(task)
    assert [SECOND_FORM] == world.updates(task)


# -- two gates
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_gate_with_the_same_database_sends_the_answers_of_one_that_was_killed(world: World) -> None:
    with postgresql("fsync = off") as place:
        async with AsyncExitStack() as stack:
            first, second = await asyncio.gather(
                *(
                    stack.enter_async_context(world.gate(name, database=url(place), program=program))
                    for name, program in (("first", PROGRAM), ("second", SHORT_CLAIMS))
                )
            )
            task = await world.create(first[1], "asks_both", hold="taking")
            await world.poll(first[1], task)
            await until(lambda: world.received("held"))
            await killed(first[0])
            ended = await world.end(second[1], task)
            assert {"dollars": COST, "requests": 2} == await spent(second[0])
    assert FIRST == told(json.loads(ended["result"]["content"][0]["text"]))
    assert [FIRST] == world.worked(task), "the tool does its work once"
    assert [FORM_ANSWERED, SAMPLE_ANSWERED] == sorted(world.records())
    assert [] == world.shown()
