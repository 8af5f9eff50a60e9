"""Claude Code, Codex and Gemini CLI with servers in their own configuration files: how each file is written, which
options of `wrap` name it, and the client's commands that list and add servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.acceptance.sdk import node
from tests.adoption.agents.headless import (
    AGENTS,
    CLAUDE_CODE,
    CODEX,
    GEMINI,
    PROMPT,
    SERVER,
    Agent,
    GateOutput,
    Outside,
    Session,
    Started,
    at_start,
)
from tests.adoption.agents.scripted_model import MessagesEndpoint, ScriptedEndpoint
from tests.adoption.agents.two_servers import CASES, POLICY

WAIT: Final = 90.0
"""Seconds for a command of a client or of the gate. They take up to 5 s."""
_claude, _codex, _gemini = AGENTS


def _claude_code_of_the_user(home: Path, servers: Mapping[str, Sequence[str]], url: str) -> Started:
    """Claude Code with servers in the user's `.claude.json`, in the form that `claude mcp add` writes."""
    started = _claude.prepare(home, servers, url)
    config = json.loads((home / "servers.json").read_text())
    entries = {
        name: {"type": "stdio", "command": entry["command"], "args": entry["args"], "env": {}}
        for name, entry in config["mcpServers"].items()
    }
    written = {"hasCompletedOnboarding": True, "mcpServers": entries, "projects": {}}
    (home / ".claude.json").write_text(json.dumps(written, indent=2))
    allowed = [f"mcp__{name}" for name in servers]
    return Started((str(CLAUDE_CODE), "-p", PROMPT, "--allowedTools", *allowed), started.environment)


def _gemini_with_comments(home: Path, servers: Mapping[str, Sequence[str]], url: str) -> Started:
    """Gemini CLI with comments in its settings."""
    started = _gemini.prepare(home, servers, url)
    file = home / ".gemini" / "settings.json"
    settings = json.loads(file.read_text())
    for entry in settings["mcpServers"].values():
        entry["timeout"] = 60_000  # ms; `gemini mcp list` waits for 5 s otherwise
    text = json.dumps(settings).replace('"mcpServers"', '/* servers */ "mcpServers"')
    file.write_text(f"// settings of the test\n{text}")
    return Started(started.words, {**started.environment, "GEMINI_CLI_TRUST_WORKSPACE": "true"})


@dataclass(frozen=True)
class Configured:
    """A client whose servers are in a file of its own."""

    agent: Agent
    file: str
    """Below the home folder."""
    options: tuple[str, ...]
    """The options of `wrap` for the file. ``{file}`` is its path."""
    program: tuple[str, ...]
    add: tuple[str, ...]
    """Adds the server `new`, with the command `NEW`."""
    connected: Callable[[str], set[str]]
    """The servers that the output of `mcp list` shows as usable."""
    parse: Callable[[str], dict[str, Any]]
    key: str
    lists: tuple[str, ...] = ("mcp", "list")
    rewrites_itself: bool = False
    """Whether the client writes its own state to the file whenever it runs."""

    @property
    def name(self) -> str:
        return self.agent.name


NEW: Final = ("echo", "a server of the agent")


def _json_with_comments(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.sub(r"^//.*$|/\*.*?\*/", "", text, flags=re.MULTILINE))
    return found


CLIENTS: Final = [
    Configured(
        Agent("claude-code", MessagesEndpoint, _claude_code_of_the_user),
        ".claude.json",
        ("--client", "claude-code"),
        (str(CLAUDE_CODE),),
        ("mcp", "add", "-s", "user", "new", "--", *NEW),
        lambda output: set(re.findall(r"^(\w+): .* - ✔ Connected$", output, re.MULTILINE)),
        json.loads,
        "mcpServers",
        rewrites_itself=True,
    ),
    Configured(
        _codex,
        ".codex/config.toml",
        ("--client", "codex"),
        (str(node.node()), str(CODEX)),
        ("mcp", "add", "new", "--", *NEW),
        lambda output: {one["name"] for one in json.loads(output) if one["enabled"]},
        tomllib.loads,
        "mcp_servers",
        ("mcp", "list", "--json"),
    ),
    Configured(
        Agent("gemini-cli", _gemini.endpoint, _gemini_with_comments),
        ".gemini/settings.json",
        ("--file", "{file}", "--key", "mcpServers", "--shape", "http-url"),
        (str(node.node()), str(GEMINI)),
        ("mcp", "add", "-s", "user", "new", *NEW),
        lambda output: set(re.findall(r"^✓ (\w+): .* - Connected$", output, re.MULTILINE)),
        _json_with_comments,
        "mcpServers",
    ),
]


class Home:
    """An empty home folder with a client, its file with the servers `asks` and `forms`, and a policy that answers both.

    ``url`` is that of the client's model.
    """

    def __init__(self, client: Configured, folder: Path, url: str = "http://127.0.0.1:9") -> None:
        self.client = client
        self.folder = folder
        self.path = folder / "home"
        self.project = self.path / "project"
        self.project.mkdir(parents=True)
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "cases.yaml").write_text(CASES)
        self.output = GateOutput(folder / "stderr")
        server = ("/bin/sh", "-c", 'exec "$@" 2>"$0"', str(self.output.place), *SERVER)
        self.started = client.agent.prepare(self.path, {"asks": server, "forms": server}, url)
        self.file = self.path / client.file
        self.environment = {
            "HOME": str(self.path),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.path),
            "LANG": "C.UTF-8",
            **self.started.environment,
        }

    @property
    def servers(self) -> dict[str, Any]:
        """The servers in the file."""
        found: dict[str, Any] = self.content[self.client.key]
        return found

    @property
    def content(self) -> dict[str, Any]:
        return self.client.parse(self.file.read_text("utf-8"))

    def run(self, words: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """A command in the project folder."""
        outside = Outside()
        try:
            return subprocess.run(
                words,
                cwd=self.project,
                env={**self.environment, **outside.environment, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
                timeout=WAIT,
            )
        finally:
            outside.close()

    def mcp(self, *words: str, **environment: str) -> str:
        """A command of the client. Returns what it wrote to stdout, or else to stderr, as Gemini CLI does."""
        done = self.run((*self.client.program, *words), **environment)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout or done.stderr

    def connected(self, **environment: str) -> set[str]:
        """The servers that the client lists as usable."""
        return self.client.connected(self.mcp(*self.client.lists, **environment))

    def samplegate(self, command: str, *words: str) -> str:
        """`samplegate wrap` or `unwrap` on the client's file."""
        policy = ("--policy", str(self.folder / "policy.yaml")) if command == "wrap" else ()
        options = [option.replace("{file}", str(self.file)) for option in self.client.options]
        return samplegate(self, command, *options, *policy, *words)

    @contextmanager
    def at_work(self, endpoint: ScriptedEndpoint, *words: str) -> Iterator[Session]:
        """The agent at work, by default on the prompt that its preparation gave. Its servers have ended afterwards."""
        started = Started(words or self.started.words, self.started.environment)
        with at_start(started, self.path, endpoint, self.output, {}) as session:
            yield session

    def decisions(self) -> list[dict[str, Any]]:
        """The records of the gates in the state folder of the home."""
        logs = (self.path / ".local" / "state" / "samplegate" / "decisions").glob("*.jsonl")
        records = [json.loads(line) for log in logs for line in log.read_text("utf-8").splitlines()]
        return sorted(records, key=lambda record: str(record["server"]))


def samplegate(home: Home, *words: str) -> str:
    """A command of the gate that must succeed. Returns its output."""
    done = home.run((str(Path(sys.executable).with_name("samplegate")), *words))
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr
