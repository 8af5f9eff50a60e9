"""The dashboard is well-formed and uses only metrics that exist. `test_prometheus.py` runs its queries."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import pytest

from samplegate.telemetry.definitions import METRICS
from tests.deployment.board import BOARD, PANELS, VARIABLES, Query, alerts, queries

OTHERS: Final = {
    "up",
    *(
        f"process_{name}"
        for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "max_fds", "start_time_seconds")
    ),
}


TEXTS: Final = [(query.panel, query.text) for query in queries()] + [
    (alert["alert"], alert["expr"]) for alert in alerts()
]


def test_every_panel_says_what_it_shows_and_takes_its_source_from_the_variable() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    asked = [part for panel in PANELS for part in (panel, *panel["targets"])] + VARIABLES
    assert [] == [part for part in asked if part["datasource"] != source]
    assert [] == [panel["title"] for panel in PANELS if len(panel.get("description", "")) < 20 or not panel["targets"]]
    assert "datasource" == BOARD["templating"]["list"][0]["type"]


def test_ids_and_titles_stand_once_and_no_panel_covers_another() -> None:
    ids = Counter(panel["id"] for panel in BOARD["panels"]) + Counter(
        (panel["title"], panel["type"]) for panel in PANELS
    )
    cells = Counter(
        (x, y)
        for at in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert {1} == set(ids.values()) == set(cells.values())
    assert range(24) == range(min(x for x, _ in cells), max(x for x, _ in cells) + 1)


DRAWN: Final = {
    "Failed": "SamplegateServerErrors",
    "Not answered": "SamplegateUnanswered",
    "Not answered by server": "SamplegateUnanswered",
    "Denied": "SamplegateDenied",
    "Denied by server": "SamplegateDenied",
    "Failing model calls": "SamplegateModelFailing",
    "Failing calls by model": "SamplegateModelFailing",
    "Refused by limit": "SamplegateLimitRefusing",
    "Oldest review": "SamplegateReviewWaiting",
    "Oldest pending review": "SamplegateReviewWaiting",
    "Files open": "SamplegateOpenFiles",
    "Open files": "SamplegateOpenFiles",
    "Event-loop lag": "SamplegateEventLoopLate",
}
"""Panels that turn red where an alert fires."""


@pytest.mark.parametrize("title", DRAWN)
def test_a_panel_turns_red_where_its_alert_fires(title: str) -> None:
    (panel,) = (panel for panel in PANELS if panel["title"] == title)
    (rule,) = (alert for alert in alerts() if alert["alert"] == DRAWN[title])
    defaults = panel["fieldConfig"]["defaults"]
    last = defaults["thresholds"]["steps"][-1]
    assert ("red", float(re.findall(r"> ([\d.]+)", rule["expr"])[-1])) == (last["color"], last["value"])
    assert panel["type"] == "stat" or "dashed" == defaults["custom"]["thresholdsStyle"]["mode"]


def test_the_dashboard_begins_with_what_is_wrong() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert ["Is anything wrong?", "Requests", "Models and cost", "Limits and budgets"] == rows[:4]
    assert ["Reviews", "Runs", "Clients", "Processes"] == rows[4:]


@pytest.mark.parametrize(("of", "text"), TEXTS, ids=[name for name, _ in TEXTS])
def test_a_query_is_about_metrics_that_there_are_by_labels_that_they_have(of: str, text: str) -> None:
    for name, selector in re.findall(r"\b((?:samplegate|process)_\w+|up)\b(?:\{([^}]*)\})?", text):
        metric = next((each for each in METRICS if name in _series(each.name, each.type)), None)
        assert metric is not None or name in OTHERS, f"{of}: there is no {name}"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) - {"job", "instance"}
        assert labels <= set(metric.labels if metric else ()), f"{of}: {name} has no such labels"


def _series(name: str, type: str) -> list[str]:
    return [f"{name}_{part}" for part in ("bucket", "sum", "count")] if type == "histogram" else [name]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_shown_somewhere(metric: Any) -> None:
    # the source of a dashboard variable; shadow rules are shown by `report`; traces are off by default
    hidden = ("samplegate_build_info", "samplegate_shadow_decisions_total", "samplegate_spans_total")
    if metric.name not in hidden:
        assert any(name in text for _, text in TEXTS for name in _series(metric.name, metric.type))


@pytest.mark.parametrize("query", queries(), ids=lambda query: f"{query.panel} {query.ref}")
def test_a_legend_names_labels_that_its_query_keeps(query: Query) -> None:
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query.text)))) or {"instance", "hash"}
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept
