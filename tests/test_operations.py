"""deploy/README.md names every setting, every metric and every field of a record there is, and none that is not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from samplegate.core.record import Record
from samplegate.records.definitions import METRICS
from samplegate.settings import ProcessSettings, RunSettings, SettingsError
from samplegate.settings.identities import CallerSettings, JwtSettings, PeopleSettings, PersonToken, Token
from samplegate.settings.schema import json_schema
from samplegate.settings.serve_definition import ServeSettings
from samplegate.settings.servers import ServerEntry
from samplegate.settings.serving import load_serve

PAGE = (Path(__file__).parents[1] / "deploy" / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_metric_stands_there_with_its_labels_and_its_help() -> None:
    rows = re.findall(r"^\| `(samplegate_\w+)` \| ([\w, ]+) \| (.+) \|$", section("Metrics"), re.MULTILINE)
    assert [(metric.name, ", ".join(metric.labels) or "none", metric.help) for metric in METRICS] == rows


def tables(title: str) -> list[list[tuple[str, str]]]:
    """The rows of each table with two columns below a heading, whatever its rank."""
    text = re.split(r"\n#+ ", PAGE.partition(f"# {title}\n")[2])[0]
    return [
        re.findall(r"^\| (`.+?) \| (.*) \|$", table, re.MULTILINE)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    ]


def names(rows: list[tuple[str, str]]) -> list[str]:
    return [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]


def test_every_setting_of_run_stands_there() -> None:
    (rows,) = tables("Settings")
    assert sorted(RunSettings.__struct_fields__) == sorted(names(rows))


def test_every_setting_of_the_daemon_stands_there() -> None:
    (own,) = tables("Settings of the daemon")
    assert sorted(set(ServeSettings.__struct_fields__) - set(ProcessSettings.__struct_fields__)) == sorted(names(own))


def test_what_only_run_has_says_so() -> None:
    (rows,) = tables("Settings")
    own = names([row for row in rows if row[1].startswith("`run` only: ")])
    assert sorted(set(RunSettings.__struct_fields__) - set(ProcessSettings.__struct_fields__)) == sorted(own)


@pytest.mark.parametrize(
    ("title", "structs"),
    [
        ("A server", [ServerEntry]),
        ("Callers", [CallerSettings, Token, JwtSettings]),
        ("People", [PeopleSettings, PersonToken]),
    ],
    ids=["servers", "callers", "people"],
)
def test_every_key_of_a_section_stands_there_as_it_is_described(
    title: str, structs: list[type[msgspec.Struct]]
) -> None:
    rows = [[(key.strip("`"), said) for key, said in table] for table in tables(title)]
    written = json_schema()["$defs"]
    assert [
        [(key, each["description"]) for key, each in written[struct.__name__]["properties"].items()]
        for struct in structs
    ] == rows


def test_the_settings_that_stand_there_as_an_example_are_none_but_for_their_files(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(re.findall(r"```yaml\n(policy: .*?)```", PAGE, re.DOTALL)[0])
    with pytest.raises(SettingsError) as refused:
        load_serve({"HOME": "/srv/u", "DOCS_ROOT": "/srv/docs"}, file=tmp_path / "s.yaml")
    assert [] == [problem for problem in refused.value.problems if "/run/secrets/" not in problem]


def test_every_field_of_a_record_stands_there() -> None:
    rows = re.findall(r"^\| (`.+?) \| (.*) \|$", section("What is kept where"), re.MULTILINE)
    # kept apart, never in a line
    written = {"cost_usd" if field.name == "usd" else field.name for field in fields(Record)} - {"asked"}
    assert sorted(written) == sorted(names(rows))
