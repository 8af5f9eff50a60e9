"""The real programs on both sides of the gate: how each is started, a client's scenario, and its report.

Nothing of the gate is imported here: it is one more program. A scenario is JSON: ``declare`` (of sampling, elicitation,
url, roots), ``mode`` (for the clients of both eras), ``steps``, ``refuse`` (the client's side says no) and ``content``
(what it puts into forms). Steps: ``tools``, ``ping``, ``call`` (name, arguments), ``cancel`` (the same; taken back at
the first progress, or ``when: told`` by a line on stdin), ``resource`` (uri), ``prompt`` (name, arguments), ``hang``.
Clients that know tasks have ``task`` (a call that becomes one: it writes a line when it has) and ``cancel_task``.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol

from tests.acceptance.sdk import node

HERE: Final = Path(__file__).resolve().parent
PROGRAMS: Final = HERE / "programs"
POLICIES: Final = HERE / "policies"
WAIT: Final = 50.0  # seconds for one client from start to end; the whole takes about two
END: Final = "-- end of the session --"  # a client that has several sessions writes it to stderr after each

EVERYTHING: Final = HERE / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"


def environment(name: str) -> str:
    """The Python interpreter of an environment."""
    return str(HERE / ".envs" / name / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def sdk(number: int) -> str:
    """The Python interpreter of one of the SDK environments."""
    return environment(f"sdk{number}")


@dataclass(frozen=True)
class Server:
    """A server's name and command."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Client:
    """A client's name, its command, and the protocol version that it opens."""

    name: str
    words: tuple[str, ...]
    mode: str

    @property
    def modern(self) -> bool:
        return self.mode != "legacy"


def servers() -> dict[str, Server]:
    found = [
        Server("sdk1", (sdk(1), str(PROGRAMS / "server_sdk1.py"))),
        Server("sdk2", (sdk(2), str(PROGRAMS / "server_sdk2.py"))),
        Server("everything", (str(node.node()), str(EVERYTHING), "stdio")),
    ]
    return {server.name: server for server in found}


def clients() -> dict[str, Client]:
    python1 = (sdk(1), str(PROGRAMS / "client_sdk1.py"))
    python2 = (sdk(2), str(PROGRAMS / "client_sdk2.py"))
    typescript1 = (str(node.node()), str(PROGRAMS / "client_ts1.mjs"))
    typescript2 = (str(node.node()), str(PROGRAMS / "client_ts2.mjs"))
    found = [
        Client("python1", python1, "legacy"),
        Client("python2-legacy", python2, "legacy"),
        Client("python2-auto", python2, "auto"),
        Client("python2-pinned", python2, "2026-07-28"),
        Client("typescript1", typescript1, "legacy"),
        Client("typescript2-legacy", typescript2, "legacy"),
        Client("typescript2-auto", typescript2, "auto"),
        Client("typescript2-pinned", typescript2, "2026-07-28"),
    ]
    return {client.name: client for client in found}


@dataclass
class Gate:
    """The command line of a gate, up to the server's own command."""

    policy: Path
    decisions: Path | None = None
    more: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        program = Path(sys.executable).with_name("samplegate.exe" if sys.platform == "win32" else "samplegate")
        log = str(self.decisions) if self.decisions else "none"
        state = ("--state", str(self.decisions.parent / "state")) if self.decisions else ()
        return (str(program), "run", "--policy", str(self.policy), "--decision-log", log, *state, *self.more, "--")

    def records(self) -> list[dict[str, Any]]:
        """The records of the decision log, in order."""
        assert self.decisions is not None
        return (
            [json.loads(line) for line in self.decisions.read_text("utf-8").splitlines()]
            if self.decisions.exists()
            else []
        )


@dataclass
class Seen:
    """A client's report. ``said`` is the stderr of the client, the gate and the server."""

    revision: str | None
    results: list[Any]
    asked: list[dict[str, Any]]
    progress: list[list[Any]]
    logs: list[Any]
    notifications: list[str]
    said: str = field(default="", compare=False)

    def kinds(self) -> list[str]:
        return sorted(one["kind"] for one in self.asked)

    def steps(self) -> list[list[Any]]:
        """Progress without the gate's own fractional values, which keep long calls alive."""
        return [one for one in self.progress if one[0] >= 1]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"do": "call", "name": name, "arguments": arguments}


