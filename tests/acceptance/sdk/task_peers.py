"""The counterparts that know tasks (extension io.modelcontextprotocol/tasks), and the places where a client reaches a
server: directly, or through ``samplegate run`` or ``samplegate serve``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.acceptance.sdk import node, peers
from tests.acceptance.sdk.peers import PROGRAMS, Client, Gate, Server
from tests.conformance.listening import known_good, listening

MODERN: Final = "2026-07-28"
SERVER_NAMES: Final = ("fastmcp", "known-good")
CLIENT_NAMES: Final = ("fastmcp", "ext-tasks")
GATES: Final = ("run", "serve")
DIRECT: Final = "direct"
"""Without a gate: what the counterparts do by themselves."""


def server_words(name: str, kind: str) -> tuple[str, ...]:
    """The command that serves this counterpart over ``stdio`` or ``http``."""
    if name == "known-good":
        return known_good(kind)
    return (peers.environment("fastmcp"), str(PROGRAMS / "server_fastmcp.py"), *(["--http"] if kind == "http" else []))


def client(name: str) -> Client:
    if name == "ext-tasks":
        return Client(name, (str(node.node()), str(PROGRAMS / "client_ext_tasks.mjs")), MODERN)
    return Client(name, (peers.environment("fastmcp"), str(PROGRAMS / "client_fastmcp.py")), MODERN)


@contextmanager
def served(name: str, through: str, gated: Gate) -> Iterator[Server]:
    """This counterpart where a client reaches it: its words are a command or, behind ``serve``, an address."""
    if through == "serve":
        program, _, *options, _ = gated.words
        words = (program, "serve", *options, "--listen", "127.0.0.1:0", "--url")
        with listening(server_words(name, "http")) as found, listening((*words, found.url)) as gate:
            yield Server("serve", (gate.url,))
    elif through == "run":
        yield Server("run", (*gated.words, *server_words(name, "stdio")))
    else:
        yield Server(name, server_words(name, "stdio"))


@dataclass(frozen=True)
class Case:
    """A call, what its result says, and what the client is asked before."""

    server: str
    tool: str
    text: str
    asked: tuple[str, ...] = ()
    error: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> dict[str, Any]:
        return {"do": "call", "name": self.tool, "arguments": self.arguments}


ACCEPTED: Final = "accept|True|from the client"
SAMPLED: Final = "client-model|endTurn|from the client"
FORM, SAMPLING = "elicitation", "sampling"
CASES: Final = (
    Case("fastmcp", "add", "3", arguments={"a": 1, "b": 2}),  # never a task
    Case("fastmcp", "work", "worked"),
    Case("fastmcp", "fails", "the tool failed", error=True),
    Case("fastmcp", "confirm", ACCEPTED, (FORM,)),
    Case("fastmcp", "twice", f"{ACCEPTED} {ACCEPTED}", (FORM, FORM)),
    Case("known-good", "greet", "Hello, Ada!", arguments={"name": "Ada"}),
    Case("known-good", "failing_job", "the job failed", error=True),
    Case("known-good", "multi_input", "answered: ['first', 'second']", (FORM, FORM)),
    Case("known-good", "slow_compute", "computed ", arguments={"seconds": 0.2}),
)
"""Only forms, because a task's sampling request is one that fastmcp's client refuses."""
