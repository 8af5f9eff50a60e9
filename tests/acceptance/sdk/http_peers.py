"""The real programs over HTTP: servers that listen, and gates in front of servers. peers.py drives them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import yaml

from tests.acceptance.sdk import node, peers
from tests.acceptance.sdk.peers import POLICIES, Server
from tests.conformance.listening import Listening, gate, listening

NAMES: Final = ("sdk1", "sdk2", "sdk2-modern", "everything")
SERVED: Final = ("answers", "forwards", "mixed", "denies")
TOLD: Final = ("sdk2-modern", "stdio")
"""The gate is told which protocol version this one speaks: a gate that finds out asks for five seconds, in which a
server may not even start on a busy machine, and then offers a client the older versions, which may know none."""
SERVER: Final = str(peers.PROGRAMS / "http_server.py")


def words(name: str) -> tuple[str, ...]:
    """The command that serves this counterpart over HTTP. ``sdk2-modern`` refuses the handshake."""
    if name == "everything":
        return (str(node.node()), str(peers.EVERYTHING), "streamableHttp")
    number = 1 if name == "sdk1" else 2
    return (peers.sdk(number), SERVER, f"server_sdk{number}", *(["--modern-only"] if name == "sdk2-modern" else []))


def stdio_words(name: str) -> tuple[str, ...]:
    """The command that serves this counterpart over stdio."""
    return (*words(name), "--stdio") if name == "sdk2-modern" else peers.servers()[name].words


def free_port() -> int:
    """A port that was free a moment ago, because server-everything does not print its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def serving(name: str) -> Iterator[Server]:
    """This counterpart, listening. Its only word is its address, which clients take in place of a command."""
    environment = {"PORT": str(free_port())} if name == "everything" else {}
    with listening(words(name), environment) as found:
        yield Server(name, (found.url,))


@dataclass
class Gated:
    """One server behind the gate, which clients use as any other."""

    server: Server
    log: Path
    known: str | None = None
    program: Listening | None = None
    read: int = 0

    def rules(self) -> list[str | None]:
        """The rules that decided for this server since the last call."""
        records = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()] if self.log.exists() else []
        records = [record for record in records if self.known in (None, record["server"])]
        new, self.read = records[self.read :], len(records)
        return [record.get("rule") for record in new]

    def said(self) -> str:
        """The last output of the gate."""
        return self.program.said() if self.program else ""


def _one_policy() -> dict[str, object]:
    """The policies of this folder as one, each for the servers whose names begin with its name."""
    rules: dict[str, dict[str, Any]] = {}
    for policy in SERVED:
        for rule in yaml.safe_load((POLICIES / f"{policy}.yaml").read_text("utf-8"))["rules"]:
            same = rules.setdefault(rule["name"], {**rule, "match": {**rule["match"], "server": []}})
            same["match"]["server"].append(f"{policy}-*")
            assert {**rule, "match": same["match"]} == same, f"{rule['name']} stands for two rules"
    return {"version": 1, "rules": list(rules.values())}


class Places:
    """The counterparts over HTTP, and one gate that serves all of them under each of the policies. Each is started at
    its first use."""

    def __init__(self, started: ExitStack, folder: Path) -> None:
        self._started = started
        self._folder = folder
        self._servers: dict[str, Server] = {}
        self._gate: Listening | None = None
        self._served: dict[str, Gated] = {}
        self._numbers = count()

    def server(self, name: str) -> Server:
        """A counterpart over HTTP, without a gate."""
        if name not in self._servers:
            self._servers[name] = self._started.enter_context(serving(name))
        return self._servers[name]

    def gated(self, name: str, *, front: str, behind: str, policy: str) -> Gated:
        """This counterpart behind `samplegate run` or `samplegate serve` (front), over ``http`` or ``stdio`` (behind),
        under one of the policies of this folder."""
        return self._run(name, behind, policy) if front == "run" else self._serve(name, behind, policy)

    def _serve(self, name: str, behind: str, policy: str) -> Gated:
        known, log = f"{policy}-{name}-{behind}", self._folder / "served.jsonl"
        if self._gate is None:
            self._gate = self._started.enter_context(listening(gate("serve", "--settings", self._settings(log))))
        if known not in self._served:
            url = urljoin(self._gate.url, f"/servers/{known}/mcp")
            self._served[known] = Gated(Server(name, (url,)), log, known, self._gate)
        return self._served[known]

    def _run(self, name: str, behind: str, policy: str) -> Gated:
        log = self._folder / f"run-{next(self._numbers)}.jsonl"
        words = ("run", "--policy", str(POLICIES / f"{policy}.yaml"), "--decision-log", str(log))
        state = ("--state", str(log.with_suffix("")))
        server = ("--url", self.server(name).words[0]) if behind == "http" else ("--", *stdio_words(name))
        told = ("--protocol", "modern") if (name, behind) == TOLD else ()
        return Gated(Server(name, gate(*words, *state, *told, *server)), log)

    def _settings(self, log: Path) -> str:
        """Each counterpart over HTTP and over stdio, once for each policy."""
        servers: dict[str, dict[str, object]] = {}
        for policy in SERVED:
            for name in NAMES:
                command, *args = stdio_words(name)
                servers[f"{policy}-{name}-http"] = {"url": self.server(name).words[0]}
                servers[f"{policy}-{name}-stdio"] = {"command": command, "args": args}
            servers["-".join((policy, *TOLD))]["protocol"] = "modern"
        settings = {
            "policy": "policy.yaml",
            "listen": "127.0.0.1:0",
            "state": str(self._folder / "state"),
            "decision_log": str(log),
            "servers": servers,
        }
        (self._folder / "policy.yaml").write_text(json.dumps(_one_policy()), "utf-8")  # JSON is YAML
        (self._folder / "samplegate.yaml").write_text(json.dumps(settings), "utf-8")
        return str(self._folder / "samplegate.yaml")
