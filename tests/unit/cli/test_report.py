"""`samplegate report`: the tables, the JSON, and which logs are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit import reader
from samplegate.audit.record import Attempt
from samplegate.audit.sqlite_log import SqliteLog
from samplegate.policy.schema import AllowRule, DenyRule, ForwardRule, Match
from tests.fakes import logged
from tests.fakes.github_runner import commands
from tests.fakes.requests import compiled, form, sampling, tool
from tests.fakes.shell import Run, Write

BOOK = compiled(
    DenyRule(name="no secrets", match=Match(text="secret")),
    AllowRule(name="models", match=Match(kind="sampling")),
    ForwardRule(name="person", match=Match(kind="elicitation")),
)


def line(what: str = "hello", *calls: Any, server: str = "docs", put: dict[str, Any] | None = None, **more: Any) -> str:
    text = logged.text(
        logged.record(BOOK, sampling(what, *calls, server=server), can=True, **{"duration_ms": 100.0, **more}), "hash"
    )
    return json.dumps({**json.loads(text), **(put or {})}) + "\n"


PAID: dict[str, Any] = {"model": "gpt-5", "input_tokens": 70, "output_tokens": 3}
TRIES = [
    {"model": "a", "result": "rate_limited", "cost_usd": 0.0},
    {"model": "b", "result": "ok", "cost_usd": 0.25, "input_tokens": 70, "output_tokens": 3},
    {"model": "own", "result": "ok"},
]
LOG = (
    line("hello", tool("look"), **PAID, put={"cost_usd": 0.25, "attempts": TRIES})
    + line("hello", tool("look"), **PAID, duration_ms=2500.0)
    + line("a secret")
    + line("hello", outcome="unanswered", put={"reason": "limit", "refused_by": "team-day", "effect": "none"})
    + logged.text(logged.record(BOOK, form(server="db", a="string"), can=True, duration_ms=30_000.0), "hash")
    + "\n"
)


def test_a_table_for_each_server(run: Run, write: Write) -> None:
    write("log.jsonl", LOG)
    ended = run("report", "--log", "log.jsonl")
    assert (0, "") == (ended.code, ended.err)
    assert (
        """\
5 requests from 2 servers in 1 log, 2027-01-15T08:00:00.000Z to 2027-01-15T08:00:00.000Z

server docs: 4 requests, $0.25, 2 with unknown price
  kind      requests  answered  denied  unanswered     p50     p95
  sampling         4         2       1           1  101 ms  2.49 s
  rule              requests
  allow: models            2  50%
  deny: no secrets         1  25%
  none: models             1  25%
  tool       requests
  (no call)         2  50%
  look              2  50%
  denied or unanswered  requests
  limit: models                1  25%
  rule: no secrets             1  25%
  limit reached  requests
  team-day              1  25%
  answered by  requests  input tokens  output tokens
  gpt-5               2           140              6
  model called  calls  input tokens  output tokens   cost  failures
  a                 1             0              0  $0.00  1 rate_limited
  b                 1            70              3  $0.25
  own               1             0              0      ?

server db: 1 request
  kind         requests  answered     p50     p95
  elicitation         1         1  30.2 s  30.2 s
  rule             requests
  forward: person         1  100%
  tool       requests
  (no call)         1  100%
