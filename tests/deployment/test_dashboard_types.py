"""The dashboard against the types that Grafana publishes for this version of its dashboards (npm, @grafana/schema).

Grafana itself is in no registry that the tests use, so no test opens the dashboard in it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deployment import typescript
from tests.deployment.board import BOARD
from tests.fakes.system_programs import DEPLOY
from tests.paths import ROOT

pytestmark = pytest.mark.real
FOLDER: Final = ROOT / "tests" / "deployment" / "grafana"
TYPES: Final = {"stat": "Stat", "table": "Table", "timeseries": "Timeseries", "row": "Row"}


def kind_of(part: Mapping[str, Any]) -> str:
    return "Board" if "panels" not in part and "schemaVersion" in part else TYPES[part["type"]]


def problems(parts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """The first problem of each part that has one."""
    declared = {name: (kind_of(part), part) for name, part in parts.items()}
    return typescript.problems(FOLDER / "dashboard.ts", declared, folder)


def parts() -> dict[str, Any]:
    """The dashboard without its panels, and each panel."""
    return {
        "board": {name: value for name, value in BOARD.items() if name != "panels"},
        **{f"panel{panel['id']}": panel for panel in BOARD["panels"]},
    }


def test_the_dashboard_and_every_panel_have_the_types_that_grafana_publishes(tmp_path: Path) -> None:
    assert {} == problems(parts(), tmp_path)


FAULTS: Final = {
    "unknown_option": ("stat", ("options",), "colourMode", "value"),
    "unknown_mode": ("timeseries", ("fieldConfig", "defaults", "custom"), "thresholdsStyle", {"mode": "dotted"}),
    "text_for_number": ("timeseries", ("gridPos",), "h", "8"),
    "unknown_field": ("timeseries", ("fieldConfig", "defaults"), "units", "s"),
    "unknown_height": ("table", ("options",), "cellHeight", "tiny"),
    "wrong_step": ("stat", ("fieldConfig", "defaults", "thresholds"), "steps", [{"colour": "red", "value": 1}]),
    "unknown_member": ("row", (), "title_", "Requests"),
}


def test_the_check_notices_wrong_names_and_values(tmp_path: Path) -> None:
    faulty: dict[str, Any] = {"board": {**parts()["board"], "graphTooltip": 7}}
    for name, (kind, path, key, value) in FAULTS.items():
        faulty[name] = copy.deepcopy(next(panel for panel in BOARD["panels"] if kind == panel["type"]))
        place = faulty[name]
        for step in path:
            place = place[step]
        place[key] = value
    assert sorted(faulty) == sorted(problems(faulty, tmp_path))


def test_the_types_are_those_of_the_grafana_that_compose_starts() -> None:
    image = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["grafana"]["image"]
    wanted = json.loads((FOLDER / "package.json").read_text("utf-8"))["dependencies"]["@grafana/schema"]
    assert image == f"grafana/grafana:{wanted}"
