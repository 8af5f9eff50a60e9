"""The scripted server with tasks (programs/tasks_server.py) where a client reaches it: directly or through a gate."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.conformance.listening import gate, listening
from tests.fakes.task_client import TaskClient, task_client
from tests.paths import PROGRAMS

KINDS: Final = ("stdio", "http")
GATES: Final = ("run", "serve")
SERVER: Final = (sys.executable, str(PROGRAMS / "tasks_server.py"))
ANSWERS: Final = """
version: 1
rules:
  - {name: forms, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: true}}
  - {name: sampling, match: {kind: sampling}, effect: answer, content: from the policy}
"""
FORWARDS: Final = """
version: 1
rules:
  - {name: forms, match: {kind: elicitation}, effect: forward}
  - {name: sampling, match: {kind: sampling}, effect: forward}
"""


@dataclass
class Reached:
    """A client that reached the server, and what the server received."""

    client: TaskClient
    log: Path
    before: int = 0
    """The lines of the log that count no more."""

    def anew(self) -> Reached:
        """The same, with nothing received so far."""
        self.client.told.clear()
        return replace(self, before=len(self._lines()))

    def received(self, method: str) -> list[dict[str, Any]]:
        return [frame for frame in map(json.loads, self._lines()[self.before :]) if frame.get("method") == method]

    def _lines(self) -> list[str]:
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []

    def answered(self) -> Counter[str]:
        """How often the server received an answer for each key."""
        return Counter(key for frame in self.received("tasks/update") for key in frame["params"]["inputResponses"])


@contextmanager
def reached(kind: str, through: str, folder: Path, policy: str = FORWARDS) -> Iterator[Reached]:
    """A client of the scripted server over ``stdio`` or ``http``: ``direct``, or through a gate."""
    log, rules = folder / "received.jsonl", folder / "policy.yaml"
    rules.write_text(policy, "utf-8")
    options = ("--policy", str(rules), "--decision-log", str(folder / "decisions.jsonl"), "--state", str(folder / "s"))
    with ExitStack() as started:
        place: tuple[str, ...] = (*SERVER, kind, str(log))
        behind: tuple[str, ...] = ("--", *place)
        if kind == "http":
            place = (started.enter_context(listening(place)).url,)
            behind = ("--url", *place)
        if through == "run":
            place = gate("run", *options, *behind)
        elif through == "serve":
            words = gate("serve", *options, "--listen", "127.0.0.1:0", *behind)
            place = (started.enter_context(listening(words)).url,)
        yield Reached(started.enter_context(task_client(*place)), log)


def keys(view: dict[str, Any]) -> list[str]:
    return sorted(view.get("inputRequests", {}))
