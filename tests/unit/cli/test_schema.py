"""`samplegate schema`: prints a JSON Schema that accepts the shipped files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml

from samplegate.yamlfile.tree import compose, plain_value
from tests.fakes.shell import samplegate
from tests.paths import ROOT

SHIPPED: Final = sorted((ROOT / "policies").glob("*.yaml"))
DEPLOY: Final = ROOT / "deploy"


@cache
def printed(*options: str) -> str:
    """The printed schema, which is the same each time."""
    ended = samplegate(ROOT, "schema", *options)
    assert (0, "") == (ended.code, ended.err)
    return ended.out


def test_the_schemas_are_schemas() -> None:
    for options in ([], ["--tests"], ["--settings"]):
        jsonschema.Draft202012Validator.check_schema(json.loads(printed(*options)))


@pytest.mark.parametrize(
    "file", [file for file in SHIPPED if not file.stem.endswith("_cases")], ids=lambda path: path.name
)
def test_a_shipped_file_fits_its_schema(file: Path) -> None:
    schema = json.loads(printed(*["--tests"] * file.stem.endswith("_test")))
    root, _ = compose(file.read_text("utf-8"))
    jsonschema.validate(plain_value(root), schema)


@pytest.mark.parametrize(
    ("options", "table"), [([], "policy.json"), (["--tests"], "tests.json")], ids=["policy", "tests"]
)
def test_the_schema_is_printed_as_before(options: list[str], table: str) -> None:
    """A change here is visible to users: a key, a bound or a description."""
    assert (Path(__file__).parent / "schemas" / table).read_text("utf-8") == printed(*options)


@pytest.mark.parametrize("folder", ["systemd", "compose"])
def test_shipped_settings_fit_their_schema(folder: str) -> None:
    root, _ = compose((DEPLOY / folder / "samplegate.yaml").read_text("utf-8"))
    jsonschema.validate(plain_value(root), json.loads(printed("--settings")))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.name)
def test_other_readers_of_yaml_read_a_shipped_file_alike(file: Path) -> None:
    root, _ = compose(file.read_text("utf-8"))
    assert plain_value(root) == yaml.safe_load(file.read_text("utf-8"))
