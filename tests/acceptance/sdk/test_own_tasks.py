"""Tasks of the gate with real clients: a call that waits for a reviewer becomes a task, which the client follows or
cancels."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import pytest

from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import WAIT, Program, Seen, Server, call, servers
from tests.acceptance.sdk.task_peers import FORM, SAMPLING, client
from tests.conformance.listening import gate, listening

FILLED: Final = {"action": "accept", "content": {"confirm": True, "reason": "from a person"}}
VERDICTS: Final = {"accepted": Verdict(word="answer", result=FILLED), "rejected": Verdict(word="reject")}
ENDS: Final = {"accepted": "accept|True|from a person", "rejected": "decline", "cancelled": "cancelled"}
STATES: Final = {"accepted": "answered", "rejected": "rejected", "cancelled": "withdrawn"}
POLICY: Final = {
    "version": 1,
    "reviewers": {"ops": {"timeout": "5m"}},
    "rules": [{"name": "people", "effect": "escalate", "reviewer": "ops"}],
}
LOOK: Final = 0.05  # seconds between two looks into the store of another process, which nobody can be told of


@dataclass(frozen=True)
class Case:
    """A client, a gate and a server, and what becomes of its calls, one after the other."""

    client: str
    front: str
    server: str
    behind: str
    calls: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.client}-{self.front}-{self.server}-{self.behind}"

    @property
    def followed(self) -> list[str]:
        """The calls that the client follows to their end."""
        return [what for what in self.calls if what in VERDICTS]

    @property
    def legacy(self) -> bool:
        return self.server == "sdk1"

    def steps(self) -> list[dict[str, Any]]:
        tasks = [
            {**call("erase", what=what), "do": "cancel_task" if what == "cancelled" else "task"} for what in self.calls
        ]
        return [*tasks, call("erased", **({"at_least": len(self.calls)} if self.legacy else {}))]


CASES: Final = (
    Case("fastmcp", "serve", "sdk1", "http", ("accepted", "rejected", "cancelled")),
    Case("fastmcp", "run", "sdk2", "http", ("accepted", "rejected", "cancelled")),
    Case("ext-tasks", "serve", "sdk2", "stdio", ("accepted", "cancelled")),
    Case("ext-tasks", "run", "sdk1", "stdio", ("accepted", "rejected")),
)
"""Two calls for ext-tasks, because it waits the whole five seconds of ``pollIntervalMs`` before it asks."""


def follow(case: Case, at: Server, state: Path) -> tuple[Seen, Sequence[Review]]:
    """One session of the client with the reviews of its calls. A reviewer decides when the client has its task."""
    peer = client(case.client)
    program = Program(peer.words)
    try:
        program.begin({"mode": peer.mode, "steps": case.steps(), "declare": [FORM, SAMPLING]}, at.words)
        for what in case.followed:
            assert {"task": "erase"} == json.loads(program.line() or "null")
            decide(state, case.name, VERDICTS[what])
        return program.report(), reviews(state, case.name)
    finally:
        program.kill()


def decide(state: Path, server: str, verdict: Verdict) -> None:
    """Decide the one review of this server that is pending."""
    store = SqlReviewStore(f"sqlite:{state / 'reviews.db'}", make=False)
    [review] = store.list(Filter(states=("pending",), server=server))
    assert isinstance(store.decide(review.id, verdict, who="ana", door="cli"), Review)
    store.close()


def reviews(state: Path, server: str) -> Sequence[Review]:
    """The reviews of this server, once none is pending."""
    store, until = SqlReviewStore(f"sqlite:{state / 'reviews.db'}", make=False), time.monotonic() + WAIT
    while store.list(Filter(states=("pending",), server=server)) and time.monotonic() < until:
        time.sleep(LOOK)
    found = store.list(Filter(server=server))
    store.close()
    return found


Sessions = dict[str, Future[tuple[Seen, Sequence[Review]]]]


@pytest.fixture(scope="module")
def sessions(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    """The sessions of all cases, at once because they mostly wait: two seconds until a call becomes a task, and up to
    five until its client asks for it."""
    folder = tmp_path_factory.mktemp("own-tasks")
    (folder / "policy.yaml").write_text(json.dumps(POLICY), "utf-8")  # JSON is YAML
    (folder / "samplegate.yaml").write_text(json.dumps(settings(places)), "utf-8")
    with ExitStack() as running:
        served = running.enter_context(listening(gate("serve", "--settings", str(folder / "samplegate.yaml"))))
        pool = running.enter_context(ThreadPoolExecutor(len(CASES)))
        found: Sessions = {}
        for case in CASES:
            if case.front == "serve":
                at, state = Server(case.name, (urljoin(served.url, f"/servers/{case.name}/mcp"),)), folder / "state"
            else:
                state = folder / case.name
                options = ("--policy", str(folder / "policy.yaml"), "--decision-log", "none", "--state", str(state))
                at = Server(case.name, gate("run", *options, "--server", case.name, *behind(case, places)))
            found[case.name] = pool.submit(follow, case, at, state)
        yield found


def behind(case: Case, places: Places) -> tuple[str, ...]:
    """The server of a case, as arguments of ``run``."""
    if case.behind == "http":
        return ("--url", places.server(case.server).words[0])
    return ("--", *servers()[case.server].words)


def settings(places: Places) -> dict[str, Any]:
    """The settings of ``serve``, with a server of its own for each case."""
    declared: dict[str, Any] = {}
    for case in CASES:
        if case.front == "serve" and case.behind == "http":
            declared[case.name] = {"url": places.server(case.server).words[0]}
        elif case.front == "serve":
            command, *args = servers()[case.server].words
            declared[case.name] = {"command": command, "args": args}
    return {
        "policy": "policy.yaml",
        "listen": "127.0.0.1:0",
        "state": "state",
        "decision_log": "none",
        "servers": declared,
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_call_that_waits_for_a_reviewer_is_a_task_for_a_real_client(case: Case, sessions: Sessions) -> None:
    seen, found = sessions[case.name].result()
    *results, erased = seen.results
    cancelled = {"status": "cancelled"}
    assert [{"error": False, "text": ENDS[w]} if w in VERDICTS else cancelled for w in case.calls] == results, seen.said
    assert [("task", "completed")] * len(case.followed) == [(s[0], s[-1]) for s in seen.progress if s[0] == "task"]
    assert [] == seen.asked
    carried_out = case.calls if case.legacy else case.followed  # a cancelled call is at an older server, and ends there
    assert ", ".join(f"{what}: {ENDS[what]}" for what in carried_out) == erased["text"], "each once"
    assert {f"Erase {what}?": STATES[what] for what in case.calls} == {r.params["message"]: r.state for r in found}
    assert len(case.calls) == len(found)
