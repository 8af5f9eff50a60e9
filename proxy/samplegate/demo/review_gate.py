"""`samplegate serve` for the trial of reviews: its settings in a folder of its own, its process, and where it listens. Decides nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

POLICY: Final = Path(__file__).with_name("review.yaml")
SERVER: Final = "incidents"
PERSON: Final = "ada"
STARTS_WITHIN: Final = 60.0
"""Seconds: a cold start on a slow disk."""
ENDS_WITHIN: Final = 15.0

_listening: Final = re.compile(r"listening on (http://[^\s\"]+)")


class NotStarted(Exception):
    """The daemon did not come up; the message says why as far as it said so."""


class Gate:
    """One daemon that runs. ``token``: how the person signs in; ``page``: where people decide; ``endpoint``: where clients connect, "" at first."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.log = folder / "gate.log"
        self.settings = folder / "serve.yaml"
        self.token = f"sg_{secrets.token_urlsafe(32)}"
        self.page = f"http://127.0.0.1:{_free_port()}"
        self.endpoint = ""
        self._said = threading.Event()
        self.settings.write_text(self._settings(), "utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "samplegate", "serve", "--settings", str(self.settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"SAMPLEGATE_STATE": str(self.state)},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends the gate
        )
        assert self.process.stderr is not None
        self._reading = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reading.start()

    def _settings(self) -> str:
        """JSON, which is YAML too."""
        person = {"name": PERSON, "role": "reviewer", "reviewers": ["ops"], "sha256": hashlib.sha256(self.token.encode()).hexdigest()}
        return json.dumps(
            {
                "policy": str(POLICY),
                "listen": "127.0.0.1:0",
                "reviews_listen": self.page.removeprefix("http://"),
                "reviews_url": self.page,
                "servers": {SERVER: {"command": sys.executable, "args": ["-m", "samplegate.demo.review_server"]}},
                "people": {"tokens": [person]},
                "drain_delay": 0,  # no load balancer in front needs the delay
            },
            indent=2,
        )

    def _read(self, stderr: TextIO) -> None:
        """Keep what it says, and notice when it listens."""
        with stderr, self.log.open("w", encoding="utf-8") as log:
            for line in stderr:
                log.write(line)
                log.flush()
                if (found := _listening.search(line)) is not None and not self.endpoint:
                    self.endpoint = found[1]
                    self._said.set()
        self._said.set()

    def wait(self) -> None:
        """Until it listens. Raises NotStarted."""
        self._said.wait(STARTS_WITHIN)
        if not self.endpoint:
            raise NotStarted(f"the gate did not start: {self.said()}")

    def said(self) -> str:
        """The end of its log."""
        said = self.log.read_text("utf-8").strip() if self.log.is_file() else ""
        return said[-2000:] or "nothing"

    def end(self) -> None:
        """Let it end what is under way, and no longer than some seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # its own, by start_new_session
            self.process.wait(ENDS_WITHIN)
        self._reading.join(ENDS_WITHIN)


def _free_port() -> int:
    """One that nobody listens at now: links name it before the gate is there."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
