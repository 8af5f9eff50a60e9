"""`samplegate run` as a process: frames in, frames out, the exit code and stderr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.paths import PROGRAMS, ROOT

SLOW: Final = (sys.executable, "-S", str(PROGRAMS / "slow.py"))
BOUND: Final = 50.0
META: Final = "io.modelcontextprotocol/"
POLICY: Final = """
version: 1
models: [{name: trial, model: scripted, cases: cases.yaml}]
servers: {patient: {extends_on_progress: true}}
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [trial]}}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request of a legacy client."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def opening(era: str = "legacy", **capabilities: Any) -> list[dict[str, Any]]:
    """The first frames of a client."""
    if era == "modern":
        return [modern(request(0, "server/discover"), **capabilities)]
    hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
    return [request(0, "initialize", **hello), {"jsonrpc": "2.0", "method": "notifications/initialized"}]


def modern(frame: Mapping[str, Any], **capabilities: Any) -> dict[str, Any]:
    """The same request from a client of 2026-07-28."""
    meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": capabilities}
    return {**frame, "params": {**frame["params"], "_meta": {**meta, **frame["params"].get("_meta", {})}}}


def call(id: Any, name: str = "work", *, era: str = "legacy", token: Any = None, **arguments: Any) -> dict[str, Any]:
    """A tools/call."""
    frame = request(
        id,
        "tools/call",
        name=name,
        arguments=arguments,
        **({} if token is None else {"_meta": {"progressToken": token}}),
    )
    return modern(frame) if era == "modern" else frame


def lines(*frames: Mapping[str, Any]) -> bytes:
    """Frames as they are piped in."""
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


class Running:
    """A running gate."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, *frames: Mapping[str, Any]) -> None:
        """Write frames as the client."""
        assert self.process.stdin is not None
        self.process.stdin.write(lines(*frames))
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """Read the next frame for the client."""
        assert self.process.stdout is not None
        frame: dict[str, Any] = json.loads(self.process.stdout.readline())
        return frame

    def end(self) -> tuple[int, dict[Any, dict[str, Any]], str]:
        """End the input. Returns the exit code, the remaining answers by id, and stderr."""
        out, said = self.process.communicate(timeout=BOUND)
        frames = [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, {frame["id"]: frame for frame in frames if "method" not in frame}, said.decode()


@contextmanager
def running(
    folder: Path, *options: str, command: Sequence[str] = SLOW, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """`samplegate run` with these options around a server. It is killed if the test leaves it running."""
    if not (folder / "policy.yaml").exists():
        (folder / "policy.yaml").write_text(POLICY)
    if not (folder / "cases.yaml").exists():
        (folder / "cases.yaml").write_text("cases: [{answer: hi}]\n")
    given = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder), **(environment or {})}
    words = [
        sys.executable,
        "-m",
        "samplegate",
        "run",
        "--policy",
        "policy.yaml",
        *options,
        *(["--", *command] if command else []),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=given) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


@dataclass
class Daemon:
    """A `samplegate serve`: its folder, and the URLs of its clients' and its operators' listeners."""

    folder: Path
    url: str
    admin: str


@contextmanager
def serving(folder: Path, **servers: Mapping[str, Any]) -> Iterator[Daemon]:
    """`samplegate serve` in front of stdio servers, named as in its paths. It forwards all their requests."""
    (folder / "policy.yaml").write_text("version: 1\nrules: [{name: all, effect: forward}]\n")
    (folder / "serve.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": servers}))
    given = {
        "PYTHONPATH": str(ROOT / "proxy"),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SAMPLEGATE_DRAIN_DELAY": "0",
    }
    words = [sys.executable, "-m", "samplegate", "serve", "--settings", "serve.yaml"]
    words += ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, cwd=folder, env=given, text=True) as process:
        try:
            assert process.stderr is not None
            found: dict[str, str] = {}
            for line in process.stderr:
                found |= re.findall(r"(listening|admin) on (http://[^/\"\s]+)", line)
                if len(found) == 2:
                    break
            yield Daemon(folder, found["listening"], found["admin"])
        finally:
            process.terminate()
            process.communicate(timeout=BOUND)
