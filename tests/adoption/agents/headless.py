"""Claude Code, Codex and Gemini CLI, headless: how each is started in an empty home folder, with gates as its MCP
servers and a scripted endpoint as its model. Unix only, because of named pipes and process groups.

Nothing of the gate is imported here: it is one more program.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.acceptance.sdk import node, peers
from tests.adoption.agents.scripted_model import GeminiEndpoint, MessagesEndpoint, ResponsesEndpoint, ScriptedEndpoint

HERE: Final = Path(__file__).resolve().parent
CLAUDE_CODE: Final = HERE / "node_modules" / ".bin" / "claude"
CODEX: Final = HERE / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
GEMINI: Final = HERE / "node_modules" / "@google" / "gemini-cli" / "bundle" / "gemini.js"
SERVER: Final = (peers.sdk(2), str(peers.PROGRAMS / "server_sdk2.py"))
PROMPT: Final = "Call the tools."
WAIT: Final = 90.0
"""Seconds for one agent from start to end. It takes about 2 s, and 10 s if its files are not in the page cache."""
GATES_END: Final = 15.0
"""Seconds from the end of an agent to the end of its gates and servers. The shutdown of a gate is bounded by 1.8 s."""


@dataclass(frozen=True)
class Gate:
    """A gated server: its name for the agent and in the policy, and the gate's command without the server's."""

    name: str
    words: tuple[str, ...]

    def recorded(self, stderr: Path) -> list[str]:
        """The whole command, with the stderr of gate and server redirected."""
        return ["/bin/sh", "-c", 'exec "$@" 2>"$0"', str(stderr), *self.words, "--", *SERVER]


@dataclass(frozen=True)
class Started:
    """How to start an agent: its command and the environment that it needs besides HOME and PATH."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Agent:
    """An agent, its model's endpoint, and ``prepare``, which writes its configuration into its home folder.

    ``prepare`` gets the home folder, the commands of the servers by name, and the endpoint's URL.
    """

    name: str
    endpoint: type[ScriptedEndpoint]
    prepare: Callable[[Path, Mapping[str, Sequence[str]], str], Started]


def _claude_code(home: Path, servers: Mapping[str, Sequence[str]], url: str) -> Started:
    config = home / "servers.json"
    commands = {name: {"command": words[0], "args": list(words[1:])} for name, words in servers.items()}
    config.write_text(json.dumps({"mcpServers": commands}))
    allowed = [f"mcp__{name}" for name in servers]
    return Started(
        (
            str(CLAUDE_CODE),
            "-p",
            PROMPT,
            "--mcp-config",
            str(config),
            "--strict-mcp-config",
            "--allowedTools",
            *allowed,
        ),
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-of-the-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",  # it would hide the servers' tools until the model searches for them
        },
    )


CODEX_CONFIG: Final = """\
model = "scripted"
model_provider = "loopback"
approval_policy = "never"
# without these, it contacts its maker and fetches plugins
analytics.enabled = false
features.plugins = false

[model_providers.loopback]
name = "loopback"
base_url = {url}
wire_api = "responses"
env_key = "LOOPBACK_KEY"
"""
CODEX_SERVER: Final = """
[mcp_servers.{name}]
command = {command}
args = {args}
# otherwise, the first request to the model may leave before the server has started, without its tools
required = true
# with the approval policy "never", a tool that may write is refused otherwise
default_tools_approval_mode = "approve"
# servers get a bare environment
env_vars = ["SAMPLEGATE_RUN"]
"""


def _codex(home: Path, servers: Mapping[str, Sequence[str]], url: str) -> Started:
    parts = [CODEX_CONFIG.format(url=json.dumps(url))]
    for name, words in servers.items():  # JSON strings and lists of them are TOML
        parts.append(CODEX_SERVER.format(name=name, command=json.dumps(words[0]), args=json.dumps(list(words[1:]))))
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("".join(parts))
    words = (str(node.node()), str(CODEX), "exec", "--skip-git-repo-check", PROMPT)
    return Started(words, {"LOOPBACK_KEY": "sk-of-the-test"})


