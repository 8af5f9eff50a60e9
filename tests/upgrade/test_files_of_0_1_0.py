"""The present code opens the files of version 0.1.0 (state folder, reviews, decision logs, cassette) with every
balance, review and record unchanged.

``v0.1.0/`` has the files and, in ``manifest.json``, what 0.1.0 itself said of them; README.md says how they were
written. Each test works on a copy, through the command line, with the clock at the moment at which 0.1.0 looked at them
last.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.forked import Forks, forks
from tests.upgrade.driving import (
    ASKED,
    DECIDED,
    HERE,
    SERVER,
    Conversation,
    Hook,
    Samplegate,
    form,
    lasting,
    modern_call,
    outcome,
    room,
    rows,
    sample,
    text_of,
    until,
)

pytestmark = pytest.mark.timeout(120)

FILES: Final = HERE / "v0.1.0"
KNOWN: Final[dict[str, Any]] = json.loads((FILES / "manifest.json").read_text("utf-8"))
REVIEWS: Final[dict[str, str]] = KNOWN["reviews"]
SQLITE: Final = sorted(KNOWN["tables"])
TABLES_OF_REVIEWS: Final = tuple(KNOWN["tables"]["state/reviews.db"])
LIMITED: Final = """\
version: 1
models: [{name: small, model: scripted, cases: cases.yaml, price: {input: 1000, output: 5000}}]
limits: {five a month: {requests: 5, per: month, tz: UTC, by: [server]}}
rules:
  - {name: month, match: {kind: sampling, text: counted by the month}, effect: allow, with: {models: [small]}, limits: [five a month]}
  - {name: taped, match: {kind: sampling}, effect: allow, with: {models: [small]}}
"""  # noqa: E501
"""The policy without people: such a gate starts in half the time."""
QUICK: Final = ("--policy", "limited.yaml")


@pytest.fixture(scope="module")
def processes() -> Iterator[Forks]:
    """The process from which the current code's processes are forked."""
    with forks("tests.upgrade.programs.clocked") as found:
        yield found


def copied(folder: Path, processes: Forks) -> Samplegate:
    shutil.copytree(FILES, folder)
    (folder / "limited.yaml").write_text(LIMITED)
    policy = (folder / "policy.yaml").read_text("utf-8")
    # for busy machines
    (folder / "patient.yaml").write_text(policy.replace("desk: {peer_timeout: 2s}", "desk: {peer_timeout: 1h}"))
    found = Samplegate(folder, forks=processes)
    found.policy = "patient.yaml"
    found.at(KNOWN["now"])
    return found


@pytest.fixture
def gate(tmp_path: Path, processes: Forks) -> Iterator[Samplegate]:
    """The current code in a copy of the files."""
    found = copied(tmp_path / "files", processes)
    yield found
    for path in SQLITE:
        with closing(sqlite3.connect(found.folder / path)) as db:
            assert db.execute("PRAGMA quick_check").fetchone() == ("ok",), path


@pytest.fixture
def damaged(tmp_path: Path, processes: Forks) -> Samplegate:
    """The current code in a copy whose files may be damaged at the end."""
    return copied(tmp_path / "files", processes)


