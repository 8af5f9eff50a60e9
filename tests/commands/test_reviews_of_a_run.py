"""`samplegate reviews` beside `samplegate run`: two processes with nothing in common but the store, and no listener
anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samplegate.reviews.sql_store import Reviews
from tests.test_run import FORM, PROXY, SAMPLE, Client, Wrapped

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
    """The gate in a folder, somebody who watches its reviews, and whoever decides them."""

    def __init__(self, folder: Path) -> None:
        self.run = Wrapped(folder)
        (folder / "policy.yaml").write_text(POLICY, "utf-8")
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROXY),
            "USER": "ann",
            "SAMPLEGATE_STATE": str(folder),
        }
        store = Reviews(f"sqlite:{folder / 'reviews.db'}")
        store.last_change()
        store.close()
        line = [sys.executable, "-u", "-m", "samplegate", "reviews", "watch", "--json"]
        self.watcher = subprocess.Popen(line, env=self.environment, stdout=subprocess.PIPE, encoding="utf-8")
        self.alarm = threading.Timer(50, self.watcher.kill)
        self.alarm.start()

    def started(self) -> Client:
        client = self.run(environment=self.environment)
        client.initialize()
        return client

    def asks(self, client: Client, method: str, params: Any) -> None:
        client.write(
            id=1, method="tools/call", params={"name": "t", "arguments": {"ask": {"method": method, "params": params}}}
        )

    def seen(self, what: str) -> str:
        """The id of the next review that this happens to."""
        assert self.watcher.stdout is not None
        for line in self.watcher.stdout:
            told = json.loads(line)
            if told["event"] is not None and told["event"]["what"] == what:
                id: str = told["review"]["id"]
                return id
        raise AssertionError(f"nothing was {what} in time")

    def reviews(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "samplegate", "reviews", *arguments]
        return subprocess.run(
            line, env=self.environment, capture_output=True, encoding="utf-8", timeout=50, check=False
        )

    def end(self) -> None:
        self.alarm.cancel()
        self.watcher.kill()
        self.watcher.communicate()
        for process in self.run.started:
            process.kill()
            process.communicate()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    beside = Beside(tmp_path)
    yield beside
    beside.end()


def test_a_form_that_a_run_waits_for_is_answered_by_another_process(beside: Beside) -> None:
    client = beside.started()
    beside.asks(client, "elicitation/create", FORM)
    id = beside.seen("opened")
    assert "confirm (boolean, required)" in beside.reviews("show", id[:12]).stdout
    assert "the request that waits gets it now" in beside.reviews("answer", id, "--accept", "confirm=yes").stdout
    result = client.read()["result"]["structuredContent"]["result"]
    assert ("accept", {"confirm": True}) == (result["action"], result["content"])
    assert id == beside.seen("used")
    assert 1 == beside.reviews("reject", id).returncode


def test_a_sampling_request_is_asked_of_the_model_once_it_is_approved(beside: Beside) -> None:
    client = beside.started()
    beside.asks(client, "sampling/createMessage", SAMPLE)
    id = beside.seen("opened")
    assert 0 == beside.reviews("approve", id, "--max-tokens", "5").returncode
    assert "hi there" == client.read()["result"]["structuredContent"]["result"]["content"]["text"]
    assert id == beside.seen("used")


def test_a_verdict_for_a_run_that_was_killed_answers_the_same_request_of_the_next_one(beside: Beside) -> None:
    first = beside.started()
    beside.asks(first, "elicitation/create", FORM)
    id = beside.seen("opened")
    first.process.kill()
    first.process.communicate()
    assert 0 == beside.reviews("answer", id, "--accept", "confirm=no").returncode
    second = beside.started()
    beside.asks(second, "elicitation/create", FORM)  # within some seconds, as long as the dead one's lease
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
    assert (1, "") == (ended.returncode, ended.stdout)
    assert f"{id}: was withdrawn at " in ended.stderr
