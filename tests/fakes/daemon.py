"""A real `samplegate serve` for tests, and clients of both protocol versions that write their own frames."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import aiohttp

from samplegate.server.watch import CLOCK_LAG
from tests.fakes.forked import Forked, Forks, forks
from tests.paths import PROGRAMS, ROOT

BOUND: Final = 60.0
ASKING: Final = str(PROGRAMS / "asking.py")
HURRIED: Final = str(PROGRAMS / "hurried.py")
SHORT_CLAIMS: Final = (
    "-c",
    "import sys; from samplegate.protocol import task_state; task_state.CLAIM = 1.0;"  # noqa: ISC004 # one program
    " from samplegate.cli.main import main; sys.exit(main(sys.argv[1:]))",
)
"""The program of a gate for which claims of tasks last a second."""
VERSION: Final = "2026-07-28"
ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
META: Final = "io.modelcontextprotocol/"
NAMED: Final = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
"""The member of the params that a header names, where it is not ``name``."""
FORM: Final = {
    "message": "sure?",
    "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
}
SAMPLE: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
ASK_FORM: Final = {"ask": {"method": "elicitation/create", "params": FORM}}
ASK_SAMPLE: Final = {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}


def asking(eras: str) -> list[str]:
    """The command of a server of these eras (``legacy``, ``modern``, ``legacy+modern``); with
    ``fragile``, a modern one ends at a frame that it does not know."""
    return [sys.executable, ASKING, eras]


class Child:
    """A forked process, with the part of ``asyncio.subprocess.Process`` that tests use."""

    def __init__(self, forked: Forked, stderr: asyncio.StreamReader) -> None:
        self.pid, self.stderr = forked.pid, stderr
        self.returncode: int | None = None
        self._forked, self._over = forked, asyncio.Event()
        asyncio.get_running_loop().add_reader(forked.news(), self._hear)

    @classmethod
    async def start(cls, *arguments: str, cwd: Path, env: Mapping[str, str], limit: int) -> Child:
        """Start a gate. The files that were just written must be older than it, or it would reload them."""
        await asyncio.sleep(2 * CLOCK_LAG)
        forked = await asyncio.to_thread(gates().start, *arguments, cwd=cwd, env=env)
        forked.stdin.close()
        forked.stdout.close()
        loop, stderr = asyncio.get_running_loop(), asyncio.StreamReader(limit)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr), forked.stderr)
        return cls(forked, stderr)

    def _hear(self) -> None:
        news = self._forked.news()
        self.returncode = self._forked.hear()
        if self.returncode is not None:
            asyncio.get_running_loop().remove_reader(news)
            self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def gates() -> Forks:
    """The process that gates are forked from, until this one ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(forks("tests.fakes.programs.gates"))


