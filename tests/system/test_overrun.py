"""Answers over the limit of output tokens, and providers' counts that cannot be: what is passed on, and what is
booked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.wrapping import call, opening, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes")
MOST = 10  # what the server of these tests asks for


def sample(folder: Path, tokens: int, with_: str = "", limits: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer that the server gets to a sampling request whose model reports so many output tokens, and its
    record."""
    (folder / "policy.yaml").write_text(
        f"version: 1\nmodels: [{{name: trial, model: scripted, cases: cases.yaml}}]\n{limits}rules: [{{name: r, match:"
        f" {{kind: sampling}}, effect: allow, with: {{models: [trial]{with_}}}{', limits: [t]' if limits else ''}}}]\n"
    )
    (folder / "cases.yaml").write_text(f"cases: [{{answer: hi, output_tokens: {tokens}}}]\n")
    with running(folder, "--decision-log", "log.jsonl") as gate:
        gate.write(*opening(), call(1, ask="sample"))
        code, answers, said = gate.end()
    assert 0 == code, said
    record = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    return json.loads(answers[1]["result"]["content"][0]["text"]), record


@pytest.mark.parametrize(
    ("tokens", "with_", "stop"),
    [(10, "", "endTurn"), (11, "", "maxTokens"), (12, "", "maxTokens"), (10, ", on_overrun: withhold", "endTurn")],
)
def test_an_answer_a_little_over_the_limit_is_passed_on_and_booked_in_full(
    tmp_path: Path, tokens: int, with_: str, stop: str
) -> None:
    answer, record = sample(tmp_path, tokens, with_)
    assert (stop, "hi") == (answer["result"]["stopReason"], answer["result"]["content"]["text"])
    assert ("answered", tokens) == (record["outcome"], record["attempts"][0]["output_tokens"])


@pytest.mark.parametrize(("tokens", "with_"), [(13, ""), (11, ", on_overrun: withhold"), (10_000, "")])
def test_a_longer_answer_is_withheld_and_booked_in_full(tmp_path: Path, tokens: int, with_: str) -> None:
    answer, record = sample(tmp_path, tokens, with_)
    assert -1 == answer["error"]["code"]
    assert ("unanswered", "model", tokens) == (
        record["outcome"],
        record["reason"],
        record["attempts"][0]["output_tokens"],
    )
    assert f"gave {tokens} tokens where {MOST} was the most" in record["detail"]


def test_the_limit_is_the_rules_where_that_is_lower(tmp_path: Path) -> None:
    answer, _ = sample(tmp_path, 5, ", max_tokens: 4")
    assert "maxTokens" == answer["result"]["stopReason"]
