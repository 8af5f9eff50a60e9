"""The policy test cases in tests/cases and those of the shipped policies: each case is a test. The cases are data, as
users write them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import pytest

from samplegate.policy.schema import AllowRule, AnswerRule, EscalateRule, ForwardRule, Match, RuleBase
from samplegate.policytest.compare import CaseResult
from samplegate.policytest.coverage import coverage
from samplegate.policytest.play import run
from samplegate.policytest.suite import Said
from samplegate.yamlfile.tree import compose
from tests.fakes.case_files import CASE_FILES, HERE, SHIPPED, beside, cases_of, compiled_of


@cache
def trials(tests: Path) -> list[CaseResult]:
    """What each case of a file gives."""
    return run(cases_of(tests).cases, compiled_of(tests))


CASES: Final = [
    pytest.param(tests, number, id=f"{tests.name}: {placed.case.name}")
    for tests in CASE_FILES
    for number, placed in enumerate(cases_of(tests).cases)
]


@pytest.mark.parametrize(("tests", "number"), CASES)
def test_case(tests: Path, number: int) -> None:
    trial = trials(tests)[number]
    assert () == trial.mismatches, [
        trial.outcome.decision.detail,
        *(f"{step.rule}: {step.why}" for step in trial.outcome.steps),
    ]


POLICIES: Final = {tests.name: compiled_of(tests).policy for tests in CASE_FILES if tests.parent == HERE}


def matches(match: Match) -> Iterator[Match]:
    yield match
    if match.not_ is not None:
        yield from matches(match.not_)


def rules() -> Iterator[RuleBase]:
    for policy in POLICIES.values():
        yield from policy.rules


@pytest.mark.parametrize("condition", Match.__struct_fields__)
def test_every_condition_has_a_case(condition: str) -> None:
    assert any(getattr(match, condition) is not None for rule in rules() for match in matches(rule.match)), (
        "add tests/cases/match_*.yaml"
    )


@pytest.mark.parametrize("effect", ["allow", "answer", "forward", "escalate", "deny", "none"])
def test_every_effect_comes_of_a_case(effect: str) -> None:
    expected = [placed.case.expect for tests in CASE_FILES for placed in cases_of(tests).cases]
    assert any(one.effect == effect for one in expected if one is not None)


@pytest.mark.parametrize("otherwise", ["next", "unanswered", "deny"])
@pytest.mark.parametrize("kind", [AllowRule, AnswerRule, ForwardRule, EscalateRule])
def test_every_otherwise_stands_in_a_case(kind: type[RuleBase], otherwise: str) -> None:
    assert any(isinstance(rule, kind) and rule.otherwise == otherwise for rule in rules())


def test_every_word_for_a_limit_without_room_stands_in_a_case() -> None:
    """``on_limit``, and the expectations about limits."""
    assert {"next", "unanswered", "deny", "wait"} == {getattr(rule, "on_limit", None) for rule in rules()} - {None}
    moments = [moment.step for tests in CASE_FILES for placed in cases_of(tests).cases for moment in placed.moments]
    told = {name for step in moments if step.expect is not None for name in msgspec.to_builtins(step.expect)}
    assert {"limit", "waits", "limits", "cost"} <= told
    assert {"limit", "brake"} <= {step.expect.reason for step in moments if step.expect is not None}


def test_every_verdict_and_every_outcome_of_one_stands_in_a_case() -> None:
    moments = [moment.step for tests in CASE_FILES for placed in cases_of(tests).cases for moment in placed.moments]
    given = [step.verdict for step in moments if step.verdict is not None]
    assert {word for word in given if isinstance(word, str)} == {
        "approve",
        "reject",
        "accept",
        "decline",
        "cancel",
        "none",
    }
    assert any(isinstance(one, Said) and one.edits is not None for one in given)
    assert any(isinstance(one, Said) and one.answer is not None for one in given)
    told = {name for step in moments if step.expect is not None for name in msgspec.to_builtins(step.expect)}
    assert {"reviewer", "review_answer", "outcome"} <= told
    assert {"review", "timeout"} <= {step.expect.reason for step in moments if step.expect is not None}


@pytest.mark.parametrize(
    "tests", [tests for tests in CASE_FILES if tests.parent == SHIPPED], ids=lambda path: path.name
)
def test_the_cases_of_a_shipped_policy_reach_every_rule_and_every_arm(tests: Path) -> None:
    """As with `samplegate test --coverage --fail-under 100`."""
    root, _ = compose(beside(tests).read_text("utf-8"))
    found = coverage(compiled_of(tests), [walk for trial in trials(tests) for walk in trial.walks], root)
    assert () == found.missing
    assert 100 == found.percent


def test_every_shipped_policy_has_its_cases() -> None:
    policies = {
        path.name
        for path in SHIPPED.glob("*.yaml")
        if not path.stem.endswith("_test") and "rules:" in path.read_text("utf-8")
    }
    assert policies == {beside(tests).name for tests in CASE_FILES if tests.parent == SHIPPED}
