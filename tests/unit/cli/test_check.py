"""`samplegate check`: problems, warnings, scripts, the capabilities of each server, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.github_runner import commands
from tests.fakes.shell import Run, Write

MISSING = (
    "samplegate: none.yaml: cannot be read: no such file or directory; the path is relative to {}; correct it, or write"
    " the full path\n"
)

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
    needs = (
        "p.yaml: needs a state folder (--state) or a database for the limits day, rate; processes with the same one"
        " share them"
    )
    assert needs in run("check", "p.yaml").out.splitlines()
    (told,) = json.loads(run("check", "--json", "p.yaml").out)["files"]
    assert ["day", "rate"] == told["state"]
    write("p.yaml", LIMITED.replace("day: {usd: 5, per: day, tz: UTC}", "day: {requests: 5, per: 59m}"))
    assert "needs a state" not in run("check", "p.yaml").out


def test_a_policy_with_a_limit_per_run_says_that_it_needs_a_run_id(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED.replace("per: call", "per: run"))
    needs = "p.yaml: needs a run ID (--run, SAMPLEGATE_RUN or the CI job's) for the limits loop"
    assert needs in run("check", "p.yaml").out.splitlines()
    write("p.yaml", LIMITED)
    assert "needs a run ID" not in run("check", "p.yaml").out


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
    assert MISSING.format(Path.cwd()) == ended.err
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
    assert {
        "requests": "sampling",
        "declared": "if the client can",
        "untaken": "none",
        "denials": [],
        "shows_ui": False,
    } == good["servers"][0]["requests"][0]
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


HOSTILE = "::error::x ##[warning]y \u202e\r\n::stop-commands::z"


def test_github_shows_problems_and_warnings_at_their_lines(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies").mkdir()
    write("policies/a.yaml", BAD)
    write("policies/b.yaml", GOOD.replace("confirm: true", 'confirm: "${SAMPLEGATE_TEST}"'))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    plain = run("check", "policies/a.yaml", "policies/b.yaml")
    ended = run("check", "--format", "github", "policies/a.yaml", "policies/b.yaml")
    assert (1, plain.out, "") == (ended.code, ended.out[: len(plain.out)], ended.err)
    found = commands(ended.out)
    assert [
        ("error", "policies/a.yaml", "1", "10"),
        ("error", "policies/a.yaml", "3", "23"),
        ("warning", "policies/b.yaml", "3", "131"),
    ] == [(one.name, *(one.properties[name] for name in ("file", "line", "col"))) for one in found]
    assert set(plain.out.splitlines()) > {one.data for one in found}
    assert {"samplegate check"} == {one.properties["title"] for one in found}


def test_github_shows_a_note_as_a_notice(run: Run, write: Write) -> None:
    write("p.yaml", "version: 1\nrules: [{name: x, match: {kind: elicitation, mode: form}, effect: forward}]\n")
    ended = run("check", "--format", "github", "p.yaml")
    assert (0, ["notice"]) == (ended.code, [one.name for one in commands(ended.out)])


def test_github_shows_an_unreadable_file(run: Run, write: Write) -> None:
    write("p.yaml", GOOD)
    ended = run("check", "--format", "github", "none.yaml", "p.yaml")
    (found,) = commands(ended.out)
    assert (2, MISSING.format(Path.cwd())) == (ended.code, ended.err)
    assert (MISSING.format(Path.cwd()).strip().removeprefix("samplegate: "), "none.yaml", None) == (
        found.data,
        found.properties["file"],
        found.properties.get("line"),
    )


def test_a_good_policy_has_no_annotations(run: Run, write: Write) -> None:
    write("p.yaml", GOOD)
    assert run("check", "p.yaml") == run("check", "--format", "github", "p.yaml")


def test_a_file_outside_of_the_workspace_is_named_in_the_message_only(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("p.yaml", BAD)
    (tmp_path / "below").mkdir()
    for workspace in (tmp_path / "below", tmp_path / "nowhere"):
        monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
        found = commands(run("check", "--format", "github", str(tmp_path / "p.yaml")).out)
        assert ["file" in one.properties for one in found] == [False, False]
        assert found[0].data.startswith(str(tmp_path / "p.yaml:1:10: "))


def test_a_path_is_relative_to_the_workspace_through_links(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    write("real/p.yaml", BAD)
    (tmp_path / "real" / "q.yaml").symlink_to(tmp_path / "real" / "p.yaml")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "linked"))
    found = commands(run("check", "--format", "github", "linked/p.yaml", "real/../real/q.yaml").out)
    assert {"p.yaml", "q.yaml"} == {one.properties["file"] for one in found}


def test_ten_annotations_of_a_level_are_printed_for_all_files(run: Run, write: Write) -> None:
    names = [f"p{number}.yaml" for number in range(6)]
    for name in names:
        write(name, BAD)
    found = commands(run("check", "--format", "github", *names).out)
    assert (10, "3 more annotations of this level; the log has all of them") == (len(found), found[-1].data)


@pytest.mark.parametrize("name", ["::error::p.yaml", "a\n::error::b.yaml", "##[error]c.yaml", "%0A::error::d.yaml"])
@pytest.mark.parametrize("present", [False, True])
def test_hostile_names_and_messages_give_no_commands(run: Run, write: Write, name: str, present: bool) -> None:
    if present:
        write(name, f"version: 1\nrules:\n  - {{name: {json.dumps(HOSTILE)}, effect: {json.dumps(HOSTILE)}}}\n")
    ended = run("check", name)
    assert [] == commands(ended.out + ended.err)
    assert [] == commands(run("check", "--json", name).out)
    annotated = run("check", "--format", "github", name)
    assert ["error"] * (1 + present) == [one.name for one in commands(annotated.out)]
    assert [] == commands(annotated.err)


def test_hostile_names_in_a_good_policy_give_no_commands_and_stay_in_the_json(run: Run, write: Write) -> None:
    name = "::error::x ##[warning]y \u034f"
    quoted = json.dumps(name)
    forms = f"{{name: {quoted}, match: {{kind: elicitation, mode: form}}, effect: forward, otherwise: deny}}"
    write("p.yaml", f"version: 1\nrules:\n  - {forms}\n  - {{name: x, match: {{server: {quoted}}}, effect: deny}}\n")
    for form in ("text", "json", "github"):
        ended = run("check", "--format", form, "p.yaml")
        assert 0 == ended.code, ended.out
        assert (["notice"] if form == "github" else []) == [one.name for one in commands(ended.out + ended.err)]
    (told,) = json.loads(run("check", "--json", "p.yaml").out)["files"]
    assert f"server {name}" in told["servers"][0]["servers"]
