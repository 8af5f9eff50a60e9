"""Checks of the rules' requirements against the known facts about their models."""

from __future__ import annotations

import pytest

from samplegate.policy.file.load import load

TABLE = {
    "x/seeing": {"supports_vision": True},
    "x/able": {"supports_function_calling": True, "supports_audio_input": True},
}
POLICY = """\
version: 1
models:
  - {{name: plain, model: x/plain}}
  - {{name: seeing, model: x/seeing}}
  - {{name: able, model: x/able}}
  - {{name: told, model: x/plain, accepts: [audio]}}
  - {{name: trial, model: scripted, cases: c.yaml}}
rules:
  - name: r
    match: {{kind: sampling, {match}}}
    effect: allow
    with: {{models: [{models}]}}
"""


def warnings(match: str, models: str, *, table: bool = True) -> list[str]:
    text = POLICY.format(match=match, models=models)
    return [
        f"{problem.place}: {problem.what}"
        for problem in load(text, file="p", environment={}, look_up=(lambda _: TABLE) if table else None).warnings
    ]


@pytest.mark.parametrize(
    ("match", "models", "place", "extra"),
    [
        ("content_types: [audio]", "plain, seeing", "content_types", "audio"),
        ("content_types: [image]", "plain, able", "content_types", "image"),
        ("content_types: [image, tool_result]", "plain", "content_types", "image"),
        ("tools: true", "plain, seeing, told", "tools", "tools"),
    ],
)
def test_a_demand_that_no_model_of_the_rule_meets_is_a_warning(match: str, models: str, place: str, extra: str) -> None:
    what = (
        f"none of the rule's models ({models}) accepts {extra}, so such requests are never answered; add `accepts:"
        f" [{extra}]` to a model that does, or add another model"
    )
    assert [f"rules.0.match.{place}: {what}"] == warnings(match, models)
    assert [] == warnings(match, models, table=False)


@pytest.mark.parametrize(
    ("match", "models"),
    [
        ("content_types: [audio]", "plain, able"),
        ("content_types: [audio]", "told"),
        ("content_types: [audio]", "trial"),
        ("content_types: [text, image]", "plain"),
        ("content_types: [image]", "seeing"),
        ("content_types: [image, audio]", "seeing"),
        ("tools: true", "plain, able"),
        ("tools: false", "plain"),
        ("server: docs", "plain"),
    ],
)
def test_what_a_model_of_the_rule_may_take_is_none(match: str, models: str) -> None:
    assert [] == warnings(match, models)
