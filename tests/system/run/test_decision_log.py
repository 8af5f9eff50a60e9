"""Decision logs of `samplegate run` as a process: a database, rotated files, and runs in which no log can be
written."""

from __future__ import annotations

import json
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.run_command import FORM, SAMPLE, RunCommand
from tests.fakes.shell import samplegate


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunCommand]:
    """A gate that the test starts. Processes that still run at the end are killed."""
    wrapped = RunCommand(tmp_path)
    yield wrapped
    for process in wrapped.started:
        process.kill()
        process.communicate()


def reported(folder: Path, log: Path | str) -> int:
    """The number of requests that `samplegate report` counts."""
    ended = samplegate(folder, "report", "--log", str(log), "--json")
    assert 0 == ended.code, ended.err
    requests: int = json.loads(ended.out)["requests"]
    return requests


def test_decisions_are_kept_in_a_database(run: RunCommand) -> None:
    place = f"sqlite:{run.folder / 'log.db'}"
    client = run("--decision-log", place, environment={"SAMPLEGATE_DECISION_LOG_DURABILITY": "synced"})
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.ask("elicitation/create", FORM)
    code, said = client.end()
    assert (0, True) == (code, f"decision log: {place}" in said), said
    with closing(sqlite3.connect(run.folder / "log.db")) as db:
        assert [("sampling", "models", "answered"), ("elicitation", "forms", "answered")] == db.execute(
            "SELECT kind, rule, outcome FROM decisions ORDER BY id"
        ).fetchall()
    assert 2 == reported(run.folder, place)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_decision_is_recorded_with_the_trace_context_of_its_call(run: RunCommand) -> None:
    """As the log's reference documents. The context is in the `_meta` of the client's call (R83)."""
    client = run()
    client.initialize()
    asked = {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}
    client.write(id=7, method="tools/call", params={"name": "t", "arguments": asked, "_meta": {"traceparent": TRACE}})
    assert 7 == client.read()["id"]
    client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    assert [TRACE, None] == [json.loads(line).get("traceparent") for line in run.log.read_text().splitlines()]


def test_decisions_are_kept_in_files_that_are_turned_over(run: RunCommand) -> None:
    client = run(environment={"SAMPLEGATE_DECISION_LOG_MAX_BYTES": "1500"})
    client.initialize()
    for _ in range(10):
        client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    assert 10 == reported(run.folder, run.log)
    assert all(path.stat().st_size <= 1500 for path in run.folder.glob("log.jsonl*"))
    assert len(list(run.folder.glob("log.jsonl.0*"))) >= 3


@pytest.mark.parametrize("place", ["log.jsonl", "sqlite:log.db"])
def test_a_full_disk_leaves_requests_unanswered_until_there_is_room(run: RunCommand, place: str) -> None:
    client = run("--decision-log", place)
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    pid = client.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    refused = client.ask("sampling/createMessage", SAMPLE)
    assert (-1, "records") == (refused["error"]["code"], refused["error"]["data"]["reason"])
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert "result" in client.ask("sampling/createMessage", SAMPLE)
    assert 0 == client.end()[0]
    assert 2 == reported(run.folder, place)
