"""Processes of an installed samplegate under a shifted clock, for the writer of the files and for their tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from tests.fakes.forked import Forked, Forks
from tests.paths import PROGRAMS

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SERVER: Final = PROGRAMS / "asking.py"
BOUND: Final = 50.0


def moment(text: str) -> float:
    """A time such as ``2026-11-21T09:00:00Z`` in Unix seconds."""
    return datetime.fromisoformat(text).timestamp()


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


class Samplegate:
    """The samplegate of an interpreter, run in a folder. ``shift`` is the difference of its clock from ours. ``forks``,
    if given, forks its processes in place of starting them."""

    def __init__(
        self,
        folder: Path,
        *,
        python: str = sys.executable,
        path: Path | None = ROOT / "proxy",
        forks: Forks | None = None,
    ) -> None:
        self.folder = folder
        self.shift = 0.0
        self.policy = "policy.yaml"
        self.more: dict[str, str] = {}
        """Variables of the processes that are started from now on."""
        self._python, self._forks = python, forks
        self._path = {} if path is None else {"PYTHONPATH": str(path)}

    def at(self, text: str) -> None:
        """Set the clock of processes that are started from now on."""
        self.shift = moment(text) - time.time()

    def environment(self) -> dict[str, str]:
        """The environment of a process."""
        return {
            "PATH": os.environ["PATH"],
            "SHIFT": str(self.shift),
            "HOOK_URL": "http://127.0.0.1:9/",
            **self._path,
            **self.more,
        }

    def words(self, *arguments: str) -> list[str]:
        """The command line."""
        return [self._python, str(HERE / "programs" / "clocked.py"), *arguments]

    def commands(self, *commands: Sequence[str]) -> list[Ended]:
        """Run commands that end by themselves, one after another in one process."""
        with self._process("each") as process:
            out, err = process.communicate(json.dumps(commands).encode(), timeout=BOUND)
        assert 0 == process.returncode, err
        return [Ended(*one) for one in json.loads(out)]

    def _process(self, *arguments: str) -> subprocess.Popen[bytes] | Forked:
        if self._forks is not None:
            return self._forks.start(*arguments, cwd=self.folder, env=self.environment())
        pipe, words = subprocess.PIPE, self.words(*arguments)
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.folder, env=self.environment())

    def command(self, *arguments: str) -> Ended:
        """Run one command."""
        return self.commands(arguments)[0]

    def told(self, *commands: Sequence[str]) -> list[Any]:
        """The JSON output of each of these commands."""
        ended = self.commands(*commands)
        assert all(one.code == 0 for one in ended), ended
        return [json.loads(one.out) for one in ended]

    def listed(self, state: str = "state") -> list[dict[str, Any]]:
        """All reviews, newest first, without members that depend on the time."""
        found: list[dict[str, Any]] = self.told(
            ["reviews", "list", "--state", state, "--all", "--limit", "100", "--json"]
        )[0]
        return [lasting(review) for review in found]

    def verdicts(self, *said: Sequence[str], state: str = "state") -> list[Ended]:
        """The results of these `samplegate reviews` commands."""
        return self.commands(*(["reviews", *words, "--state", state, "--as", "ann"] for words in said))

    @contextmanager
    def run(self, *options: str, server: str = "desk", state: str = "state") -> Iterator[Conversation]:
        """`samplegate run` around a server that asks, and a legacy client's conversation with it. It is killed if it
        still runs at the end."""
        given = ["--settings", "settings.yaml", "--server", server, "--state", state, *options]
        given += [] if "--policy" in options else ["--policy", self.policy]
        with self._process("run", *given, "--", sys.executable, "-S", str(SERVER), "legacy") as process:
            alarm = threading.Timer(BOUND, process.kill)
            alarm.start()
            try:
                conversation = Conversation(process)
                conversation.begin()
                yield conversation
            finally:
                alarm.cancel()
                process.kill()


class Conversation:
    """A legacy client that answers every form with ``confirm: true``."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked) -> None:
        self.process = process
        self._id = 0

    def write(self, **frame: Any) -> None:
        """Write a frame of the client."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """Read the next answer to the client."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            frame: dict[str, Any] = json.loads(line)
            if "method" not in frame:
                return frame
            if "id" in frame:
                self.write(id=frame["id"], result={"action": "accept", "content": {"confirm": True}})
        raise AssertionError(f"it has ended: {self.end()}")

    def begin(self) -> None:
        """Do the handshake."""
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"},
        }
        self.write(id=0, method="initialize", params=hello)
        if "result" in self.read():
            self.write(method="notifications/initialized")

    def begin_to_ask(self, asked: Mapping[str, Any]) -> None:
        """Call the tool during which the server makes this request."""
        self._id += 1
        self.write(id=self._id, method="tools/call", params={"name": "do", "arguments": {"ask": asked}})

    def answer(self) -> dict[str, Any]:
        """The server's answer: ``result`` or ``error``."""
        answer: dict[str, Any] = self.read()["result"]["structuredContent"]
        return answer

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Call the tool, and return the server's answer."""
        self.begin_to_ask(asked)
        return self.answer()

    def cancel(self) -> None:
        """Cancel the client's call."""
        self.write(method="notifications/cancelled", params={"requestId": self._id})

    def end(self) -> tuple[int, str]:
        """End the input. Returns the exit code and stderr."""
        _, said = self.process.communicate(timeout=BOUND)
        return self.process.wait(), said.decode()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


