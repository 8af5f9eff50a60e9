"""Probes of models: scripted ones are answered by their script. Real ones are tested with the worker, in
`tests/system/cli/`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from samplegate.runtime.model_probe import ModelProbe, probe_models
from samplegate.runtime.process import load_policy

TAIL = "rules: [{name: r, match: {kind: sampling}, effect: allow}]\n"


def probed(folder: Path, cases: str, *, timeout: float = 30.0, price: str = "") -> ModelProbe:
    """The probe of one scripted model."""
    (folder / "talk.yaml").write_text(f"cases: [{cases}]\n")
    model = f"{{name: trial, model: scripted, cases: talk.yaml{price}}}"
    loaded = load_policy(f"version: 1\nmodels: [{model}]\n{TAIL}", file="p.yaml", environment={})
    (found,) = anyio.run(partial(probe_models, loaded, folder=folder, environment={}, timeout=timeout))
    return found


def test_a_scripted_model_is_answered_by_its_script(tmp_path: Path) -> None:
    found = probed(
        tmp_path, "{answer: hello, input_tokens: 3, output_tokens: 1}", price=", price: {input: 1, output: 5}"
    )
    assert (None, 3, 1, 8_000_000) == (found.failure, found.input_tokens, found.output_tokens, found.usd)


def test_a_script_without_a_case_for_the_question_is_no_failure(tmp_path: Path) -> None:
    found = probed(tmp_path, "{text: weather, answer: hello}")
    assert (None, "the script has no case for this question") == (found.failure, found.message)


@pytest.mark.parametrize("failure", ["unreachable", "rate_limited", "bad_key"])
def test_a_failure_of_the_script_is_one(tmp_path: Path, failure: str) -> None:
    found = probed(tmp_path, f"{{fail: {failure}}}")
    assert failure == found.failure
    assert found.message
    assert not found.message.startswith("model ")


def test_the_timeout_ends_a_slow_model(tmp_path: Path) -> None:
    found = probed(tmp_path, "{answer: hello, delay: 1h}", timeout=0.05)
    message = "no answer within 0.05s; check api_base, the network and the provider"
    assert ("timeout", message) == (found.failure, found.message)
