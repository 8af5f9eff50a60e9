"""Frames of both protocol versions, and runs of `samplegate run` with them in front of `programs/pushing.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.paths import PROGRAMS, PROXY

SERVER: Final = str(PROGRAMS / "pushing.py")
META: Final = "io.modelcontextprotocol/"
ANSWERS: Final = (
    "version: 1\nrules:\n  - {name: canned, match: {kind: sampling}, effect: answer, content: from the policy}\n"
)
FORWARDS: Final = "version: 1\nrules:\n  - {name: client, match: {kind: sampling}, effect: forward}\n"
WARNING: Final = "protocol.learned"
CAPABLE: Final[dict[str, Any]] = {"sampling": {}}
FROM_CLIENT: Final = {"role": "assistant", "content": {"type": "text", "text": "from the client"}, "model": "person"}


def modern(id: int, method: str, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    own = {
        f"{META}protocolVersion": "2026-07-28",
        f"{META}clientCapabilities": CAPABLE if capabilities is None else capabilities,
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": own}}


def legacy(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: int, tool: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    return modern(id, "tools/call", capabilities, name=tool, arguments={})


def text(answer: dict[str, Any]) -> str:
    """The text of a call's answer."""
    found: str = answer["result"]["content"][0]["text"]
    return found


INITIALIZE: Final = legacy(
    90, "initialize", protocolVersion="2025-11-25", capabilities=CAPABLE, clientInfo={"name": "c", "version": "1"}
)
DISCOVER: Final = modern(80, "server/discover")


class Run:
    """Starts `samplegate run` in front of one server, again and again. ``stderr`` is that of the last run."""

    def __init__(
        self, folder: Path, sign: str, policy: str = ANSWERS, options: tuple[str, ...] = (), state: bool = True
    ) -> None:
        self.seen = folder / "seen.jsonl"
        self.stderr = ""
        self._sign, self._folder, self._state = sign, folder, state
        (folder / "policy.yaml").write_text(policy)
        self._options = (*options, *(("--state", str(folder / "state")) if state else ()))

    def __call__(self, *requests: dict[str, Any], sign: str | None = None) -> list[dict[str, Any]]:
        """Send the requests one at a time and return their answers. The client answers sampling requests as a person
        would."""
        words = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            "--decision-log",
            "none",
            *self._options,
        ]
        words += ["--", sys.executable, SERVER, sign or self._sign, str(self.seen)]
        environment = {"PYTHONPATH": str(PROXY), "PATH": os.environ["PATH"]} | (
            {"HOME": str(self._folder)} if self._state else {}
        )
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._folder, env=environment
        ) as process:
            try:
                answers = [self._ask(process, request) for request in requests]
                _, said = process.communicate(timeout=30)
            finally:
                process.kill()
        self.stderr = said.decode()
        return answers

    def _ask(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            frame: dict[str, Any] = json.loads(line)
            if frame.get("id") == request["id"] and "method" not in frame:
                return frame
            if frame.get("method") == "sampling/createMessage":
                reply = {"jsonrpc": "2.0", "id": frame["id"], "result": FROM_CLIENT}
                process.stdin.write(json.dumps(reply).encode() + b"\n")
                process.stdin.flush()
        raise AssertionError(f"the gate ended: {process.communicate()[1].decode()}")

    def at_server(self) -> list[str]:
        """The methods that the server received since the last call, oldest first. ``+`` marks a 2026-07-28 request."""
        frames = [json.loads(line) for line in self.seen.read_text().splitlines()] if self.seen.exists() else []
        self.seen.unlink(missing_ok=True)
        asked = [frame for frame in frames if "method" in frame and "id" in frame]
        return [
            frame["method"] + "+" * (f"{META}protocolVersion" in frame["params"].get("_meta", {})) for frame in asked
        ]
