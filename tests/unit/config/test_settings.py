"""The settings of a process from all their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.config import RunSettings, SettingsError, load, state_folder

HOME = {"HOME": "/srv/u"}


def problems(environ: dict[str, str], text: str | None = None, folder: Path = Path()) -> list[str]:
    file = None
    if text is not None:
        file = folder / "s.yaml"
        file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load(environ, file=file)
    return [problem.replace(f"{folder}/", "") for problem in refused.value.problems]


@pytest.mark.skipif("sys.platform != 'linux'", reason="the default folder is the platform's own")
def test_without_a_word_everything_has_a_default() -> None:
    assert RunSettings(state=Path("/srv/u/.local/state/samplegate")) == load(HOME).settings


def test_the_command_line_wins_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("server: file\nlog_level: debug\nstate: here\nmax_frame_bytes: 70000\nlog_format:\n")
    environ = {
        **HOME,
        "SAMPLEGATE_SERVER": "variable",
        "SAMPLEGATE_MAX_FRAME_BYTES": "80000",
        "SAMPLEGATE_LOG_LEVEL": "",
    }
    found = load(environ, file=file, flags={"server": "line", "metrics_file": None}).settings
    assert RunSettings(server="line", log_level="debug", state=tmp_path / "here", max_frame_bytes=80000) == found


def test_a_mistyped_variable_is_an_error_that_says_what_was_meant() -> None:
    assert ["SAMPLEGATE_DECISIONLOG: unknown variable; did you mean SAMPLEGATE_DECISION_LOG?"] == problems(
        {**HOME, "SAMPLEGATE_DECISIONLOG": "x"}
    )
    assert ["samplegate_server: unknown variable; did you mean SAMPLEGATE_SERVER?"] == problems(
        {**HOME, "samplegate_server": "x"}
    )
    assert ["SAMPLEGATE_XYZZY: unknown variable; unset it"] == problems({**HOME, "SAMPLEGATE_XYZZY": "x"})


def test_what_kubernetes_sets_by_itself_is_nobodys_mistake() -> None:
    links = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"]
    assert "default" == load({**HOME, **{f"SAMPLEGATE_{name}": "x" for name in links}}).settings.server


def test_all_problems_are_told_at_once_each_at_its_place(tmp_path: Path) -> None:
    text = "log_level: loud\nserver: 5\nmax_frame_bytes: 1\nrecord_conten: full\nstate: []\nserver: x\n"
    expected = [
        "s.yaml:6:1: server: duplicate key, first on line 2; remove one",
        "s.yaml:4:1: record_conten: unknown setting; did you mean record_content?",
        "s.yaml:1:1: log_level: 'loud' is not one of debug, info, warning, error",
        "s.yaml:2:1: server: '5' is not a string; put it in quotes",
        "s.yaml:3:1: max_frame_bytes: '1' is not a whole number from 65536 to 1073741824",
        "s.yaml:5:1: state: must be a path",
        "SAMPLEGATE_RECORD_CONTENT: 'all' is not one of none, hash, full",
        "SAMPLEGATE_MAX_FRAME_BYTES: 'x' is not a whole number from 65536 to 1073741824",
    ]
    environ = {"SAMPLEGATE_RECORD_CONTENT": "all", "SAMPLEGATE_MAX_FRAME_BYTES": "x"}
    assert sorted(expected) == sorted(problems(environ, text, tmp_path))


def test_a_settings_file_that_is_none_is_told(tmp_path: Path) -> None:
    assert ["s.yaml:1:1: is not a mapping; write one setting per line, such as log_level: debug"] == problems(
        HOME, "- a", tmp_path
    )
    assert ["s.yaml:1:4: not valid YAML: "] == [problem[:28] for problem in problems(HOME, "a: ]", tmp_path)]
    with pytest.raises(SettingsError, match=r"gone\.yaml: cannot be read: no such file or directory"):
        load(HOME, file=tmp_path / "gone.yaml")


def test_the_env_file_adds_variables_and_settings_but_never_overrides_the_environment(tmp_path: Path) -> None:
    (tmp_path / "e.env").write_text("KEY=from file\nOTHER=x\nSAMPLEGATE_SERVER=db\n")
    (tmp_path / "s.yaml").write_text("env_file: e.env\n")
    found = load({**HOME, "KEY": "own"}, file=tmp_path / "s.yaml")
    assert {**HOME, "KEY": "own", "OTHER": "x", "SAMPLEGATE_SERVER": "db"} == found.environment
    assert ("db", tmp_path / "e.env") == (found.settings.server, found.settings.env_file)


def test_problems_of_the_env_file_are_told_without_values(tmp_path: Path) -> None:
    path = tmp_path / "e.env"
    path.write_text("sk-abcdef\nSAMPLEGATE_ENV_FILE=x")
    assert [f"{path}:1: the line is not a variable; write NAME=value"] == problems(
        {**HOME, "SAMPLEGATE_ENV_FILE": str(path)}
    )
    path.write_text("SAMPLEGATE_ENV_FILE=x")
    with pytest.raises(SettingsError, match="an env file cannot refer to another"):
        load(HOME, flags={"env_file": path})
    with pytest.raises(SettingsError, match=r"gone: the env file cannot be read: no such file or directory"):
        load(HOME, flags={"env_file": tmp_path / "gone"})


def test_none_is_no_path_for_the_decision_log(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("decision_log: none\nmetrics_file: m/{pid}.prom\n")
    found = load(HOME, file=tmp_path / "s.yaml").settings
    assert ("none", str(tmp_path / "m/{pid}.prom")) == (found.decision_log, found.metrics_file)


def test_the_state_folder_is_the_platforms_own() -> None:
    assert Path("/srv/u/.local/state/samplegate") == state_folder(HOME, "linux")
    assert Path("/x/samplegate") == state_folder({**HOME, "XDG_STATE_HOME": "/x"}, "linux")
    assert Path("/srv/u/.local/state/samplegate") == state_folder({**HOME, "XDG_STATE_HOME": "relative"}, "linux")
    assert Path("/srv/u/Library/Application Support/samplegate") == state_folder(HOME, "darwin")
    assert Path("C:/u/AppData/Local/samplegate") == state_folder({"USERPROFILE": "C:/u"}, "win32")
    assert Path("D:/l/samplegate") == state_folder({"LOCALAPPDATA": "D:/l"}, "win32")
    assert state_folder({}, "linux") is None


def test_a_page_for_other_machines_needs_people(tmp_path: Path) -> None:
    listen = {**HOME, "SAMPLEGATE_REVIEWS_LISTEN": "0.0.0.0:8090"}
    (said,) = problems(listen)
    assert said.startswith("SAMPLEGATE_REVIEWS_LISTEN: other machines can reach 0.0.0.0:8090, so users need tokens; ")
    assert said.endswith("; add `people`, or use 127.0.0.1:8090")
    for at in ("127.0.0.1:0", "[::1]:8090", "localhost:8090"):
        assert at == load({**HOME, "SAMPLEGATE_REVIEWS_LISTEN": at}).settings.reviews_listen
    text = "people: {tokens: [{name: ann, role: reviewer, sha256: %s}]}\n" % ("a" * 64)
    (tmp_path / "s.yaml").write_text(text)
    found = load(listen, file=tmp_path / "s.yaml").settings
    assert ["ann"] == [token.name for token in found.people.tokens]


def test_wrong_people_are_told_at_their_place(tmp_path: Path) -> None:
    text = "reviews_listen: 127.0.0.1:0\npeople: {tokens: [{name: a b, role: chief, sha256: x}]}\n"
    assert ["s.yaml:2:37"] == [problem.partition(": ")[0] for problem in problems(HOME, text, tmp_path)]
    assert ["s.yaml:1:9: people: has no users; add tokens, tokens_file or assertion"] == problems(
        HOME, "people: {}\n", tmp_path
    )
