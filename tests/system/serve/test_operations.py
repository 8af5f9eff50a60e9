"""The daemon as an operator runs it: start, reload, drain, the operators' listener, callers, and servers that die."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.daemon import ASK_FORM, BOUND, HURRIED, Client, Gate, admin, asking, client, serving
from tests.fakes.door import door

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY = (
    "version: 1\nrules:\n  - {{name: forms, match: {{kind: elicitation, mode: form}}, effect: answer, content:"
    " {{confirm: {0}}}}}\n"
)
CONFIRMS, REFUSES = POLICY.format("true"), POLICY.format("false")
TOKEN = "t" * 40


def write(folder: Path, servers: dict[str, Any], policy: str | None = None, **more: Any) -> str:
    """Write a policy and settings. JSON is YAML."""
    (folder / "policy.yaml").write_text(policy or CONFIRMS)
    told = {"policy": "policy.yaml", "decision_log": "log/decisions.jsonl", "servers": servers, **more}
    (folder / "samplegate.yaml").write_text(json.dumps(told))
    return "samplegate.yaml"


def tokens(*names: str) -> dict[str, Any]:
    """Callers with a token each."""
    return {
        "tokens": [{"name": name, "sha256": hashlib.sha256(f"{name}{TOKEN}".encode()).hexdigest()} for name in names]
    }


def server(eras: str = "legacy+modern", **more: Any) -> dict[str, Any]:
    command, *arguments = asking(eras)
    return {"command": command, "args": arguments, **more}


async def confirmed(c: Client, era: str = "modern", id: Any = 1) -> Any:
    """The policy's answer to the form."""
    return (await c.call(era, id, **ASK_FORM))["result"]["structuredContent"]["result"]["content"]["confirm"]


