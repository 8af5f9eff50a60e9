"""``samplegate test``: runs the cases of ``NAME_test.yaml`` against ``NAME.yaml``, and shows failures and coverage.

``policytest/play.py`` runs the cases, and ``policytest/coverage.py`` computes the coverage. `explain` prints rules with
``step_lines``, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Any, Final

from samplegate.ci.junit import Case, Suite, junit_xml
from samplegate.cli import FAILED, OK, UNREADABLE
from samplegate.cli.files import (
    count,
    file_kind,
    files_of,
    is_test,
    json_text,
    policy_of,
    print_error,
    print_lines,
    read,
    test_of,
    workspace_path,
    write_report,
)
from samplegate.cli.progress import counted
from samplegate.errors import InputError
from samplegate.policy.decisions import RuleStep
from samplegate.policy.file.load import PolicyError
from samplegate.policy.match import CompiledPolicy
from samplegate.policytest.compare import CaseResult, Mismatch
from samplegate.policytest.coverage import Coverage, Missing, coverage
from samplegate.policytest.load import load_cases
from samplegate.policytest.play import run
from samplegate.runtime.process import compile_loaded, load_policy
from samplegate.yamlfile.tree import Node, compose


def coverage_lines(policy: Path, coverage: Coverage, least: float | None) -> Iterator[str]:
    """Coverage as text: each rule or arm that no case reaches, with its line, and the totals. ``least`` is the required
    percentage."""
    yield from (_line(policy, one) for one in (*coverage.missing, *coverage.uncounted))
    reached = (
        f"{coverage.rules_reached} of {count(coverage.rules, 'rule')}, {coverage.arms_reached} of"
        f" {count(coverage.arms, 'arm')}"
    )
    below = f", below the required {least:g}%" if is_below_minimum(coverage, least) else ""
    yield f"{policy}: coverage: {reached} ({percentage(coverage)}%{below})"


def is_below_minimum(coverage: Coverage, least: float | None) -> bool:
    """Whether the coverage is below the required percentage."""
    return least is not None and coverage.percent < least


def percentage(coverage: Coverage) -> int:
    """Coverage in per cent, rounded down, so that 100 means complete."""
    return floor(coverage.percent)


def coverage_as_json(policy: Path, coverage: Coverage, least: float | None) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "policy": str(policy),
        "percent": round(coverage.percent, 2),
        "enough": not is_below_minimum(coverage, least),
        "rules": {"total": coverage.rules, "reached": coverage.rules_reached},
        "arms": {"total": coverage.arms, "reached": coverage.arms_reached},
        "missing": _listed(coverage.missing),
        "uncounted": _listed(coverage.uncounted),
    }


def _listed(found: Iterable[Missing]) -> list[dict[str, Any]]:
    return [{"line": one.line, "rule": one.rule, "what": one.what} for one in found]


def _line(policy: Path, one: Missing) -> str:
    return f"{policy}:{one.line}: rule {one.rule!r}: {one.what}"


def step_lines(steps: Sequence[RuleStep]) -> list[str]:
    """One line for each rule: number, whether it decides, name, effect and reason."""
    width = max((len(step.rule) for step in steps), default=0)
    effects = max((len(step.effect) for step in steps), default=0)
    return [
        f"{number:>3} {'used' if step.taken else 'no  '} {step.rule:<{width}}  {step.effect:<{effects}}"
        f"  {step.why}".rstrip()
        for number, step in enumerate(steps, 1)
    ]


def steps_as_json(steps: Sequence[RuleStep]) -> list[dict[str, Any]]:
    """The same as JSON."""
    return [{"rule": step.rule, "effect": step.effect, "taken": step.taken, "why": step.why} for step in steps]


@dataclass(frozen=True, slots=True)
class PolicyUnderTest:
    """A policy under test."""

    compiled: CompiledPolicy
    root: Node
    """The YAML tree of the policy, for line numbers."""


@dataclass(slots=True)
class FileResult:
    """Result of one test file, or of a policy without one."""

    tests: Path
    policy: Path | None = None
    tested: PolicyUnderTest | None = None
    trials: list[CaseResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unreadable: str | None = None
    missing: bool = False

    @property
    def failed(self) -> list[CaseResult]:
        return [trial for trial in self.trials if trial.mismatches]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "policies", type=Path, nargs="+", metavar="POLICY", help="a policy, a *_test.yaml file, or a folder"
    )
    parser.add_argument("--require-tests", action="store_true", help="fail if a policy has no test file")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="list the rules, and the arms (branches) of rules, that no case reaches",
    )
    parser.add_argument(
        "--fail-under",
        type=_percent,
        metavar="PERCENT",
        help="fail if the coverage of a policy is lower; implies --coverage",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="write the results to FILE as JUnit XML, for CI systems"
    )


def _percent(text: str) -> float:
    """A percentage from 0 to 100. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage; use a number from 0 to 100")
    return value