"""
        == ended.out
    )


def test_less_than_a_cent_is_not_shown_as_nothing(run: Run, write: Write) -> None:
    write(
        "log.jsonl",
        line(put={"cost_usd": 0.000013, "attempts": [{"model": "b", "result": "ok", "cost_usd": 0.000013}]}),
    )
    told = run("report", "--log", "log.jsonl").out.splitlines()
    assert "server docs: 1 request, $0.000013" in told
    assert "  b                 1             0              0  $0.000013" in told


def test_reviews_are_told(run: Run, write: Write) -> None:
    at = {"reviewer": "ops", "review": "rv_1", "review_door": "page", "reviewed_ms": 1500.0}
    write(
        "log.jsonl",
        line(put=at)
        + line(put={**at, "outcome": "denied", "reason": "review"})
        + line(put={"reviewer": "desk", "review": "rv_2"}),
    )
    told = run("report", "--log", "log.jsonl").out.splitlines()
    start = next(number for number, row in enumerate(told) if row.split()[:1] == ["reviewer"])
    assert ["reviewer", "reviews", "approved", "answered", "rejected", "undecided"] == told[start].split()
    assert [["ops", "2", "0", "1", "1", "0"], ["desk", "1", "0", "0", "0", "1"]] == [
        row.split() for row in told[start + 1 : start + 3]
    ]
    assert any(row.startswith("  time to decision: p50 1.") and row.endswith(" s") for row in told)
    docs = json.loads(run("report", "--log", "log.jsonl", "--json").out)["servers"]["docs"]
    assert {"ops": {"reviews": 2, "answered": 1, "rejected": 1}, "desk": {"reviews": 1, "undecided": 1}} == docs[
        "reviews"
    ]
    assert {"page": 2} == docs["reviewed"]["doors"]


SEEN: dict[str, Any] = {"reviewer": "ops", "review": "rv_1", "review_door": "page", "reviewed_ms": 1500.0}
FIRST: dict[str, Any] = {
    **SEEN,
    **PAID,
    "attempts": (Attempt("smart", "ok", 70, 3, 10**12),),
    "usd": 10**12,
    "limits": ("day",),
}
LOST: dict[str, Any] = {**SEEN, "outcome": "unanswered", "reason": "review", "revokes": True, "time": 1_800_000_001.0}


@pytest.mark.parametrize("place", ["file", "parts", "database"])
def test_a_revoked_request_is_one(run: Run, tmp_path: Path, write: Write, place: str) -> None:
    records = [
        logged.record(BOOK, sampling(), decision_id=name, **more)
        for name, more in (("a", FIRST), ("b", {}), ("a", LOST))
    ]
    texts = [logged.text(record, "hash") + "\n" for record in records]
    log = "log.jsonl"
    if place == "file":
        write(log, "".join(texts))
    elif place == "parts":
        write("log.jsonl.000001", texts[0])
        write(log, "".join(texts[1:]))
    else:
        log = "sqlite:log.db"
        table = SqliteLog(tmp_path / "log.db")
        assert 3 == table.write_first(records, lambda: 5.0)
        table.close()
    told = json.loads(run("report", "--log", log, "--json").out)
    docs = told["servers"]["docs"]
    assert (2, {"answered": 1, "unanswered": 1}) == (told["requests"], docs["kinds"]["sampling"]["outcomes"])
    assert ({"smart": {"calls": 1, "input_tokens": 70, "output_tokens": 3, "cost_usd": 1.0}}, 1.0) == (
        docs["attempts"],
        docs["cost_usd"],
    )
    assert {"ops": {"reviews": 1, "undecided": 1}} == docs["reviews"]
    assert {"review: models": 1} == docs["refusals"]


def test_the_two_records_of_a_modern_forward_are_one_request(run: Run, write: Write) -> None:
    both = [
        logged.text(logged.record(BOOK, form(a="string"), can=True, outcome=outcome), "hash")
        for outcome in ("forwarded", "answered")
    ]
    write("log.jsonl", "\n".join(both) + "\n")
    told = json.loads(run("report", "--log", "log.jsonl", "--json").out)
    assert (1, {"answered": 1}) == (told["requests"], told["servers"]["docs"]["kinds"]["elicitation"]["outcomes"])


def test_json_has_every_row(run: Run, write: Write) -> None:
    write("log.jsonl", LOG + "".join(line("hello", tool(f"tool {number}")) for number in range(30)))
    told = json.loads(run("report", "--log", "log.jsonl", "--json").out)
    docs = told["servers"]["docs"]
    assert (35, 34, 32) == (told["requests"], docs["requests"], len(docs["tools"]))
    assert {"answered": 32, "denied": 1, "unanswered": 1} == docs["kinds"]["sampling"]["outcomes"]
    assert {"gpt-5": {"requests": 2, "input_tokens": 140, "output_tokens": 6}} == docs["models"]
    assert {
        "a": {"calls": 1, "rate_limited": 1, "cost_usd": 0.0},
        "b": {"calls": 1, "input_tokens": 70, "output_tokens": 3, "cost_usd": 0.25},
        "own": {"calls": 1, "without_price": 1, "cost_usd": 0.0},
    } == docs["attempts"]
    assert (0.25, 32, {"team-day": 1}) == (docs["cost_usd"], docs["without_price"], docs["limits"])


def test_a_long_table_is_cut_for_a_person(run: Run, write: Write) -> None:
    write("log.jsonl", "".join(line("hello", tool(f"tool {number}")) for number in range(30)))
    assert "  and 20 more" in run("report", "--log", "log.jsonl").out.splitlines()


@pytest.mark.parametrize(
    ("since", "requests"),
    [
        ("2027-01-15", 2),
        ("2027-01-15T08:00:30Z", 1),
        ("2027-01-15T08:00:30", 1),
        ("2027-01-15T10:00:30+02:00", 1),
        ("2028-01-01", 0),
    ],
)
def test_what_is_older_is_left_out(run: Run, write: Write, since: str, requests: int) -> None:
    write("log.jsonl", line(time=1_800_000_000.0) + line(time=1_800_000_060.0))
    assert requests == json.loads(run("report", "--log", "log.jsonl", "--since", since, "--json").out)["requests"]


@pytest.mark.parametrize("since", ["yesterday", "2027-13-01", "0001-01-01T00:00+14:00", ""])
def test_a_date_that_is_none_leaves_with_two(run: Run, write: Write, since: str) -> None:
    write("log.jsonl", "")
    ended = run("report", "--log", "log.jsonl", "--since", since)
    assert 2 == ended.code
    assert ended.err.startswith("samplegate: --since: ")


def test_several_logs_globs_and_folders_are_one(run: Run, write: Write, tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    for name in ("days/docs-2027-01-14.jsonl", "days/docs-2027-01-15.jsonl", "days/.key", "other.jsonl"):
        write(name, line())
    assert 2 == json.loads(run("report", "--log", "days", "--json").out)["requests"]
    assert 3 == json.loads(run("report", "--log", "days/*-2027-*.jsonl", "other.jsonl", "--json").out)["requests"]
    assert (
        2
        == json.loads(
            run("report", "--log", "days", "days/*.jsonl", str(Path("days") / "docs-2027-01-14.jsonl"), "--json").out
        )["requests"]
    )


ORDERS: list[tuple[list[str], list[str]]] = [
    (["audit.jsonl"], ["000001", "000002", "jsonl"]),
    (["audit.jsonl*"], ["000001", "000002", "jsonl"]),
    (["audit.jsonl.*"], ["000001", "000002"]),
    (["audit.jsonl.000002"], ["000002"]),
    (["audit.jsonl.000002", "audit.jsonl", "audit.jsonl.000001"], ["000001", "000002", "jsonl"]),
    (["."], ["000001", "000002", "jsonl"]),
]


@pytest.mark.parametrize(("given", "read"), ORDERS, ids=[" ".join(given) for given, _ in ORDERS])
def test_a_log_that_was_turned_over_is_read_whole_and_in_order(
    run: Run, write: Write, tmp_path: Path, given: list[str], read: list[str]
) -> None:
    for number, name in enumerate(("audit.jsonl", "audit.jsonl.000002", "audit.jsonl.000001")):
        write(name, line(put={"decision_id": name[-6:].removeprefix(".")}) + number * line())
    (tmp_path / "audit.jsonl.key").write_bytes(b"\xff" * 32)
    told = json.loads(run("report", "--log", *given, "--json").out)
    assert (read, 0) == ([name[-6:].removeprefix(".") for name in told["logs"]], told["unreadable_lines"])
    assert sum({"jsonl": 1, "000002": 2, "000001": 3}[one] for one in read) == told["requests"]


def test_a_log_that_was_just_put_aside_is_read_by_its_name(run: Run, write: Write) -> None:
    write("audit.jsonl.000001", line())
    assert run("report", "--log", "audit.jsonl").out.startswith("1 request from 1 server in 1 log")


def test_without_a_log_the_state_folders_are_read(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEGATE_STATE", str(tmp_path / "state"))
    assert (2, True) == ((ended := run("report")).code, "does not exist; pass the log files with --log" in ended.err)
    (tmp_path / "state" / "decisions").mkdir(parents=True)
    write("state/decisions/docs-2027-01-15.jsonl", line())
    assert run("report").out.startswith("1 request from 1 server in 1 log")


def test_a_folder_without_logs_leaves_with_two(run: Run, tmp_path: Path) -> None:
    ended = run("report", "--log", str(tmp_path))
    assert (2, True) == (ended.code, "the folder has no *.jsonl files" in ended.err)


def test_lines_that_are_no_records_are_told_and_stop_nothing(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_LINE", 2000)
    write("log.jsonl", line() + "{\n" + "x" * 5000 + "\n" + line() + line()[:100])
    ended = run("report", "--log", "log.jsonl")
    assert ended.out.startswith("2 requests")
    assert ["log.jsonl:2: is not JSON", "log.jsonl:3: is longer than 2000 bytes", "log.jsonl:5: is not JSON"] == [
        told.removeprefix("samplegate: ") for told in ended.err.splitlines()
    ]


def test_no_requests_are_told_too(run: Run, write: Write) -> None:
    write("log.jsonl", "")
    assert "0 requests from 0 servers in 1 log\n" == run("report", "--log", "log.jsonl").out


def test_names_in_a_log_drive_no_terminal(run: Run, write: Write) -> None:
    write(
        "log.jsonl", line("hello", tool("\x1b[2J\n::error::" + "x" * 300), put={"server": "\u202ex", "rule": "a\x07"})
    )
    assert run("report", "--log", "log.jsonl").out.replace("\n", "").isprintable()


def test_names_in_a_log_give_no_command_to_a_ci_runner(run: Run, write: Write) -> None:
    hostile = {"server": "##[error]x", "rule": "::error::a", "caller": "::debug::b"}
    write("log.jsonl", line("hello", tool("::error::x"), put=hostile) + line("hello", tool("##[error]y"), put=hostile))
    ended = run("report", "--log", "log.jsonl")
    assert [] == commands(ended.out + ended.err)
    assert r"  \x3a:error::x" in ended.out
    told = run("report", "--json", "--log", "log.jsonl")
    assert [] == commands(told.out)
    assert ["##[error]x"] == list(json.loads(told.out)["servers"])
    write("::error::z", "no json\n")
    write("a\n::error::z", "no json\n")
    assert [] == commands(run("report", "--log", "::error::z", "a\n::error::z", "b\n::error::z").err)