def _gemini(home: Path, servers: Mapping[str, Sequence[str]], url: str) -> Started:
    settings = {
        "mcpServers": {
            name: {"command": words[0], "args": words[1:], "trust": True} for name, words in servers.items()
        },
        "security": {
            "auth": {"selectedType": "gemini-api-key"},
            # in a GitHub job, servers get a bare environment
            "environmentVariableRedaction": {"allowed": ["SAMPLEGATE_RUN"]},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    words = (str(node.node()), str(GEMINI), "--skip-trust", "--model", "gemini-2.5-flash", "--prompt", PROMPT)
    return Started(
        words,
        {
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": "sk-of-the-test",
            "GEMINI_CLI_NO_RELAUNCH": "true",  # otherwise, a child process does the work, and signals do not reach it
        },
    )


AGENTS: Final = [
    Agent("claude-code", MessagesEndpoint, _claude_code),
    Agent("codex", ResponsesEndpoint, _codex),
    Agent("gemini-cli", GeminiEndpoint, _gemini),
]


class Outside:
    """An HTTP proxy that forwards nothing and records who asks: agents would reach any other host through it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        given = {"http_proxy": url, "https_proxy": url, "all_proxy": url, "no_proxy": "127.0.0.1"}
        return {**given, **{name.upper(): value for name, value in given.items()}}

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listening.accept()
                with connection, suppress(OSError):
                    connection.settimeout(1)
                    self.asked.append(connection.recv(200).decode("latin-1").partition("\r\n")[0])

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@dataclass
class Ended:
    """The end of an agent: its exit code, its answer (what the model said last) and its stderr."""

    code: int
    answer: str
    stderr: str


@dataclass
class Session:
    """An agent that works on one prompt."""

    process: subprocess.Popen[str]
    endpoint: ScriptedEndpoint
    outside: Outside
    _gates: GateOutput

    def end(self) -> Ended:
        """Wait for the agent's end. Fails if it does not end in time."""
        try:
            answer, stderr = self.process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired as late:
            so_far = (late.stderr or b"").decode("utf-8", "replace")
            raise AssertionError(
                f"the agent did not end within {WAIT:g} s; on stderr:\n{so_far[-4000:]}\n"
                f"the gates' stderr:\n{self._gates.text()[-4000:]}"
            ) from None
        return Ended(self.process.returncode, answer, stderr)

    def gates_stderr(self) -> str:
        """Wait until all gates and servers have ended, and return what they wrote to stderr. Fails if one remains."""
        return self._gates.end()


class GateOutput:
    """The stderr of all gates and servers of an agent: a named pipe, which ends with the last of them."""

    def __init__(self, place: Path) -> None:
        os.mkfifo(place)
        self.place = place
        reading = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        self._held = os.open(place, os.O_WRONLY)  # until then, there is always a writer
        os.set_blocking(reading, True)
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while part := stream.read(65536):
                self._parts.append(part)

    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace")

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def end(self) -> str:
        self.release()
        self._reader.join(GATES_END)
        assert not self._reader.is_alive(), (
            f"a gate or server still runs {GATES_END:g} s after its agent; their stderr:\n{self.text()[-4000:]}"
        )
        return self.text()


@contextmanager
def working(
    agent: Agent, folder: Path, gates: Sequence[Gate], endpoint: ScriptedEndpoint, environment: Mapping[str, str]
) -> Iterator[Session]:
    """The agent at work, in a new home and project folder. It and its descendants have ended afterwards."""
    home = folder / "home"
    (home / "project").mkdir(parents=True)
    output = GateOutput(folder / "stderr")
    started = agent.prepare(home, {gate.name: gate.recorded(output.place) for gate in gates}, endpoint.url)
    with at_start(started, home, endpoint, output, environment) as session:
        yield session


@contextmanager
def at_start(
    started: Started, home: Path, endpoint: ScriptedEndpoint, output: GateOutput, environment: Mapping[str, str]
) -> Iterator[Session]:
    """The agent at work, in a home folder with its configuration and the folder `project`."""
    outside = Outside()
    given = {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(home), "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        started.words,
        cwd=home / "project",
        env={**given, **outside.environment, **started.environment, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # without a terminal, so that no question can be asked
    )
    try:
        yield Session(process, endpoint, outside, output)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=GATES_END)
        output.end()  # gates in groups of their own end with their input
        outside.close()


def gate(name: str, policy: Path, state: Path) -> Gate:
    """A gate of this environment, with its decision log in the state folder."""
    program = Path(sys.executable).with_name("samplegate")
    return Gate(name, (str(program), "run", "--server", name, "--policy", str(policy), "--state", str(state)))
