"""`--header-from` and `--header-env`: a server at a URL that requires a token, behind `serve --url` and `run --url`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.daemon import ASK_SAMPLE, BOUND, asking, client, serving
from tests.fakes.openai_endpoint import Endpoint
from tests.fakes.run_process import opening, request, running
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY = "version: 1\nrules: [{name: never, effect: deny}]\n"
TOKEN = "t" * 40


def guarded(folder: Path) -> str:
    """Settings of a gate that forwards and requires TOKEN, which is in the file `token`, from its callers."""
    command, *arguments = asking("legacy+modern")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "guarded_policy.yaml").write_text("version: 1\nrules: [{name: all, effect: forward}]\n")
    (folder / "token").write_text(f"Bearer {TOKEN}\n")
    tokens = [{"name": "ada", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]
    wanted = {
        "policy": "guarded_policy.yaml",
        "servers": {"one": {"command": command, "args": arguments}},
        "callers": {"tokens": tokens},
    }
    (folder / "guarded.yaml").write_text(json.dumps(wanted))
    return "guarded.yaml"


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a gate that requires the token. Both gates in front of it are in its folder."""
    async with serving(tmp_path, "--settings", guarded(tmp_path)) as gate:
        async with client(gate) as nobody:
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
            assert 401 == (await nobody.post(hello, {}))[0]
        yield f"{gate.url}/mcp"


async def test_serve_and_run_send_the_header_to_their_server(tmp_path: Path, inner: str) -> None:
    header = ["--header-from", "Authorization=token", "--url", inner]
    async with serving(tmp_path, "--policy", "policy.yaml", *header) as gate, client(gate) as c:
        assert "result" in await c.begin()
    pipe = asyncio.subprocess.PIPE
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "samplegate", "run", "--policy", "policy.yaml", "--decision-log", "none",
        "--state", str(tmp_path / "state"), *header,
        stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "proxy")},
    )  # fmt: skip
    assert run.stdin is not None
    assert run.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    run.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode() + b"\n")
    async with asyncio.timeout(BOUND):
        answer = json.loads(await run.stdout.readline())
        run.stdin.close()
        _, said = await run.communicate()
    assert "result" in answer, said
    assert TOKEN.encode() not in said
    assert TOKEN not in "\n".join(gate.lines)


SAMPLES = """
version: 1
models: [{{name: m, model: openai/normal, api_base: "{url}", api_key_env: A_KEY}}]
rules: [{{name: models, match: {{kind: sampling}}, effect: allow, with: {{models: [m]}}}}]
"""


def visible(pid: int) -> tuple[list[bytes], list[bytes]]:
    """The command lines of the process and its children, and the children's environments."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{one}/cmdline").read_bytes() for one in [pid, *children]], [
        Path(f"/proc/{child}/environ").read_bytes() for child in children
    ]


def files(folder: Path) -> list[bytes]:
    """The content of each file in the folder."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
async def test_only_the_server_gets_the_value_of_a_header_variable(tmp_path: Path, inner: str) -> None:
    with Endpoint() as endpoint:
        (tmp_path / "policy.yaml").write_text(SAMPLES.format(url=endpoint.url))
        options = ["--state", "state", "--url", inner, "--header-env", "Authorization=AUTH"]
        environment = {"AUTH": f"Bearer {TOKEN}", "A_KEY": "k" * 20, "SAMPLEGATE_LOG_LEVEL": "debug"}
        with running(tmp_path, *options, command=(), environment=environment) as gate:
            gate.write(*opening(), request(1, "tools/call", name="work", arguments=ASK_SAMPLE))
            answers = [gate.read(), gate.read()]
            arguments, environments = visible(gate.process.pid)
            code, _, said = gate.end()
    assert 0 == code, said
    assert "you said: hello" == answers[1]["result"]["structuredContent"]["result"]["content"]["text"]
    assert any(b"A_KEY=" in one for one in environments), "the worker for models is one of the children"
    written = files(tmp_path / "state")
    assert any(b'"models"' in content for content in written), "the decision is on record"
    for place in (*arguments, *environments, *written, said.encode(), json.dumps(answers).encode()):
        assert TOKEN.encode() not in place


@pytest.mark.parametrize("value", [None, "", f"{TOKEN}\r\nX-Evil: 1", f"{TOKEN}\u20ac"])
def test_run_does_not_start_without_a_valid_value(value: str | None, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    environment = {} if value is None else {"AUTH": value}
    options = ["--url", "http://127.0.0.1:9/mcp", "--header-env", "Authorization=AUTH"]
    with running(tmp_path, *options, command=(), environment=environment) as gate:
        code, _, said = gate.end()
    assert 2 == code
    assert "--header-env: variable AUTH " in said
    assert TOKEN not in said


async def test_serve_sends_the_value_of_a_variable(tmp_path: Path, inner: str) -> None:
    options = ["--policy", "policy.yaml", "--url", inner, "--header-env", "Authorization=AUTH"]
    async with serving(tmp_path, *options, env={"AUTH": f"Bearer {TOKEN}"}) as gate, client(gate) as c:
        assert "result" in await c.begin()
    assert TOKEN not in "\n".join(gate.lines)
