"""The policies and decision cases of `tests/cases` and of the shipped policies."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from samplegate.policy.match import CompiledPolicy
from samplegate.policytest.load import CaseFile, load_cases
from samplegate.runtime.process import compile_loaded, load_policy
from tests.paths import ROOT, TESTS

HERE: Final = TESTS / "cases"


SHIPPED: Final = ROOT / "policies"


CASE_FILES: Final = sorted([*HERE.glob("*_test.yaml"), *SHIPPED.glob("*_test.yaml")])


@cache
def cases_of(tests: Path) -> CaseFile:
    return load_cases(tests.read_text("utf-8"), file=tests.name)


def beside(tests: Path) -> Path:
    return tests.with_name(tests.name.replace("_test", ""))


@cache
def compiled_of(tests: Path) -> CompiledPolicy:
    """The policy beside a case file, compiled as `samplegate test` does."""
    policy = beside(tests)
    return compile_loaded(load_policy(policy.read_text("utf-8"), file=policy.name, environment={}), policy.parent)