class Daemon:
    """A running daemon that each test reloads with its own settings. It does not watch its files."""

    def __init__(self, gate: Gate, folder: Path) -> None:
        self.gate, self.folder = gate, folder

    async def hang_up(self, event: str) -> dict[str, Any]:
        """Request a reload, and wait for its result."""
        before = len(self.gate.lines)
        self.gate.process.send_signal(signal.SIGHUP)
        found: dict[str, Any] = json.loads(await self.gate.said('"reload.', before))
        assert event == found["event"], found
        return found

    async def load(self, servers: dict[str, Any], policy: str | None = None, **more: Any) -> dict[str, Any]:
        """Put exactly these servers, this policy and these callers in force."""
        write(self.folder, servers, policy, watch=False, **more)
        return await self.hang_up("reload.taken")

    def client(self, path: str = "/mcp", **options: Any) -> AbstractAsyncContextManager[Client]:
        return client(self.gate, path, **options)

    async def admin(self, path: str) -> tuple[int, str]:
        return await admin(self.gate, path)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the module, whose daemon outlives each test."""
    return "asyncio"


@pytest.fixture(scope="module")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    folder = tmp_path_factory.mktemp("operations")
    (folder / "log").mkdir()
    async with serving(folder, "--settings", write(folder, {"first": server()}, watch=False)) as gate:
        yield Daemon(gate, folder)


async def test_each_server_has_a_path_of_its_own(daemon: Daemon) -> None:
    await daemon.load({"one": server(), "two": server()})
    pids = set()
    for name in ("one", "two"):
        async with daemon.client(f"/servers/{name}/mcp") as c:
            pids.add((await c.call("modern", pid=True))["result"]["content"][0]["text"])
    assert 2 == len(pids)
    async with aiohttp.ClientSession() as http:
        for path in ("/mcp", "/servers/three/mcp", "/servers/../mcp", "/servers/one/mcp/x"):
            async with http.post(daemon.gate.url + path, data="{}") as response:
                assert 404 == response.status


async def test_legacy_sessions_have_a_process_each_and_one_callers_modern_requests_share_one(daemon: Daemon) -> None:
    await daemon.load({"one": server()})
    async with daemon.client() as a, daemon.client() as b:
        await a.begin()
        await b.begin()
        found = [
            (await c.call(era, pid=True))["result"]["content"][0]["text"]
            for c in (a, b)
            for era in ("legacy", "modern")
        ]
        assert found[1] == found[3]
        assert 3 == len(set(found))


async def test_ids_and_tokens_of_requests_that_share_a_process_do_not_meet(daemon: Daemon) -> None:
    await daemon.load({"one": server("modern")})
    async with daemon.client() as c:
        gathered = await asyncio.gather(
            *(
                c.modern("tools/call", 1, {"progressToken": "t"}, name="do", arguments={"repeat": n, "progress": 1})
                for n in range(1, 30)
            )
        )
        assert [n * "x" for n in range(1, 30)] == [answer["result"]["content"][0]["text"] for answer in gathered]
        assert {"t"} == {frame["params"]["progressToken"] for frame in c.heard}
        assert 29 == len(c.heard)


# -- reloads
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_reload_puts_another_policy_in_force_for_conversations_that_are_open(daemon: Daemon) -> None:
    await daemon.load({"one": server()})
    async with daemon.client() as legacy, daemon.client() as modern:
        await legacy.begin()
        assert [True, True] == [await confirmed(legacy, "legacy"), await confirmed(modern)]
        assert "changed" == (await daemon.load({"one": server()}, REFUSES))["result"]
        assert [False, False] == [await confirmed(legacy, "legacy", 2), await confirmed(modern, id=2)]


async def test_a_file_that_changes_is_a_reload(tmp_path: Path) -> None:
    async with serving(tmp_path, "--settings", write(tmp_path, {"one": server()})) as gate, client(gate) as c:
        assert await confirmed(c)
        (tmp_path / "new.yaml").write_text(REFUSES)
        (tmp_path / "new.yaml").rename(tmp_path / "policy.yaml")
        await gate.said("reload.taken")
        assert not await confirmed(c)


async def test_a_broken_policy_leaves_the_old_one_in_force_and_says_where(daemon: Daemon) -> None:
    await daemon.load({"one": server()})
    async with daemon.client() as c:
        before = json.loads((await daemon.admin("/version"))[1])["policy"]
        (daemon.folder / "policy.yaml").write_text("version: 1\nrules:\n  - {name: x, effect: alow}\n")
        problems = (await daemon.hang_up("reload.refused"))["problems"]
        assert "policy.yaml:3:" in problems[0]
        assert await confirmed(c)
        assert before == json.loads((await daemon.admin("/version"))[1])["policy"]
        assert 'samplegate_reloads_total{result="refused"} 1.0' in (await daemon.admin("/metrics"))[1]


async def test_servers_come_and_go_by_reload_and_the_others_keep_their_sessions(daemon: Daemon) -> None:
    await daemon.load({"kept": server(), "gone": server()})
    async with daemon.client("/servers/kept/mcp") as kept, daemon.client("/servers/gone/mcp") as gone:
        await kept.begin()
        await gone.begin()
        pid = await kept.call("legacy", pid=True)
        taken = await daemon.load({"kept": server(), "new": server()})
        assert (["new"], ["gone"]) == (taken["added"], taken["removed"])
        assert pid["result"] == (await kept.call("legacy", 2, pid=True))["result"]
        async with daemon.client("/servers/new/mcp") as new:
            assert "result" in await new.call("modern")
        status, _ = await gone.post({"jsonrpc": "2.0", "id": 5, "method": "ping"}, gone.session)
        assert 404 == status


# -- servers that die or hang
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_server_that_dies_fails_the_call_it_died_in_and_is_there_for_the_next(daemon: Daemon) -> None:
    await daemon.load({"dies": server()})
    before = len(daemon.gate.lines)
    async with daemon.client() as c:
        assert -32603 == (await c.call("modern", exit=3))["error"]["code"]
        assert "result" in await c.call("modern", 2)
        await daemon.gate.said("server.died", before)
        text = (await daemon.admin("/metrics"))[1]
        assert 'samplegate_children_exited_total{how="code",server="dies"} 1.0' in text


async def test_a_server_that_never_answers_is_given_up_after_its_start_timeout(daemon: Daemon) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "start_timeout": 1}
    await daemon.load({"silent": silent})
    before = len(daemon.gate.lines)
    async with daemon.client() as legacy, daemon.client() as modern:
        assert -32603 == (await legacy.begin())["error"]["code"]
        assert -32603 == (await modern.call("modern"))["error"]["code"]
        await daemon.gate.said("server.silent", before)


async def test_what_comes_right_after_a_servers_death_is_answered_and_the_session_is_gone(daemon: Daemon) -> None:
    await daemon.load({"mortal": server()})
    async with daemon.client() as c:
        await c.begin()
        assert -32603 == (await c.call("legacy", exit=3))["error"]["code"]
        status, answer = await c.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}, c.session)
        assert (200, -32603) == (status, answer["error"]["code"]) or 404 == status


async def test_a_server_that_ends_at_once_is_a_death_and_is_left_alone_for_a_while(daemon: Daemon) -> None:
    await daemon.load({"ends": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}})
    async with daemon.client() as c:
        statuses = []
        # on a busy machine the first backoffs, of half a second and more, may be over before the next request
        for n in range(10):
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            statuses.append((await c.post({"jsonrpc": "2.0", "id": n, "method": "initialize", "params": hello}, {}))[0])
        assert 503 in statuses
        assert 'samplegate_children_exited_total{how="code",server="ends"}' in (await daemon.admin("/metrics"))[1]


async def test_a_legacy_server_that_ends_at_the_first_modern_request_is_spoken_to_in_its_era_from_then_on(
    daemon: Daemon,
) -> None:
    await daemon.load({"fragile": server("legacy+fragile")})
    async with daemon.client() as c:
        assert -32603 == (await c.call("modern"))["error"]["code"]
        assert await confirmed(c, id=2)


# -- callers
# ----------------------------------------------------------------------------------------------------------------------


async def test_callers_need_a_token_and_a_server_may_take_only_some(daemon: Daemon) -> None:
    await daemon.load({"one": server(callers=["ada"])}, callers=tokens("ada", "bob"))
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    statuses = []
    for token in (None, "x" * 50, f"bob{TOKEN}", f"ada{TOKEN}"):
        async with daemon.client(token=token) as c:
            statuses.append((await c.post(hello, {}))[0])
    assert [401, 401, 403, 200] == statuses


async def test_a_session_is_its_callers_alone(daemon: Daemon) -> None:
    await daemon.load({"one": server()}, callers=tokens("ada", "bob"))
    async with daemon.client(token=f"ada{TOKEN}") as ada, daemon.client(token=f"bob{TOKEN}") as bob:
        await ada.begin()
        bob.session = ada.session
        status, _ = await bob.post({"jsonrpc": "2.0", "id": 5, "method": "ping"}, bob.session)
        assert 404 == status
        assert "result" in await ada.legacy("ping", 6)


SHARED = """
version: 1
rules:
  - {name: ada's, match: {kind: elicitation, mode: form, caller: ada}, effect: answer, content: {confirm: true}}
  - {name: the rest, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: false}}
