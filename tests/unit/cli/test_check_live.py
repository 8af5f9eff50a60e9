"""`samplegate check --live` with scripted models: lines, exit codes, JSON and annotations."""

from __future__ import annotations

import json

import pytest

from tests.fakes.github_runner import commands
from tests.fakes.shell import Run, Write

POLICY = """\
version: 1
models:
  - {name: good, model: scripted, cases: good.yaml, price: {input: 1, output: 5}}
  - {name: %s, model: scripted, cases: other.yaml}
rules: [{name: r, match: {kind: sampling}, effect: allow}]
"""


def policy(write: Write, other: str, name: str = "other") -> None:
    write("p.yaml", POLICY % json.dumps(name))
    write("good.yaml", "cases: [{answer: hello, input_tokens: 3, output_tokens: 1}]\n")
    write("other.yaml", f"cases: [{other}]\n")


def test_each_model_has_a_line_with_tokens_and_price(run: Run, write: Write) -> None:
    policy(write, "{text: weather, answer: hello}")
    ended = run("check", "--live", "p.yaml")
    good, other = [line for line in ended.out.splitlines() if ": model " in line]
    assert (0, "") == (ended.code, ended.err)
    assert good.startswith("p.yaml: model 'good': answered in ")
    assert good.endswith(", 3 input tokens, 1 output token, $0.000008")
    assert other == "p.yaml: model 'other': the script has no case for this question"
    assert ": model " not in run("check", "p.yaml").out


def test_a_model_that_fails_makes_the_exit_code_1(run: Run, write: Write) -> None:
    policy(write, "{fail: unreachable}")
    ended = run("check", "--live", "p.yaml")
    assert (1, 0) == (ended.code, run("check", "p.yaml").code)
    assert "p.yaml: model 'other': no answer (unreachable, " in ended.out
    (told,) = json.loads(run("check", "--live", "--json", "p.yaml").out)["files"]
    assert [("good", None), ("other", "unreachable")] == [(one["model"], one["failure"]) for one in told["live"]]
    assert [0.000008, None] == [one["cost_usd"] for one in told["live"]]
    (found,) = commands(run("check", "--live", "--format", "github", "p.yaml").out)
    assert ("error", "p.yaml", "4", "5") == (found.name, *(found.properties[key] for key in ("file", "line", "col")))


def test_a_policy_with_a_problem_asks_no_model(run: Run, write: Write) -> None:
    policy(write, "{answr: x}")
    ended = run("check", "--live", "p.yaml")
    assert (1, False) == (ended.code, ": model " in ended.out)


def test_hostile_names_give_no_commands(run: Run, write: Write) -> None:
    policy(write, "{fail: unreachable}", "::error::x ##[warning]y")
    for form in ("text", "json"):
        ended = run("check", "--live", "--format", form, "p.yaml")
        assert (1, []) == (ended.code, commands(ended.out + ended.err))
    assert ["error"] == [one.name for one in commands(run("check", "--live", "--format", "github", "p.yaml").out)]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "x", "601"])
def test_the_timeout_has_bounds(run: Run, seconds: str) -> None:
    with pytest.raises(SystemExit):
        run("check", "--live-timeout", seconds, "p.yaml")
