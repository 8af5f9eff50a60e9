"""`samplegate test`: which files belong together, what is printed of a failing case, and how it ends."""

from __future__ import annotations

import json

import pytest

from tests.commands.shell import Run, Write

POLICY = """\
version: 1
rules:
  - {name: not docs, match: {server: mail}, effect: deny}
  - {name: docs, match: {server: docs}, effect: deny, as: decline}
"""
PASSING = "cases:\n  - {name: docs is denied, server: docs, sampling: x, expect: {effect: deny, rule: docs}}\n"
FAILING = "cases:\n  - name: docs is asked\n    server: docs\n    elicitation: Sure?\n    expect: {effect: none, as: cancel}\n"


def test_the_cases_beside_a_policy_are_run(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    ended = run("test", "p.yaml")
    assert (0, "p_test.yaml: 1 case, all passed\n1 file, 1 case, 0 failed\n", "") == (ended.code, ended.out, ended.err)


@pytest.mark.parametrize("given", [["p_test.yaml"], ["p.yaml", "p_test.yaml"], ["p_test.yaml", "p.yaml"]])
def test_the_test_file_itself_will_do_and_nothing_runs_twice(run: Run, write: Write, given: list[str]) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", PASSING)
    assert (0, "p_test.yaml: 1 case, all passed\n1 file, 1 case, 0 failed\n") == (run("test", *given).code, run("test", *given).out)


def test_a_failing_case_tells_its_line_what_differs_and_every_rule(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    write("p_test.yaml", FAILING)
    ended = run("test", "p.yaml")
    assert 1 == ended.code
    assert [
        "p_test.yaml:2: failed: docs is asked",
        '    effect: expected "none", got "deny"',
        '    as: expected "cancel", got "decline"',
        "      1 no    not docs  deny     server: 'docs' is not mail",
        "      2 taken docs      deny",
        "p_test.yaml: 1 case, 1 failed",
        "1 file, 1 case, 1 failed",
    ] == ended.out.splitlines()


def test_a_policy_without_tests_is_told_and_fails_only_if_they_are_required(run: Run, write: Write) -> None:
    write("p.yaml", POLICY)
    ended = run("test", "p.yaml")
    assert (0, "p.yaml: no tests; write p_test.yaml beside it\n0 files, 0 cases, 0 failed\n") == (ended.code, ended.out)
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
    assert ["p.yaml:3:53:", "p.yaml:4:49:", "q_test.yaml:1:8:"] == [line.split(" ")[0] for line in ended.out.splitlines()[:-1]]


@pytest.mark.parametrize(("given", "missing"), [("q.yaml", "q_test.yaml"), ("q_test.yaml", "q_test.yaml")])
def test_a_file_that_is_not_there_leaves_with_two(run: Run, given: str, missing: str) -> None:
    ended = run("test", given)
    assert (2, f"samplegate: {missing}: cannot be read: no such file or directory\n") == (ended.code, ended.err)


def test_tests_without_their_policy_leave_with_two(run: Run, write: Write) -> None:
    write("p_test.yaml", PASSING)
    assert (2, "samplegate: p.yaml: cannot be read: no such file or directory\n") == (run("test", "p_test.yaml").code, run("test", "p_test.yaml").err)


def test_the_environment_of_the_process_is_not_looked_at(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLEGATE_TEST", "true")
    write("p.yaml", 'version: 1\nrules: [{name: x, match: {kind: elicitation}, effect: answer, content: {a: "${SAMPLEGATE_TEST}"}}]\n')
    write("p_test.yaml", "cases: [{name: a, elicitation: {fields: {a: string}}, expect: {effect: none, reason: cannot}}]\n")
    assert 0 == run("test", "p.yaml").code


def test_a_script_beside_the_policies_has_no_tests_and_needs_none(run: Run, write: Write) -> None:
    write("talk.yaml", "cases: [{answer: hello}]\n")
    assert (0, "0 files, 0 cases, 0 failed\n") == (run("test", "--require-tests", "talk.yaml").code, run("test", "talk.yaml").out)


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
