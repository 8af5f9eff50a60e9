"""The dashboard as data: its panels, queries and variables, with values as Grafana would insert them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from tests.fakes.system_programs import DEPLOY

BOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "samplegate.json").read_text("utf-8"))
PANELS: Final[list[dict[str, Any]]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES: Final[list[dict[str, Any]]] = [
    variable for variable in BOARD["templating"]["list"] if variable["type"] == "query"
]
SET: Final = {"__rate_interval": "15s", "__range": "60s", "job": "samplegate", "instance": ".*", "server": ".*"}


class Query(msgspec.Struct, frozen=True):
    """One query of a panel. ``over``: whether it is a range query."""

    panel: str
    ref: str
    text: str
    over: bool
    legend: str


def filled(text: str, values: Mapping[str, str] = SET) -> str:
    """A query with every variable replaced. Raises KeyError for an unknown one."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values[found[1] or found[2]], text)


def queries() -> list[Query]:
    return [
        Query(panel["title"], target["refId"], target["expr"], bool(target["range"]), target["legendFormat"])
        for panel in PANELS
        for target in panel["targets"]
    ]


def alerts() -> list[dict[str, Any]]:
    """The alerting rules, which use the same metrics."""
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found