def command(args: argparse.Namespace) -> int:
    """Run all cases of all files. Returns 0 if all pass with enough coverage, 1 if not, 2 for an unreadable file."""
    try:
        files = _tests(files_of(args.policies))
        outcomes = [_outcome(tests) for tests in counted(files, "files", total=len(files))]
    except InputError as problem:
        print_error(str(problem))
        return UNREADABLE
    least: float | None = args.fail_under
    reached = _coverages(outcomes) if args.coverage or least is not None else {}
    if args.json:
        print(json_text(_json(outcomes, reached, least)))
    else:
        for outcome in outcomes:
            print_lines(_report(outcome))
        for policy, found in reached.items():
            print_lines(coverage_lines(policy, found, least))
        if not outcomes or not all(outcome.unreadable for outcome in outcomes):
            print_lines([_summary(outcomes)])
    errors = [outcome.unreadable for outcome in outcomes if outcome.unreadable is not None]
    if args.junit is not None:
        suites = _suites(outcomes, reached, least, tests_required=args.require_tests)
        try:
            write_report("--junit", args.junit, junit_xml(suites))
        except InputError as problem:
            errors.append(str(problem))
    for error in errors:
        print_error(error)
    if errors:
        return UNREADABLE
    insufficient = args.require_tests and any(outcome.missing for outcome in outcomes)
    insufficient = insufficient or any(is_below_minimum(found, least) for found in reached.values())
    return FAILED if insufficient or any(outcome.failed or outcome.problems for outcome in outcomes) else OK


def _coverages(outcomes: Sequence[FileResult]) -> dict[Path, Coverage]:
    """Coverage by policy, because several test files may share one."""
    shared: dict[Path, list[FileResult]] = {}
    for outcome in outcomes:
        if outcome.policy is not None and outcome.tested is not None:
            shared.setdefault(outcome.policy, []).append(outcome)
    found: dict[Path, Coverage] = {}
    for policy, results in shared.items():
        tested = results[0].tested
        assert tested is not None
        found[policy] = coverage(
            tested.compiled, (walk for one in results for trial in one.trials for walk in trial.walks), tested.root
        )
    return found


def _tests(given: Sequence[Path]) -> list[Path]:
    """The test files, each once: a pre-commit hook may pass both a policy and its test."""
    return list(
        dict.fromkeys(
            path if is_test(path) or _is_missing(path) else test_of(path)
            for path in given
            if is_test(path) or not _has_no_tests(path)
        )
    )


def _is_missing(policy: Path) -> bool:
    """Whether neither a policy nor its tests exist. The policy is then reported, because the user has named it."""
    return not policy.exists() and not test_of(policy).exists()


def _has_no_tests(path: Path) -> bool:
    """Whether a file is a script or settings. A hook or a folder may have these too, but they have no tests."""
    try:
        return file_kind(path, read(path)) in ("script", "settings")
    except InputError:
        return False  # reported when it is read again


def _outcome(tests: Path) -> FileResult:
    outcome = FileResult(tests)
    try:
        if not tests.exists() and (policy := policy_of(tests)).exists():
            outcome.policy, outcome.missing = policy, True
            outcome.tested = _tested(policy)
            return outcome
        cases = load_cases(read(tests), file=str(tests))
        outcome.policy = policy_of(tests) if cases.policy is None else tests.parent / cases.policy
        outcome.tested = _tested(outcome.policy)
        outcome.trials = run(cases.cases, outcome.tested.compiled)
    except InputError as problem:
        outcome.unreadable = str(problem)
    except PolicyError as error:
        outcome.problems = [str(problem) for problem in error.problems]
    return outcome


def _tested(policy: Path) -> PolicyUnderTest:
    """Load a policy without the real environment: the cases give the values of ``${VAR}``."""
    text = read(policy)
    return PolicyUnderTest(
        compile_loaded(load_policy(text, file=str(policy), environment={}), policy.parent), compose(text)[0]
    )


def _report(outcome: FileResult) -> Iterator[str]:
    if outcome.missing:
        yield f"{outcome.policy}: no tests; add {outcome.tests.name} next to it"
    yield from outcome.problems
    for trial in outcome.failed:
        yield from _failure(outcome.tests, trial)
    yield from (_passed(outcome.tests, trial) for trial in outcome.trials if not trial.mismatches)
    if outcome.trials:
        failed = len(outcome.failed)
        yield f"{outcome.tests}: {count(len(outcome.trials), 'case')}, {f'{failed} failed' if failed else 'all passed'}"


_ANSWER_SOURCE: Final = {
    "allow": "the model's answer",
    "escalate": "the reviewer's answer",
    "forward": "the client's answer",
}
"""The server's answer, if it depends on a model or a person."""


