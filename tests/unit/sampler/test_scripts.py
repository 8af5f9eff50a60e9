"""The case files that a policy names: each is read once, and all its problems are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.policy.file.load import PolicyError
from samplegate.policy.schema import AnswerRule, DenyRule, Model, Policy
from samplegate.sampler.client import load_rule_scripts, load_scripts


def rules(**files: str) -> Policy:
    return Policy(
        version=1, rules=[*(AnswerRule(name=name, cases=file) for name, file in files.items()), DenyRule(name="no")]
    )


def test_a_rule_with_cases_has_its_script_by_its_name_and_others_have_none(tmp_path: Path) -> None:
    (tmp_path / "tape.yaml").write_text("cases: [{answer: hi}, {action: decline}]")
    policy = rules(one="tape.yaml", two="tape.yaml")
    found = load_rule_scripts(Policy(version=1, rules=[*policy.rules, AnswerRule(name="words", content="x")]), tmp_path)
    assert {"one": 2, "two": 2} == {name: script.size for name, script in found.items()}


def test_a_model_and_a_rule_may_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "tape.yaml").write_text("cases: [{answer: hi}]")
    model = Model(name="taped", model="scripted", cases="tape.yaml")
    assert load_scripts([model], folder=tmp_path)["taped"] == load_rule_scripts(rules(one="tape.yaml"), tmp_path)["one"]


def test_all_problems_of_all_files_are_told_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("cases: [{answer: hi, action: accept}]")
    (tmp_path / "latin.yaml").write_bytes(b"cases: [{answer: \xe9}]")
    with pytest.raises(PolicyError) as raised:
        load_rule_scripts(rules(one="bad.yaml", two="bad.yaml", three="missing.yaml", four="latin.yaml"), tmp_path)
    assert [
        "bad.yaml:1:9: cases.0: case 1 has answer and action; use exactly one of answer, content, fail, action",
        (
            "missing.yaml:1:1: the cases of rule three cannot be read: No such file or directory; check the path in"
            " `cases`, which is relative to the policy"
        ),
        "latin.yaml:1:1: the cases of rule four are not UTF-8; save the file as UTF-8 text",
    ] == [str(problem) for problem in raised.value.problems]
