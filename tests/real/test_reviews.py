"""A person decides, for real clients: they ask, wait, come back as often as they are put off, and simply get their
results, in both eras."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from samplegate.errors import Unavailable
from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.sql_store import Reviews
from tests.conformance.listening import gate, listening
from tests.real.http_peers import stdio_words
from tests.real.peers import Client, Gate, Seen, Server, call, drive

FILLED = Verdict(word="answer", result={"action": "accept", "content": {"confirm": True, "reason": "from a person"}})
VERDICTS = {"sampling": Verdict(word="approve"), "elicitation": FILLED}
BOTH = [call("classify", text="a text"), call("confirm")]
BY_PEOPLE = [
    {"error": False, "text": "scripted|endTurn|from a model"},
    {"error": False, "text": "accept|True|from a person"},
]
MODERN, LEGACY = ("python2-pinned", "python2-auto", "typescript2-pinned"), ("python1", "typescript2-legacy")
LOOK = 0.05  # seconds between two looks into the store of another process, which nobody can be told of


class Person(threading.Thread):
    """Decides whatever comes up in a store, once its client has been put off so many times."""

    def __init__(self, folder: Path, put_off: int) -> None:
        super().__init__(daemon=True)
        self._url, self._put_off = f"sqlite:{folder / 'state' / 'reviews.db'}", put_off
        self._done = threading.Event()
        self.decided: list[Review] = []

    def run(self) -> None:
        store = Reviews(self._url, make=False)
        while not self._done.wait(LOOK):
            try:
                self._look(store)
            except Unavailable:  # there is none yet
                continue
        store.close()

    def _look(self, store: Reviews) -> None:
        for review in store.list(Filter(states=("pending",))):
            if sum(event.what == "joined" for event in store.history(review.id)) >= self._put_off:
                done = store.decide(review.id, VERDICTS[review.kind], who="ana", door="cli", now=time.time())
                assert isinstance(done, Review)
                self.decided.append(done)

    def end(self) -> None:
        self._done.set()
        self.join(10)


@contextmanager
def person(folder: Path, put_off: int) -> Iterator[Person]:
    one = Person(folder, put_off)
    one.start()
    try:
        yield one
    finally:
        one.end()


def policy(folder: Path, patience: str) -> Path:
    """Everything is escalated. JSON is YAML."""
    rule = {"name": "people", "effect": "escalate", "reviewer": "ops"}
    peer = {"peer_timeout": patience}
    told = {
        "version": 1,
        "models": [{"name": "trial", "model": "scripted", "cases": "cases.yaml"}],
        "reviewers": {"ops": {"timeout": "5m"}},
        "client": peer,
        "servers": {"one": peer, "default": peer},
        "rules": [rule],
    }
    (folder / "cases.yaml").write_text("cases: [{answer: from a model}]")
    at = folder / "policy.yaml"
    at.write_text(json.dumps(told), "utf-8")
    return at


@contextmanager
def seen(
    folder: Path, client: Client, server: str, front: str, steps: Sequence[dict[str, Any]], *, patience: str
) -> Iterator[Seen]:
    """What a client saw through a gate that knows no answer of its own."""
    rules, state, log = policy(folder, patience), folder / "state", folder / "decisions.jsonl"
    with ExitStack() as stack:
        if front == "run":
            yield drive(
                client,
                Server(server, stdio_words(server)),
                Gate(rules, log, ("--state", str(state), "--server", "one")),
                steps,
            )
            return
        words = gate(
            "serve",
            "--policy",
            str(rules),
            "--listen",
            "127.0.0.1:0",
            "--decision-log",
            str(log),
            "--state",
            str(state),
            "--server",
            "one",
        )
        served = stack.enter_context(listening((*words, "--", *stdio_words(server))))
        yield drive(client, Server(server, (served.url,)), None, steps)


def recorded(folder: Path) -> list[tuple[str, str, str]]:
    records = [json.loads(line) for line in (folder / "decisions.jsonl").read_text("utf-8").splitlines()]
    return [(record["outcome"], record["decided_by"] or "", record.get("reviewed_by") or "") for record in records]


@pytest.mark.parametrize("front", ["run", "serve"])
@pytest.mark.parametrize("client", MODERN, indirect=True)
def test_a_modern_client_that_is_put_off_twice_gets_its_results(tmp_path: Path, client: Client, front: str) -> None:
    with person(tmp_path, put_off=2) as ana, seen(tmp_path, client, "sdk2", front, BOTH, patience="1s") as found:
        assert BY_PEOPLE == found.results, found.said
        assert [] == found.asked
        assert [("answered", "human", "ana")] * 2 == recorded(tmp_path)
        assert 2 == len(ana.decided)


@pytest.mark.parametrize("client", ["python2-pinned", "typescript2-pinned"], indirect=True)
def test_two_questions_of_one_round_are_put_off_and_answered_together(tmp_path: Path, client: Client) -> None:
    with (
        person(tmp_path, put_off=2),
        seen(tmp_path, client, "sdk2", "run", [call("review", subject="x")], patience="1s") as found,
    ):
        both = " & ".join(result["text"] for result in BY_PEOPLE)  # type: ignore[misc]
        assert [{"error": False, "text": f"{both} & state of review"}] == found.results, found.said


@pytest.mark.parametrize("client", ["python2-pinned", "typescript2-pinned"], indirect=True)
def test_a_modern_client_whose_person_says_nothing_is_answered_before_it_gives_up(
    tmp_path: Path, client: Client
) -> None:
    with seen(
        tmp_path, client, "sdk2", "run", [call("classify", text="x"), call("add", a=1, b=2)], patience="300ms"
    ) as found:
        assert {"error": False, "text": "3"} == found.results[1], found.said
        assert "failed" in found.results[0] or found.results[0]["error"], found.results
    assert [("unanswered", "")] == [(outcome, who) for outcome, _, who in recorded(tmp_path)]


@pytest.mark.parametrize("front", ["run", "serve"])
@pytest.mark.parametrize("client", LEGACY, indirect=True)
def test_a_legacy_client_waits_and_gets_its_results(tmp_path: Path, client: Client, front: str) -> None:
    with person(tmp_path, put_off=0) as ana, seen(tmp_path, client, "sdk1", front, BOTH, patience="40s") as found:
        assert BY_PEOPLE == found.results, found.said
        assert 2 == len(ana.decided)
        assert [("answered", "human", "ana")] * 2 == recorded(tmp_path)
