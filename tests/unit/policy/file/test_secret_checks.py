"""A policy's own secret patterns. Messages about single patterns are in bad_policies/ and warned_policies/."""

from __future__ import annotations

import pytest

from samplegate.policy.file.checks import MAX_SECRETS
from samplegate.policy.file.load import PolicyError, load

RULES = (
    "models: [{name: m, model: a/b}]\nrules:\n  - {name: r, match: {kind: sampling}, effect: allow, with: {secrets:"
    " %s}}\n"
)


def policy(patterns: int, secrets: str = "{}") -> str:
    lines = "".join(f"  own-{number}: 'T-{number}'\n" for number in range(patterns))
    return f"version: 1\nsecrets:\n{lines}{RULES % secrets}"


def test_as_many_patterns_as_the_bound_are_taken() -> None:
    assert MAX_SECRETS == len(load(policy(MAX_SECRETS), file="p", environment={}).policy.secrets)


def test_more_patterns_than_that_are_one_problem() -> None:
    with pytest.raises(PolicyError) as caught:
        load(policy(MAX_SECRETS + 3), file="p", environment={})
    assert ["p:103:3: secrets.own-100: there are more than 100 secrets; join some patterns with |"] == [
        str(each) for each in caught.value.problems
    ]


@pytest.mark.parametrize("secrets", ["{}", "{prompt: stop, answer: keep}", "{prompt: keep}", "{answer: stop}"])
def test_patterns_that_a_rule_looks_for_are_no_warning(secrets: str) -> None:
    assert () == load(policy(1, secrets), file="p", environment={}).warnings
