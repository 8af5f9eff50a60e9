"""Precedence of a setting's sources: the command line, variables, the env file's variables, the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samplegate.config import load
from samplegate.config.serve import load_serve

A = "ab" * 32
FOLDER = Path("FOLDER")  # a placeholder for the folder of the settings file
BASE = "policy: p.yaml\nservers: {a: {command: x}}\n"


def written(folder: Path, text: str, env_file: str = "") -> Path:
    (folder / "e.env").write_text(env_file)
    (folder / "c.json").write_text('{"mcpServers": {"c": {"command": "c", "start_timeout": 9}}}')
    (folder / "s.yaml").write_text(text)
    return folder / "s.yaml"


def seen(found: Any, names: list[str], folder: Path) -> dict[str, Any]:
    """The values of some settings, including names such as ``servers.a.call_timeout``, with the folder replaced by
    FOLDER."""
    values = {}
    for name in names:
        value = found
        for step in name.split("."):
            value = value[step] if isinstance(value, dict) else getattr(value, step)
        if isinstance(value, dict):
            value = list(value)
        values[name] = (
            FOLDER / value.relative_to(folder) if isinstance(value, Path) and value.is_relative_to(folder) else value
        )
    return values


# settings file, env file, variables, command line, resulting value
ROWS: list[tuple[str, str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ("log_level: debug\n", "", {}, {}, {"log_level": "debug", "log_format": None, "keep_reviews": 30}),
    (
        "log_level: debug\n",
        "SAMPLEGATE_LOG_LEVEL=error",
        {"SAMPLEGATE_ENV_FILE": "FOLDER/e.env"},
        {},
        {"log_level": "error"},
    ),
    (
        "log_level: debug\nenv_file: e.env\n",
        "SAMPLEGATE_LOG_LEVEL=error\nSAMPLEGATE_KEEP_REVIEWS=3",
        {"SAMPLEGATE_LOG_LEVEL": "warning"},
        {},
        {"log_level": "warning", "keep_reviews": 3, "env_file": FOLDER / "e.env"},
    ),
    ("state: s\ndecision_log: d\n", "", {}, {}, {"state": FOLDER / "s", "decision_log": "FOLDER/d"}),
    (
        "state: s\ndecision_log: sqlite:d\n",
        "",
        {"SAMPLEGATE_STATE": "v"},
        {},
        {"state": Path("v"), "decision_log": "sqlite:FOLDER/d"},
    ),
    (
        "state: s\ndecision_log: none\n",
        "",
        {"SAMPLEGATE_STATE": "v"},
        {"state": Path("l")},
        {"state": Path("l"), "decision_log": "none"},
    ),
    (
        "state: /a\nstore: sqlite:/b\nmetrics_file: '{pid}'\n",
        "",
        {},
        {},
        {"state": Path("/a"), "store": "sqlite:/b", "metrics_file": "FOLDER/{pid}"},
    ),
    (
        "log_level: debug\nlog_format:\n",
        "",
        {"SAMPLEGATE_LOG_LEVEL": ""},
        {},
        {"log_level": "debug", "log_format": None},
    ),
    (
        "webhook_networks: [10.0.0.0/8]\n",
        "",
        {"SAMPLEGATE_WEBHOOK_NETWORKS": "10.1.0.0/16, fd00::/8"},
        {},
        {"webhook_networks": ("10.1.0.0/16", "fd00::/8")},
    ),
    (
        "env_file: f.env\n",
        "SAMPLEGATE_KEEP_REVIEWS=3",
        {"SAMPLEGATE_ENV_FILE": "f.env"},
        {"env_file": "FOLDER/e.env"},
        {"keep_reviews": 3},
    ),
]


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_a_setting_of_every_process(row: int, tmp_path: Path) -> None:
    text, env_file, environ, given, expected = ROWS[row]

    def put(value: Any) -> Any:
        return value.replace("FOLDER", str(tmp_path)) if isinstance(value, str) else value

    file = written(tmp_path, text, env_file)
    environ = {"HOME": "/srv/u", **{name: put(value) for name, value in environ.items()}}
    line = {name: put(value) for name, value in given.items()}
    expected = {name: put(value) for name, value in expected.items()}
    assert expected == seen(load(environ, file=file, flags=line).settings, list(expected), tmp_path)
    file.write_text(BASE + text)
    assert expected == seen(load_serve(environ, file=file, flags=line).settings, list(expected), tmp_path)


# settings file, variables, command line, resulting value
SERVE: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    (
        BASE + "listen: 127.0.0.1:1\n",
        {},
        {},
        {"listen": "127.0.0.1:1", "policy": FOLDER / "p.yaml", "admin_listen": None},
    ),
    (BASE + "listen: 127.0.0.1:1\n", {"SAMPLEGATE_LISTEN": "127.0.0.1:2"}, {}, {"listen": "127.0.0.1:2"}),
    (
        BASE + "listen: 127.0.0.1:1\n",
        {"SAMPLEGATE_LISTEN": "127.0.0.1:2"},
        {"flags": {"listen": "127.0.0.1:3"}},
        {"listen": "127.0.0.1:3"},
    ),
    (BASE, {"SAMPLEGATE_POLICY": "q.yaml"}, {}, {"policy": Path("q.yaml")}),
    (
        BASE + "watch: false\n",
        {"SAMPLEGATE_WATCH": "true", "SAMPLEGATE_DRAIN_DELAY": "+07"},
        {},
        {"watch": True, "drain_delay": 7},
    ),
    (BASE, {"SAMPLEGATE_SERVERS": "b: {command: z}"}, {}, {"servers": ["b"]}),
    (
        BASE + "servers_file: c.json\n",
        {},
        {},
        {"servers": ["a", "c"], "servers.a.start_timeout": 30, "servers.c.start_timeout": 9},
    ),
    (
        BASE,
        {"SAMPLEGATE_SERVERS_FILE": "FOLDER/c.json", "SAMPLEGATE_SERVERS": '{"b": {"command": "z"}}'},
        {},
        {"servers": ["b", "c"]},
    ),
    (
        (
            "policy: p.yaml\nservers: {a: {command: x, call_timeout: 7, protocol: modern, end_of_input_timeout: 1,"
            " share: all}, b: {command: z}}\n"
        ),
        {},
        {},
        {
            "servers.a.call_timeout": 7,
            "servers.a.protocol": "modern",
            "servers.a.end_of_input_timeout": 1,
            "servers.a.share": "all",
            "servers.b.call_timeout": 0,
            "servers.b.protocol": "auto",
            "servers.b.end_of_input_timeout": None,
            "servers.b.share": "caller",
        },
    ),
    (
        "policy: p.yaml\n",
        {},
        {"command": ["x"], "protocol": "legacy"},
        {"servers": ["default"], "servers.default.protocol": "legacy"},
    ),
    (
        "policy: p.yaml\n",
        {},
        {"url": "https://x", "name": "n"},
        {"servers": ["n"], "servers.n.url": "https://x", "servers.n.argv": ()},
    ),
    (
        BASE + "callers: {tokens_file: t}\n",
        {},
        {},
        {"callers.required": True, "callers.files": (FOLDER / "t",), "callers.jwt": None},
    ),
    (
        BASE + "callers: {tokens_file: t}\n",
        {"SAMPLEGATE_CALLERS": f"{{tokens: [{{name: x, sha256: {A}}}]}}"},
        {},
        {"callers.files": ()},
    ),
    (BASE + "people: {tokens_file: q}\n", {}, {}, {"people.tokens_file": FOLDER / "q", "callers.required": False}),
    (BASE + "callers:\n", {}, {}, {"callers.required": False, "people.tokens": ()}),
]


@pytest.mark.parametrize("row", range(len(SERVE)))
def test_a_setting_of_the_daemon(row: int, tmp_path: Path) -> None:
    text, environ, line, expected = SERVE[row]
    (tmp_path / "t").write_text(f"ci {A}\n")
    (tmp_path / "q").write_text(f"ann viewer {A}\n")
    environ = {"HOME": "/srv/u", **{name: value.replace("FOLDER", str(tmp_path)) for name, value in environ.items()}}
    found = seen(load_serve(environ, file=written(tmp_path, text), **line).settings, list(expected), tmp_path)
    found = {
        name: tuple(FOLDER / each.name for each in value) if name.endswith("files") else value
        for name, value in found.items()
    }
    assert expected == found


def test_a_second_reading_sees_the_files_of_now(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        BASE + "env_file: e.env\nlog_level: debug\ncallers: {tokens_file: t}\n",
        "K=1\nSAMPLEGATE_WATCH=false\n",
    )
    (tmp_path / "t").write_text(f"ci {A}\n")
    first = load_serve({"HOME": "/srv/u"}, file=file)
    assert first == load_serve({"HOME": "/srv/u"}, file=file)
    assert (file, tmp_path / "p.yaml", tmp_path / "e.env", tmp_path / "t") == first.files
    (tmp_path / "t").write_text(f"ci {A}\nops {'cd' * 32}\n")
    (tmp_path / "e.env").write_text("K=2\n")
    second = load_serve({"HOME": "/srv/u"}, file=file)
    assert ("1", False, ["ci"]) == (
        first.environment["K"],
        first.settings.watch,
        [token.name for token in first.settings.callers.tokens],
    )
    assert ("2", True, ["ci", "ops"]) == (
        second.environment["K"],
        second.settings.watch,
        [token.name for token in second.settings.callers.tokens],
    )
