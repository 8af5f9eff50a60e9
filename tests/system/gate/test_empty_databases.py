"""A ledger, review store or decision log that lost its contents is damaged: it is refused, and never created anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.limits import Desk, daily, one
from tests.fakes.run_command import SAMPLE, RunCommand, run
from tests.fakes.shell import samplegate

__all__ = ["run"]
pytestmark = pytest.mark.timeout(120)

POLICY = """\
version: 1
models: [{name: m, model: scripted, cases: cases.yaml}]
limits: {day: {requests: 1, per: day, tz: UTC}}
rules: [{name: r, match: {kind: sampling}, effect: allow, limits: [day]}]
"""


def emptied(path: Path) -> None:
    path.write_bytes(b"")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def answered(run: RunCommand, state: Path, *more: str, said: list[str] | None = None) -> bool:
    """Whether a model answered the server in a new process. ``said`` gets the process's stderr."""
    client = run("--state", str(state), *more)
    client.initialize()
    client.write(
        id=1,
        method="tools/call",
        params={"name": "t", "arguments": {"ask": {"method": "sampling/createMessage", "params": SAMPLE}}},
    )
    answer = client.read()
    code, stderr = client.end()
    assert 0 == code
    if said is not None:
        said.append(stderr)
    return "role" in str(answer)


def test_an_empty_state_file_is_no_new_budget(run: RunCommand) -> None:
    (run.folder / "policy.yaml").write_text(POLICY)
    (run.folder / "cases.yaml").write_text("cases: [{answer: fine}]\n")
    state = run.folder / "state"
    assert [True, False] == [answered(run, state), answered(run, state)]
    emptied(state / "limits.sqlite3")
    assert not answered(run, state)
    assert 0 == (state / "limits.sqlite3").stat().st_size
    (state / "limits.sqlite3").unlink()  # as an operator does to start over
    assert answered(run, state)


def test_an_empty_store_of_reviews_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reviews.db").write_bytes(b"")
    ended = samplegate(tmp_path, "reviews", "list", "--state", str(tmp_path))
    assert (2, True) == (ended.code, "it is empty, so its reviews are lost" in ended.err), ended


def test_an_empty_decision_log_is_refused(run: RunCommand) -> None:
    (run.folder / "policy.yaml").write_text(POLICY)
    (run.folder / "cases.yaml").write_text("cases: [{answer: fine}]\n")
    (run.folder / "log.db").write_bytes(b"")
    said: list[str] = []
    assert not answered(run, run.folder / "state", "--decision-log", f"sqlite:{run.folder / 'log.db'}", said=said)
    assert "it is empty, so its decisions are lost" in said[0]


@pytest.mark.anyio
async def test_a_state_file_that_was_moved_away_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    ours = Desk(daily("d", 5, shared=True), state=tmp_path)
    await ours.taken(one("d"))
    (tmp_path / "limits.sqlite3").rename(tmp_path / "old")
    other = Desk(daily("d", 5, shared=True), state=tmp_path)
    assert 5 == await other.room(one("d"))
    await other.admission.aclose()
    await ours.admission.aclose()
