"""The runbook: each alert names its section, which has where to look, what to do and when to ignore it."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from samplegate.audit.verdict import MEANINGS
from samplegate.cli.bundled import CI_FILES, PAGES, POLICIES, bundled
from samplegate.cli.main import COMMANDS
from samplegate.cli.manual import Manual
from samplegate.telemetry.definitions import METRICS
from tests.deployment.board import PANELS, alerts
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "runbook.md").read_text("utf-8")
MANUAL: Final = Manual(PAGES, {path: bundled(path) for path in (*PAGES.values(), *POLICIES, *CI_FILES)})
ALERTS: Final = alerts()


def section(alert: str) -> str:
    """The text that the alert's annotation prints."""
    found = MANUAL.find(alert)
    assert found is not None, alert
    assert () == found.others
    return found.text


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    assert sorted(alert["alert"] for alert in ALERTS) == sorted(re.findall(r"^### (.+)$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_the_command_that_prints_its_section(alert: dict[str, Any]) -> None:
    assert f"samplegate docs {alert['alert']}" == alert["annotations"]["runbook"]
    text = section(alert["alert"])
    assert text.startswith(f"### {alert['alert']}\n")
    assert f" Severity: {alert['labels']['severity']}." in " ".join(text.split())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_a_section_has_where_to_look_what_to_do_and_when_to_ignore_it(alert: dict[str, Any]) -> None:
    steps = re.findall(r"^- \*\*(\w+)", section(alert["alert"]), re.MULTILINE)
    assert ["Look", "Do", "Ignore"] == list(dict.fromkeys(steps))


def test_the_commands_panels_and_metrics_that_it_names_exist() -> None:
    text = " ".join(PAGE.split())
    assert {"why", "report", "reviews", "check"} <= set(re.findall(r"`samplegate (\w+)", text)) <= set(COMMANDS)
    panels = {panel["title"] for panel in PANELS}
    shown = [part for each in re.findall(r"dashboard's ((?:\*[^*]+\*(?:, | and )?)+)", text) for part in titles(each)]
    assert shown
    assert [] == [title for title in shown if title not in panels]
    metrics = {metric.name for metric in METRICS}
    assert [] == [name for name in re.findall(r"\bsamplegate_\w+", text) if name not in metrics]


def test_each_word_of_fail_on_has_its_alerts() -> None:
    (table,) = re.findall(r"\| word of `--fail-on` \| alert \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE))
    assert set(MEANINGS) == set(rows)
    named = {word: re.findall(r"\[(\w+)\]", alerts) for word, alerts in rows.items()}
    assert ["no_requests"] == [word for word, alerts in named.items() if not alerts]
    assert {name for names in named.values() for name in names} <= {alert["alert"] for alert in ALERTS}


def titles(text: str) -> list[str]:
    return re.findall(r"\*([^*]+)\*", text)