async def modern_call(gate: Samplegate, params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a tools/call of a client of 2026-07-28 at a `samplegate serve` with the folder's key for request
    states."""
    words = [
        "serve",
        "--policy",
        gate.policy,
        "--server",
        "desk",
        "--state",
        "daemon",
        "--decision-log",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]
    gate.more = {"SAMPLEGATE_SEAL_KEY_FILE": "seal.key"}
    process = await asyncio.create_subprocess_exec(
        *gate.words(*words, "--", sys.executable, str(SERVER), "modern"),
        env=gate.environment(), cwd=gate.folder, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    gate.more = {}
    assert process.stderr is not None
    try:
        async with asyncio.timeout(BOUND), aiohttp.ClientSession() as http:
            found = None
            while found is None:
                line = (await process.stderr.readline()).decode()
                assert line, "it has ended"
                found = re.search(r"listening on (http://[^/\"\s]+/mcp)", line)
            return await _posted(http, found[1], params)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _posted(http: aiohttp.ClientSession, url: str, params: Mapping[str, Any]) -> dict[str, Any]:
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    meta = {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {"elicitation": {"form": {}}}}
    headers = {
        "accept": "application/json, text/event-stream", "content-type": "application/json",
        "mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": "do",
    }  # fmt: skip
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    async with http.post(url, data=json.dumps(frame), headers=headers) as response:
        text = await response.text()
    line = next(
        (line[5:] for line in reversed(text.splitlines()) if line.startswith("data:") and line[5:].strip()), text
    )
    answer: dict[str, Any] = json.loads(line)
    return answer


def lasting(review: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a review that do not depend on the time."""
    return {name: value for name, value in review.items() if name != "seconds_left"}


def room(gate: Samplegate, state: str, server: str = "desk") -> dict[str, int]:
    """How many more requests each limit of the policy admits, found by asking until one is refused."""
    found = {}
    with gate.run("--decision-log", "none", server=server, state=state) as client:
        for text in (
            "counted by the month",
            "drawn from the bucket",
            "counted by words",
            "read too much",
            "for a slot",
            "paid for",
        ):
            most = 1 if text == "for a slot" else 20
            found[text] = next(
                (number for number in range(most) if "result" not in client.ask(sample(f"{text}, still"))), most
            )
        client.end()
    return found


def outcome(answer: Mapping[str, Any]) -> Any:
    """The server's answer, without the ID of the decision."""
    if "error" in answer:
        return re.sub(r" ?\[decision \w+\]", "", str(answer["error"]["message"]))
    return {name: value for name, value in answer["result"].items() if name != "_meta"}


def rows(path: Path, table: str) -> list[list[Any]]:
    """All rows of a table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return sorted([list(row) for row in db.execute(f"SELECT * FROM {table}")], key=repr)


def sample(text: str) -> dict[str, Any]:
    """A sampling request."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


def form(message: str) -> dict[str, Any]:
    """A form elicitation."""
    properties = {"confirm": {"type": "boolean"}, "reason": {"type": "string"}, "password": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["confirm"]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def link(message: str) -> dict[str, Any]:
    """A URL elicitation."""
    params = {"mode": "url", "message": message, "url": "https://id.example.com/consent", "elicitationId": "e-1"}
    return {"method": "elicitation/create", "params": params}


def text_of(answer: Mapping[str, Any]) -> str:
    """The answer of a model or a reviewer, or the error's text."""
    return str(answer["result"]["content"]["text"] if "result" in answer else answer["error"]["message"])


ASKED: Final = {
    "expired": form("soon over"),
    "pending sampling": sample("a person decides, and has not yet"),
    "pending form": form("a person fills in, and has not yet"),
    "pending link": link("sign in, please"),
    "pending answer": sample("the answer is read, and not yet"),
    "approved": sample("a person decides: yes"),
    "approved with edits": sample("a person decides: yes, but"),
    "answered form": form("a person fills in this one"),
    "answered sampling": sample("a person decides and answers"),
    "rejected": sample("a person decides: no"),
    "accepted link": link("sign in, and do"),
    "released answer": sample("the answer is read, and good"),
    "used": form("a person fills in this one, with a secret"),
    "used while it waited": sample("a person decides, while it waits"),
    "withdrawn": form("a person fills in what is taken back"),
}
"""What the server asked, by what became of the review."""
DECIDED: Final = (
    "approved",
    "approved with edits",
    "answered form",
    "answered sampling",
    "rejected",
    "accepted link",
    "released answer",
)
"""Those with a verdict that was not used yet."""


class Hook:
    """A reviewer's webhook on this machine, which answers with ``status``. None: it does not answer until it is
    closed."""

    def __init__(self) -> None:
        self.status: int | None = 202
        self.came: list[dict[str, str]] = []
        """The headers of each message, by name in small letters."""
        self._news = threading.Condition()
        self._over = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                with hook._news:
                    hook.came.append({name.lower(): value for name, value in self.headers.items()})
                    hook._news.notify_all()
                if hook.status is None:
                    hook._over.wait(BOUND)
                self.send_response(hook.status or 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the webhook."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def messages(self, number: int) -> None:
        """Wait for this many messages."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.came) >= number, BOUND), self.came

    def close(self) -> None:
        """Stop listening."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def until(found: Any, what: str, *, step: float = 0.02) -> Any:
    """Call ``found`` until it returns something, and return that."""
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        if (one := found()) is not None:
            return one
        time.sleep(step)
    raise AssertionError(f"in vain: {what}")
