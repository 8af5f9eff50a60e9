"""litellm's price table: the entry of each model, and that nothing in the file can do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.policy.catalogue import ModelFacts, catalogue_of
from samplegate.policy.schema import Model
from samplegate.sampler import litellm_prices

OPENAI: Final = {"litellm_provider": "openai", "input_cost_per_token": 1e-6}
ENTRIES: Final[dict[str, Any]] = {
    "sample_spec": {"input_cost_per_token": 0},
    "gpt-x": OPENAI,
    "azure/gpt-x": {"litellm_provider": "azure"},
    "gemini/g": {"litellm_provider": "gemini"},
    "claude-v": {"litellm_provider": "vertex_ai-anthropic_models"},
    "nobody": {"mode": "chat"},
    "Mixed-Case": {"litellm_provider": "openai"},
    "broken": 7,
}


def models(*ids: str) -> list[Model]:
    return [Model(name=f"m{index}", model=name) for index, name in enumerate(ids)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / litellm_prices.FILE).write_text(json.dumps(ENTRIES))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gpt-x", "gpt-x"),
        ("openai/gpt-x", "gpt-x"),
        ("openai/GPT-X", "gpt-x"),
        ("openai/mixed-case", "Mixed-Case"),
        ("azure/gpt-x", "azure/gpt-x"),
        ("gemini/g", "gemini/g"),
        ("vertex_ai/claude-v", "claude-v"),
        ("anthropic/gpt-x", None),
        ("openai/g", None),
        ("openrouter/openai/gpt-x", None),
        ("g", None),
        ("openai/", None),
        ("openai", None),
        ("/gpt-x", None),
        ("openai/nobody", None),
        ("openai/gpt-x-2026-01-01", None),
        ("sample_spec", None),
        ("broken", None),
        ("openai/broken", None),
    ],
)
def test_an_entry_is_found_by_the_whole_name_or_without_a_provider_that_is_its_own(
    folder: Path, name: str, key: str | None
) -> None:
    expected = {} if key is None else {name: ENTRIES[key]}
    assert expected == litellm_prices.read_prices(models(name), folder)


def test_scripted_models_need_no_table(tmp_path: Path) -> None:
    (tmp_path / litellm_prices.FILE).write_text('{"scripted": {"input_cost_per_token": 1}}')
    assert {} == litellm_prices.read_prices([Model(name="s", model="scripted", cases="c.yaml")], tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"openai/a": {',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"openai/a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_a_broken_file_is_an_empty_table(tmp_path: Path, text: bytes) -> None:
    (tmp_path / litellm_prices.FILE).write_bytes(text)
    assert {} == litellm_prices.read_prices(models("openai/a"), tmp_path)


def test_a_file_that_is_not_there_or_no_file_is_an_empty_table(tmp_path: Path) -> None:
    assert {} == litellm_prices.read_prices(models("openai/a"), tmp_path)
    (tmp_path / litellm_prices.FILE).mkdir()
    assert {} == litellm_prices.read_prices(models("openai/a"), tmp_path)


def test_a_file_of_absurd_size_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_prices, "MAX_BYTES", 10)
    assert {} == litellm_prices.read_prices(models("gpt-x"), folder)


KNOWN: Final = (
    "openai/gpt-5-mini",
    "openai/gpt-5",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "gemini/gemini-2.5-flash",
)


@pytest.fixture(scope="module")
def installed() -> dict[str, ModelFacts]:
    listed = models(*KNOWN, "openai/no-such-model")
    found = catalogue_of(listed, litellm_prices.read_prices(listed))
    return {model.model: found[model.name] for model in listed}


@pytest.mark.parametrize("name", KNOWN)
def test_the_installed_table_knows_the_well_known_models(installed: dict[str, ModelFacts], name: str) -> None:
    facts = installed[name]
    assert facts.rates is not None
    assert 0 < facts.rates.input < facts.rates.output
    assert 0 < (facts.max_output or 0) < (facts.context or 0)
    assert {"image", "tools"} <= facts.accepts


def test_the_installed_table_says_what_is_cheaper_and_what_takes_audio(installed: dict[str, ModelFacts]) -> None:
    output = {name: facts.rates.output for name, facts in installed.items() if facts.rates is not None}
    assert output["openai/gpt-5-mini"] < output["openai/gpt-5"]
    assert output["gemini/gemini-2.5-flash"] < output["gemini/gemini-2.5-pro"]
    assert "audio" in installed["gemini/gemini-2.5-pro"].accepts
    assert "audio" not in installed["openai/gpt-5-mini"].accepts


def test_the_installed_table_says_that_a_long_prompt_is_dearer(installed: dict[str, ModelFacts]) -> None:
    rates = installed["gemini/gemini-2.5-pro"].rates
    assert rates is not None
    assert [True] == [tier.input > rates.input for tier in rates.tiers]


def test_of_a_model_that_is_not_listed_nothing_is_known(installed: dict[str, ModelFacts]) -> None:
    assert ModelFacts() == installed["openai/no-such-model"]


def test_no_name_is_unknown_without_the_files(tmp_path: Path) -> None:
    none = litellm_prices.known_names(tmp_path)
    assert litellm_prices.KnownNames() == none
    assert litellm_prices.unknown_name(Model(name="m", model="odd"), none) is None


@pytest.mark.parametrize("content", ["[]", "{", '{"providers": 7}', '{"providers": []}', "7"])
def test_odd_lists_of_providers_are_no_lists(folder: Path, content: str) -> None:
    for name in litellm_prices.PROVIDER_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    known = litellm_prices.known_names(folder)
    assert {"openai", "azure", "gemini", "vertex_ai"} <= known.providers
    assert ("gpt-x", "Mixed-Case") == known.models["openai"]
