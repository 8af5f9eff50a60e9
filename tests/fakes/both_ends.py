"""``samplegate run`` with the test at both ends: what one side writes, byte for byte, and what of it reaches the other
side."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from tests.paths import PROGRAMS, ROOT

SOCKET_BRIDGE: Final = PROGRAMS / "socket_bridge.py"
META: Final = "io.modelcontextprotocol/"
VERSION: Final = {f"{META}protocolVersion": "2026-07-28"}
FENCE: Final = "notifications/fence"


class End:
    """One side of the gate."""

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing = reading, writing

    def write(self, line: bytes) -> None:
        self._writing.write(line + b"\n")
        self._writing.flush()

    def read(self) -> bytes:
        """Read the next line. The test's own timeout bounds the wait."""
        line = self._reading.readline()
        assert line.endswith(b"\n"), "the gate has ended"
        return line[:-1]

    def until(self, mark: bytes) -> list[bytes]:
        """Read up to and including the line that contains this mark, and return the lines before it."""
        lines: list[bytes] = []
        while mark not in (line := self.read()):
            lines.append(line)
        return lines


class Gate:
    """A running gate with its client's end and its server's end."""

    def __init__(self, client: End, server: End, pid: int = 0) -> None:
        self.client, self.server, self.pid = client, server, pid
        self._fences = 0

    def says(self, side: str, line: bytes) -> tuple[list[bytes], list[bytes]]:
        """Write a line on one side. Returns what the other side received and what came back, up to a fence in each
        direction."""
        near, far = (self.client, self.server) if side == "client" else (self.server, self.client)
        near.write(line)
        return self._fence(near, far), self._fence(far, near)

    def _fence(self, near: End, far: End) -> list[bytes]:
        self._fences += 1
        mark = json.dumps({"jsonrpc": "2.0", "method": FENCE, "params": {"fence": f"f{self._fences}f"}}).encode()
        near.write(mark)
        return far.until(mark)

    def legacy(self, revision: str = "2025-11-25", **capabilities: Any) -> None:
        """Do the handshake of the legacy protocol versions."""
        hello = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
        self.client.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode())
        assert b"initialize" in self.server.read()
        said = {"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        self.server.write(json.dumps({"jsonrpc": "2.0", "id": 0, "result": said}).encode())
        assert b"serverInfo" in self.client.read()
        self.client.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert b"initialized" in self.server.read()

    def modern(self, **capabilities: Any) -> None:
        """Send the first request of 2026-07-28, for which the gate asks the server for its protocol version."""
        self.client.write(modern(0, "tools/list", capabilities))
        probe = json.loads(self.server.read())
        said = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
        self.server.write(json.dumps({"jsonrpc": "2.0", "id": probe["id"], "result": said}).encode())
        assert b"tools/list" in self.server.read()
        self.server.write(
            b'{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}}'
        )
        assert b"tools" in self.client.read()


def modern(id: Any, method: str, capabilities: Mapping[str, Any] | None = None, **params: Any) -> bytes:
    """A request of 2026-07-28."""
    meta = {**VERSION, f"{META}clientCapabilities": dict(capabilities or {})}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}).encode()


@contextmanager
def gate(folder: Path, policy: str, *options: str) -> Iterator[Gate]:
    """A gate under a policy. It ends with the block."""
    (folder / "policy.yaml").write_text(policy)
    address = folder / "far"
    command = [
        sys.executable,
        "-m",
        "samplegate",
        "run",
        "--policy",
        "policy.yaml",
        "--decision-log",
        "log.jsonl",
        *options,
    ]
    command += ["--", sys.executable, "-S", str(SOCKET_BRIDGE), str(address)]
    given = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder)}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        with (folder / "stderr").open("wb") as said:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=folder, env=given
            )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            server, _ = listening.accept()
            with server, server.makefile("rb") as reading, server.makefile("wb") as writing:
                yield Gate(End(process.stdout, process.stdin), End(reading, writing), process.pid)
        finally:
            process.kill()
            process.communicate()
