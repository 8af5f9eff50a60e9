"""`samplegate test`: which files belong together, the output for a failing case, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from samplegate.printable import printable
from tests.fakes.github_runner import commands
from tests.fakes.shell import Run, Write

POLICY = """\
version: 1
rules:
  - {name: not docs, match: {server: mail}, effect: deny}
  - {name: docs, match: {server: docs}, effect: deny, as: decline}
"""
PASSING = "cases:\n  - {name: docs is denied, server: docs, sampling: x, expect: {effect: deny, rule: docs}}\n"
FAILING = (
    "cases:\n  - name: docs is asked\n    server: docs\n    elicitation: Sure?\n    expect: {effect: none, as:"
    " cancel}\n"
)
PASSED = "p_test.yaml:2: passed: docs is denied: deny by rule 'docs'; the server gets: error -32602\n"


def test_the_cases_beside_a_policy_are_run(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    ended = run("test", "p.yaml")
    assert (0, f"{PASSED}p_test.yaml: 1 case, all passed\n1 file, 1 case, 0 failed\n", "") == (
        ended.code,
        ended.out,
        ended.err,
    )


@pytest.mark.parametrize("given", [["p_test.yaml"], ["p.yaml", "p_test.yaml"], ["p_test.yaml", "p.yaml"]])
def test_the_test_file_itself_will_do_and_nothing_runs_twice(run: Run, write: Write, given: list[str]) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    assert (0, f"{PASSED}p_test.yaml: 1 case, all passed\n1 file, 1 case, 0 failed\n") == (
        run("test", *given).code,
        run("test", *given).out,
    )


def test_a_failing_case_tells_its_line_what_differs_and_every_rule(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", FAILING)
    ended = run("test", "p.yaml")
    assert 1 == ended.code
    assert [
        "p_test.yaml:2: failed: docs is asked",
        '    effect: expected "none", got "deny"',
        '    as: expected "cancel", got "decline"',
        "      1 no   not docs  deny  server: 'docs' is not mail",
        "      2 used docs      deny",
        "    the server gets: decline",
        "p_test.yaml: 1 case, 1 failed",
        "1 file, 1 case, 1 failed",
    ] == ended.out.splitlines()


def test_a_policy_without_tests_is_told_and_fails_only_if_they_are_required(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    ended = run("test", "p.yaml")
    assert (0, "p.yaml: no tests; add p_test.yaml next to it\n0 files, 0 cases, 0 failed\n") == (ended.code, ended.out)
    assert 1 == run("test", "--require-tests", "p.yaml").code


def test_a_test_file_may_name_its_policy(run: Run, write: Write) -> None:
    write("other.yaml", POLICY)
    write("p_test.yaml", "policy: other.yaml\n" + PASSING)
    assert 0 == run("test", "p_test.yaml").code


def test_problems_of_either_file_fail(run: Run, write: Write) -> None:
    write("p.yaml", POLICY.replace("deny", "dny"))
    write("p_test.yaml", PASSING)
    write("q_test.yaml", "cases: 1\n")
    ended = run("test", "p.yaml", "q_test.yaml")
    assert 1 == ended.code
    assert ["p.yaml:3:53:", "p.yaml:4:49:", "q_test.yaml:1:8:"] == [
        line.split(" ")[0] for line in ended.out.splitlines()[:-1]
    ]


def nowhere(folder: Path) -> str:
    """Why a missing file of a folder cannot be read."""
    return f"no such file or directory; the path is relative to {folder}; correct it, or write the full path"


@pytest.mark.parametrize(("given", "missing"), [("q.yaml", "q.yaml"), ("q_test.yaml", "q_test.yaml")])
def test_a_file_that_is_not_there_leaves_with_two(run: Run, tmp_path: Path, given: str, missing: str) -> None:
    ended = run("test", given)
    assert (2, f"samplegate: {missing}: cannot be read: {nowhere(tmp_path)}\n") == (ended.code, ended.err)


def test_tests_without_their_policy_leave_with_two(run: Run, write: Write, tmp_path: Path) -> None:
    write("p_test.yaml", PASSING)
    assert (2, f"samplegate: p.yaml: cannot be read: {nowhere(tmp_path)}\n") == (
        run("test", "p_test.yaml").code,
        run("test", "p_test.yaml").err,
    )


def test_the_environment_of_the_process_is_not_looked_at(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLEGATE_TEST", "true")
    write(
        "p.yaml",
        "version: 1\nrules: [{name: x, match: {kind: elicitation}, effect: answer, content: {a:"
        ' "${SAMPLEGATE_TEST}"}}]\n',
    )
    write(
        "p_test.yaml",
        "cases: [{name: a, elicitation: {fields: {a: string}}, expect: {effect: none, reason: cannot}}]\n",
    )
    assert 0 == run("test", "p.yaml").code


def test_a_script_beside_the_policies_has_no_tests_and_needs_none(run: Run, write: Write) -> None:
    write("talk.yaml", "cases: [{answer: hello}]\n")
    assert (0, "0 files, 0 cases, 0 failed\n") == (
        run("test", "--require-tests", "talk.yaml").code,
        run("test", "talk.yaml").out,
    )


def test_json_tells_the_same(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", FAILING)
    ended = run("test", "--json", "p.yaml")
    assert 1 == ended.code
    told = json.loads(ended.out)
    assert (1, 1) == (told["cases"], told["failed"])
    (case,) = told["files"][0]["cases"]
    assert ("docs is asked", 2, False) == (case["name"], case["line"], case["passed"])
    assert {"what": "as", "expected": "cancel", "got": "decline"} == case["mismatches"][1]
    assert [False, True] == [rule["taken"] for rule in case["rules"]]


LIMITED = """\
version: 1
models: [{name: main, model: openai/none}]
limits: {rate: {requests: 2, per: 1m}}
rules:
  - {name: docs, match: {kind: sampling, server: [docs, mail]}, effect: allow, limits: [rate]}
  - name: rest
    match: {not: {server: files}}
    effect: deny
