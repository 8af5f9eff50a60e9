"""The real programs over HTTP: servers that listen, and gates that serve what stands behind them. How they are driven
stands in peers.py."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from tests.conformance.listening import Listening, gate, listening
from tests.real import node, peers
from tests.real.peers import POLICIES, Gate, Server

NAMES: Final = ("sdk1", "sdk2", "sdk2-modern", "everything")
SERVER: Final = str(peers.PROGRAMS / "http_server.py")


def words(name: str) -> tuple[str, ...]:
    """What serves that counterpart over HTTP. ``sdk2-modern`` refuses the handshake."""
    if name == "everything":
        return (str(node.node()), str(peers.EVERYTHING), "streamableHttp")
    number = 1 if name == "sdk1" else 2
    return (peers.sdk(number), SERVER, f"server_sdk{number}", *(["--modern-only"] if name == "sdk2-modern" else []))


def stdio_words(name: str) -> tuple[str, ...]:
    """What serves the same over stdio."""
    return (*words(name), "--stdio") if name == "sdk2-modern" else peers.servers()[name].words


def free_port() -> int:
    """One that nobody had a moment ago: server-everything does not say which one it took."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def serving(name: str) -> Iterator[Server]:
    """That counterpart, listening: its one word is its address, which is what the clients take instead of a command."""
    environment = {"PORT": str(free_port())} if name == "everything" else {}
    with listening(words(name), environment) as found:
        yield Server(name, (found.url,))


@dataclass
class Served:
    """One server of a gate: for the clients a server as any other."""

    server: Server
    program: Listening
    gate: Gate
    known: str
    read: int = 0

    def rules(self) -> list[str]:
        """The rules that decided for this server since this was last asked."""
        records = [record for record in self.gate.records() if record["server"] == self.known]
        new, self.read = records[self.read :], len(records)
        return [record["rule"] for record in new]


class Places:
    """The counterparts over HTTP, and for each policy one gate that serves all of them: each is started when it is
    first asked for."""

    def __init__(self, started: ExitStack, folder: Path) -> None:
        self._started = started
        self._folder = folder
        self._servers: dict[str, Server] = {}
        self._gates: dict[str, Listening] = {}
        self._served: dict[tuple[str, str], Served] = {}

    def server(self, name: str) -> Server:
        """A counterpart over HTTP, without a gate."""
        if name not in self._servers:
            self._servers[name] = self._started.enter_context(serving(name))
        return self._servers[name]

    def gate(self, name: str, kind: str, policy: str) -> Served:
        """That counterpart, reached over ``http`` or ``stdio`` by a gate under one of the policies of this folder."""
        if policy not in self._gates:
            settings = self._settings(policy)
            self._gates[policy] = self._started.enter_context(listening(gate("serve", "--settings", str(settings))))
        known, program = f"{name}-{kind}", self._gates[policy]
        if (known, policy) not in self._served:
            url = urljoin(program.url, f"/servers/{known}/mcp")
            place = Gate(POLICIES / f"{policy}.yaml", self._log(policy))
            self._served[known, policy] = Served(Server(name, (url,)), program, place, known)
        return self._served[known, policy]

    def run(self, name: str, kind: str, policy: str) -> Server:
        """The gate as a stdio server in front of it: `samplegate run`."""
        words = ("run", "--policy", str(POLICIES / f"{policy}.yaml"), "--decision-log", "none")
        behind = ("--url", self.server(name).words[0]) if kind == "http" else ("--", *stdio_words(name))
        return Server(name, gate(*words, *behind))

    def _log(self, policy: str) -> Path:
        return self._folder / f"{policy}.jsonl"

    def _settings(self, policy: str) -> Path:
        servers: dict[str, object] = {f"{name}-http": {"url": self.server(name).words[0]} for name in NAMES}
        for name in NAMES:
            command, *args = stdio_words(name)
            servers[f"{name}-stdio"] = {"command": command, "args": args}
        rules = str(POLICIES / f"{policy}.yaml")
        path = self._folder / f"{policy}.yaml"
        settings = {
            "policy": rules,
            "listen": "127.0.0.1:0",
            "decision_log": str(self._log(policy)),
            "servers": servers,
        }
        path.write_text(json.dumps(settings), "utf-8")  # which is YAML too
        return path