"""


@pytest.mark.parametrize("eras", ["legacy", "modern"])
async def test_where_all_callers_share_a_server_each_is_answered_by_its_own_rules(daemon: Daemon, eras: str) -> None:
    await daemon.load({f"{eras}-one": server(eras, share="all")}, SHARED, callers=tokens("ada", "bob"))
    async with daemon.client(token=f"ada{TOKEN}") as ada, daemon.client(token=f"bob{TOKEN}") as bob:
        assert [True, False, True, False] == [await confirmed(c, id=n) for n, c in enumerate((ada, bob, ada, bob))]
        pids = {(await c.call("modern", 9, pid=True))["result"]["content"][0]["text"] for c in (ada, bob)}
        assert (2 if eras == "legacy" else 1) == len(pids)


async def test_what_a_caller_has_open_ends_when_its_token_is_taken_away(daemon: Daemon) -> None:
    await daemon.load({"one": server()}, callers=tokens("ada", "bob"))
    async with daemon.client(token=f"ada{TOKEN}") as ada, daemon.client(token=f"bob{TOKEN}") as bob:
        await ada.begin()
        await bob.begin()
        headers = {**bob.headers, **bob.session, "accept": "text/event-stream"}
        # opened before the reload, which may take only milliseconds
        async with bob.http.get(bob.url, headers=headers) as listening:
            assert 200 == listening.status
            await daemon.load({"one": server()}, callers=tokens("ada"))
            assert [] == [line async for line in listening.content if line.startswith(b"data:") and line[5:].strip()]
        assert "result" in await ada.legacy("ping", 3)


# -- files that the daemon writes
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_decision_log_that_takes_nothing_leaves_requests_unanswered_and_the_gate_not_ready(
    daemon: Daemon,
) -> None:
    await daemon.load({"one": server()})
    log = daemon.folder / "log" / "decisions.jsonl"
    async with daemon.client() as c:
        assert await confirmed(c)
        assert 200 == (await daemon.admin("/readyz"))[0]
        log.rename(daemon.folder / "away")
        log.mkdir()
        answer = (await c.call("modern", 2, **ASK_FORM))["result"]["structuredContent"]["result"]
        assert "cancel" == answer["action"]
        status, text = await daemon.admin("/readyz")
        assert 503 == status
        assert "decision log" in text
        log.rmdir()
        assert await confirmed(c, id=3)
        assert 200 == (await daemon.admin("/readyz"))[0]


# -- the end, and failed starts
# ----------------------------------------------------------------------------------------------------------------------


async def test_a_call_under_way_is_answered_while_the_gate_drains_and_its_metrics_are_written(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()}, metrics_file="gate.prom", metrics_interval=0)
    async with door() as held, serving(tmp_path, "--settings", settings, program=[HURRIED]) as gate, client(gate) as c:
        await c.begin()
        assert await confirmed(c)
        calls = [asyncio.ensure_future(c.call(era, 9, door=held.at)) for era in ("legacy", "modern")]
        await held.reached(2)
        gate.process.send_signal(signal.SIGTERM)
        gate.ending = True
        await gate.said("drain.began")
        status, text = await admin(gate, "/readyz")
        assert (503, "draining: shutting down\n") == (status, text)
        held.open()
        assert ["x", "x"] == [(await call)["result"]["content"][0]["text"] for call in calls]
        assert 0 == await gate.end()
        assert "all calls in flight were answered" in gate.lines[-1]
    assert "samplegate_rounds_total{" in (tmp_path / "gate.prom").read_text()


async def test_who_asks_twice_for_the_end_does_not_wait(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with door() as held, serving(tmp_path, "--settings", settings) as gate, client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 9, door=held.at))
        await held.reached()
        gate.process.send_signal(signal.SIGTERM)
        await gate.said("drain.began")
        assert 0 == await gate.end()
        assert "error" in await call


async def test_what_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()}, drain_timeout=0)
    async with door() as held, serving(tmp_path, "--settings", settings) as gate, client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 9, door=held.at))
        await held.reached()
        assert 0 == await gate.end()
        assert "some calls were cut off" in gate.lines[-1]
        answer = await call
        assert "error" in answer


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0:8080", "sessions": 3}, ["without a token", "sessions"]),
        ({"policy": "none.yaml"}, ["none.yaml"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(
    tmp_path: Path, settings: dict[str, Any], said: list[str]
) -> None:
    at = write(tmp_path, {"one": server()}, **settings)
    done = subprocess.run(
        [sys.executable, "-m", "samplegate", "serve", "--settings", at, "--state", str(tmp_path / "state")],
        capture_output=True, text=True, timeout=BOUND, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert 2 == done.returncode
    assert [] == [words for words in said if words not in done.stderr]
    assert "" == done.stdout
