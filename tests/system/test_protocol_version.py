"""The protocol version that the gate speaks to a server: set for each server, or learned from a call that failed
because the server pushed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon.gate import Client, client, serving

SERVER: Final = str(Path(__file__).parent / "programs" / "pushing.py")
PROXY: Final = Path(__file__).parents[2] / "proxy"
META: Final = "io.modelcontextprotocol/"
ANSWERS: Final = (
    "version: 1\nrules:\n  - {name: canned, match: {kind: sampling}, effect: answer, content: from the policy}\n"
)
FORWARDS: Final = "version: 1\nrules:\n  - {name: client, match: {kind: sampling}, effect: forward}\n"
CAPABLE: Final[dict[str, Any]] = {"sampling": {}}
WARNING: Final = "protocol.learned"

pytestmark = pytest.mark.timeout(120)


def modern(id: int, method: str, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    own = {
        f"{META}protocolVersion": "2026-07-28",
        f"{META}clientCapabilities": CAPABLE if capabilities is None else capabilities,
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": own}}


def legacy(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


INITIALIZE: Final = legacy(
    90, "initialize", protocolVersion="2025-11-25", capabilities=CAPABLE, clientInfo={"name": "c", "version": "1"}
)


class Run:
    """One `samplegate run` after another before the same server; ``said`` is the standard error of the last."""

    def __init__(
        self, folder: Path, sign: str, policy: str = ANSWERS, options: tuple[str, ...] = (), state: bool = True
    ) -> None:
        self.seen = folder / "seen.jsonl"
        self.said = ""
        self._sign, self._folder, self._state = sign, folder, state
        (folder / "policy.yaml").write_text(policy)
        self._options = (*options, *(("--state", str(folder / "state")) if state else ()))

    def __call__(self, *requests: dict[str, Any], sign: str | None = None) -> list[dict[str, Any]]:
        """The answers of a client that waits for each before its next request, and answers what it is asked as a person
        would."""
        words = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            "--decision-log",
            "none",
            *self._options,
        ]
        words += ["--", sys.executable, SERVER, sign or self._sign, str(self.seen)]
        environment = {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"]} | (
            {"HOME": str(self._folder)} if self._state else {}
        )
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._folder, env=environment
        ) as process:
            try:
                answers = [self._ask(process, request) for request in requests]
                _, said = process.communicate(timeout=30)
            finally:
                process.kill()
        self.said = said.decode()
        return answers

    def _ask(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            frame: dict[str, Any] = json.loads(line)
            if frame.get("id") == request["id"] and "method" not in frame:
                return frame
            if frame.get("method") == "sampling/createMessage":
                result = {
                    "role": "assistant",
                    "content": {"type": "text", "text": "from the client"},
                    "model": "person",
                }
                process.stdin.write(
                    json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}).encode() + b"\n"
                )
                process.stdin.flush()
        raise AssertionError(f"the gate ended: {process.communicate()[1].decode()}")

    def at_server(self) -> list[str]:
        """What the server was asked since the last look, oldest first; ``+`` marks a request of 2026-07-28."""
        frames = [json.loads(line) for line in self.seen.read_text().splitlines()] if self.seen.exists() else []
        self.seen.unlink(missing_ok=True)
        asked = [frame for frame in frames if "method" in frame and "id" in frame]
        return [
            frame["method"] + "+" * (f"{META}protocolVersion" in frame["params"].get("_meta", {})) for frame in asked
        ]


def call(id: int, tool: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    return modern(id, "tools/call", capabilities, name=tool, arguments={})


def text(answer: dict[str, Any]) -> str:
    found: str = answer["result"]["content"][0]["text"]
    return found


DISCOVER: Final = modern(80, "server/discover")


# -- the setting
# ----------------------------------------------------------------------------------------------------------------------


def test_with_legacy_a_client_that_can_fall_back_does_so_and_nothing_is_bridged(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS, ("--protocol", "legacy"))
    asked, begun, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "2025-11-25" == begun["result"]["protocolVersion"]
    assert "from the client" == text(pushed)
    assert ["initialize", "tools/call"] == run.at_server()


def test_with_legacy_discovery_is_refused_also_where_a_bridge_would_lose_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", ANSWERS, ("--protocol", "legacy"))
    (asked,) = run(modern(80, "server/discover", {}))
    assert -32601 == asked["error"]["code"]
    assert [] == run.at_server()


def test_with_legacy_a_client_pinned_to_the_modern_version_gets_the_bridge(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", ANSWERS, ("--protocol", "legacy"))
    (pushed,) = run(call(1, "push", {}))
    assert ("complete", "from the policy") == (pushed["result"]["resultType"], text(pushed))
    assert ["initialize", "tools/call"] == run.at_server()


def test_with_legacy_a_server_that_refuses_the_handshake_is_never_spoken_to_otherwise(tmp_path: Path) -> None:
    run = Run(tmp_path, "new", ANSWERS, ("--protocol", "legacy"))
    assert "error" in run(call(1, "plain"))[0]
    assert -32022 == run(INITIALIZE)[0]["error"]["code"]
    assert ["initialize", "initialize"] == run.at_server()


def test_with_modern_the_gate_never_falls_back(tmp_path: Path) -> None:
    run = Run(tmp_path, "old", ANSWERS, ("--protocol", "modern"))
    asked, begun = run(DISCOVER, INITIALIZE)
    assert -32601 == asked["error"]["code"]
    assert "error" in begun
    (early,) = run(legacy(1, "tools/list"))
    assert "error" in early
    assert {"server/discover+", "tools/list+"} == set(run.at_server())


def test_with_modern_a_legacy_client_has_a_server_of_2026_07_28_behind_the_bridge(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS, ("--protocol", "modern"))
    begun, asked, pushed = run(
        INITIALIZE, *(legacy(n, "tools/call", name=tool, arguments={}) for n, tool in enumerate(("round", "push")))
    )
    assert "2025-11-25" == begun["result"]["protocolVersion"]
    assert "from the client after a round" == text(asked)
    assert -32600 == pushed["error"]["code"]
    assert ["server/discover+", "tools/call+", "tools/call+", "tools/call+"] == run.at_server()
    assert WARNING not in run.said


# -- what auto learns
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["error", "result"])
def test_a_call_that_failed_because_the_server_pushed_is_learned_from(tmp_path: Path, sign: str) -> None:
    run = Run(tmp_path, sign, FORWARDS)
    found, failed, again = run(DISCOVER, call(1, "push"), call(2, "push"))
    assert ["2026-07-28"] == found["result"]["supportedVersions"]
    assert "sampling/createMessage" in str(failed)
    assert "sampling/createMessage" in str(again)  # this connection stays as it is
    assert 1 == run.said.count(WARNING)
    assert "--protocol legacy" in next(line for line in run.said.splitlines() if WARNING in line)
    assert ["server/discover+", "tools/call+", "tools/call+"] == run.at_server()  # no call is repeated
    asked, _, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "from the client" == text(pushed)
    assert WARNING not in run.said
    assert ["initialize", "tools/call"] == run.at_server()


def test_a_pushed_request_on_the_wire_is_learned_from(tmp_path: Path) -> None:
    run = Run(tmp_path, "request")
    assert "plain" == text(run(call(1, "plain", {}))[0])
    frame = json.dumps(call(2, "push", {}))
    words = [sys.executable, "-c", f"import subprocess, sys, time; print({frame!r}, flush=True); sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        gate = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            "--decision-log",
            "none",
            "--state",
            str(tmp_path / "state"),
        ]
        gate += ["--", sys.executable, SERVER, "request", str(run.seen)]
        environment = {**os.environ, "PYTHONPATH": str(PROXY)}
        with subprocess.Popen(
            gate, stdin=held.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
        ) as process:
            assert process.stderr is not None
            assert any(WARNING in line.decode() for line in process.stderr)
            process.kill()
            held.kill()
    run.at_server()
    assert "from the policy" == text(run(call(3, "push", {}))[0])
    assert ["initialize", "tools/call"] == run.at_server()


def test_a_client_that_needs_no_fallback_gets_the_bridge_once_it_is_learned(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push", {}))
    asked, pushed = run(modern(80, "server/discover", {}), call(1, "push", {}))
    assert ["2026-07-28"] == asked["result"]["supportedVersions"]
    assert "from the policy" == text(pushed)


def test_what_was_not_declared_to_the_server_teaches_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS)
    run(call(1, "push", {}))
    assert WARNING not in run.said
    assert not (tmp_path / "state" / "servers").exists()


@pytest.mark.parametrize("extension", ["tasks", "ui"])
def test_a_client_that_declared_the_tasks_or_the_ui_extension_is_never_downgraded(
    tmp_path: Path, extension: str
) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push"))
    run.at_server()
    able = {**CAPABLE, "extensions": {f"{META}{extension}": {}}}
    asked, plain = run(modern(80, "server/discover", able), call(1, "plain", able))
    assert ["2026-07-28"] == asked["result"]["supportedVersions"]
    assert "plain" == text(plain)
    assert "plain" == text(run(call(1, "plain", able))[0])
    assert "initialize" not in run.at_server()


@pytest.mark.parametrize("tool", ["round", "task"])
@pytest.mark.parametrize("order", ["asked first", "pushed first", "asked in another connection"])
def test_a_server_that_ever_returned_a_round_or_a_task_is_never_downgraded(
    tmp_path: Path, tool: str, order: str
) -> None:
    run = Run(tmp_path, "error")
    calls = [call(1, tool), call(2, "push")]
    for connection in (
        [calls] if order == "asked first" else [calls[::-1]] if order == "pushed first" else [[one] for one in calls]
    ):
        run(*connection)
    run.at_server()
    run(call(1, "plain"))
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_made_a_task_in_the_legacy_versions_is_never_downgraded(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(INITIALIZE, legacy(1, "tools/call", name="task", arguments={}, task={}))
    run(call(1, "push"))
    assert WARNING not in run.said
    run.at_server()
    run(call(1, "plain"))
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_refuses_the_handshake_is_spoken_to_as_before(tmp_path: Path) -> None:
    run = Run(tmp_path, "new")
    run(call(1, "push"))
    run.at_server()
    assert "plain" == text(run(call(1, "plain"))[0])
    assert ["initialize", "tools/call+"] == run.at_server()
    assert "plain" == text(run(call(1, "plain"))[0])
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_a_server_that_speaks_nothing_older_is_not_learned_from(tmp_path: Path) -> None:
    run = Run(tmp_path, "new")
    assert -32600 == run(INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))[1]["error"]["code"]
    assert WARNING not in run.said


def test_another_command_of_the_same_name_is_another_server(tmp_path: Path) -> None:
    run = Run(tmp_path, "error")
    run(call(1, "push"))
    run.at_server()
    run(call(1, "plain"), sign="result")
    assert ["server/discover+", "tools/call+"] == run.at_server()


def test_without_a_state_folder_nothing_is_remembered_and_nothing_fails(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", state=False)
    for _ in range(2):
        assert -32600 == run(call(1, "push"))[0]["error"]["code"]
        assert WARNING in run.said


@pytest.mark.parametrize("broken", ["a file", "full of other things"])
def test_a_state_folder_in_disorder_keeps_nothing_from_running(tmp_path: Path, broken: str) -> None:
    run = Run(tmp_path, "error")
    (tmp_path / "state").mkdir()
    if broken == "a file":
        (tmp_path / "state" / "servers").write_text("not a folder")
    else:
        (tmp_path / "state" / "servers").mkdir()
        for number in range(3_100):
            (tmp_path / "state" / "servers" / f"{number}.pushed").touch()
    assert -32600 == run(call(1, "push"))[0]["error"]["code"]
    assert WARNING in run.said
    if broken != "a file":
        assert 3_001 > len(list((tmp_path / "state" / "servers").iterdir()))
        assert "from the policy" == text(run(call(1, "push"))[0])


ASKS = legacy(1, "tools/call", name="round", arguments={})
MAKES = legacy(1, "tools/call", name="task", arguments={}, task={})
LOST = "refused: the server made a task of the call, which was not offered to it"


@pytest.mark.parametrize(
    ("sign", "requests", "answer", "at_server"),
    [
        (
            "error",
            [DISCOVER, call(1, "round")],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        (
            "error",
            [call(1, "round", {})],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        ("error", [INITIALIZE, ASKS], "from the policy", ["initialize", "tools/call"]),
        ("error", [call(1, "task")], LOST, ["server/discover+", "tools/call+"]),
        ("error", [INITIALIZE, MAKES], "t1", ["initialize", "tools/call"]),
        ("old", [call(1, "round", {})], "from the policy", ["server/discover+", "initialize", "tools/call"]),
        ("old", [INITIALIZE, ASKS], "from the policy", ["initialize", "tools/call"]),
        ("old", [INITIALIZE, MAKES], "t1", ["initialize", "tools/call"]),
        (
            "new",
            [call(1, "round")],
            "from the policy after a round",
            ["server/discover+", "tools/call+", "tools/call+"],
        ),
        ("new", [call(1, "task")], LOST, ["server/discover+", "tools/call+"]),
        (
            "new",
            [INITIALIZE, ASKS],
            "from the policy after a round",
            ["initialize", "server/discover+", "tools/call+", "tools/call+"],
        ),
    ],
)
def test_servers_that_use_rounds_or_tasks_are_spoken_to_as_in_0_1_0(
    tmp_path: Path, sign: str, requests: list[dict[str, Any]], answer: str, at_server: list[str]
) -> None:
    """Twice, since the second connection knows what the first has shown. These rows hold for 0.1.0 too."""
    run = Run(tmp_path, sign)
    for _ in range(2):
        assert answer in json.dumps(run(*requests)[-1])
        assert at_server == run.at_server()
        assert WARNING not in run.said


# -- the daemon
# ----------------------------------------------------------------------------------------------------------------------


def settings(folder: Path, policy: str, **server: Any) -> str:
    (folder / "policy.yaml").write_text(policy)
    one = {"command": sys.executable, "args": [SERVER, "error", str(folder / "seen.jsonl")], **server}
    (folder / "samplegate.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": {"one": one}}))
    return "samplegate.yaml"


async def push(c: Client, id: int = 1) -> dict[str, Any]:
    return await c.modern("tools/call", id, name="push", arguments={})


@pytest.mark.anyio
async def test_the_daemon_learns_for_the_next_connection_of_each_client(tmp_path: Path) -> None:
    extended = {**CAPABLE, "extensions": {f"{META}tasks": {}}}
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, FORWARDS)) as gate,
        client(gate, capabilities=CAPABLE) as c,
    ):
        assert ["2026-07-28"] == (await c.modern("server/discover"))["result"]["supportedVersions"]
        assert [-32600, -32600] == [(await push(c, id))["error"]["code"] for id in (1, 2)]
        line = await gate.said(WARNING)
        assert "servers: {one: {protocol: legacy}}" in line
        assert -32601 == (await c.modern("server/discover"))["error"]["code"]
        await c.begin()
        assert "a person" == text(await c.legacy("tools/call", 2, name="push", arguments={}))
        async with client(gate, capabilities=extended) as other:
            assert ["2026-07-28"] == (await other.modern("server/discover"))["result"]["supportedVersions"]
            assert -32600 == (await push(other))["error"]["code"]
        assert 1 == sum(WARNING in line for line in gate.lines)


@pytest.mark.anyio
async def test_the_daemon_bridges_a_pinned_client_to_a_server_that_is_set_to_legacy(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, ANSWERS, protocol="legacy")) as gate,
        client(gate) as c,
    ):
        assert "from the policy" == text(await push(c))
        assert -32601 == (await c.modern("server/discover"))["error"]["code"]
        await c.begin()
        assert "from the policy" == text(await c.legacy("tools/call", 2, name="push", arguments={}))


@pytest.mark.anyio
async def test_a_server_that_all_callers_share_is_shared_by_none_in_the_legacy_versions(tmp_path: Path) -> None:
    async with serving(tmp_path, "--settings", settings(tmp_path, ANSWERS, share="all")) as gate, client(gate) as c:
        assert -32600 == (await push(c))["error"]["code"]
        assert "2026-07-28" in str(await c.modern("server/discover"))
        assert "from the policy" == text(await push(c, 2))
    seen = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert 1 == sum(frame.get("method") == "initialize" for frame in seen)


def test_a_protocol_without_a_server_on_the_command_line_is_an_error(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "samplegate",
        "serve",
        "--protocol",
        "legacy",
        "--settings",
        settings(tmp_path, ANSWERS),
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROXY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 2 == done.returncode
    assert "--protocol: applies to a server of the command line, and there is none" in done.stderr
