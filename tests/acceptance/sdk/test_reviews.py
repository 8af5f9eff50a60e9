"""Reviews for real clients of both protocol versions: they ask, wait, retry as often as they are put off, and get their
results."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import pytest

from samplegate.errors import Unavailable
from samplegate.reviews.review import Filter, Review, Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, Gate, Server, call, clients
from tests.conformance.listening import gate, listening

SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "from a person"}, "model": "ana"}
FILLED = {"action": "accept", "content": {"confirm": True, "reason": "from a person"}}
VERDICTS = {
    "sampling": Verdict(word="answer", result={**SAMPLED, "stopReason": "endTurn"}),
    "elicitation": Verdict(word="answer", result=FILLED),
}
BOTH = [call("classify", text="a text"), call("confirm")]
BY_PEOPLE = ["ana|endTurn|from a person", "accept|True|from a person"]
PATIENCE: Final = "500ms"
"""How long the gate thinks that a client waits: each try of a modern one is put off before."""
LOOK = 0.05  # seconds between two looks into the store of another process, which nobody can be told of
PUT_OFF: Final = ("python2-auto", "python2-pinned", "typescript2-pinned")
SILENT: Final = ("python2-pinned", "typescript2-pinned")


class Person(threading.Thread):
    """Decides every request of one server after its client has been put off this many times."""

    def __init__(self, state: Path, server: str, put_off: int) -> None:
        super().__init__(daemon=True)
        self._url, self._put_off = f"sqlite:{state / 'reviews.db'}", put_off
        self._wanted = Filter(states=("pending",), server=server)
        self._done = threading.Event()
        self.decided: list[Review] = []

    def run(self) -> None:
        store = SqlReviewStore(self._url, make=False)
        while not self._done.wait(LOOK):
            try:
                self._look(store)
            except Unavailable:  # there is none yet
                continue
        store.close()

    def _look(self, store: SqlReviewStore) -> None:
        for review in store.list(self._wanted):
            if sum(event.what == "joined" for event in store.history(review.id)) >= self._put_off:
                done = store.decide(review.id, VERDICTS[review.kind], who="ana", door="cli")
                assert isinstance(done, Review)
                self.decided.append(done)

    def end(self) -> None:
        self._done.set()
        self.join(10)


@contextmanager
def person(state: Path, server: str, put_off: int) -> Iterator[Person]:
    one = Person(state, server, put_off)
    one.start()
    try:
        yield one
    finally:
        one.end()


def policy(folder: Path, patience: str) -> Path:
    """A policy that escalates everything. JSON is YAML."""
    told = {
        "version": 1,
        "reviewers": {"ops": {"timeout": "5m"}},
        "client": {"peer_timeout": patience},
        "rules": [{"name": "people", "effect": "escalate", "reviewer": "ops"}],
    }
    (folder / "policy.yaml").write_text(json.dumps(told), "utf-8")
    return folder / "policy.yaml"


def recorded(log: Path, server: str) -> list[tuple[str, str]]:
    """The outcomes of the server's requests, and who decided them."""
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [(one["outcome"], one.get("reviewed_by") or "") for one in records if one["server"] == server]


@pytest.fixture(scope="module")
def served(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A daemon with short client timeouts. The server behind it has a name for each test. Yields its address and its
    folder."""
    folder = tmp_path_factory.mktemp("reviews")
    url = places.server("sdk2").words[0]
    names = [f"{kind}-{client}" for kind in ("put-off", "silent") for client in PUT_OFF]
    settings: dict[str, Any] = {
        "policy": str(policy(folder, PATIENCE)),
        "listen": "127.0.0.1:0",
        "state": str(folder / "state"),
        "decision_log": str(folder / "decisions.jsonl"),
        "servers": {name: {"url": url} for name in names},
    }
    (folder / "samplegate.yaml").write_text(json.dumps(settings), "utf-8")
    with listening(gate("serve", "--settings", str(folder / "samplegate.yaml"))) as program:
        yield program.url, folder


@pytest.mark.parametrize("client", PUT_OFF)
def test_a_modern_client_that_is_put_off_twice_gets_its_results(
    client: str, served: tuple[str, Path], drive: Drive
) -> None:
    """Two requests one after another, and two in one round."""
    (url, folder), name = served, f"put-off-{client}"
    server = Server(name, (urljoin(url, f"/servers/{name}/mcp"),))
    with person(folder / "state", name, put_off=2) as ana:
        seen = drive(clients()[client], server, None, [*BOTH, call("review", subject="x")])
    both = " & ".join([*BY_PEOPLE, "state of review"])
    assert [{"error": False, "text": text} for text in [*BY_PEOPLE, both]] == seen.results, seen.said
    assert [] == seen.asked
    assert 4 == len(ana.decided)
    assert [("answered", "ana")] * 4 == recorded(folder / "decisions.jsonl", name)


@pytest.mark.parametrize("client", SILENT)
def test_a_modern_client_whose_person_says_nothing_is_answered_before_it_gives_up(
    client: str, served: tuple[str, Path], drive: Drive
) -> None:
    (url, folder), name = served, f"silent-{client}"
    server = Server(name, (urljoin(url, f"/servers/{name}/mcp"),))
    seen = drive(clients()[client], server, None, [call("classify", text="x"), call("add", a=1, b=2)])
    assert {"error": False, "text": "3"} == seen.results[1], seen.said
    assert "failed" in seen.results[0] or seen.results[0]["error"], seen.results
    assert [("unanswered", "")] == recorded(folder / "decisions.jsonl", name)


@pytest.mark.parametrize(
    ("client", "server", "put_off"),
    [("python1", "sdk1", 0), ("python2-pinned", "sdk2-modern", 1)],
)
def test_before_one_gate_for_each_client_they_wait_too(
    client: str, server: str, put_off: int, *, places: Places, tmp_path: Path, drive: Drive
) -> None:
    """The older client waits as long as it takes, because it cannot be put off."""
    rules, state, log = policy(tmp_path, "2s" if put_off else "none"), tmp_path / "state", tmp_path / "decisions.jsonl"
    wrapped = Gate(rules, log, ("--server", "one", "--url", places.server(server).words[0]))
    with person(state, "one", put_off) as ana:
        seen = drive(clients()[client], Server(server, ()), wrapped, BOTH)
    assert [{"error": False, "text": text} for text in BY_PEOPLE] == seen.results, seen.said
    assert 2 == len(ana.decided)
    assert [("answered", "ana")] * 2 == recorded(log, "one")