"""
SEQUENCE = """\
cases:
  - name: two a minute
    server: docs
    sampling: hello
    steps:
      - {repeat: 3, expect: {effect: allow}}
      - {at: 31s, expect: {effect: allow}}
"""


def test_a_step_that_fails_is_told_with_its_line_and_its_turn(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE)
    ended = run("test", "p.yaml")
    assert 1 == ended.code
    lines = ended.out.splitlines()
    assert [
        "p_test.yaml:2: failed: two a minute",
        '    steps.0.effect (line 6, request 3 of 3): expected "allow", got "none"',
    ] == lines[:2]
    assert "limit rate" in lines[2]
    assert lines[3].startswith("      1 used docs  allow  limit rate")
    assert ["    the server gets: error -1", "p_test.yaml: 1 case, 1 failed", "1 file, 1 case, 1 failed"] == lines[4:]


def test_the_place_of_a_step_stands_in_the_json_too(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE)
    (case,) = json.loads(run("test", "--json", "p.yaml").out)["files"][0]["cases"]
    assert [{"what": "effect", "expected": "allow", "got": "none", "where": "steps.0, line 6, request 3 of 3"}] == case[
        "mismatches"
    ]


def test_coverage_names_what_no_case_reaches_with_its_line(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE.replace("repeat: 3", "repeat: 2"))
    ended = run("test", "--coverage", "p.yaml")
    assert (0, "") == (ended.code, ended.err)
    assert [
        "p_test.yaml:2: passed: two a minute: allow by rule 'docs'; the server gets: the model's answer",
        "p_test.yaml: 1 case, all passed",
        "p.yaml:5: rule 'docs': server: no matching request has 'mail'; add a case with it",
        (
            "p.yaml:6: rule 'rest': no case covers its effect; add a case that this rule matches and decides (1 of its"
            " branches is not covered either)"
        ),
        "p.yaml: coverage: 1 of 2 rules, 1 of 3 arms (40%)",
        "1 file, 1 case, 0 failed",
    ] == ended.out.splitlines()


@pytest.mark.parametrize(("least", "code"), [("40", 0), ("40.1", 1), ("0", 0), ("100", 1)])
def test_too_little_coverage_fails_where_it_is_asked_for(run: Run, write: Write, least: str, code: int) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE.replace("repeat: 3", "repeat: 2"))
    ended = run("test", "--fail-under", least, "p.yaml")
    assert code == ended.code
    below = f", below the required {least}%" if code else ""
    assert f"p.yaml: coverage: 1 of 2 rules, 1 of 3 arms (40%{below})" in ended.out.splitlines()


@pytest.mark.parametrize("least", ["-1", "101", "nan", "most"])
def test_a_percentage_that_is_none_is_wrong_usage(
    run: Run, write: Write, least: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("p.yaml", LIMITED)
    with pytest.raises(SystemExit) as left:
        run("test", f"--fail-under={least}", "p.yaml")
    assert 2 == left.value.code
    assert f"{least!r} is not a percentage; use a number from 0 to 100" in capsys.readouterr().err


def test_a_policy_without_tests_covers_nothing(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    ended = run("test", "--fail-under", "1", "p.yaml")
    assert 1 == ended.code
    assert "p.yaml: coverage: 0 of 2 rules, 0 of 3 arms (0%, below the required 1%)" in ended.out.splitlines()


def test_several_files_of_tests_cover_one_policy_together(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    write("q_test.yaml", "policy: p.yaml\ncases: [{name: mail, server: mail, sampling: x, expect: {effect: deny}}]\n")
    ended = run("test", "--fail-under", "100", "p_test.yaml", "q_test.yaml")
    assert (0, 1) == (ended.code, ended.out.count("coverage:"))


def test_json_has_the_coverage_where_it_is_asked_for(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE.replace("repeat: 3", "repeat: 2"))
    assert "coverage" not in json.loads(run("test", "--json", "p.yaml").out)
    (found,) = json.loads(run("test", "--json", "--fail-under", "50", "p.yaml").out)["coverage"]
    assert ("p.yaml", 40.0, False) == (found["policy"], found["percent"], found["enough"])
    assert ({"total": 2, "reached": 1}, {"total": 3, "reached": 1}) == (found["rules"], found["arms"])
    assert [(5, "docs"), (6, "rest")] == [(missing["line"], missing["rule"]) for missing in found["missing"]]


def test_a_time_out_is_told_to_be_left_out(run: Run, write: Write) -> None:
    write("p.yaml", LIMITED.replace("limits: [rate]}", "on_timeout: deny}"))
    write("p_test.yaml", SEQUENCE)
    assert (
        "p.yaml:5: rule 'docs': on_timeout: deny is not counted, because cases take no time"
        in run("test", "--coverage", "p.yaml").out
    )


def test_prices_come_from_the_table_that_run_uses(run: Run, write: Write) -> None:
    write(
        "p.yaml",
        LIMITED.replace("openai/none", "openai/gpt-4o-mini").replace(
            "requests: 2, per: 1m", "usd: 1, per: day, tz: UTC"
        ),
    )
    usage = "usage: {input_tokens: 1000000, output_tokens: 0}"
    write(
        "p_test.yaml",
        f"cases: [{{name: a, server: docs, sampling: x, {usage}, expect: {{effect: allow, limits: {{rate:"
        " 0.15}}}]\n",
    )
    ended = run("test", "p.yaml")
    assert (0, "") == (ended.code, ended.err), ended.out


@pytest.mark.parametrize("model", [[], ["--model", "openai/none"]])
def test_the_starter_of_init_is_covered_whole(run: Run, model: list[str]) -> None:
    assert 0 == run("init", *model).code
    ended = run("test", "--fail-under", "100", "samplegate.yaml")
    assert 0 == ended.code, ended.out


def junit(folder: Path) -> list[tuple[str | None, ET.Element]]:
    """Each case of ``out.xml`` with the name of its suite."""
    root = ET.fromstring((folder / "out.xml").read_bytes())
    return [(suite.get("name"), case) for suite in root for case in suite]


def test_junit_has_a_case_for_each_case(run: Run, write: Write, tmp_path: Path) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", FAILING + PASSING.removeprefix("cases:\n"))
    plain = run("test", "p.yaml")
    assert plain == run("test", "--junit", "out.xml", "p.yaml")
    (suite, failed), (_, passed) = junit(tmp_path)
    place = {"classname": "p_test", "file": "p_test.yaml"}
    assert ("p_test.yaml", {**place, "name": "docs is asked", "line": "2"}) == (suite, failed.attrib)
    assert ({**place, "name": "docs is denied", "line": "6"}, []) == (passed.attrib, list(passed))
    assert ['effect: expected "none", got "deny"', "failure"] == [failed[0].get("message"), failed[0].tag]
    assert [line.removeprefix("    ") for line in plain.out.splitlines()[1:6]] == (failed[0].text or "").split("\n")


def test_junit_has_files_that_cannot_be_run(run: Run, write: Write, tmp_path: Path) -> None:
    write("p_test.yaml", PASSING)
    write("q.yaml", POLICY.replace("deny", "dny"))
    write("q_test.yaml", PASSING)
    assert 2 == run("test", "--junit", "out.xml", "p_test.yaml", "q.yaml", "none.yaml").code
    assert [
        ("p_test.yaml", "can be run", f"p.yaml: cannot be read: {nowhere(tmp_path)}"),
        ("q_test.yaml", "can be run", run("test", "q.yaml").out.splitlines()[0]),
        ("none.yaml", "can be run", f"none.yaml: cannot be read: {nowhere(tmp_path)}"),
    ] == [(suite, case.get("name"), case[0].get("message")) for suite, case in junit(tmp_path)]
    assert "q.yaml:4:49: " in (junit(tmp_path)[1][1][0].text or "")


@pytest.mark.parametrize("required", [False, True])
def test_junit_has_policies_without_tests(run: Run, write: Write, tmp_path: Path, required: bool) -> None:
    write("p.yaml", POLICY)
    assert required == run("test", "--junit", "out.xml", *["--require-tests"] * required, "p.yaml").code
    ((suite, case),) = junit(tmp_path)
    tag = "failure" if required else "skipped"
    assert ("p.yaml", "has tests", tag, "p.yaml: no tests; add p_test.yaml next to it") == (
        suite,
        case.get("name"),
        case[0].tag,
        case[0].text,
    )


@pytest.mark.parametrize(("least", "failures"), [("100", 1), ("40", 0)])
def test_junit_has_the_required_coverage(run: Run, write: Write, tmp_path: Path, least: str, failures: int) -> None:
    write("p.yaml", LIMITED)
    write("p_test.yaml", SEQUENCE.replace("repeat: 3", "repeat: 2"))
    assert failures == run("test", "--junit", "out.xml", "--fail-under", least, "p.yaml").code
    _, (suite, case) = junit(tmp_path)
    assert ("p.yaml", "coverage", failures) == (suite, case.get("name"), len(case))
    if failures:
        summary, first, *_ = (case[0].text or "").split("\n")
        assert "p.yaml: coverage: 1 of 2 rules, 1 of 3 arms (40%, below the required 100%)" == summary
        assert first.startswith("p.yaml:5: rule 'docs': ")


def test_junit_is_written_beside_json_into_a_new_folder_and_through_a_link(
    run: Run, write: Write, tmp_path: Path
) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    (tmp_path / "out.xml").symlink_to("reports/junit.xml")
    assert 1 == json.loads(run("test", "--json", "--junit", "out.xml", "p.yaml").out)["cases"]
    assert ["junit.xml"] == [path.name for path in (tmp_path / "reports").iterdir()]
    assert (True, 1) == ((tmp_path / "out.xml").is_symlink(), len(junit(tmp_path)))
    write("p_test.yaml", FAILING)
    assert 1 == run("test", "--junit", "out.xml", "p.yaml").code
    assert [1] == [len(case) for _, case in junit(tmp_path)]


def test_junit_does_not_replace_a_device(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    assert 0 == run("test", "--junit", "/dev/null", "p.yaml").code
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("path", "why"),
    [("folder", "is a directory"), ("p.yaml/out.xml", "not a directory"), ("x" * 300, "file name too long")],
)
def test_junit_that_cannot_be_written_leaves_with_two(
    run: Run, write: Write, tmp_path: Path, path: str, why: str
) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    (tmp_path / "folder").mkdir()
    ended = run("test", "--junit", path, "p.yaml")
    assert (2, f"samplegate: --junit: {path} cannot be written: {why}\n") == (ended.code, ended.err)
    assert ended.out.startswith(PASSED)
    assert {"folder", "p.yaml", "p_test.yaml"} == {found.name for found in tmp_path.iterdir()}


HOSTILE = "::error::x ##[warning]y ]]></failure> %0A \u034f"
INVISIBLE = "\u202e\ufffe\r\n::stop-commands::z\x1b"


@pytest.mark.parametrize("name", ["p.yaml", "::error::p.yaml", "a\n::error::b.yaml", "##[error]c.yaml"])
def test_hostile_names_give_no_commands_and_valid_xml(run: Run, write: Write, tmp_path: Path, name: str) -> None:
    rule, case = json.dumps(HOSTILE), json.dumps(HOSTILE + INVISIBLE)
    write(name, f"version: 1\nrules:\n  - {{name: {rule}, effect: deny}}\n")
    cases = f"cases:\n  - {{name: {case}, server: {case}, sampling: x, expect: {{effect: WHAT, rule: {case}}}}}\n"
    for what, shown in (("deny", HOSTILE + INVISIBLE), ("dny", "can be run")):
        write(name.replace(".yaml", "_test.yaml"), cases.replace("WHAT", what))
        for options in ((), ("--json",), ("--fail-under", "100")):
            ended = run("test", "--junit", "out.xml", *options, name)
            assert 1 == ended.code, ended
            assert [] == commands(ended.out + ended.err)
            assert "\u202e" not in ended.out
        (_, found), *_ = junit(tmp_path)
        assert (printable(shown), "failure") == (found.get("name"), found[0].tag)
    missing = run("test", f"none/{name}")
    assert (2, []) == (missing.code, commands(missing.out + missing.err))
