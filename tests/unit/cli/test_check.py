"""`samplegate check`: problems, warnings, scripts, the capabilities of each server, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.shell import Run, Write

GOOD = """\
version: 1
rules:
  - {name: forms of db, match: {kind: elicitation, mode: form, server: db, fields: [confirm]}, effect: answer, content: {confirm: true}}
  - {name: client first, match: {kind: sampling}, effect: forward}
"""  # noqa: E501
BAD = "version: 2\nrules:\n  - {name: x, effect: alow}\n"
SCRIPTED = (
    "version: 1\nmodels: [{name: trial, model: scripted, cases: talk.yaml}]\nrules: [{name: x, match: {kind: sampling},"
    " effect: allow}]\n"
)


def test_a_good_policy_is_ok_and_says_what_servers_are_told(run: Run, write: Write) -> None:
    write("p.yaml", GOOD)
    ended = run("check", "p.yaml")
    assert (0, "") == (ended.code, ended.err)
    first, *told = ended.out.splitlines()
    assert first.startswith("p.yaml: ok, 2 rules, 0 models, hash ")
    assert [
        "p.yaml: server db: sampling: advertised if the client declares it; every request matches a rule",
        "p.yaml: server db: sampling with tools: advertised if the client declares it; every request matches a rule",
        "p.yaml: server db: form elicitation: advertised; some requests may match no rule",
        "p.yaml: server db: URL elicitation: not advertised; no rule matches",
        "p.yaml: any other server: sampling: advertised if the client declares it; every request matches a rule",
        (
            "p.yaml: any other server: sampling with tools: advertised if the client declares it; every request matches"
            " a rule"
        ),
        "p.yaml: any other server: form elicitation: not advertised; no rule matches",
        "p.yaml: any other server: URL elicitation: not advertised; no rule matches",
    ] == told


LIMITED = """\
version: 1
models: [{name: m, model: o/m, price: {input: 1, output: 1}}]
limits: {day: {usd: 5, per: day, tz: UTC}, rate: {requests: 10, per: 1m}, loop: {requests: 5, per: call}}
rules: [{name: r, match: {kind: sampling}, effect: allow, limits: [day, rate, loop]}]
"""


def test_a_policy_whose_limits_must_last_says_that_it_needs_a_state(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    needs = "p.yaml: needs a state folder (--state) for the limits day, rate; processes with the same folder share them"
    assert needs == run("check", "p.yaml").out.splitlines()[1]
    (told,) = json.loads(run("check", "--json", "p.yaml").out)["files"]
    assert ["day", "rate"] == told["state"]
    write("p.yaml", LIMITED.replace("day: {usd: 5, per: day, tz: UTC}", "day: {requests: 5, per: 59m}"))
    assert "needs a state" not in run("check", "p.yaml").out


REVIEWED = """\
version: 1
reviewers: {ops: {timeout: 1h}}
rules: [{name: r, match: {kind: elicitation}, effect: escalate, reviewer: ops}]
"""


def test_how_long_a_reviewer_really_has_is_told(run: Run, write: Write) -> None:
    write("p.yaml", REVIEWED)
    both = "9m10s if client and server both speak 2026-07-28"
    time = (
        f"55s to decide, or {both} (the review itself expires after 1h); for 24h, a later decision answers the next"
        " identical request"
    )
    assert f"p.yaml: rule 'r': reviewer ops has {time}" == run("check", "p.yaml").out.splitlines()[1]
    (told,) = json.loads(run("check", "--json", "p.yaml").out)["files"]
    wait = {
        "rule": "r",
        "reviewer": "ops",
        "stage": "request",
        "timeout": 3600.0,
        "late": 86400.0,
        "legacy": [55.0, 55.0],
        "modern": 550.0,
    }
    wait["bridged"] = 55.0
    assert [wait] == told["reviews"]


def test_all_problems_of_all_files_are_told_at_once(run: Run, write: Write) -> None:
    write("a.yaml", BAD)
    write("b.yaml", "version: 1\nrule: []\n")
    ended = run("check", "a.yaml", "b.yaml")
    assert 1 == ended.code
    assert ["a.yaml:1:10:", "a.yaml:3:23:", "b.yaml:2:1:"] == [line.split(" ")[0] for line in ended.out.splitlines()]


def test_a_problem_reads_like_a_compilers(run: Run, write: Write) -> None:
    write("a.yaml", "version: 1\nrules:\n  - {name: x, effect: alow}\n")
    assert (
        "a.yaml:3:23: rules.0.effect: 'alow' is not one of allow, answer, forward, escalate, deny"
        in run("check", "a.yaml").out
    )


def test_a_variable_that_is_not_set_is_a_warning(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("p.yaml", GOOD.replace("confirm: true", 'confirm: "${SAMPLEGATE_TEST}"'))
    warned = run("check", "p.yaml")
    assert 0 == warned.code
    assert "p.yaml:3:" in warned.out
    assert ": warning: rules.0.content.confirm: ${SAMPLEGATE_TEST} is not set" in warned.out
    monkeypatch.setenv("SAMPLEGATE_TEST", "true")
    assert "warning" not in run("check", "p.yaml").out


def test_a_file_that_is_not_there_leaves_with_two_and_the_others_are_checked(run: Run, write: Write) -> None:
    write("p.yaml", GOOD)
    ended = run("check", "none.yaml", "p.yaml")
    assert 2 == ended.code
    assert "samplegate: none.yaml: cannot be read: no such file or directory\n" == ended.err
    assert ended.out.startswith("p.yaml: ok")


def test_a_file_that_is_not_text_leaves_with_two(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"version: 1\n\xff")
    assert (2, "samplegate: p.yaml: cannot be read: byte 11 is not UTF-8; save it as UTF-8 text\n") == (
        run("check", "p.yaml").code,
        run("check", "p.yaml").err,
    )


def test_a_test_file_is_checked_as_what_it_is(run: Run, write: Write) -> None:
    write("p_test.yaml", "cases:\n  - {name: a, sampling: x, expect: {effect: none}}\n")
    assert (0, "p_test.yaml: ok\n") == (run("check", "p_test.yaml").code, run("check", "p_test.yaml").out)
    write("p_test.yaml", "cases:\n  - {name: a, sampling: x}\n")
    assert (1, "p_test.yaml:2:5: cases.0.expect: the key is required; set it to a mapping\n") == (
        run("check", "p_test.yaml").code,
        run("check", "p_test.yaml").out,
    )


def test_the_script_of_a_model_is_checked_with_it(run: Run, write: Write) -> None:
    write("p.yaml", SCRIPTED)
    write("talk.yaml", "cases: [{answer: hello}]\n")
    assert 0 == run("check", "p.yaml").code
    write("talk.yaml", "cases: [{answr: hello}]\n")
    ended = run("check", "p.yaml")
    assert 1 == ended.code
    assert "talk.yaml:1:10: cases.0.answr: unknown key" in ended.out


def test_a_script_that_is_missing_is_a_problem_of_the_policy(run: Run, write: Write) -> None:
    write("p.yaml", SCRIPTED)
    ended = run("check", "p.yaml")
    assert 1 == ended.code
    assert "p.yaml:2:48: models.0.cases: talk.yaml: cannot be read: no such file or directory" in ended.out


def test_a_script_by_itself_is_checked_as_what_it_is(run: Run, write: Write) -> None:
    write("talk.yaml", "cases: [{answer: hello}]\n")
    assert (0, "talk.yaml: ok\n") == (run("check", "talk.yaml").code, run("check", "talk.yaml").out)


def test_callers_and_eras_are_told_where_they_matter(run: Run, write: Write) -> None:
    write(
        "p.yaml",
        "version: 1\nrules: [{name: x, match: {kind: sampling, caller: bob, era: modern}, effect: answer, content:"
        " fixed}]\n",
    )
    heads = dict.fromkeys(line.split(": ")[1] for line in run("check", "p.yaml").out.splitlines()[1:])
    assert ["any server", "any server for caller bob with 2026-07-28"] == list(heads)


@pytest.mark.parametrize("given", [["p.yaml", "p.yaml"], ["p.yaml", "./p.yaml"]])
def test_a_file_that_is_given_twice_is_told_once(run: Run, write: Write, given: list[str]) -> None:
    write("p.yaml", GOOD)
    assert 1 == run("check", *given).out.count(": ok, ")


def test_json_tells_the_same(run: Run, write: Write) -> None:
    write("p.yaml", GOOD)
    write("bad.yaml", BAD)
    ended = run("check", "--json", "p.yaml", "bad.yaml")
    assert 1 == ended.code
    good, bad = json.loads(ended.out)["files"]
    assert ("p.yaml", "policy", [], ["server db"]) == (
        good["file"],
        good["sort"],
        good["problems"],
        good["servers"][0]["servers"],
    )
    assert {"requests": "sampling", "declared": "if the client can", "untaken": "none", "denials": []} == good[
        "servers"
    ][0]["requests"][0]
    assert [(1, 10), (3, 23)] == [(problem["line"], problem["column"]) for problem in bad["problems"]]


def test_every_setting_by_which_a_rule_denies_is_listed_with_what_the_server_gets(run: Run, write: Write) -> None:
    write(
        "p.yaml",
        "version: 1\nmodels: [{name: m, model: openai/m, price: {input: 0, output: 0}}]\nlimits: {one: {requests: 1,"
        " per: 1m}}\nrules:\n  - {name: forms, match: {kind: elicitation, mode: form}, effect: forward, otherwise:"
        " deny}\n  - name: models\n    match: {kind: sampling}\n    effect: allow\n    with: {models: [m]}\n    limits:"
        " [one]\n    otherwise: deny\n    on_limit: deny\n    on_timeout: deny\n",
    )
    out = run("check", "p.yaml").out
    sampling = (
        "if it cannot be carried out, rule 'models' denies with error -1; if a limit is reached, rule 'models' denies"
        " with error -1; "
    )
    assert f"{sampling}on timeout, rule 'models' denies with error -1\n" in out
    assert (
        "advertised if the client declares it; every request matches a rule; if it cannot be carried out, rule 'forms'"
        " denies with error -32602\n" in out
    )
    (of_forms,) = (
        one
        for one in json.loads(run("check", "p.yaml", "--json").out)["files"][0]["servers"][0]["requests"]
        if one["denials"] and "form" in one["requests"]
    )
    assert [{"rule": "forms", "wire": ["error -32602"], "when": "otherwise"}] == of_forms["denials"]