def missing(expected: Any, found: Any, at: str = "") -> list[str]:
    """The differences in ``found``. Additional members are allowed, because a later version may report more."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [one for name, value in expected.items() for one in missing(value, found.get(name), f"{at}.{name}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            one for number, value in enumerate(expected) for one in missing(value, found[number], f"{at}[{number}]")
        ]
    return [] if expected == found else [f"{at}: {expected!r} became {found!r}"]


def tables(folder: Path) -> dict[str, dict[str, list[Any]]]:
    return {
        path: reviews(folder / path)
        if path.endswith("reviews.db")
        else {table: rows(folder / path, table) for table in known}
        for path, known in KNOWN["tables"].items()
    }


def reviews(path: Path) -> dict[str, list[Any]]:
    """The tables of reviews without what their migrations have added: columns for votes and UIs, which are empty."""
    found = {table: rows(path, table) for table in TABLES_OF_REVIEWS}
    assert [["0003"]] == found["review_version"]
    assert all([None] * 5 == row[-5:] for row in found["reviews"])
    return {**found, "review_version": [["0001"]], "reviews": [row[:-5] for row in found["reviews"]]}


# -- balances
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "server"), [("state", "desk"), ("killed", "patient")])
def test_each_limit_lets_through_what_it_had_left(gate: Samplegate, state: str, server: str) -> None:
    assert 2 == KNOWN["room"]["state"]["counted by the month"], "three of five were drawn"
    assert KNOWN["room"][state] == room(gate, state, server)


def test_a_window_that_turns_over_is_empty_again_and_an_overdraft_is_worked_off(gate: Samplegate) -> None:
    gate.at("2026-12-01T00:00:05Z")
    found = room(gate, "state")
    assert (5, 1) == (found["counted by the month"], found["read too much"])


# -- reviews
# ----------------------------------------------------------------------------------------------------------------------


def test_every_review_is_shown_as_it_was_and_looking_changes_nothing(gate: Samplegate) -> None:
    shown = [(one["id"], state) for state, found in KNOWN["listed"].items() for one in found]
    lists = [["reviews", "list", "--state", state, "--all", "--limit", "100", "--json"] for state in KNOWN["listed"]]
    told = gate.told(*lists, *(["reviews", "show", id, "--state", state, "--json"] for id, state in shown))
    assert [] == missing(
        KNOWN["listed"], dict(zip(KNOWN["listed"], ([lasting(one) for one in found] for found in told), strict=False))
    )
    assert [] == missing(KNOWN["shown"], {one["id"]: lasting(one) for one in told[len(lists) :]})
    assert KNOWN["tables"] == tables(gate.folder)


def used(gate: Samplegate) -> set[str]:
    """The reviews whose verdict was used, by their names in the manifest."""
    names = {id: name for name, id in REVIEWS.items()}
    with closing(sqlite3.connect(gate.folder / "state" / "reviews.db")) as db:
        return {names[id] for (id,) in db.execute("SELECT id FROM reviews WHERE used_by IS NOT NULL")}


def begin_anew(gate: Samplegate, client: Conversation, name: str) -> None:
    """Ask this again, and check that a new review is opened. The process is killed then."""
    path = gate.folder / "state" / "reviews.db"
    before = len(rows(path, "reviews"))
    client.begin_to_ask(ASKED[name])
    until(lambda: len(rows(path, "reviews")) > before or None, "a review is opened")
    client.kill()


def test_each_verdict_that_was_not_used_answers_its_request_once(gate: Samplegate) -> None:
    before = used(gate)
    with gate.run() as client:
        assert KNOWN["answers"] == {name: outcome(client.ask(ASKED[name])) for name in DECIDED}
        begin_anew(gate, client, "approved")
    assert {*before, *DECIDED} == used(gate)
    records = [
        json.loads(line)
        for line in (gate.folder / "state" / "decisions" / "desk-2026-11-21.jsonl").read_text("utf-8").splitlines()
    ]
    (edited,) = (
        record
        for record in records
        if record.get("review") == REVIEWS["approved with edits"] and record["outcome"] == "answered"
    )
    assert ("large", "ann") == (edited["attempts"][0]["model"], edited["reviewed_by"])


def test_what_was_pending_is_decided_now_and_each_verdict_is_used_once(gate: Samplegate) -> None:
    said = gate.verdicts(
        ["approve", REVIEWS["pending sampling"]],
        ["answer", REVIEWS["pending form"], "--accept", "confirm=yes"],
        ["answer", REVIEWS["pending link"], "--decline"],
        ["approve", REVIEWS["pending answer"]],
    )
    assert [0] * 4 == [one.code for one in said], said
    with gate.run() as client:
        assert "fine" == text_of(client.ask(ASKED["pending sampling"]))
        assert {"action": "accept", "content": {"confirm": True}} == outcome(client.ask(ASKED["pending form"]))
        assert {"action": "decline"} == outcome(client.ask(ASKED["pending link"]))
        assert "read it first" == text_of(client.ask(ASKED["pending answer"]))
        begin_anew(gate, client, "pending form")
    assert {"pending sampling", "pending form", "pending link", "pending answer"} <= used(gate)


def test_what_is_over_takes_no_verdict_and_a_used_one_answers_nothing(gate: Samplegate) -> None:
    over = [REVIEWS[name] for name in ("used", "used while it waited", "expired", "withdrawn", "rejected")]
    assert [(1, "")] * 5 == [(one.code, one.out) for one in gate.verdicts(*(["reject", id] for id in over))]
    assert KNOWN["tables"]["state/reviews.db"] == reviews(gate.folder / "state" / "reviews.db")
    with gate.run() as client:
        begin_anew(gate, client, "used")


def test_the_review_of_a_killed_process_is_joined_by_the_same_request(gate: Samplegate) -> None:
    (id,) = (one["id"] for one in KNOWN["listed"]["killed"])
    with gate.run(server="patient", state="killed") as client:
        client.begin_to_ask(form("reviewers are told, and it was killed meanwhile"))
        until(lambda: 2 <= len(rows(gate.folder / "killed" / "reviews.db", "review_events")) or None, "it has joined")
        assert [0] == [one.code for one in gate.verdicts(["answer", id, "--accept", "confirm=no"], state="killed")]
        assert {"confirm": False} == client.answer()["result"]["content"]
        client.end()
    assert [id] == [one["id"] for one in gate.listed("killed")]


@pytest.mark.parametrize("state", ["state", "killed"])
def test_a_message_that_had_not_arrived_arrives_under_its_id_and_no_other_is_sent(gate: Samplegate, state: str) -> None:
    waiting = [row[0] for row in KNOWN["tables"][f"{state}/reviews.db"]["review_deliveries"] if "waiting" in row]

    def done() -> bool | None:
        return all("done" in row for row in rows(gate.folder / state / "reviews.db", "review_deliveries")) or None

    hook = Hook()
    gate.more = {"HOOK_URL": hook.url}
    with gate.run(state=state) as client:
        until(done, "it is noted as delivered")
        client.end()
    hook.close()
    assert waiting == [headers["webhook-id"] for headers in hook.came]


# -- logs, cassette, seal
# ----------------------------------------------------------------------------------------------------------------------


def test_reports_and_replays_of_each_log_say_what_they_said(gate: Samplegate) -> None:
    logs: dict[str, str] = KNOWN["logs"]
    told = gate.told(
        *(["report", "--log", log, "--json"] for log in logs.values()),
        *(["replay", "--log", log, "--policy", "policy.yaml", "--json"] for log in logs.values()),
    )
    assert [] == missing(KNOWN["report"], dict(zip(logs, told, strict=False)))
    assert [] == missing(KNOWN["replay"], dict(zip(logs, told[len(logs) :], strict=True)))


def series(gate: Samplegate) -> bytes:
    """A log that is rotated by size, as one."""
    return b"".join(
        path.read_bytes()
        for path in [*sorted((gate.folder / "logs").glob("audit.jsonl.0*")), gate.folder / "logs" / "audit.jsonl"]
    )


@pytest.mark.parametrize("log", ["logs/audit.jsonl", "sqlite:logs/decisions.db", "sqlite:logs/killed.db"])
def test_a_log_goes_on_behind_the_records_that_it_had(gate: Samplegate, log: str) -> None:
    path = log.removeprefix("sqlite:")
    before, key = series(gate), (gate.folder / f"{path}.key").read_bytes()
    gate.more = {"SAMPLEGATE_DECISION_LOG_MAX_BYTES": "4000"} if path == log else {}
    with gate.run(*QUICK, "--decision-log", log) as client:
        for number in range(3):
            client.ask(sample(f"on the tape, {number}"))
        client.end()
    assert key == (gate.folder / f"{path}.key").read_bytes()
    if path == log:
        assert (before, 3) == (series(gate)[: len(before)], series(gate)[len(before) :].count(b"\n"))
    else:
        kept = KNOWN["tables"][path]["decisions"]
        found = sorted(rows(gate.folder / path, "decisions"), key=lambda row: int(row[0]))
        assert (sorted(kept, key=lambda row: int(row[0])), len(kept) + 3) == (found[: len(kept)], len(found))


def test_hashes_of_before_and_now_can_be_compared(gate: Samplegate) -> None:
    folder = gate.folder / "state" / "decisions"
    earlier = next(json.loads(line) for line in (folder / "desk-2026-11-20.jsonl").read_text("utf-8").splitlines())
    with gate.run(*QUICK) as client:
        client.ask(sample("counted by the month, first"))
        client.end()
    later = json.loads((folder / "desk-2026-11-21.jsonl").read_text("utf-8").splitlines()[-1])
    assert (earlier["request_hash"], earlier["result_hash"]) == (later["request_hash"], later["result_hash"])


def test_the_cassette_answers_what_it_recorded_and_is_added_to(gate: Samplegate) -> None:
    before = (gate.folder / "tape.yaml").read_bytes()
    (gate.folder / "taped.yaml").write_text(
        "version: 1\n"
        "models: [{name: taped, model: scripted, cases: tape.yaml}]\n"
        "rules:\n"
        "  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [taped]}}\n"
        "  - {name: taped answers, match: {kind: elicitation}, effect: answer, cases: tape.yaml}\n"
    )
    with gate.run("--policy", "taped.yaml", "--decision-log", "none") as client:
        assert ["fine", "fine"] == [
            text_of(client.ask(sample(f"on the tape, {number}"))) for number in ("first", "second")
        ]
        assert "error" in client.ask(sample("fails, on the tape"))
        assert {"action": "accept", "content": {"confirm": True}} == outcome(
            client.ask(form("the client fills in what is recorded"))
        )
        client.end()
    with gate.run(*QUICK, "--record", "tape.yaml", "--decision-log", "none") as client:
        for number in ("first", "third"):
            client.ask(sample(f"on the tape, {number}"))
        client.end()
    after = (gate.folder / "tape.yaml").read_bytes()
    assert (before, 1) == (after[: len(before)], after[len(before) :].count(b"- fingerprint:"))


def test_a_call_that_was_with_its_client_goes_on(gate: Samplegate) -> None:
    filled = {"action": "accept", "content": {"confirm": True}}
    gate.at("2026-11-21T09:05:00Z")  # it holds for a quarter of an hour
    held = {"requestState": KNOWN["sealed"]["result"]["requestState"], "inputResponses": {"k": filled}}
    answer = asyncio.run(modern_call(gate, {**KNOWN["sealed"]["call"], **held}))
    assert filled == answer["result"]["structuredContent"]["result"]


# -- kills
# ----------------------------------------------------------------------------------------------------------------------


def killed(gate: Samplegate, *command: str, frames: bytes = b"") -> list[Path]:
    """The folders of processes that were killed at each step of a command. The last one ended by itself."""
    words = [sys.executable, str(HERE / "programs" / "killed.py"), "copies", *command]
    done = subprocess.run(
        words, env=gate.environment(), cwd=gate.folder, input=frames, capture_output=True, timeout=100, check=False
    )
    assert 0 == done.returncode, done
    return [gate.folder / "copies" / str(number) for number in range(1, int(done.stdout) + 1)]


@pytest.mark.parametrize("state", ["state", "killed"])
def test_a_kill_at_any_step_of_opening_the_reviews_leaves_them_as_they_were(gate: Samplegate, state: str) -> None:
    folders = killed(gate, "reviews", "list", "--state", f"{{here}}/{state}")
    assert len(folders) > 5
    told = gate.told(
        *(
            ["reviews", "list", "--state", f"{folder}/{state}", "--all", "--limit", "100", "--json"]
            for folder in folders
        )
    )
    expected = KNOWN["listed"][state]
    assert [] == [one for found in told for one in missing(expected, [lasting(review) for review in found])]
    for folder in folders:
        assert KNOWN["tables"][f"{state}/reviews.db"] == reviews(folder / state / "reviews.db")


def test_a_kill_at_any_step_of_the_first_request_leaves_each_balance_and_record_old_or_new(gate: Samplegate) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    asked = {"name": "do", "arguments": {"ask": sample("counted by the month, and killed")}}
    frames: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": asked},
    ]
    options = [
        "--policy",
        "limited.yaml",
        "--server",
        "desk",
        "--state",
        "{here}/state",
        "--decision-log",
        "sqlite:{here}/logs/decisions.db",
    ]
    given = b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)
    folders = killed(gate, "run", *options, "--", sys.executable, "-S", str(SERVER), "legacy", frames=given)
    assert len(folders) > 15

    def account(row: list[Any]) -> tuple[str, str]:
        return row[0], row[1]

    kept, records = (
        KNOWN["tables"]["state/limits.sqlite3"]["accounts"],
        KNOWN["tables"]["logs/decisions.db"]["decisions"],
    )
    drawn = [
        (
            row
            if not (row[0].startswith('["five a month"') and "desk" in row[1])
            else [*row[:2], row[2] + 1_000_000, *row[3:]]
        )
        for row in kept
    ]
    seen = []
    for folder in folders:
        found, log = (
            rows(folder / "state" / "limits.sqlite3", "accounts"),
            rows(folder / "logs" / "decisions.db", "decisions"),
        )
        assert found in (sorted(kept, key=repr), sorted(drawn, key=repr)), folder.name
        assert records == [row for row in log if row in records], folder.name
        seen.append((found == sorted(drawn, key=repr), len(log) - len(records)))
    assert [(False, 0), (True, 0), (True, 1)] == sorted(set(seen)), (
        "each came to pass, and nothing is on record that was not charged"
    )
    assert seen == sorted(seen)


# -- files that cannot be read: empty ones are in tests/system/gate/test_empty_databases.py
# -------------------------------------------------------------


def cut(path: Path) -> None:
    """The second half is lost."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    """The beginning is overwritten."""
    path.write_bytes(b"x" * 512 + path.read_bytes()[512:])


def newer(path: Path) -> None:
    """A later samplegate has changed the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        statement = {
            "reviews.db": "UPDATE review_version SET version_num = '9999'",
            "decisions.db": "UPDATE samplegate_versions SET version = 9999",
            "limits.sqlite3": "PRAGMA user_version = 9999",
        }[path.name]
        db.execute(statement)


