"""`samplegate replay`: recorded requests under another policy, grouped; unreadable input; exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.sqlite_log import SqliteLog
from samplegate.policy.schema import AllowRule, ForwardRule, Match
from tests.fakes import logged
from tests.fakes.requests import compiled, form, sampling
from tests.fakes.shell import Run, Write

OLD = compiled(
    AllowRule(name="models", match=Match(kind="sampling")), ForwardRule(name="person", match=Match(kind="elicitation"))
)
MODELS = "version: 1\nmodels: [{name: smart, model: openai/none}]\n"
SAME = (
    MODELS + "rules:\n  - {name: models, match: {kind: sampling}, effect: allow}\n  - {name: person, match: {kind:"
    " elicitation}, effect: forward}\n"
)
NEW = SAME.replace("rules:\n", "rules:\n  - {name: no secrets, match: {kind: sampling, text: secret}, effect: deny}\n")


def record(what: str, number: int, content: str = "full") -> str:
    return logged.text(logged.record(OLD, sampling(what), decision_id=f"{number:024}"), content)  # type: ignore[arg-type]


def log(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_what_changes_is_told_with_the_ids_of_its_records(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    write("log.jsonl", log(*(record("a secret" if number < 5 else "hello", number) for number in range(8))))
    ended = run("replay", "--log", "log.jsonl", "--policy", "new.yaml")
    assert (0, "") == (ended.code, ended.err)
    told = [
        "8 requests under new.yaml: 3 unchanged, 5 changed, 0 undetermined",
        "changed",
        "       5  sampling by 'docs': allow by 'models', answered -> deny by 'no secrets'",
        "          000000000000000000000000, 000000000000000000000001, 000000000000000000000002 and 2 more",
    ]
    assert told == ended.out.splitlines()


def test_a_change_leaves_with_one_where_that_is_asked_for(run: Run, write: Write) -> None:
    write("same.yaml", SAME)
    write("new.yaml", NEW)
    write("log.jsonl", log(record("a secret", 1)))
    assert [0, 1] == [
        run("replay", "--log", "log.jsonl", "--policy", policy, "--fail-on-change").code
        for policy in ("same.yaml", "new.yaml")
    ]


def test_records_without_contents_are_decided_as_far_as_they_go_and_the_rest_says_how(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    forwarded = logged.text(logged.record(OLD, form(a="string"), can=True), "hash")
    write("log.jsonl", log(record("a secret", 1, "hash"), forwarded))
    ended = run("replay", "--log", "log.jsonl", "--policy", "new.yaml", "--fail-on-change")
    assert 0 == ended.code
    assert "2 requests under new.yaml: 1 unchanged, 0 changed, 1 undetermined" in ended.out
    assert (
        "       1  the record has no content, but rules that may match depend on it; record with"
        " `record_content: full`" in ended.out
    )


def test_json_tells_the_same(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    write("log.jsonl", log(record("a secret", 7), record("hello", 8), record("hello", 9, "none"), "{"))
    told = json.loads(run("replay", "--log", "log.jsonl", "--policy", "new.yaml", "--json").out)
    assert (3, 1, 1, 1, 1) == tuple(
        told[name] for name in ("requests", "same", "changed", "untold", "unreadable_lines")
    )
    assert [
        {
            "kind": "sampling",
            "server": "docs",
            "was": {"effect": "allow", "rule": "models", "outcome": "answered"},
            "now": [{"effect": "deny", "rule": "no secrets"}],
            "count": 1,
            "decision_ids": [f"{7:024}"],
        }
    ] == told["changes"]


def test_lines_that_are_no_records_are_told_with_their_numbers_and_stop_nothing(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    write("log.jsonl", log(record("hello", 1), "{", "", "[]", record("hello", 2), *["x"] * 30))
    ended = run("replay", "--log", "log.jsonl", "--policy", "new.yaml")
    assert 0 == ended.code
    assert "2 requests under new.yaml: 2 unchanged" in ended.out
    assert ended.err.startswith(
        "samplegate: log.jsonl:2: is not JSON\nsamplegate: log.jsonl:4: is not a decision log record: "
    )
    assert ended.err.endswith("samplegate: and 12 more lines that are not records\n")


@pytest.mark.parametrize("first", ["forwarded", "put_off"])
def test_the_two_records_of_a_request_whose_client_comes_back_are_one_request(
    run: Run, write: Write, first: str
) -> None:
    write("same.yaml", SAME)
    both = [
        logged.text(logged.record(OLD, form(a="string"), can=True, outcome=outcome)) for outcome in (first, "answered")
    ]
    write("log.jsonl", log(*both))
    assert "1 request under same.yaml: 1 unchanged" in run("replay", "--log", "log.jsonl", "--policy", "same.yaml").out


SEEN: dict[str, Any] = {"reviewer": "ops", "review": "rv_1", "review_door": "page"}


@pytest.mark.parametrize("place", ["file", "database"])
def test_a_revoked_request_is_one_and_stands_there_as_it_came_out(
    run: Run, write: Write, tmp_path: Path, place: str
) -> None:
    write("new.yaml", NEW)
    lost: dict[str, Any] = {"outcome": "unanswered", "reason": "review", "revokes": True}
    records = [logged.record(OLD, sampling("a secret"), decision_id="a", **SEEN, **more) for more in ({}, lost)]
    log = "log.jsonl" if place == "file" else "sqlite:log.db"
    if place == "file":
        write(log, "".join(f"{logged.text(one)}\n" for one in records))
    else:
        table = SqliteLog(tmp_path / "log.db", content="full")
        assert 2 == table.write_first(records, lambda: 5.0)
        table.close()
    told = run("replay", "--log", log, "--policy", "new.yaml").out.splitlines()
    assert "1 request under new.yaml: 0 unchanged, 1 changed, 0 undetermined" == told[0]
    assert "       1  sampling by 'docs': allow by 'models', unanswered -> deny by 'no secrets'" in told


def test_the_client_may_be_told(run: Run, write: Write) -> None:
    write("same.yaml", SAME)
    write("log.jsonl", log(logged.text(logged.record(compiled(), form(a="string")))))
    out = [
        run("replay", "--log", "log.jsonl", "--policy", "same.yaml", *more).out
        for more in ([], ["--client", ""], ["--client", "elicitation.form"])
    ]
    assert [
        "none by no rule, unanswered -> forward by 'person' or none by 'person'" in out[0],
        "-> none by 'person'" in out[1],
    ] == [True, True]
    assert "-> forward by 'person'\n" in out[2]


def test_names_in_a_log_drive_no_terminal(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    write(
        "log.jsonl",
        log(
            json.dumps(
                {
                    **json.loads(record("a secret", 1)),
                    "decision_id": "\x1b[2J",
                    "server": "\u202ex",
                    "outcome": "answered\n",
                }
            )
        ),
    )
    out = run("replay", "--log", "log.jsonl", "--policy", "new.yaml").out
    assert 4 == len(out.splitlines())
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--log", "missing.jsonl", "--policy", "new.yaml"],
            "samplegate: missing.jsonl: cannot be read: no such file or directory; the path is relative to {}; correct",
        ),
        (
            ["--log", "sqlite:missing.db", "--policy", "new.yaml"],
            "samplegate: missing.db: cannot be read: no such file or directory; the path is relative to {}; correct",
        ),
        (["--log", "*.missing", "--policy", "new.yaml"], "samplegate: *.missing: no file matches\n"),
        (
            ["--log", "log.jsonl", "--policy", "missing.yaml"],
            "samplegate: missing.yaml: cannot be read: no such file or directory; the path is relative to {}; correct",
        ),
        (
            ["--log", "log.jsonl", "--policy", "new.yaml", "--client", "magic"],
            "samplegate: --client: 'magic' is not one of sampling, ",
        ),
    ],
)
def test_what_cannot_be_read_leaves_with_two(run: Run, write: Write, arguments: list[str], complaint: str) -> None:
    write("new.yaml", NEW)
    write("log.jsonl", log(record("hello", 1)))
    ended = run("replay", *arguments)
    assert 2 == ended.code
    assert ended.err.startswith(complaint.format(Path.cwd()))


def test_a_policy_with_problems_leaves_with_one(run: Run, write: Write) -> None:
    write("new.yaml", NEW.replace("deny", "dney"))
    write("log.jsonl", log(record("hello", 1)))
    ended = run("replay", "--log", "log.jsonl", "--policy", "new.yaml")
    assert 1 == ended.code
    assert ended.err.startswith("new.yaml:")


def test_an_empty_log_has_no_requests(run: Run, write: Write) -> None:
    write("new.yaml", NEW)
    write("log.jsonl", "")
    assert (
        "0 requests under new.yaml: 0 unchanged, 0 changed, 0 undetermined\n"
        == run("replay", "--log", "log.jsonl", "--policy", "new.yaml").out
    )


def test_a_variable_that_is_not_set_is_warned_of(run: Run, write: Write) -> None:
    write(
        "new.yaml",
        MODELS + 'rules: [{name: fixed, match: {kind: sampling}, effect: answer, content: "${NEVER_SET_HERE}"}]\n',
    )
    write("env", "NEVER_SET_HERE=x\n")
    write("log.jsonl", log(record("hello", 1)))
    assert "samplegate: warning: new.yaml:3:73: " in run("replay", "--log", "log.jsonl", "--policy", "new.yaml").err
    assert "" == run("replay", "--log", "log.jsonl", "--policy", "new.yaml", "--env-file", "env").err
