"""Answers over the limit of output tokens in a run: what is passed on, and what is charged.

tests/unit/gate/test_overrun.py has each case."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.run_process import call, opening, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes")


def sample(folder: Path, tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The server's answer and the record of a sampling request whose model reports this many output tokens."""
    (folder / "policy.yaml").write_text(
        "version: 1\nmodels: [{name: trial, model: scripted, cases: cases.yaml}]\n"
        "rules: [{name: r, match: {kind: sampling}, effect: allow, with: {models: [trial]}}]\n"
    )
    (folder / "cases.yaml").write_text(f"cases: [{{answer: hi, output_tokens: {tokens}}}]\n")
    with running(folder, "--decision-log", "log.jsonl") as gate:
        gate.write(*opening(), call(1, ask="sample"))
        code, answers, said = gate.end()
    assert 0 == code, said
    record = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    return json.loads(answers[1]["result"]["content"][0]["text"]), record


@pytest.mark.parametrize(("tokens", "is_answered"), [(12, True), (13, False)])
def test_an_answer_a_little_over_the_limit_is_passed_on_and_a_longer_one_withheld(
    tmp_path: Path, tokens: int, is_answered: bool
) -> None:
    answer, record = sample(tmp_path, tokens)
    assert (is_answered, tokens) == ("result" in answer, record["attempts"][0]["output_tokens"])
    assert ("answered" if is_answered else "unanswered") == record["outcome"]
    assert ("maxTokens" if is_answered else -1) == (
        answer["result"]["stopReason"] if is_answered else answer["error"]["code"]
    )
