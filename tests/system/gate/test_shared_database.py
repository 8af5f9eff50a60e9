"""`samplegate run` and two `samplegate serve` on one database: a limit that they share, reviews that one opens and
another decides, the decision log, and the status of each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from samplegate.reviews.notify.formats import callback_token
from tests.fakes import postgresql
from tests.fakes.daemon import ASK_SAMPLE, BOUND, Gate, admin, client
from tests.fakes.daemon_reviews import ACCEPTED, TOKEN, daemon, form, people, said
from tests.fakes.database_proxy import DatabaseProxy, database_proxy
from tests.fakes.postgresql import Database
from tests.fakes.run_process import call, opening, running
from tests.fakes.shell import samplegate
from tests.fakes.webhook_endpoint import answer, endpoint
from tests.paths import PROGRAMS

pytestmark = pytest.mark.anyio
LIMIT = "limits: {day: {requests: 3, per: day, tz: UTC}, two: {concurrent: 2}}\n"
POLICY = f"""
version: 1
models: [{{name: m, model: scripted, cases: answers.yaml}}]
reviewers: {{ops: {{timeout: TIMEOUT}}}}
{LIMIT}
rules:
  - {{name: models, effect: allow, match: {{kind: sampling}}, with: {{models: [m]}}, limits: [day]}}
  - {{name: people, effect: escalate, reviewer: ops, match: {{not: {{mode: url}}}}}}
