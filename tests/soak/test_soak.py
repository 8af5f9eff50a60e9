"""Minutes of real clients at one gate: every call is answered, notifications arrive in order, and the gate's memory
does not grow. `make soak` runs it.

Clients on four SDKs have a session each, over HTTP, and keep several calls of six kinds in flight; behind the gate are
servers over stdio and HTTP. `SOAK_SECONDS` is how long they call. `LONG=1` adds the long runs.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urljoin

import pytest

from tests.acceptance.sdk import http_peers, peers
from tests.acceptance.sdk.peers import Server
from tests.conformance.listening import Listening, gate, listening

SECONDS: Final = float(os.environ.get("SOAK_SECONDS", "120"))
AT_ONCE: Final = 6
"""Calls that each client keeps in flight."""
PATIENCE: Final = 30.0
"""Seconds for one call: it takes milliseconds."""
PAIRS: Final = [
    ("python1", "sdk1-stdio"),
    ("python1", "sdk2-http-legacy"),
    ("typescript1", "sdk2-stdio-legacy"),
    ("typescript1", "sdk1-http"),
    ("python2-auto", "sdk2-stdio"),
    ("python2-auto", "sdk2-http"),
    ("typescript2-auto", "sdk2-stdio"),
    ("typescript2-auto", "sdk2-http"),
]
"""Clients and servers. The first client of a server decides which protocol version the gate speaks to it, hence two
names of one program."""
POLICY: Final = """\
version: 1
models: [{name: script, model: scripted, cases: answers.yaml}]
rules:
  - {name: a model answers, match: {kind: sampling}, effect: allow, with: {models: [script]}}
  - {name: the client confirms, match: {kind: elicitation}, effect: forward}
"""
ANSWERS: Final = 'cases: [{text: "classify: (?P<mark>[a-z0-9-]+)", answer: "seen {mark}."}]\n'
GROWTH: Final = 8.0
"""MiB by which the median of the last quarter may exceed that of the quarter before."""
DESCRIPTORS: Final = 8
"""Descriptors that the last quarter may have more than the one before: connections come and go."""

pytestmark = [pytest.mark.soak, pytest.mark.real]


@dataclass
class Watch:
    """The resident memory in MiB and the open descriptors of the gate's process, once a second."""

    pid: int
    memory: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Record both now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        self.memory.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self.descriptors.append(len(list(Path(f"/proc/{self.pid}/fd").iterdir())))


@contextmanager
def watched(pid: int) -> Iterator[Watch]:
    watch, done = Watch(pid), threading.Event()

    def run() -> None:
        while not done.wait(1.0):
            watch.look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join(10)


@contextmanager
def serving(folder: Path) -> Iterator[Listening]:
    """The gate in front of both servers, each over stdio and over HTTP."""
    (folder / "policy.yaml").write_text(POLICY, "utf-8")
    (folder / "answers.yaml").write_text(ANSWERS, "utf-8")
    with ExitStack() as stack:
        servers: dict[str, Any] = {}
        for sdk in ("sdk1", "sdk2"):
            command, *args = http_peers.stdio_words(sdk)
            url = stack.enter_context(http_peers.serving(sdk)).words[0]
            for more in ("", "-legacy"):
                servers[f"{sdk}-stdio{more}"] = {"command": command, "args": args}
                servers[f"{sdk}-http{more}"] = {"url": url}
        settings = {
            "policy": "policy.yaml",
            "listen": "127.0.0.1:0",
            "decision_log": str(folder / "decisions.jsonl"),
            "servers": servers,
        }
        (folder / "settings.yaml").write_text(json.dumps(settings), "utf-8")
        yield stack.enter_context(
            listening(gate("serve", "--settings", str(folder / "settings.yaml"), "--state", str(folder / "state")))
        )


def place(at: Listening, server: str) -> Server:
    """One of the gate's servers, as clients address it."""
    return Server(server, (urljoin(at.url, f"/servers/{server}/mcp"),))


def called(client: str, server: str, at: Listening, number: int) -> Any:
    """The report of one client."""
    # A log line from a stdio server names no call. With several in flight it leaves on the stream of one of them, and
    # streams of HTTP are connections of their own: between them there is no order.
    in_order = "http" in server
    tells = not client.startswith("typescript2")  # which asks for no log lines
    waits = {"seconds": SECONDS, "at_once": AT_ONCE, "patience": PATIENCE}
    step = {"do": "storm", "mark": f"c{number}", **waits, "in_order": in_order, "tells": tells}
    with peers.started(
        peers.clients()[client], place(at, server), None, steps=[step], declare=["sampling", "elicitation"]
    ) as process:
        out, said = process.communicate(timeout=SECONDS + PATIENCE + 60)
    assert 0 == process.returncode, (
        f"{client} at {server} ended with {process.returncode}:\n{said[-3000:]}\nthe gate said:\n{at.said()}"
    )
    seen = json.loads(out.splitlines()[-1])
    return {**seen["results"][0], "revision": seen["revision"]}


def stormed(at: Listening) -> tuple[dict[str, Any], Watch]:
    """The report of each client, all of them at once, and the gate's memory and descriptors meanwhile."""
    with watched(at.process.pid) as watch, ThreadPoolExecutor(len(PAIRS)) as pool:
        running = {
            f"{client} at {server}": pool.submit(called, client, server, at, n)
            for n, (client, server) in enumerate(PAIRS)
        }
        return {name: future.result() for name, future in running.items()}, watch


@pytest.mark.timeout(SECONDS + 300)
def test_every_call_is_answered_in_order_and_the_gate_does_not_grow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as at:
        # one after the other: a server that starts too slowly is taken for a legacy one
        for server in ("sdk2-stdio", "sdk2-http"):
            assert (
                "2026-07-28"
                == peers.drive(
                    peers.clients()["python2-auto"], place(at, server), None, [peers.call("add", a=1, b=2)]
                ).revision
            )
        found, watch = stormed(at)
    quarter = len(watch.memory) // 4
    third, last = watch.memory[-2 * quarter : -quarter], watch.memory[-quarter:]
    opened = max(watch.descriptors[-2 * quarter : -quarter]), max(watch.descriptors[-quarter:])
    calls = sum(one["calls"] for one in found.values())
    with capsys.disabled():
        print(
            f"\nsoak: {calls} calls in {SECONDS:g} s; {median(third):.1f} -> {median(last):.1f} MiB, {opened[0]} ->"
            f" {opened[1]} descriptors"
        )
    assert {name: [] for name in found} == {name: one["wrong"] for name, one in found.items()}
    assert {name: "auto" in name for name in found} == {
        name: one["revision"] == "2026-07-28" for name, one in found.items()
    }
    assert all(one["calls"] >= AT_ONCE for one in found.values()), found
    assert all(one["told"] > 0 for name, one in found.items() if not name.startswith("typescript2")), (
        "no log line came, so their order shows nothing"
    )
    assert median(last) - median(third) < GROWTH
    assert opened[1] <= opened[0] + DESCRIPTORS
