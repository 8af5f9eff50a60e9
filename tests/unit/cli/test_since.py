"""`--since`: spans and dates, for each command that reads logs."""

from __future__ import annotations

import json

import pytest

from samplegate.cli.since import since_time
from samplegate.errors import InputError
from tests.fakes import logged
from tests.fakes.requests import compiled, sampling
from tests.fakes.shell import Run, Write

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ""),
        ("90m", "2027-01-15T06:30:00.000Z"),
        ("24h", "2027-01-14T08:00:00.000Z"),
        ("2d", "2027-01-13T08:00:00.000Z"),
        ("1w", "2027-01-08T08:00:00.000Z"),
        ("2027-01-15", "2027-01-15T00:00:00.000Z"),
        ("2027-01-15T10:00:30+02:00", "2027-01-15T08:00:30.000Z"),
    ],
)
def test_a_span_or_a_date_is_a_time(text: str | None, expected: str) -> None:
    assert expected == since_time(text, NOW)


@pytest.mark.parametrize("text", ["", "24", "24x", "-2d", "1d2h", "9999999w", "yesterday", "٢d", "2d\n"])
def test_what_is_neither_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InputError, match=r"^--since: .* is not a time; use a span \(24h, 2d\), a date "):
        since_time(text, NOW)


def record(number: int, time: float) -> str:
    return logged.text(logged.record(compiled(), sampling("hello"), decision_id=f"{number:024}", time=time)) + "\n"


def test_replay_leaves_out_what_is_older(run: Run, write: Write) -> None:
    write("p.yaml", "version: 1\nrules: [{name: none, effect: deny}]\n")
    write("log.jsonl", record(1, NOW) + record(2, NOW + 60))
    ended = run("replay", "--log", "log.jsonl", "--policy", "p.yaml", "--since", "2027-01-15T08:00:30", "--json")
    assert (0, 1) == (ended.code, json.loads(ended.out)["requests"])


@pytest.mark.parametrize(("since", "code"), [("2027-01-15T07:59", 0), ("2027-01-15T08:01", 1), ("soon", 2)])
def test_why_leaves_out_what_is_older(run: Run, write: Write, since: str, code: int) -> None:
    write("log.jsonl", record(1, NOW))
    assert code == run("why", f"{1:024}", "--log", "log.jsonl", "--since", since).code