client: {{peer_timeout: PATIENCE}}
servers: {{default: {{peer_timeout: PATIENCE}}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    with postgresql.server("fsync = off") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: postgresql.Server) -> Iterator[DatabaseProxy]:
    with database_proxy(server.socket) as proxy:
        yield proxy


@pytest.fixture
def database(server: postgresql.Server) -> Database:
    postgresql.empty(server.place)
    return Database(server.place)


async def gates(stack: AsyncExitStack, folder: Path, url: str, number: int = 2, **more: Any) -> list[Gate]:
    """Daemons with folders of their own."""
    found = []
    settings = {"policy": POLICY, "database": url, "decision_log": "database", **more}
    for name in "abcde"[:number]:
        (folder / name).mkdir()
        found.append(daemon(folder / name, "legacy", **settings))
    return list(await asyncio.gather(*(stack.enter_async_context(one) for one in found)))


async def status(gate: Gate) -> dict[str, Any]:
    code, text = await admin(gate, "/status", accept="application/json")
    assert 200 == code, text
    found: dict[str, Any] = json.loads(text)
    return found


async def test_gates_share_a_limit_and_reviews(database: Database, tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        first, second = await gates(stack, tmp_path, database.url)
        one = await stack.enter_async_context(client(first, "/mcp", capabilities={}))
        other = await stack.enter_async_context(client(second, "/mcp", capabilities={}))
        await one.begin()
        await other.begin()
        answers = [await each.call("legacy", number, **ASK_SAMPLE) for number, each in enumerate([one, other] * 2, 1)]
        assert ["result"] * 3 + ["error"] == [
            "result" if "result" in answer["result"]["structuredContent"] else "error" for answer in answers
        ]
        used = [limit for limit in (await status(second))["limits"]["items"] if limit["limit"] == "day"]
        assert [(3.0, 0.0)] == [(limit["used"], limit["left"]) for limit in used]

        # a review that is opened at one gate and decided at the other
        waiting = asyncio.create_task(one.call("legacy", 10, **form("by the API")))
        api = await stack.enter_async_context(people(second))
        review = await api.pending()
        assert 1 == (await status(second))["reviews"]["reviewers"][0]["pending"]
        code, _ = await api.say(review, verdict="answer", **ACCEPTED)
        assert (200, "accept") == (code, said(await waiting)["action"])

        # ... and with the command
        waiting = asyncio.create_task(other.call("legacy", 11, **form("by the command")))
        review = await (await stack.enter_async_context(people(first))).pending()
        done = await asyncio.to_thread(
            samplegate, tmp_path, "reviews", "reject", review["id"], "--database", database.url
        )
        assert 0 == done.code, done.err
        assert "result" in await waiting
        assert "rejected" == database.value("SELECT state FROM reviews WHERE id = %s", review["id"])

        shown = await asyncio.to_thread(samplegate, tmp_path, "status", "--database", database.url, "--json")
        assert 0 == shown.code, shown.err
        found = json.loads(shown.out)
        assert ["day"] == [limit["limit"] for limit in found["limits"]["items"]]
        listed = await asyncio.to_thread(samplegate, tmp_path, "reviews", "list", "--all", "--database", database.url)
        assert (0, 2) == (listed.code, listed.out.count("rv_")), listed
        report = await asyncio.to_thread(samplegate, tmp_path, "report", "--log", database.url, "--json")
        assert 6 == json.loads(report.out)["requests"], report.out
    assert TOKEN not in str(database.rows("SELECT record FROM decisions"))


async def test_run_shares_the_limit_of_serve(database: Database, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("TIMEOUT", "15m").replace("PATIENCE", "60s"))
    (tmp_path / "answers.yaml").write_text("cases: [{answer: hi}]\n")
    server = ("python", str(PROGRAMS / "asking.py"), "legacy")
    asked: dict[str, Any] = dict(ASK_SAMPLE)
    asks = [call(number, "do", **asked) for number in (1, 2)]
    outcomes = []
    for _ in range(2):
        with running(tmp_path, "--database", database.url, "--decision-log", "database", command=server) as gate:
            gate.write(*opening())
            for ask in asks:
                gate.write(ask)
                while (frame := gate.read()).get("id") != ask["id"]:
                    pass
                outcomes.append("result" in frame["result"]["structuredContent"])
            gate.end()
    assert [True, True, True, False] == outcomes
    assert 4 == database.value("SELECT count(*) FROM decisions")


@pytest.mark.parametrize("named", [True, False])
async def test_the_gates_of_a_run_share_its_limit_and_its_verdict_is_in_the_database(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Two machines, each with a state folder of its own, and the last machine's report. Its gate has left the name of
    the log there, and the variable has the database's options."""
    policy = POLICY.replace("requests: 3, per: day, tz: UTC", "requests: 3, per: run")
    (tmp_path / "policy.yaml").write_text(policy.replace("TIMEOUT", "15m").replace("PATIENCE", "60s"))
    (tmp_path / "answers.yaml").write_text("cases: [{answer: hi}]\n")
    server = ("python", str(PROGRAMS / "asking.py"), "legacy")
    asked: dict[str, Any] = dict(ASK_SAMPLE)
    outcomes = []
    for run, machine in (("7-1", "one"), ("7-1", "two"), ("8-1", "two")):
        log = ("--database", database.url, "--decision-log", "database", "--state", str(tmp_path / machine))
        with running(tmp_path, *log, "--run", run, command=server) as gate:
            gate.write(*opening())
            for ask in (call(1, "do", **asked), call(2, "do", **asked)):
                gate.write(ask)
                while (frame := gate.read()).get("id") != ask["id"]:
                    pass
                outcomes.append("result" in frame["result"]["structuredContent"])
            gate.end()
    assert [True, True, True, False, True, True] == outcomes
    where = ("--log", database.url) if named else ()
    monkeypatch.setenv("SAMPLEGATE_DATABASE", "" if named else database.url)
    words = ("report", "--run", "7-1", "--state", str(tmp_path / "two"), *where)
    report = await asyncio.to_thread(samplegate, tmp_path, *words, "--json")
    found = json.loads(report.out)
    counts = found["counts"]
    assert (1, [], 4, 1) == (report.code, found["problems"], counts["requests"], counts["limit"])
    assert (0, 2) == _of_run(await asyncio.to_thread(samplegate, tmp_path, *(*words[:2], "8-1", *words[3:]), "--json"))


def _of_run(report: Any) -> tuple[int, int]:
    return report.code, json.loads(report.out)["counts"]["requests"]


async def test_a_database_that_is_gone_is_told_and_the_gate_passes_calls_on(
    database: Database, proxy: DatabaseProxy, tmp_path: Path
) -> None:
    """Requests that need it are not answered; it recovers by itself."""
    async with AsyncExitStack() as stack:
        (gate,) = await gates(stack, tmp_path, postgresql.tcp_url(proxy.port), 1)
        one = await stack.enter_async_context(client(gate, "/mcp", capabilities={}))
        await one.begin()
        assert "result" in (await one.call("legacy", 1, **ASK_SAMPLE))["result"]["structuredContent"]
        proxy.refuse(True)
        try:
            async with asyncio.timeout(BOUND):
                answer, passed = await one.call("legacy", 2, **ASK_SAMPLE), await one.call("legacy", 3, value=1)
            assert "error" in answer["result"]["structuredContent"]
            assert "result" in passed
            problems = (await status(gate))["problems"]
            assert any("cannot be reached" in problem for problem in problems), problems
            assert str(proxy.port) not in json.dumps(answer)
        finally:
            proxy.refuse(False)
        async with asyncio.timeout(BOUND):
            number = 4
            while "result" not in (await one.call("legacy", number, **ASK_SAMPLE))["result"]["structuredContent"]:
                number += 1


async def test_callbacks_need_the_key_file_besides_the_database(database: Database, tmp_path: Path) -> None:
    """Who has read the database, or a backup of it, can decide nothing; a gate with the same file can."""
    (tmp_path / "key").write_text("5" * 64)
    (tmp_path / "hook").write_text("whsec_" + "A" * 43 + "=")
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        hook = await stack.enter_async_context(endpoint(answer("202 Accepted")))
        webhook = {"url": hook.url, "secret_file": str(tmp_path / "hook")}
        policy = {
            "version": 1,
            "reviewers": {"ops": {"timeout": "60s", "webhook": webhook}},
            "rules": [{"name": "people", "effect": "escalate", "reviewer": "ops", "match": {"not": {"mode": "url"}}}],
        }
        first, second = await gates(
            stack,
            tmp_path,
            database.url,
            policy=json.dumps(policy),
            database_key_file=str(tmp_path / "key"),
            webhook_networks=["127.0.0.1/32"],
        )
        one = await stack.enter_async_context(client(first, "/mcp", capabilities={}))
        await one.begin()
        waiting = asyncio.create_task(one.call("legacy", 1, **form("by a callback")))
        while not hook.seen:
            hook.came.clear()
            await hook.came.wait()
        told = json.loads(hook.seen[0].body)["data"]
        stored = bytes(database.value("SELECT value FROM review_facts WHERE name = 'key'"))
        forged = callback_token(stored, told["id"], told["digest"], time.time() + 60)
        at = told["callback"]["url"].replace(first.reviews, second.reviews)
        body = {"digest": told["digest"], "verdict": "answer", **ACCEPTED}
        statuses = []
        async with aiohttp.ClientSession() as http:
            for token in (forged, told["callback"]["token"]):
                async with http.post(at, json=body, headers={"authorization": f"Bearer {token}"}) as response:
                    statuses.append(response.status)
        assert [401, 200] == statuses
        assert "accept" == said(await waiting)["action"]
