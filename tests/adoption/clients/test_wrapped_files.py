"""Real clients read the files that `samplegate wrap` wrote, and `unwrap` restores what they had, also after the clients
rewrote the files themselves.

Claude Code 2.1 and Gemini CLI 0.61 format the whole file anew, and Codex 0.169 every server, when they add a server.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.adoption.agents.headless import AGENTS, SERVER
from tests.adoption.agents.scripted_model import Call
from tests.adoption.agents.two_servers import ALLOWED
from tests.adoption.clients.configured import CLIENTS, NEW, Configured, Home, samplegate

CALLS: Final = (Call("asks", "classify", {"text": ALLOWED}), Call("forms", "confirm"))
OUTCOMES: Final = [("asks", "sampling", "models", "answered"), ("forms", "elicitation", "forms", "answered")]

TOKEN: Final = "t" * 40

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def outcomes(home: Home) -> list[tuple[str, ...]]:
    return [tuple(record[name] for name in ("server", "kind", "rule", "outcome")) for record in home.decisions()]


@each_client
def test_a_client_uses_its_wrapped_servers_and_unwrap_restores_the_file(client: Configured, tmp_path: Path) -> None:
    with client.agent.endpoint(calls=CALLS) as endpoint:
        home = Home(client, tmp_path, endpoint.url)
        if client.rewrites_itself:
            home.mcp("mcp", "list")  # it adds its own state, and formats the file
        original, servers = home.file.read_bytes(), home.servers
        home.samplegate("wrap", "--write")
        assert servers != home.servers
        home.samplegate("wrap", "--check")
        assert {"asks", "forms"} == home.connected()
        with home.at_work(endpoint) as session:
            ended = session.end()
    assert 0 == ended.code, ended.stderr
    assert "scripted|endTurn|all is well" in ended.answer, ended.answer
    assert "accept|True|go ahead" in ended.answer
    assert OUTCOMES == outcomes(home)
    home.samplegate("unwrap", "--write")
    if client.rewrites_itself:
        assert servers == home.servers
        assert original[original.index(b'"mcpServers"') : original.index(b'"projects"')] in home.file.read_bytes()
    else:
        assert original == home.file.read_bytes()


@each_client
def test_servers_that_a_client_adds_or_formats_are_wrapped_and_restored(client: Configured, tmp_path: Path) -> None:
    home = Home(client, tmp_path)
    servers, rest = home.servers, home.content.keys()
    home.samplegate("wrap", "--write")
    home.mcp(*client.add)
    added = home.servers["new"]
    assert list(NEW) == [added["command"], *added["args"]]
    home.samplegate("wrap", "--write")
    assert home.servers["new"] != added
    home.samplegate("unwrap", "--write")
    assert {**servers, "new": added} == home.servers
    assert rest <= home.content.keys()


def test_claude_code_takes_a_wrapped_copy_as_its_only_configuration(tmp_path: Path) -> None:
    claude_code, client = AGENTS[0], CLIENTS[0]
    with claude_code.endpoint(calls=CALLS) as endpoint:
        home = Home(client, tmp_path, endpoint.url)
        file, copy = home.path / "servers.json", home.path / "wrapped.json"
        original = file.read_bytes()
        options = ("--file", str(file), "--policy", str(tmp_path / "policy.yaml"), "--out", str(copy))
        samplegate(home, "wrap", *options)
        assert original == file.read_bytes()
        assert 0o600 == copy.stat().st_mode & 0o777
        (home.path / ".claude.json").unlink()
        words = (*home.started.words, "--mcp-config", str(copy), "--strict-mcp-config")
        with home.at_work(endpoint, *words) as session:
            ended = session.end()
    assert 0 == ended.code, ended.stderr
    assert "accept|True|go ahead" in ended.answer, ended.answer
    assert OUTCOMES == outcomes(home)


@contextmanager
def guarded(folder: Path) -> Iterator[str]:
    """The URL of a server that requires TOKEN."""
    callers = {"tokens": [{"name": "ada", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]}
    servers = {"search": {"command": SERVER[0], "args": SERVER[1:]}}
    policy = "version: 1\nrules: [{name: all, effect: forward}]\n"
    (folder / "forward.yaml").write_text(policy)
    (folder / "serve.yaml").write_text(json.dumps({"policy": "forward.yaml", "servers": servers, "callers": callers}))
    words = [str(Path(sys.executable).with_name("samplegate")), "serve", "--settings", "serve.yaml"]
    words += ["--listen", "127.0.0.1:0", "--state", "served"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, cwd=folder, text=True) as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"listening on (http://[^/\"\s]+)", line) for line in process.stderr)))
            yield f"{found[1]}/mcp"
        finally:
            process.kill()


def test_claude_code_fills_in_the_header_of_a_wrapped_server_at_a_url(tmp_path: Path) -> None:
    home = Home(CLIENTS[0], tmp_path)
    with guarded(tmp_path) as url:
        header = "Authorization: Bearer ${SEARCH_TOKEN}"
        home.mcp("mcp", "add", "-s", "user", "-t", "http", "search", url, "-H", header)
        servers = home.servers
        home.samplegate("wrap", "--only", "search", "--write")
        wrapped = home.servers["search"]
        assert "Bearer ${SEARCH_TOKEN}" not in " ".join(wrapped["args"]), "it would be visible on the command line"
        assert ["Bearer ${SEARCH_TOKEN}"] == list(wrapped["env"].values())
        assert "search" in home.connected(SEARCH_TOKEN=TOKEN)
        assert "search" not in home.connected(SEARCH_TOKEN="another")
        home.samplegate("unwrap", "--write")
        assert servers == home.servers
        assert "search" in home.connected(SEARCH_TOKEN=TOKEN)
