"""`samplegate run` around the bare server, and the client that writes to its pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.paths import PROGRAMS, PROXY

SERVER = PROGRAMS / "bare_server.py"


POLICY = """
version: 1
models:
  - {name: trial, model: scripted, cases: cases.yaml}
rules:
  - name: models
    match: {kind: sampling, text: hello}
    effect: allow
    with: {models: [trial]}
  - name: forms
    match: {kind: elicitation, mode: form, fields: [confirm]}
    effect: answer
    content: {confirm: "${CONFIRM}"}
"""


SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}


FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
}


class Client:
    """A client on the pipes of one running gate."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        frame: dict[str, Any] = json.loads(self.process.stdout.readline())
        return frame

    def initialize(self, **capabilities: Any) -> dict[str, Any]:
        self.write(id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": capabilities})
        seen: dict[str, Any] = self.read()["result"]["seen"]
        return seen

    def call(self, id: Any = 1, **arguments: Any) -> dict[str, Any]:
        self.write(id=id, method="tools/call", params={"name": "t", "arguments": arguments})
        frame = self.read()
        assert id == frame["id"]
        result: dict[str, Any] = frame["result"]
        return result

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make the server send this request, and return the answer that it gets."""
        answer: dict[str, Any] = self.call(ask={"method": method, "params": params})["structuredContent"]
        return answer

    def end(self) -> tuple[int, str]:
        """Close the client's end. Returns the exit code and stderr."""
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said.decode()


class RunCommand:
    """Starts `samplegate run` around the bare server, in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "cases.yaml").write_text("cases:\n  - {text: hello, answer: hi there}\n")
        self.log = folder / "log.jsonl"
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self, *options: str, command: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> Client:
        given = {
            "PYTHONPATH": str(PROXY),
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "CONFIRM": "true",
            **(environment or {}),
        }
        ours = [sys.executable, "-m", "samplegate", "run", "--policy", "policy.yaml", *options]
        if "--decision-log" not in options:
            ours += ["--decision-log", str(self.log)]
        pipe = subprocess.PIPE
        wrapped = [*ours, "--", *(command or (sys.executable, str(SERVER)))]
        process = subprocess.Popen(wrapped, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.folder, env=given)
        self.started.append(process)
        return Client(process)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunCommand]:
    """A gate that the test starts. Processes that still run at the end are killed."""
    wrapped = RunCommand(tmp_path)
    yield wrapped
    for process in wrapped.started:
        process.kill()
        process.communicate()
