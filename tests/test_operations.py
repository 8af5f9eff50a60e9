"""deploy/README.md names every setting, every metric and every field of a record there is, and none that is not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from samplegate.core.record import Record
from samplegate.records.metrics import METRICS
from samplegate.settings import RunSettings

PAGE = (Path(__file__).parents[1] / "deploy" / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_metric_stands_there_with_its_labels_and_its_help() -> None:
    rows = re.findall(r"^\| `(samplegate_\w+)` \| ([\w, ]+) \| (.+) \|$", section("Metrics"), re.MULTILINE)
    assert [(metric.name, ", ".join(metric.labels), metric.help) for metric in METRICS] == rows


def test_every_setting_stands_there() -> None:
    names = [name for row in re.findall(r"^\| (`.+?) \|", section("Settings"), re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert set(RunSettings.__struct_fields__) == set(names)


def test_every_field_of_a_record_stands_there() -> None:
    names = [name for row in re.findall(r"^\| (`.+?) \|", section("What is kept where"), re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    written = {"cost_usd" if field.name == "usd" else field.name for field in fields(Record)} - {"asked"}  # kept apart, never in a line
    assert sorted(written) == sorted(names)
