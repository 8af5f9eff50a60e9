"""`samplegate schema`: what it prints is a JSON Schema that takes the shipped files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml

from samplegate.yamlfile.tree import compose, plain
from tests.commands.shell import Run

ROOT: Final = Path(__file__).resolve().parents[2]
SHIPPED: Final = sorted((ROOT / "policies").glob("*.yaml"))
DEPLOY: Final = ROOT / "deploy"


def test_the_schemas_are_schemas(run: Run) -> None:
    for options in ([], ["--tests"], ["--settings"]):
        ended = run("schema", *options)
        assert 0 == ended.code
        jsonschema.Draft202012Validator.check_schema(json.loads(ended.out))


@pytest.mark.parametrize(
    "file", [file for file in SHIPPED if not file.stem.endswith("_cases")], ids=lambda path: path.name
)
def test_a_shipped_file_fits_its_schema(run: Run, file: Path) -> None:
    schema = json.loads(run("schema", *["--tests"] * file.stem.endswith("_test")).out)
    root, _ = compose(file.read_text("utf-8"))
    jsonschema.validate(plain(root), schema)


@pytest.mark.parametrize(
    ("options", "table"), [([], "policy.json"), (["--tests"], "tests.json")], ids=["policy", "tests"]
)
def test_the_schema_is_printed_as_before(run: Run, options: list[str], table: str) -> None:
    """A change here is one that users see: a key, a bound or a sentence."""
    assert (Path(__file__).parent / "schemas" / table).read_text("utf-8") == run("schema", *options).out


@pytest.mark.parametrize("folder", ["systemd", "compose"])
def test_shipped_settings_fit_their_schema(run: Run, folder: str) -> None:
    root, _ = compose((DEPLOY / folder / "samplegate.yaml").read_text("utf-8"))
    jsonschema.validate(plain(root), json.loads(run("schema", "--settings").out))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.name)
def test_other_readers_of_yaml_read_a_shipped_file_alike(file: Path) -> None:
    root, _ = compose(file.read_text("utf-8"))
    assert plain(root) == yaml.safe_load(file.read_text("utf-8"))
