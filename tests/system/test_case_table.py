"""Results of every case file of the repository, expectation by expectation; ``answers.json`` has the table.

Every expectation is set and none is met, so that `samplegate test` prints all its findings, with messages and coverage.
To write the table anew: ``python -m tests.system.test_case_table``.
"""

from __future__ import annotations

import argparse
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from samplegate.cli import test as command
from tests.fakes.case_files import CASE_FILES, beside
from tests.paths import TESTS

TABLE: Final = TESTS / "cases" / "answers.json"
WRONG: Final[dict[str, Any]] = {
    "effect": "none",
    "rule": "?",
    "reason": "malformed",
    "reviewer": "?",
    "review_answer": "?",
    "outcome": "denied",
    "declared": False,
    "wire": "call ends",
    "models": ["?"],
    "params": {"maxTokens": -1, "systemPrompt": "?", "messages": [], "temperature": -1},
    "content": "?",
    "as": "cancel",
    "shadows": ["?"],
    "limit": "?",
    "waits": "1ms",
    "cost": 0.123456789,
}
"""Every member of ``expect``; effect, reason, outcome, declared, wire and ``as`` have few values, and are printed if
they differ."""


def asked_for_all(tests: Path) -> dict[str, Any]:
    """The file with every expectation replaced by all possible ones, and a case for each step."""
    suite = yaml.safe_load(tests.read_text("utf-8"))
    limits = yaml.safe_load(beside(tests).read_text("utf-8")).get("limits") or {}
    wrong = WRONG | {"limits": dict.fromkeys(limits, 0.123456789)}
    cases: list[dict[str, Any]] = []
    for case in suite["cases"]:
        if "steps" not in case:
            cases.append({**case, "expect": wrong})
        # the findings of a case are those of its first step that fails
        for number in range(len(case.get("steps", ()))):
            steps = [{**step, "expect": wrong if at == number else None} for at, step in enumerate(case["steps"])]
            steps = [{name: value for name, value in step.items() if value is not None} for step in steps]
            cases.append({**case, "name": f"{case['name']}, step {number}", "steps": steps})
    return {**suite, "cases": cases, "policy": str(beside(tests).resolve())}


def told(tests: Path, folder: Path) -> dict[str, Any]:
    """The output of `samplegate test --json --coverage` for the file, without paths and expected values."""
    file = folder / tests.name
    file.write_text(json.dumps(asked_for_all(tests)), "utf-8")
    args = argparse.Namespace(
        policies=[file], json=True, coverage=True, fail_under=None, require_tests=False, junit=None
    )
    out = io.StringIO()
    with redirect_stdout(out):
        assert command.command(args) == 1
    said = json.loads(out.getvalue())
    (found,), (coverage,) = said["files"], said["coverage"]
    assert [] == found["problems"]
    return {case["name"]: _told(case) for case in found["cases"]} | {
        "coverage": {name: coverage[name] for name in coverage if name != "policy"}
    }


def _told(case: dict[str, Any]) -> dict[str, Any]:
    """The output for one case, without nulls."""
    got = {one["what"]: one["got"] for one in case["mismatches"]}
    found = {name: case.get(name) for name in ("detail", "effect", "rule", "declared", "wire")}
    rules = [f"{step['rule']}: {step['why']}" for step in case["rules"] if step["taken"] or "; on_" in step["why"]]
    return {name: value for name, value in (got | {"told": {**found, "rules": rules}}).items() if value is not None}


@pytest.mark.parametrize("tests", CASE_FILES, ids=lambda path: path.name)
def test_a_case_file_comes_to_what_is_in_the_table(tests: Path, tmp_path: Path) -> None:
    assert json.loads(TABLE.read_text("utf-8"))[tests.name] == told(tests, tmp_path)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        table = {tests.name: told(tests, Path(folder)) for tests in CASE_FILES}
    lines = [
        f"{json.dumps(file)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in said.items())
        + "\n}"
        for file, said in table.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
