"""One decision log as plain files, rotated files and a database: `report` and `replay` give the same results for
each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from samplegate.audit.decision_log import decision_log
from samplegate.audit.record import Record
from samplegate.policy.schema import AllowRule, DenyRule, ForwardRule, Match
from tests.fakes import logged
from tests.fakes.requests import compiled, form, sampling, tool
from tests.fakes.shell import Run, Write

BOOK = compiled(
    DenyRule(name="no secrets", match=Match(text="secret")),
    AllowRule(name="models", match=Match(kind="sampling")),
    ForwardRule(name="person", match=Match(kind="elicitation")),
)
POLICY = """\
version: 1
rules:
  - {name: no secrets, match: {text: secret}, effect: deny}
"""


def records() -> Iterator[Record]:
    for number in range(40):
        yield logged.record(
            BOOK,
            sampling("a secret" if number % 3 else "hello", tool("look"), server="docs"),
            can=True,
            decision_id=f"s{number}",
        )
        yield logged.record(BOOK, form(server="db", a="string"), can=True, decision_id=f"f{number}")


def keep(setting: str, **more: Any) -> None:
    async def write() -> None:
        log = decision_log(setting, state=Path(), server="x", content="full", **more)
        for one in records():
            await log.write(one)
        await log.aclose()

    anyio.run(write)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, str]:
    """The names of the same log in each format."""
    names = {
        "file": tmp_path / "one.jsonl",
        "turned over": tmp_path / "many.jsonl",
        "database": f"sqlite:{tmp_path / 'rows.db'}",
    }
    for shape, name in names.items():
        keep(str(name), **({"max_bytes": 3_000} if shape == "turned over" else {}))
    assert len(list(tmp_path.glob("many.jsonl.0*"))) > 5
    return {shape: str(name) for shape, name in names.items()} | {"database by its file": str(tmp_path / "rows.db")}


def test_all_shapes_of_a_log_come_to_the_same(run: Run, write: Write, logs: dict[str, str]) -> None:
    write("policy.yaml", POLICY)
    reports, replays = {}, {}
    for shape, name in logs.items():
        told = json.loads(run("report", "--log", name, "--json").out)
        assert 80 == told["requests"]
        reports[shape] = {key: value for key, value in told.items() if key != "logs"}
        replays[shape] = json.loads(run("replay", "--policy", "policy.yaml", "--log", name, "--json").out)
        assert 54 == replays[shape]["changed"]
    assert [reports["file"]] * 4 == list(reports.values())
    assert [replays["file"]] * 4 == list(replays.values())


@pytest.mark.parametrize(
    ("name", "made", "why"),
    [
        ("sqlite:none.db", None, "none.db: cannot be read: "),
        ("sqlite:text.db", "text", "text.db: cannot be read: it is not a decision log database"),
    ],
)
def test_a_database_that_is_none_leaves_with_two(run: Run, write: Write, name: str, made: str | None, why: str) -> None:
    if made is not None:
        write(name.removeprefix("sqlite:"), made)
    ended = run("report", "--log", name)
    assert (2, True) == (ended.code, why in ended.err), ended.err
