"""`samplegate reviews` beside `samplegate run`. They share only the store; nothing listens on a port."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.run_command import FORM, SAMPLE, Client, RunCommand
from tests.fakes.shell import Ended, samplegate
from tests.paths import PROXY

POLICY = """
version: 1
models:
  - {name: trial, model: scripted, cases: cases.yaml, max_tokens: 100}
reviewers:
  ops: {}
rules:
  - {name: ask, match: {}, effect: escalate, reviewer: ops, with: {models: [trial]}}
"""


class Beside:
    """The gate in a folder, and a reviewer."""

    def __init__(self, folder: Path) -> None:
        self.run = RunCommand(folder)
        (folder / "policy.yaml").write_text(POLICY, "utf-8")
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROXY),
            "USER": "ann",
            "SAMPLEGATE_STATE": str(folder),
        }
        self._store = SqlReviewStore(f"sqlite:{folder / 'reviews.db'}")
        self._last = self._store.last_change()

    def started(self) -> Client:
        client = self.run(environment=self.environment)
        client.initialize()
        return client

    def asks(self, client: Client, method: str, params: Any) -> None:
        client.write(
            id=1, method="tools/call", params={"name": "t", "arguments": {"ask": {"method": method, "params": params}}}
        )

    def seen(self, what: str) -> str:
        """The id of the next review to which this happens."""
        until = time.monotonic() + 50
        while time.monotonic() < until:
            for event in self._store.changes(self._last, 100):
                self._last = event.number
                if event.what == what:
                    return event.review
            time.sleep(0.02)
        raise AssertionError(f"nothing was {what} in time")

    def reviews(self, *arguments: str) -> Ended:
        state = self.environment["SAMPLEGATE_STATE"]
        return samplegate(self.run.folder, "reviews", *arguments, SAMPLEGATE_STATE=state, USER="ann")

    def end(self) -> None:
        for process in self.run.started:
            process.kill()
            process.communicate()
        self._store.close()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    beside = Beside(tmp_path)
    yield beside
    beside.end()


def test_a_form_that_a_run_waits_for_is_answered_by_another_process(beside: Beside) -> None:
    client = beside.started()
    beside.asks(client, "elicitation/create", FORM)
    id = beside.seen("opened")
    assert "confirm (boolean, required)" in beside.reviews("show", id[:12]).out
    assert "the waiting request now gets this decision" in beside.reviews("answer", id, "--accept", "confirm=yes").out
    result = client.read()["result"]["structuredContent"]["result"]
    assert ("accept", {"confirm": True}) == (result["action"], result["content"])
    assert id == beside.seen("used")
    assert 1 == beside.reviews("reject", id).code


def test_a_sampling_request_is_asked_of_the_model_once_it_is_approved(beside: Beside) -> None:
    client = beside.started()
    beside.asks(client, "sampling/createMessage", SAMPLE)
    id = beside.seen("opened")
    assert 0 == beside.reviews("approve", id, "--max-tokens", "5").code
    assert "hi there" == client.read()["result"]["structuredContent"]["result"]["content"]["text"]
    assert id == beside.seen("used")


def test_a_verdict_for_a_run_that_was_killed_answers_the_same_request_of_the_next_one(beside: Beside) -> None:
    first = beside.started()
    beside.asks(first, "elicitation/create", FORM)
    id = beside.seen("opened")
    first.process.kill()
    first.process.communicate()
    assert 0 == beside.reviews("answer", id, "--accept", "confirm=no").code
    second = beside.started()
    beside.asks(second, "elicitation/create", FORM)  # within some seconds: as long as the lease of the dead process
    assert {"confirm": False} == second.read()["result"]["structuredContent"]["result"]["content"]
    assert id == beside.seen("used")


@pytest.mark.parametrize("way", ["cancellation", "signal"])
def test_what_the_client_took_back_is_withdrawn(beside: Beside, way: str) -> None:
    client = beside.started()
    beside.asks(client, "elicitation/create", FORM)
    id = beside.seen("opened")
    if way == "signal":  # the end of its input alone would leave the call in flight
        client.process.send_signal(signal.SIGTERM)
    else:
        client.write(method="notifications/cancelled", params={"requestId": 1})
    assert id == beside.seen("withdrawn")
    ended = beside.reviews("answer", id, "--accept", "confirm=no")
    assert (1, "") == (ended.code, ended.out)
    assert f"{id}: already withdrawn at " in ended.err
