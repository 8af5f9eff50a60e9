"""The daemon run as an operator does: start, reload, drain, the operators' listener, callers, servers that die."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.daemon.door import door
from tests.daemon.gate import ASK_FORM, BOUND, Client, Gate, admin, asking, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY = (
    "version: 1\nrules:\n  - {{name: forms, match: {{kind: elicitation, mode: form}}, effect: answer, content:"
    " {{confirm: {0}}}}}\n"
)
TOKEN = "t" * 40


def write(folder: Path, servers: dict[str, Any], confirm: bool = True, **more: Any) -> Path:
    """A policy and settings; JSON is YAML."""
    (folder / "policy.yaml").write_text(POLICY.format(str(confirm).lower()))
    at = folder / "samplegate.yaml"
    at.write_text(json.dumps({"policy": "policy.yaml", "servers": servers, **more}))
    return at


def server(eras: str = "legacy+modern", **more: Any) -> dict[str, Any]:
    command, *arguments = asking(eras)
    return {"command": command, "args": arguments, **more}


async def confirmed(c: Client, era: str = "modern", id: Any = 1) -> Any:
    """What the policy says to the form."""
    return (await c.call(era, id, **ASK_FORM))["result"]["structuredContent"]["result"]["content"]["confirm"]


async def hang_up(gate: Gate, event: str) -> dict[str, Any]:
    """Ask for a reload, and wait for what comes of it."""
    before = len(gate.lines)
    gate.process.send_signal(signal.SIGHUP)
    found: dict[str, Any] = json.loads(await gate.said(event, before))
    return found


async def test_each_server_has_a_path_of_its_own(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server(), "two": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate:
        pids = set()
        for name in ("one", "two"):
            async with client(gate, f"/servers/{name}/mcp") as c:
                pids.add((await c.call("modern", pid=True))["result"]["content"][0]["text"])
        assert 2 == len(pids)
        async with aiohttp.ClientSession() as http:
            for path in ("/mcp", "/servers/three/mcp", "/servers/../mcp", "/servers/one/mcp/x"):
                async with http.post(gate.url + path, data="{}") as response:
                    assert 404 == response.status


async def test_legacy_sessions_have_a_process_each_and_one_callers_modern_requests_share_one(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as a, client(gate) as b:
        await a.begin()
        await b.begin()
        found = [
            (await c.call(era, pid=True))["result"]["content"][0]["text"]
            for c in (a, b)
            for era in ("legacy", "modern")
        ]
        assert found[1] == found[3]
        assert 3 == len(set(found))


async def test_ids_and_tokens_of_requests_that_share_a_process_do_not_meet(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server("modern")})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        gathered = await asyncio.gather(
            *(
                c.modern("tools/call", 1, {"progressToken": "t"}, name="do", arguments={"repeat": n, "progress": 1})
                for n in range(1, 30)
            )
        )
        assert [n * "x" for n in range(1, 30)] == [answer["result"]["content"][0]["text"] for answer in gathered]
        assert {"t"} == {frame["params"]["progressToken"] for frame in c.heard}
        assert 29 == len(c.heard)


async def test_a_reload_puts_another_policy_in_force_for_conversations_that_are_open(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as legacy, client(gate) as modern:
        await legacy.begin()
        assert [True, True] == [await confirmed(legacy, "legacy"), await confirmed(modern)]
        write(tmp_path, {"one": server()}, confirm=False)
        assert "changed" == (await hang_up(gate, "reload.taken"))["result"]
        assert [False, False] == [await confirmed(legacy, "legacy", 2), await confirmed(modern, id=2)]


async def test_a_file_that_changes_is_a_reload(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        assert await confirmed(c)
        (tmp_path / "new.yaml").write_text(POLICY.format("false"))
        (tmp_path / "new.yaml").rename(tmp_path / "policy.yaml")
        await gate.said("reload.taken")
        assert not await confirmed(c)


async def test_a_broken_policy_leaves_the_old_one_in_force_and_says_where(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()}, watch=False)
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        before = json.loads((await admin(gate, "/version"))[1])["policy"]
        (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n  - {name: x, effect: alow}\n")
        problems = (await hang_up(gate, "reload.refused"))["problems"]
        assert "policy.yaml:3:" in problems[0]
        assert await confirmed(c)
        assert before == json.loads((await admin(gate, "/version"))[1])["policy"]
        assert 'samplegate_reloads_total{result="refused"} 1.0' in (await admin(gate, "/metrics"))[1]


async def test_servers_come_and_go_by_reload_and_the_others_keep_their_sessions(tmp_path: Path) -> None:
    settings = write(tmp_path, {"kept": server(), "gone": server()}, watch=False)
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        client(gate, "/servers/kept/mcp") as kept,
        client(gate, "/servers/gone/mcp") as gone,
    ):
        await kept.begin()
        await gone.begin()
        pid = await kept.call("legacy", pid=True)
        write(tmp_path, {"kept": server(), "new": server()}, watch=False)
        taken = await hang_up(gate, "reload.taken")
        assert (["new"], ["gone"]) == (taken["added"], taken["removed"])
        assert pid["result"] == (await kept.call("legacy", 2, pid=True))["result"]
        async with client(gate, "/servers/new/mcp") as new:
            assert "result" in await new.call("modern")
        status, _ = await gone.post({"jsonrpc": "2.0", "id": 5, "method": "ping"}, gone.session)
        assert 404 == status


async def test_a_call_under_way_is_answered_while_the_gate_drains(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with door() as held, serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        await c.begin()
        calls = [asyncio.ensure_future(c.call(era, 9, door=held.at)) for era in ("legacy", "modern")]
        await held.reached(2)
        gate.process.send_signal(signal.SIGTERM)
        gate.ending = True
        await gate.said("drain.began")
        status, text = await admin(gate, "/readyz")
        assert (503, "draining: it is ending\n") == (status, text)
        held.open()
        assert ["x", "x"] == [(await call)["result"]["content"][0]["text"] for call in calls]
        assert 0 == await gate.end()
        assert "all that was under way was answered" in gate.lines[-1]


async def test_who_asks_twice_for_the_end_does_not_wait(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with door() as held, serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 9, door=held.at))
        await held.reached()
        gate.process.send_signal(signal.SIGTERM)
        await gate.said("drain.began")
        assert 0 == await gate.end()
        assert "error" in await call


async def test_what_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()}, drain_timeout=0)
    async with door() as held, serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        call = asyncio.ensure_future(c.call("modern", 9, door=held.at))
        await held.reached()
        assert 0 == await gate.end()
        assert "some calls were cut off" in gate.lines[-1]
        answer = await call
        assert "error" in answer


async def test_a_server_that_dies_fails_the_call_it_died_in_and_is_there_for_the_next(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        assert -32603 == (await c.call("modern", exit=3))["error"]["code"]
        assert "result" in await c.call("modern", 2)
        assert "server.died" in await gate.said("server.died")
        text = (await admin(gate, "/metrics"))[1]
        assert (
            'samplegate_children_exited_total{how="code",server="one"} 1.0' in text or 'server="one",how="code"' in text
        )


async def test_a_server_that_never_answers_is_given_up_after_its_start_timeout(tmp_path: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "start_timeout": 1}
    settings = write(tmp_path, {"one": silent})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as legacy, client(gate) as modern:
        assert -32603 == (await legacy.begin())["error"]["code"]
        assert -32603 == (await modern.call("modern"))["error"]["code"]
        assert "server.silent" in await gate.said("server.silent")


async def test_what_comes_right_after_a_servers_death_is_answered_and_the_session_is_gone(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        await c.begin()
        assert -32603 == (await c.call("legacy", exit=3))["error"]["code"]
        status, answer = await c.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}, c.session)
        assert (200, -32603) == (status, answer["error"]["code"]) or 404 == status


async def test_a_server_that_ends_at_once_is_a_death_and_is_left_alone_for_a_while(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        statuses = []
        # on a busy machine the first pauses, of half a second and more, may be over before the next request
        for n in range(10):
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            statuses.append((await c.post({"jsonrpc": "2.0", "id": n, "method": "initialize", "params": hello}, {}))[0])
        assert 503 in statuses
        assert 'samplegate_children_exited_total{how="code",server="one"}' in (await admin(gate, "/metrics"))[1]


async def test_a_legacy_server_that_ends_at_the_first_modern_request_is_spoken_to_in_its_era_from_then_on(
    tmp_path: Path,
) -> None:
    settings = write(tmp_path, {"one": server("legacy+fragile")})
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        assert -32603 == (await c.call("modern"))["error"]["code"]
        assert await confirmed(c, id=2)


async def test_callers_need_a_token_and_a_server_may_take_only_some(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"{name}{TOKEN}".encode()).hexdigest()} for name in ("ada", "bob")
    ]
    settings = write(tmp_path, {"one": server(callers=["ada"])}, callers={"tokens": tokens})
    async with serving(tmp_path, "--settings", str(settings)) as gate:
        statuses = []
        for token in (None, "x" * 50, f"bob{TOKEN}", f"ada{TOKEN}"):
            async with client(gate, token=token) as c:
                statuses.append(
                    (
                        await c.post(
                            {
                                "jsonrpc": "2.0",
                                "id": 1,
                                "method": "initialize",
                                "params": {"protocolVersion": "2025-11-25"},
                            },
                            {},
                        )
                    )[0]
                )
        assert [401, 401, 403, 200] == statuses


async def test_a_session_is_its_callers_alone(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"{name}{TOKEN}".encode()).hexdigest()} for name in ("ada", "bob")
    ]
    settings = write(tmp_path, {"one": server()}, callers={"tokens": tokens})
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        client(gate, token=f"ada{TOKEN}") as ada,
        client(gate, token=f"bob{TOKEN}") as bob,
    ):
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
async def test_where_all_callers_share_a_server_each_is_answered_by_its_own_rules(tmp_path: Path, eras: str) -> None:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"{name}{TOKEN}".encode()).hexdigest()} for name in ("ada", "bob")
    ]
    settings = write(tmp_path, {"one": server(eras, share="all")}, callers={"tokens": tokens})
    (tmp_path / "policy.yaml").write_text(SHARED)
    a, b = f"ada{TOKEN}", f"bob{TOKEN}"
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        client(gate, token=a) as ada,
        client(gate, token=b) as bob,
    ):
        assert [True, False, True, False] == [await confirmed(c, id=n) for n, c in enumerate((ada, bob, ada, bob))]
        pids = {(await c.call("modern", 9, pid=True))["result"]["content"][0]["text"] for c in (ada, bob)}
        assert (2 if eras == "legacy" else 1) == len(pids)


async def test_what_a_caller_has_open_ends_when_its_token_is_taken_away(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"{name}{TOKEN}".encode()).hexdigest()} for name in ("ada", "bob")
    ]
    settings = write(tmp_path, {"one": server()}, callers={"tokens": tokens}, watch=False)
    a, b = f"ada{TOKEN}", f"bob{TOKEN}"
    async with (
        serving(tmp_path, "--settings", str(settings)) as gate,
        client(gate, token=a) as ada,
        client(gate, token=b) as bob,
    ):
        await ada.begin()
        await bob.begin()
        headers = {**bob.headers, **bob.session, "accept": "text/event-stream"}
        # open before the reload, which may be done in milliseconds
        async with bob.http.get(bob.url, headers=headers) as listening:
            assert 200 == listening.status
            write(tmp_path, {"one": server()}, callers={"tokens": tokens[:1]}, watch=False)
            await hang_up(gate, "reload.taken")
            assert [] == [line async for line in listening.content if line.startswith(b"data:") and line[5:].strip()]
        assert "result" in await ada.legacy("ping", 3)


async def test_the_metrics_file_of_the_daemon_is_written(tmp_path: Path) -> None:
    settings = write(tmp_path, {"one": server()}, metrics_file="gate.prom", metrics_interval=0)
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        assert await confirmed(c)
        await gate.end()
    assert "samplegate_rounds_total{" in (tmp_path / "gate.prom").read_text()


async def test_a_decision_log_that_takes_nothing_leaves_requests_unanswered_and_the_gate_not_ready(
    tmp_path: Path,
) -> None:
    settings = write(tmp_path, {"one": server()}, decision_log="log/decisions.jsonl")
    (tmp_path / "log").mkdir()
    async with serving(tmp_path, "--settings", str(settings)) as gate, client(gate) as c:
        assert await confirmed(c)
        assert 200 == (await admin(gate, "/readyz"))[0]
        (tmp_path / "log" / "decisions.jsonl").rename(tmp_path / "away")
        (tmp_path / "log" / "decisions.jsonl").mkdir()
        answer = (await c.call("modern", 2, **ASK_FORM))["result"]["structuredContent"]["result"]
        assert "cancel" == answer["action"]
        status, text = await admin(gate, "/readyz")
        assert 503 == status
        assert "decision log" in text
        (tmp_path / "log" / "decisions.jsonl").rmdir()
        assert await confirmed(c, id=3)
        assert 200 == (await admin(gate, "/readyz"))[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0:8080"}, "nobody needs a token"),
        ({"servers": {}}, "servers: there is none"),
        ({"policy": "none.yaml"}, "none.yaml"),
        ({"sessions": 3}, "sessions"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    at = write(tmp_path, {"one": server()})
    at.write_text(json.dumps({**json.loads(at.read_text()), **settings}))
    done = subprocess.run(
        [sys.executable, "-m", "samplegate", "serve", "--settings", str(at), "--state", str(tmp_path / "state")],
        capture_output=True, text=True, timeout=BOUND, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert 2 == done.returncode
    assert said in done.stderr
    assert "" == done.stdout
