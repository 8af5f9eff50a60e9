"""The settings file: its values mean the same as the variables, and it is read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samplegate.config import SettingsError, load
from samplegate.config.settings import SETTINGS

HOME = {"HOME": "/srv/u"}


def outcome(environ: dict[str, str], given: dict[str, str | Path | None], file: Path | None) -> Any:
    try:
        return load({**HOME, **environ}, file=file, flags=given)
    except SettingsError as refused:
        return refused.problems


def test_every_setting_says_what_it_is() -> None:
    assert [] == [name for name, setting in SETTINGS.items() if not setting.meta.description]


SAID: list[tuple[dict[str, str], dict[str, str | Path | None]]] = [
    ({}, {}),
    ({"SAMPLEGATE_SERVER": "db", "SAMPLEGATE_STATE": "s"}, {"server": "docs", "env_file": None}),
    ({"SAMPLEGATE_SERVER": ""}, {"server": ""}),
    ({"SAMPLEGATE_STATE": "~/s", "SAMPLEGATE_DECISION_LOG": "none", "SAMPLEGATE_METRICS_FILE": "m/{pid}"}, {}),
    ({"SAMPLEGATE_STATE": "~no-such-user-here/s"}, {"decision_log": "", "metrics_file": "~no-such-user-here"}),
    ({"SAMPLEGATE_ENV_FILE": "gone"}, {}),
    ({}, {"env_file": Path("gone"), "decision_log": "none"}),
    ({"SAMPLEGATE_DECISIONLOG": "x", "samplegate_server": "x", "SAMPLEGATE_XYZZY": "x"}, {}),
    (
        {"SAMPLEGATE_LOG_LEVEL": "loud", "SAMPLEGATE_LOG_FORMAT": "JSON", "SAMPLEGATE_RECORD_CONTENT": " full"},
        {"server": "x"},
    ),
    *(
        ({"SAMPLEGATE_MAX_FRAME_BYTES": text}, {})
        for text in "65536 65535 1073741824 1073741825 +70000 070000 -1 70_000 7e4 70000.0 0x20000 \u0667\u0660\u0660\u0660\u0660 none".split()  # noqa: E501
    ),
    ({"SAMPLEGATE_MAX_FRAME_BYTES": " 70000"}, {}),
    ({"SAMPLEGATE_MAX_FRAME_BYTES": "9" * 5000}, {}),
]


@pytest.mark.parametrize(("environ", "given"), SAID)
def test_variables_and_command_line_mean_the_same_with_and_without_a_settings_file(
    environ: dict[str, str], given: dict[str, str | Path | None], tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text("# nothing\n")
    assert outcome(environ, given, None) == outcome(environ, given, tmp_path / "s.yaml")


VALUES = [
    ("server", "db"),
    ("state", "/srv/s"),
    ("decision_log", "none"),
    ("decision_log", "/srv/d.jsonl"),
    ("metrics_file", "/srv/{server}.prom"),
    ("record_content", "full"),
    ("record_content", "all"),
    ("log_level", "warning"),
    ("log_format", "text"),
    ("log_format", "yaml"),
    ("max_frame_bytes", "70000"),
    ("max_frame_bytes", "1"),
    ("max_frame_bytes", "x"),
]


@pytest.mark.parametrize(("name", "text"), VALUES)
def test_a_value_means_the_same_in_the_settings_file_and_in_its_variable(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"{name}: {text}\n")
    filed = outcome({}, {}, file)
    said = outcome({f"SAMPLEGATE_{name.upper()}": text}, {}, None)
    if isinstance(said, list):
        assert [problem.replace(f"SAMPLEGATE_{name.upper()}", f"{file}:1:1: {name}") for problem in said] == filed
    else:
        assert said.settings == filed.settings


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("max_frame_bytes: 70000.0", "max_frame_bytes: '70000.0' is not a whole number from 65536 to 1073741824"),
        ("max_frame_bytes: '70000'", "max_frame_bytes: '70000' is not a whole number from 65536 to 1073741824"),
        ("max_frame_bytes: true", "max_frame_bytes: 'True' is not a whole number from 65536 to 1073741824"),
        ("server: ''", "server: is empty; give it a value, or remove it"),
        ("server: [sk-abcdef]", "server: a list is not a string; put it in quotes"),
        ("log_level: {password: sk-abcdef}", "log_level: a mapping is not one of debug, info, warning, error"),
        ("decision_log: 5", "decision_log: must be a path"),
        ("state: ''", "state: must be a path"),
        ("servr: sk-abcdef", "servr: unknown setting; did you mean server?"),
    ],
)
def test_the_settings_file_is_read_strictly_and_what_may_be_secret_is_not_shown(
    line: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(f"# of the process\n{line}\n")
    assert [f"{tmp_path / 's.yaml'}:2:1: {expected}"] == outcome({}, {}, tmp_path / "s.yaml")


@pytest.mark.parametrize("text", ["", "\n \n", "# server: db\n\n  # that is all", "\ufeff# all\n", "\n" * 10_000])
def test_a_settings_file_with_nothing_in_it_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    assert load(HOME) == load(HOME, file=tmp_path / "s.yaml")


def test_what_is_overridden_is_still_checked(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("log_level: loud\n")
    found = outcome({"SAMPLEGATE_LOG_LEVEL": "louder"}, {"log_level": "debug"}, tmp_path / "s.yaml")
    assert ["SAMPLEGATE_LOG_LEVEL: 'louder'", f"{tmp_path / 's.yaml'}:1:1: log_level: 'loud'"] == [
        problem.partition(" is not")[0] for problem in found
    ]