def without_wal(path: Path) -> None:
    """The WAL of a killed process is missing."""
    path.with_name(f"{path.name}-wal").unlink()


DAMAGES: Final = [("state", cut), ("state", overwritten), ("state", newer), ("killed", without_wal)]


def test_a_store_of_reviews_that_cannot_be_read_is_refused_and_left_alone(damaged: Samplegate) -> None:
    paths = [
        shutil.copytree(damaged.folder / state, damaged.folder / damage.__name__) / "reviews.db"
        for state, damage in DAMAGES
    ]
    for path, (_, damage) in zip(paths, DAMAGES, strict=True):
        damage(path)
    before = [path.read_bytes() for path in paths]
    told = damaged.commands(*(["reviews", "list", "--state", str(path.parent)] for path in paths))
    assert [(2, "", True)] * len(paths) == [
        (one.code, one.out, str(path) in one.err) for one, path in zip(told, paths, strict=True)
    ], told
    assert before == [path.read_bytes() for path in paths]


@pytest.mark.parametrize(("state", "damage"), DAMAGES)
def test_a_state_file_that_cannot_be_read_lets_nothing_through_and_is_left_alone(
    damaged: Samplegate, state: str, damage: Callable[[Path], None]
) -> None:
    path = damaged.folder / state / "limits.sqlite3"
    damage(path)
    before = path.read_bytes()
    with damaged.run(*QUICK, "--decision-log", "none", state=state) as client:
        assert "error" in client.ask(sample("counted by the month"))
        _, said = client.end()
    assert f"{state}/limits.sqlite3" in said
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    ("log", "damage"), [("logs/decisions.db", cut), ("logs/decisions.db", newer), ("logs/killed.db", without_wal)]
)
def test_a_log_that_cannot_be_read_is_refused_and_left_alone(
    damaged: Samplegate, log: str, damage: Callable[[Path], None]
) -> None:
    path = damaged.folder / log
    damage(path)
    before = path.read_bytes()
    with damaged.run(*QUICK, "--decision-log", f"sqlite:{log}") as client:
        assert "error" in client.ask(sample("on the tape, first"))
        _, said = client.end()
    assert log in said
    assert before == path.read_bytes()
    if damage is not newer:  # reading takes what it knows of a newer one
        told = damaged.command("report", "--log", f"sqlite:{log}")
        assert (2, True) == (told.code, log in told.err), told


def test_a_cassette_that_was_cut_off_is_refused_and_left_alone(damaged: Samplegate) -> None:
    path = damaged.folder / "tape.yaml"
    path.write_bytes(path.read_bytes()[:-20])
    before = path.read_bytes()
    with damaged.run(*QUICK, "--record", "tape.yaml", "--decision-log", "none") as client:
        code, said = client.end()
    assert (2, True) == (code, "record: tape.yaml" in said), said
    assert before == path.read_bytes()


def test_a_line_that_was_cut_off_is_counted_and_the_others_are_read(damaged: Samplegate) -> None:
    path = damaged.folder / "logs" / "audit.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (found,) = damaged.told(["report", "--log", "logs/audit.jsonl", "--json"])
    assert (KNOWN["report"]["turned over"]["requests"] - 1, 1) == (found["requests"], found["unreadable_lines"])