def _passed(tests: Path, trial: CaseResult) -> str:
    decision, wire = trial.outcome.decision, trial.outcome.wire
    rule = "" if decision.rule is None else f" by rule {decision.rule!r}"
    return (
        f"{tests}:{trial.line}: passed: {trial.case.name}: {decision.effect}{rule}; the server gets:"
        f" {wire or _ANSWER_SOURCE[decision.effect]}"
    )


def _failure(tests: Path, trial: CaseResult) -> Iterator[str]:
    yield f"{tests}:{trial.line}: failed: {trial.case.name}"
    for mismatch in trial.mismatches:
        yield f"    {_where(mismatch)}: expected {_value_text(mismatch.expected)}, got {_value_text(mismatch.got)}"
    if trial.outcome.decision.detail:
        yield f"    {trial.outcome.decision.detail}"
    yield from (f"    {line}" for line in step_lines(trial.outcome.steps))
    if trial.outcome.wire is not None:
        yield f"    the server gets: {trial.outcome.wire}"


def _where(mismatch: Mismatch) -> str:
    """Path of a mismatch: ``steps.1.effect (line 14, request 3 of 10)``, or ``effect`` for a case without steps."""
    place, _, rest = mismatch.where.partition(", ")
    return f"{place}.{mismatch.what} ({rest})" if place else mismatch.what


def _value_text(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _summary(outcomes: Sequence[FileResult]) -> str:
    tried = [outcome for outcome in outcomes if outcome.trials]
    failed = sum(len(outcome.failed) for outcome in outcomes)
    cases = sum(len(outcome.trials) for outcome in outcomes)
    return f"{count(len(tried), 'file')}, {count(cases, 'case')}, {failed} failed"


def _suites(
    outcomes: Sequence[FileResult], reached: Mapping[Path, Coverage], least: float | None, *, tests_required: bool
) -> Iterator[Suite]:
    """The results as suites: one for each file, and one for each policy with a required coverage."""
    for outcome in outcomes:
        path = outcome.policy if outcome.missing and outcome.policy is not None else outcome.tests
        yield Suite(str(path), tuple(_cases(path, outcome, tests_required=tests_required)))
    if least is not None:
        for policy, found in reached.items():
            *missing, totals = coverage_lines(policy, found, least)
            failure = [totals, *missing] if is_below_minimum(found, least) else []
            yield Suite(str(policy), (_case(policy, "coverage", *failure),))


def _cases(path: Path, outcome: FileResult, *, tests_required: bool) -> Iterator[Case]:
    """The cases of a file; if it has none that could run, a case that tells why."""
    if outcome.missing:
        yield _case(path, "has tests", next(_report(outcome)), skipped=not tests_required)
    if problems := [*outcome.problems, *([outcome.unreadable] if outcome.unreadable is not None else [])]:
        yield _case(path, "can be run", *problems)
    for trial in outcome.trials:
        _, *lines = _failure(outcome.tests, trial) if trial.mismatches else [""]
        yield _case(path, trial.case.name, *(line.removeprefix("    ") for line in lines), line=trial.line)


def _case(path: Path, name: str, *failure: str, line: int | None = None, skipped: bool = False) -> Case:
    """A case of a file, and why it failed: a summary and further lines. Its class is the file without its suffix,
    because Jenkins takes a dot for the end of a package's name."""
    return Case(
        name,
        str(path.with_suffix("")) if path.name else str(path),
        failure=failure[0] if failure and not skipped else None,
        details="\n".join(failure[1:]),
        skipped=failure[0] if skipped else None,
        file=workspace_path(path) or str(path),
        line=line,
    )


def _json(outcomes: Sequence[FileResult], reached: Mapping[Path, Coverage], least: float | None) -> dict[str, Any]:
    return {
        **(
            {"coverage": [coverage_as_json(policy, found, least) for policy, found in reached.items()]}
            if reached
            else {}
        ),
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


def _trial_json(trial: CaseResult) -> dict[str, Any]:
    return {
        "name": trial.case.name,
        "line": trial.line,
        "passed": not trial.mismatches,
        "mismatches": [_mismatch_json(each) for each in trial.mismatches],
        "detail": trial.outcome.decision.detail,
        **_decision_json(trial),
        "rules": steps_as_json(trial.outcome.steps),
    }


def _decision_json(trial: CaseResult) -> dict[str, Any]:
    decision = trial.outcome.decision
    return {"effect": decision.effect, "rule": decision.rule, "declared": decision.declared, "wire": trial.outcome.wire}


def _mismatch_json(mismatch: Mismatch) -> dict[str, Any]:
    fields = {"what": mismatch.what, "expected": mismatch.expected, "got": mismatch.got}
    return {**fields, "where": mismatch.where} if mismatch.where else fields