class Gate:
    """A running daemon."""

    def __init__(self, process: asyncio.subprocess.Process | Child) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = self.admin = self.reviews = ""
        self.ending = False
        """Whether it was told to end already."""
        self._news = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            line = raw.decode().rstrip()
            self.lines.append(line)
            found = re.search(r"(listening|admin|reviews) on (http://[^/\"\s]+)", line)
            if found is not None:
                setattr(self, {"listening": "url"}.get(found[1], found[1]), found[2])
            self._news.set()
        self._news.set()

    async def said(self, text: str, after: int = 0) -> str:
        """Wait for a line with this text on stderr, and return the first."""
        async with asyncio.timeout(BOUND):
            while True:
                for line in self.lines[after:]:
                    if text in line:
                        return line
                assert not self._reading.done(), self.lines
                self._news.clear()
                await self._news.wait()

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Stop the daemon and return its exit code. A process that does not end in time is killed, even if a test has
        stopped it."""
        if self.process.returncode is None and not self.ending:
            self.process.send_signal(number)
        self.ending = True
        try:
            async with asyncio.timeout(BOUND):
                code = await self.process.wait()
                await self._reading
        except BaseException:  # too late, or the test is over
            if self.process.returncode is None:
                self.process.kill()
                self.process.send_signal(signal.SIGCONT)
            raise
        return code


@asynccontextmanager
async def serving(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    admin: bool = True,
    program: Sequence[str] = ("-m", "samplegate"),
    forked: bool = False,
) -> AsyncIterator[Gate]:
    """A daemon on free ports, with its state in ``folder``, that ends with the block. ``program`` is the command line
    before ``serve``. If it is ``forked``, its modules are imported already, which takes most of the CPU time of a
    start; otherwise it starts as users start it."""
    listen = ["--listen", "127.0.0.1:0", "--state", str(folder / "state")] + (
        ["--admin-listen", "127.0.0.1:0"] if admin else []
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "proxy"), "SAMPLEGATE_DRAIN_DELAY": "0", **(env or {})}
    words = (*program, "serve", *listen, *arguments)
    process = (
        await Child.start(*words, cwd=folder, env=environment, limit=2**24)
        if forked
        else await asyncio.create_subprocess_exec(
            sys.executable, *words,
            stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL, cwd=folder, env=environment, limit=2**24,
        )
    )  # fmt: skip
    gate = Gate(process)
    try:
        await gate.said("admin on" if admin else "listening on")
        yield gate
    finally:
        await gate.end()


class Client:
    """An HTTP client of either protocol version at one path."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        capabilities: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> None:
        self.http = http
        self.url = url
        self.capabilities = dict(capabilities or {})
        self.headers = {**ACCEPT, **({} if token is None else {"authorization": f"Bearer {token}"})}
        self.session: dict[str, str] = {}
        self.heard: list[dict[str, Any]] = []
        """What came before the answers: notifications, and the server's requests."""

    async def post(self, frame: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Send a frame. Returns the status and the answer to the frame's id. ``reply`` answers requests of the
        server."""
        async with self.http.post(self.url, data=json.dumps(frame), headers={**self.headers, **headers}) as response:
            if response.content_type != "text/event-stream":
                text = await response.text()
                if "mcp-session-id" in response.headers:
                    self.session = {"mcp-session-id": response.headers["mcp-session-id"]}
                return response.status, json.loads(text) if text else {}
            async for raw in response.content:
                if raw.startswith(b"data:") and raw[5:].strip():
                    said = json.loads(raw[5:])
                    if said.get("id") == frame.get("id") and "method" not in said:
                        return response.status, said
                    self.heard.append(said)
                    if "method" in said and "id" in said:
                        await self.reply(said)
        return response.status, {}

    async def reply(self, asked: Mapping[str, Any]) -> None:
        """Answer a request of the server, as a person would."""
        result = (
            {"action": "accept", "content": {"confirm": True}} if asked["method"] == "elicitation/create" else HUMAN
        )
        async with self.http.post(
            self.url,
            data=json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}),
            headers={**self.headers, **self.session},
        ) as response:
            assert response.status == 202

    async def begin(self, revision: str = "2025-11-25") -> dict[str, Any]:
        """Do the legacy handshake and return the answer to it."""
        hello = {
            "protocolVersion": revision,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "c", "version": "1"},
        }
        _, answer = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}, {})
        if "result" in answer:
            self.session["mcp-protocol-version"] = answer["result"]["protocolVersion"]
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.session)
        return answer

    async def legacy(self, method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
        """Make one request in the session."""
        return (await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, self.session))[1]

    async def modern(
        self, method: str, id: Any = 1, meta: Mapping[str, Any] | None = None, **params: Any
    ) -> dict[str, Any]:
        """Make one stateless request."""
        own = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": self.capabilities, **(meta or {})}
        headers = {
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            **({"mcp-name": params[named]} if (named := NAMED.get(method, "name")) in params else {}),
        }
        return (
            await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": own}}, headers)
        )[1]

    async def call(self, era: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
        """Call the tool in a protocol version."""
        return await (self.legacy if era == "legacy" else self.modern)("tools/call", id, name="do", arguments=arguments)


HUMAN: Final = {"role": "assistant", "content": {"type": "text", "text": "a person"}, "model": "person"}


@asynccontextmanager
async def client(gate: Gate, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
    """A client of a gate."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=BOUND)) as http:
        yield Client(http, gate.url + path, **options)


async def admin(gate: Gate, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Send a request to the operators' listener and return the status and the body."""
    async with aiohttp.ClientSession() as http, http.request(method, gate.admin + path, headers=headers) as response:
        return response.status, await response.text()
