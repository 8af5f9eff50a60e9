"""`samplegate login`, `logout`, `run` and `serve` as programs, before the authorization server of the tests. The user's
browser is an HTTP client that follows the printed URL."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes import oauth_gate
from tests.fakes.daemon import admin, client, serving
from tests.fakes.oauth_world import MARK, World, oauth_world
from tests.fakes.run_process import Running, call, opening, running
from tests.paths import ROOT

BOUND: Final = 60.0
DID: Final = {"content": [{"type": "text", "text": "did work"}]}


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder), **more}


def samplegate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that needs no browser."""
    return subprocess.run(
        [sys.executable, "-m", "samplegate", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=BOUND,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def logged_in(folder: Path, words: Sequence[str]) -> tuple[int, str, str]:
    """A login whose browser follows the printed URL. Returns the exit code, stdout and stderr."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "samplegate", *words],
        stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=folder, env=environment(folder), text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                if line.startswith("http"):
                    with urllib.request.urlopen(line.strip(), timeout=BOUND) as page:
                        assert "samplegate has received the answer" in page.read().decode()
                    break
            out, err = process.communicate(timeout=BOUND)
            return process.returncode, said + out, err
        finally:
            process.kill()


def with_login(folder: Path, world: World) -> None:
    """Log in within the process of the test, which takes a fraction of the time."""
    asyncio.run(oauth_gate.logged_in(world, folder / ".local/state/samplegate"))


def command_in(error: Mapping[str, Any]) -> list[str]:
    """The words of the command that an error tells to run."""
    found = re.search(r"run: samplegate (login .*)", error["error"]["message"])
    assert found is not None, error
    return shlex.split(found[1])


@contextmanager
def run(folder: Path, world: World, *options: str, **more: str) -> Iterator[Running]:
    with running(
        folder, "--server", "docs", "--url", world.url, *options, command=(), environment=environment(folder, **more)
    ) as gate:
        yield gate


def begun(gate: Running) -> dict[str, Any]:
    """The answer to a client's first request."""
    gate.write(*opening())
    return gate.read()


def state_of_docs(folder: Path) -> tuple[str, str]:
    """The state and the problem of the server, in the status of its gate, which answers half a second after its
    start."""
    end = time.monotonic() + 50
    while time.monotonic() < end:
        gates = json.loads(samplegate(folder, "status", "--json").stdout)["gates"]
        if gates:
            [server] = gates[0]["servers"]["items"]
            return server["state"], str(server["problem"])
    raise AssertionError("no gate in the status")


def test_the_command_in_the_error_logs_in_and_the_gate_then_works(tmp_path: Path) -> None:
    with oauth_world() as world:
        with run(tmp_path, world) as gate:
            error = begun(gate)
            assert "HTTP 401: it requires a login; run: samplegate login docs --url" in error["error"]["message"]
            code, out, err = logged_in(tmp_path, command_in(error))
            assert (0, "") == (code, re.sub(r"Waiting for the browser, at most 5m.*\n", "", err))
            assert "Logged in to docs: token expires in " in out
            state, problem = state_of_docs(tmp_path)
            assert ("failed", True) == (state, "latest request failed: HTTP 401: it requires a login" in problem)
            gate.write(*opening())
            assert "serverInfo" in gate.read()["result"]
            gate.write(call(1))
            assert DID == gate.read()["result"]
            assert ("ready", "None") == state_of_docs(tmp_path)
            code, _, _ = gate.end()
            assert 0 == code
        path = tmp_path / ".local/state/samplegate/oauth/docs.json"
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert [] == [seen for seen in world.seen if MARK in seen.path.partition("?")[2]]


def test_no_token_is_in_outputs_records_argv_or_environments(tmp_path: Path) -> None:
    with oauth_world() as world:
        client_id = world.register("ci", secret=f"{MARK}client", method="client_secret_basic").id
        options = ["--oauth-client-id", client_id, "--oauth-issuer", world.issuer]
        options += ["--oauth-client-secret-env", "OAUTH_SECRET", "--metrics-file", "metrics.prom"]
        secret = {"OAUTH_SECRET": f"{MARK}client", "SAMPLEGATE_LOG_LEVEL": "debug"}
        with run(tmp_path, world, *options, **secret) as gate:
            assert "serverInfo" in begun(gate)["result"]
            gate.write(call(1))
            answer = gate.read()
            assert DID == answer["result"]
            assert MARK not in Path(f"/proc/{gate.process.pid}/cmdline").read_text()
            code, _, err = gate.end()
        assert 0 == code
        assert world.of("token", grant_type="client_credentials")
        texts = [err, json.dumps(answer)]
        texts += [path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "oauth"]
        assert [] == [text for text in texts if MARK in text]
        assert MARK in (tmp_path / ".local/state/samplegate/oauth/docs.json").read_text()


def test_the_next_start_uses_the_stored_token_without_the_sdk(tmp_path: Path) -> None:
    with oauth_world() as world:
        with_login(tmp_path, world)
        with run(tmp_path, world, PYTHONPROFILEIMPORTTIME="1") as gate:
            assert "serverInfo" in begun(gate)["result"]
            _, _, err = gate.end()
        assert "samplegate.oauth.credentials" in err
        assert [] == [name for name in ("| mcp\n", "httpx2\n", "samplegate.oauth.flow") if name in err]


def test_gates_with_one_login_refresh_it_once_and_lose_no_refresh_token(tmp_path: Path) -> None:
    with oauth_world() as world:
        with_login(tmp_path, world)
        with run(tmp_path, world) as one, run(tmp_path, world) as two:
            for gate in (one, two):
                assert "serverInfo" in begun(gate)["result"]
            for expiry in range(1, 4):
                world.expire_tokens()
                for gate in (one, two):
                    gate.write(call(expiry))
                assert [DID, DID] == [gate.read()["result"] for gate in (one, two)]
                assert expiry == len(world.of("token", grant_type="refresh_token"))
        assert 0 == world.reuses


@pytest.mark.anyio
async def test_serve_uses_a_login_of_its_state_folder_for_all_conversations(tmp_path: Path) -> None:
    with oauth_world() as world:
        (tmp_path / "policy.yaml").write_text("version: 1\nrules: [{name: all, effect: deny}]\n")
        settings = {"policy": "policy.yaml", "servers": {"docs": {"url": world.url}}, "state": "state"}
        (tmp_path / "serve.yaml").write_text(json.dumps(settings))
        async with serving(tmp_path, "--settings", "serve.yaml", env={"HOME": str(tmp_path)}) as gate:
            async with client(gate) as first:
                error = await first.begin()
                message = error["error"]["message"]
                assert message.endswith("HTTP 401: it requires a login; run: samplegate login docs --settings FILE")
                assert (
                    "docs: the latest request failed: HTTP 401: it requires a login"
                    in (await admin(gate, "/status"))[1]
                )
                code, out, _ = logged_in(tmp_path, ["login", "docs", "--settings", "serve.yaml"])
                assert (0, True) == (code, str(tmp_path / "state" / "oauth" / "docs.json") in out)
            async with client(gate) as second, client(gate) as third:
                for each in (second, third):
                    assert "result" in await each.begin()
                    assert "did do" in str(await each.call("legacy"))
                world.expire_tokens()
                for each in (second, third):
                    assert "did do" in str(await each.call("legacy"))
                assert "latest request" not in (await admin(gate, "/status"))[1]
        assert 1 == len(world.of("token", grant_type="refresh_token"))


def test_logout_revokes_and_deletes_and_the_gate_asks_for_a_login(tmp_path: Path) -> None:
    with oauth_world() as world:
        with_login(tmp_path, world)
        shown = samplegate(tmp_path, "login", "--status")
        assert f"docs: {world.url}, token expires in " in shown.stdout
        assert MARK not in shown.stdout + shown.stderr
        left = samplegate(tmp_path, "logout", "docs")
        assert (0, "Logged out of docs: its tokens are revoked and deleted.\n") == (left.returncode, left.stdout)
        assert ["refresh_token", "access_token"] == [seen.given["token_type_hint"] for seen in world.of("revoke")]
        again = samplegate(tmp_path, "logout", "docs")
        assert (1, "") == (again.returncode, again.stdout)
        assert "logout: there is no login docs" in again.stderr
        with run(tmp_path, world) as gate:
            assert "it requires a login" in begun(gate)["error"]["message"]
