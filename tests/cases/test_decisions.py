"""Runs the decision cases of this folder and those of the shipped policies: each case is a test. The cases are data, as users write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from samplegate.core.cases import Cases, load_cases
from samplegate.core.load import load
from samplegate.core.policy import AllowRule, AnswerRule, ForwardRule, Match, Policy, RuleBase
from samplegate.core.trials.trial import Trial, run

HERE: Final = Path(__file__).parent
SHIPPED: Final = Path(__file__).resolve().parents[2] / "policies"
TESTS: Final = sorted([*HERE.glob("*_test.yaml"), *SHIPPED.glob("*_test.yaml")])


def cases_of(tests: Path) -> Cases:
    return load_cases(tests.read_text("utf-8"), file=tests.name)


def policy_of(tests: Path) -> Policy:
    policy = tests.with_name(tests.name.replace("_test", ""))
    return load(policy.read_text("utf-8"), file=policy.name, environment={}).policy


def trials() -> Iterator[tuple[str, Trial]]:
    for tests in TESTS:
        yield from ((tests.name, trial) for trial in run(cases_of(tests).cases, policy_of(tests)))


TRIALS: Final = list(trials())


@pytest.mark.parametrize("trial", [trial for _, trial in TRIALS], ids=[f"{file}: {trial.case.name}" for file, trial in TRIALS])
def test_case(trial: Trial) -> None:
    assert () == trial.mismatches, [trial.detail, *(f"{step.rule}: {step.why}" for step in trial.steps)]


POLICIES: Final = {tests.name: policy_of(tests) for tests in TESTS if tests.parent == HERE}


def matches(match: Match) -> Iterator[Match]:
    yield match
    if match.not_ is not None:
        yield from matches(match.not_)


def rules() -> Iterator[RuleBase]:
    for policy in POLICIES.values():
        yield from policy.rules


@pytest.mark.parametrize("condition", Match.__struct_fields__)
def test_every_condition_has_a_case(condition: str) -> None:
    assert any(getattr(match, condition) is not None for rule in rules() for match in matches(rule.match)), "add tests/cases/match_*.yaml"


@pytest.mark.parametrize("effect", ["allow", "answer", "forward", "deny", "none"])
def test_every_effect_comes_of_a_case(effect: str) -> None:
    assert any(trial.case.expect.effect == effect for _, trial in TRIALS)


@pytest.mark.parametrize("otherwise", ["next", "unanswered", "deny"])
@pytest.mark.parametrize("kind", [AllowRule, AnswerRule, ForwardRule])
def test_every_otherwise_stands_in_a_case(kind: type[RuleBase], otherwise: str) -> None:
    assert any(isinstance(rule, kind) and rule.otherwise == otherwise for rule in rules())


@pytest.mark.parametrize("tests", [tests for tests in TESTS if tests.parent == SHIPPED], ids=lambda path: path.name)
def test_every_rule_of_a_shipped_policy_is_taken_by_a_case_or_on_trial(tests: Path) -> None:
    seen = [trial for file, trial in TRIALS if file == tests.name]
    taken = {step.rule for trial in seen for step in trial.steps if step.taken} | {name for trial in seen for name in trial.case.expect.shadows or []}
    idle = [rule.name for rule in policy_of(tests).rules if rule.name not in taken]
    assert [] == idle, f"{tests.name}: add a case that each of them takes"