@contextmanager
def started(client: Client, server: Server, gate: Gate | None, **scenario: Any) -> Iterator[subprocess.Popen[str]]:
    """A running client. It and its descendants are killed at the end."""
    words = [*client.words, json.dumps({"mode": client.mode, **scenario}), *(gate.words if gate else ()), *server.words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, text=True, encoding="utf-8", start_new_session=True, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def ended(process: subprocess.Popen[str], told: str | None = None) -> Seen:
    """The client's report after its end. Fails with the whole stderr if it failed or did not end in time."""
    try:
        out, said = process.communicate(told, timeout=WAIT)
    except subprocess.TimeoutExpired as late:
        so_far = (late.stderr or b"").decode("utf-8", "replace")  # bytes, whatever the pipe was opened as
        raise AssertionError(f"the client did not end within {WAIT:g} s; on stderr:\n{so_far[-4000:]}") from None
    lines = out.splitlines()
    assert (process.returncode, bool(lines)) == (0, True), (
        f"the client ended with {process.returncode}; on stderr:\n{said[-4000:]}"
    )
    return _seen(json.loads(lines[-1]), said)


def _seen(found: dict[str, Any], said: str) -> Seen:
    return Seen(
        found["revision"],
        found["results"],
        found["asked"],
        found["progress"],
        found["logs"],
        sorted(found["notifications"]),
        said,
    )


def drive(client: Client, server: Server, gate: Gate | None, steps: Sequence[dict[str, Any]], **scenario: Any) -> Seen:
    """Run one scenario to its end with its own client."""
    with started(client, server, gate, steps=list(steps), **scenario) as process:
        return ended(process)


class Drive(Protocol):
    """Runs one scenario to its end and returns the client's report."""

    def __call__(
        self, client: Client, server: Server, gate: Gate | None, steps: Sequence[dict[str, Any]], **scenario: Any
    ) -> Seen: ...


class Lines(queue.Queue[str]):
    """The lines of a stream as they arrive, then an empty one."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__()
        assert stream is not None
        self.ended = threading.Event()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.put(line)
        self.put("")
        self.ended.set()


class Program:
    """A client process that has one session after another."""

    def __init__(self, words: tuple[str, ...]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
            words, text=True, encoding="utf-8", errors="replace", start_new_session=True, **pipes
        )
        self._out, self._said = Lines(self._process.stdout), Lines(self._process.stderr)

    def session(self, scenario: dict[str, Any], at: Sequence[str]) -> Seen:
        """The client's report. Fails with the whole stderr if the session failed or did not end in time."""
        self.begin(scenario, at)
        return self.report()

    def begin(self, scenario: dict[str, Any], at: Sequence[str]) -> None:
        """Begin a session whose lines are read one by one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([scenario, list(at)]) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line of the session: what a step writes, or the report. An empty one if the process has ended."""
        try:
            return self._out.get(timeout=WAIT)
        except queue.Empty:
            raise self._hangs() from None

    def report(self) -> Seen:
        """The client's report, which is the last line of the session."""
        line = self.line()
        try:
            # the marker precedes the line, and follows all output of the session's other programs
            said = "".join(iter(lambda: self._said.get(timeout=WAIT), END + "\n" if line else ""))
        except queue.Empty:
            raise self._hangs() from None
        found = json.loads(line) if line else {"broken": "its process ended"}
        assert "broken" not in found, f"the session broke:\n{found['broken']}\non stderr:\n{said[-4000:]}"
        return _seen(found, said)

    def _hangs(self) -> AssertionError:
        self.kill()
        said = "".join(iter(self._said.get, ""))
        return AssertionError(f"nothing came from the session within {WAIT:g} s; on stderr:\n{said[-4000:]}")

    def lives(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        for reader in (self._out, self._said):
            reader.ended.wait(10)


class Programs:
    """The client processes. Each is started at its first use, and kept."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, ...], Program] = {}

    def drive(
        self, client: Client, server: Server, gate: Gate | None, steps: Sequence[dict[str, Any]], **scenario: Any
    ) -> Seen:
        """Run one scenario to its end in its own session."""
        program = self._programs.get(client.words)
        if program is None or not program.lives():
            program = self._programs[client.words] = Program(client.words)
        at = (*(gate.words if gate else ()), *server.words)
        return program.session({"mode": client.mode, "steps": list(steps), **scenario}, at)

    def end(self) -> None:
        for program in self._programs.values():
            program.kill()
