"""The Helm chart as files: values, schema, README and copies agree. `tests/deployment/test_chart.py` renders it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from docs.generate import CHART, CHART_SCHEMA, COPIES, LISTENERS, chart_schema
from samplegate import __version__
from samplegate.config.serve_settings import SERVE_SETTINGS

VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA: Final[dict[str, Any]] = json.loads(CHART_SCHEMA.read_text("utf-8"))
ROWS: Final = dict(
    re.findall(r"^\| `([\w.]+)` \| (.*?) \| \S.*\|$", (CHART / "README.md").read_text("utf-8"), re.MULTILINE)
)
IN_FILE: Final = "[values.yaml](values.yaml)"


def leaves(schema: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that the chart does not pass on as it is, and its default."""
    for name, value in values.items():
        if schema["properties"][name].get("additionalProperties") is False:
            yield from leaves(schema["properties"][name], value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_the_table_of_the_readme_has_every_value_with_its_default() -> None:
    wanted = dict(leaves(SCHEMA, VALUES))
    assert [*wanted] == [*ROWS]
    shown = {name: default for name, default in ROWS.items() if IN_FILE != default}
    assert 30 < len(shown)
    assert {name for name, default in shown.items() if default == "–"} == {
        name for name in shown if wanted[name] in ("", [], {})
    }
    assert [] == [
        name for name, default in shown.items() if default != "–" and wanted[name] != json.loads(default.strip("`"))
    ]


def closed(schema: Mapping[str, Any], values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each object of the chart's own, with the names in which the schema and values.yaml differ."""
    assert False is schema["additionalProperties"], at
    yield at, set(schema["properties"]) ^ set(values)
    for name, inner in schema["properties"].items():
        if "properties" in inner and inner.get("additionalProperties", True) is False:
            yield from closed(inner, values[name], f"{at}.{name}")


def test_the_schema_permits_the_values_of_the_file_and_no_others() -> None:
    differences = {at: names for at, names in closed(SCHEMA, VALUES) if names}
    assert {"": {"global"}} == differences  # Helm adds it to a chart that another depends on


def test_the_schema_knows_every_setting_but_those_that_the_chart_sets() -> None:
    assert chart_schema() == CHART_SCHEMA.read_text("utf-8"), "run `make docs`"
    known = set(SCHEMA["properties"]["settings"]["propertyNames"]["enum"])
    assert LISTENERS == set(SERVE_SETTINGS) - known
    assert set() == set(VALUES["settings"]) - known


def test_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (__version__, __version__) == (chart["version"], chart["appVersion"])


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copies_are_those_of_make_docs(copy: Any) -> None:
    assert COPIES[copy].read_bytes() == copy.read_bytes(), "run `make docs`"


def test_nothing_else_is_in_the_folder_of_copies() -> None:
    assert {path.name for path in COPIES} == {path.name for path in (CHART / "files").iterdir()}


def test_the_page_says_what_was_not_run() -> None:
    assert "has not been installed in a cluster" in (CHART / "README.md").read_text("utf-8")
