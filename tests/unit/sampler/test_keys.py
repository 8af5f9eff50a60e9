"""API keys: where they are read from, and who does not get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.policy.schema import Model
from samplegate.sampler.keys import NO_KEY, NoKey, child_environment, key, problem, withheld_names

ENVIRONMENT = {
    "PATH": "bin",
    "HOME": "home",
    "OPENAI_API_KEY": "o",
    "OPENAI_BASE_URL": "http://x",
    "ANTHROPIC_API_KEY": "a",
    "AWS_SECRET_ACCESS_KEY": "w",
    "AWS_REGION": "eu",
    "GATE_KEY": "g",
    "GITHUB_TOKEN": "h",
    "EMPTY": " ",
    "TWO_LINES": "a\nb",
}
OWN = Model(name="own", model="openai/gpt-5-mini", api_key_env="GATE_KEY")
OPENAI = Model(name="openai", model="openai/gpt-5-mini")
BEDROCK = Model(name="aws", model="bedrock/claude")
BARE = Model(name="bare", model="gpt-5-mini")
SCRIPTED = Model(name="trial", model="scripted", cases="f")


@pytest.mark.parametrize(
    ("models", "hidden"),
    [
        ([], set()),
        ([SCRIPTED], set()),
        ([OWN], {"GATE_KEY"}),
        ([OPENAI], {"OPENAI_API_KEY"}),
        ([BEDROCK], {"AWS_SECRET_ACCESS_KEY"}),
        ([BARE], {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}),
        ([OWN, OPENAI], {"GATE_KEY", "OPENAI_API_KEY"}),
        ([Model(name="file", model="anthropic/x", api_key_file="f")], set()),
        ([Model(name="unset", model="anthropic/x", api_key_env="NOT_SET")], set()),
    ],
)
def test_the_wrapped_server_gets_everything_but_the_gates_keys(models: list[Model], hidden: set[str]) -> None:
    assert hidden == withheld_names(ENVIRONMENT, models)
    assert ENVIRONMENT.keys() - hidden == child_environment(ENVIRONMENT, models).keys()


@pytest.mark.parametrize("database", [False, True])
def test_the_wrapped_server_does_not_get_the_password_of_the_gates_database(database: bool) -> None:
    """libpq's variable is the server's own, unless the gate has a database."""
    environment = {"SAMPLEGATE_DATABASE": "postgresql://u:secret@h/d", "PGPASSWORD": "secret", "PGHOST": "h"}
    kept = {"PGHOST"} if database else {"PGHOST", "PGPASSWORD"}
    assert kept == child_environment(environment, [], database=database).keys()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (OWN, "g"),
        (OPENAI, None),
        (Model(name="local", model="openai/qwen3", api_base="http://127.0.0.1:1/v1"), NO_KEY),
        (Model(name="azure", model="azure/gpt-5", api_base="http://127.0.0.1:1"), None),
        (
            Model(name="m", model="openai/x", api_key_env="EMPTY"),
            NoKey("variable EMPTY (api_key_env) is empty; put the provider's key there"),
        ),
        (
            Model(name="m", model="openai/x", api_key_env="NO"),
            NoKey("variable NO (api_key_env) is not set; set it to the provider's key"),
        ),
    ],
)
def test_a_model_is_called_with_the_key_that_the_policy_names(model: Model, expected: str | NoKey | None) -> None:
    assert expected == key(model, folder=Path(), environment=ENVIRONMENT)


def test_a_key_that_would_be_another_header_is_none() -> None:
    found = key(Model(name="m", model="openai/x", api_key_env="TWO_LINES"), folder=Path(), environment=ENVIRONMENT)

    assert isinstance(found, NoKey)
    assert "contains a line break" in found.what


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"x" * 20_000, "is larger than"),
        (b" \n", "is empty; put the provider's key there"),
        (b"\xff", "characters other than printable ASCII"),
        (None, "does not exist; paths in a policy are relative to "),
    ],
)
def test_a_file_that_holds_no_key_is_told_by_its_name(tmp_path: Path, content: bytes | None, what: str) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    told = problem(Model(name="m", model="openai/x", api_key_file="key"), folder=tmp_path, environment={})

    assert told is not None
    assert told.startswith("file key (api_key_file) ")
    assert what in told


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    assert problem(Model(name="m", model="openai/x", api_key_file="."), folder=tmp_path, environment={}) is not None


@pytest.mark.parametrize(
    ("model", "environment", "expected"),
    [
        (OPENAI, {}, "no API key: set OPENAI_API_KEY, or add api_key_env or api_key_file to the model"),
        (OPENAI, ENVIRONMENT, None),
        (OWN, ENVIRONMENT, None),
        (Model(name="c", model="anthropic/c"), {"ANTHROPIC_AUTH_TOKEN": "t"}, None),
        (BEDROCK, {}, None),
        (BARE, {}, None),
    ],
)
def test_a_missing_key_is_told_at_start_where_it_can_be_known(
    model: Model, environment: dict[str, str], expected: str | None
) -> None:
    assert expected == problem(model, folder=Path(), environment=environment)
