"""``samplegate test``: puts the cases of ``NAME_test.yaml`` to ``NAME.yaml`` and says which fail and why. Trying one is ``core/trial.py``'s."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from samplegate.commands import FAILED, OK, UNREADABLE
from samplegate.commands.files import Unreadable, complain, count, is_test, policy_of, read, sort_of, test_of
from samplegate.commands.steps import as_json, lines
from samplegate.core.cases import load_cases
from samplegate.core.load import PolicyError, load
from samplegate.core.trials.trial import Trial, run


@dataclass(slots=True)
class Outcome:
    """What came of one test file, or of a policy that has none."""

    tests: Path
    policy: Path | None = None
    trials: list[Trial] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unreadable: str | None = None
    missing: bool = False

    @property
    def failed(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.mismatches]


def command(args: argparse.Namespace) -> int:
    """Try all cases of all files; 0 if every one passed, 1 if not, 2 if a file cannot be read."""
    outcomes = [_outcome(tests) for tests in _tests(args.policies)]
    if args.json:
        print(json.dumps(_json(outcomes), indent=2, ensure_ascii=False))
    else:
        for outcome in outcomes:
            print("\n".join(_report(outcome)))
        print(_summary(outcomes))
    for outcome in outcomes:
        if outcome.unreadable is not None:
            complain(outcome.unreadable)
    if any(outcome.unreadable for outcome in outcomes):
        return UNREADABLE
    wanting = args.require_tests and any(outcome.missing for outcome in outcomes)
    return FAILED if wanting or any(outcome.failed or outcome.problems for outcome in outcomes) else OK


def _tests(given: Sequence[Path]) -> list[Path]:
    """The test files, each once: a hook is given the policy and its test side by side."""
    return list(dict.fromkeys(path if is_test(path) or path.is_dir() else test_of(path) for path in given if not _is_script(path)))


def _is_script(path: Path) -> bool:
    """A hook is given those too, and they have no tests of their own."""
    try:
        return sort_of(path, read(path)) == "script"
    except Unreadable:
        return False  # told where it is read again


def _outcome(tests: Path) -> Outcome:
    outcome = Outcome(tests)
    try:
        if not tests.exists() and (policy := policy_of(tests)).exists():
            outcome.policy, outcome.missing = policy, True
            return outcome
        cases = load_cases(read(tests), file=str(tests))
        outcome.policy = policy_of(tests) if cases.policy is None else tests.parent / cases.policy
        policy_text = read(outcome.policy)
        outcome.trials = list(run(cases.cases, load(policy_text, file=str(outcome.policy), environment={}).policy))
    except Unreadable as problem:
        outcome.unreadable = str(problem)
    except PolicyError as error:
        outcome.problems = [str(problem) for problem in error.problems]
    return outcome


def _report(outcome: Outcome) -> Iterator[str]:
    if outcome.missing:
        yield f"{outcome.policy}: no tests; write {outcome.tests.name} beside it"
    yield from outcome.problems
    for trial in outcome.failed:
        yield from _failure(outcome.tests, trial)
    if outcome.trials:
        failed = len(outcome.failed)
        yield f"{outcome.tests}: {count(len(outcome.trials), 'case')}, {f'{failed} failed' if failed else 'all passed'}"


def _failure(tests: Path, trial: Trial) -> Iterator[str]:
    yield f"{tests}:{trial.line}: failed: {trial.case.name}"
    for mismatch in trial.mismatches:
        yield f"    {mismatch.what}: expected {_shown(mismatch.expected)}, got {_shown(mismatch.got)}"
    if trial.detail:
        yield f"    {trial.detail}"
    yield from (f"    {line}" for line in lines(trial.steps))


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _summary(outcomes: Sequence[Outcome]) -> str:
    tried = [outcome for outcome in outcomes if outcome.trials]
    failed = sum(len(outcome.failed) for outcome in outcomes)
    cases = sum(len(outcome.trials) for outcome in outcomes)
    return f"{count(len(tried), 'file')}, {count(cases, 'case')}, {failed} failed"


def _json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "cases": sum(len(outcome.trials) for outcome in outcomes),
        "failed": sum(len(outcome.failed) for outcome in outcomes),
        "files": [
            {
                "tests": None if outcome.missing else str(outcome.tests),
                "policy": None if outcome.policy is None else str(outcome.policy),
                "problems": [*outcome.problems, *([outcome.unreadable] if outcome.unreadable else [])],
                "cases": [_trial_json(trial) for trial in outcome.trials],
            }
            for outcome in outcomes
        ],
    }


def _trial_json(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.case.name,
        "line": trial.line,
        "passed": not trial.mismatches,
        "mismatches": [{"what": each.what, "expected": each.expected, "got": each.got} for each in trial.mismatches],
        "detail": trial.detail,
        "rules": as_json(trial.steps),
    }
