"""`samplegate wrap`, `unwrap` and `clients`: files in a home folder, output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.shell import Run

SERVERS: Final = '{"mcpServers": {"docs": {"command": "npx", "args": ["-y"], "env": {"K": "sesame"}}}}\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is the current folder too, with a policy."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "SAMPLEGATE_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "p.yaml").write_text("version: 1\nrules:\n  - {name: all, effect: forward}\n")
    return tmp_path


def test_it_prints_the_changes_without_secrets_and_writes_nothing(run: Run, home: Path) -> None:
    file = home / ".claude.json"
    file.write_text(SERVERS)
    ended = run("wrap", "--policy", "p.yaml")
    assert (0, SERVERS) == (ended.code, file.read_text())
    assert "docs: to be wrapped" in ended.out
    assert '"--", "npx", "-y"' in ended.out
    assert "nothing was written; add --write to wrap 1 server" in ended.out
    assert "sesame" not in ended.out


def test_what_it_writes_is_unwrapped_to_the_same_bytes(run: Run, home: Path) -> None:
    file = home / ".claude.json"
    file.write_text(SERVERS)
    file.chmod(0o640)
    ended = run("wrap", "--policy", "p.yaml", "--write")
    assert 0 == ended.code, ended.err
    entry = json.loads(file.read_text())["mcpServers"]["docs"]
    assert ["run", "--policy", str(home / "p.yaml"), "--server", "docs", "--", "npx", "-y"] == entry["args"]
    assert Path(entry["command"]).is_absolute()
    assert 0o640 == file.stat().st_mode & 0o777
    assert "wrapped, policy" in run("clients").out
    assert (0, 1) == (run("wrap", "--policy", "p.yaml", "--check").code, run("unwrap", "--check").code)
    assert 0 == run("unwrap", "--write").code
    assert SERVERS == file.read_text()
    assert (1, 0) == (run("wrap", "--policy", "p.yaml", "--check").code, run("unwrap", "--check").code)


def test_paths_of_run_are_absolute_because_a_client_starts_the_gate_elsewhere(run: Run, home: Path) -> None:
    (home / ".claude.json").write_text(SERVERS)
    options = ["--strict", "--settings=s.yaml", "--env-file", "../keys.env", "--run", "s.yaml", "--decision-log=none"]
    options += ["--decision-log=sqlite:d.db", "--header-from=A=t.txt", "--oauth-private-key", "k.pem"]
    run("wrap", "--policy", "p.yaml", *(f"--run-arg={option}" for option in options), "--write")
    args = json.loads((home / ".claude.json").read_text())["mcpServers"]["docs"]["args"]
    wanted = ["--strict", f"--settings={home / 's.yaml'}", "--env-file", f"{home.parent / 'keys.env'}"]
    wanted += ["--run", "s.yaml", "--decision-log=none", f"--decision-log=sqlite:{home / 'd.db'}"]
    wanted += [f"--header-from=A={home / 't.txt'}", "--oauth-private-key", str(home / "k.pem")]
    assert wanted == args[5 : args.index("--")]


def test_journal_and_backups_are_for_the_owner_alone(run: Run, home: Path) -> None:
    (home / ".claude.json").write_text(SERVERS)
    run("wrap", "--policy", "p.yaml", "--write")
    kept = [path for path in (home / ".local/state/samplegate/wraps").rglob("*") if path.is_file()]
    assert {0o600} == {path.stat().st_mode & 0o777 for path in kept}
    assert SERVERS in [path.read_text() for path in kept]


def test_a_copy_is_written_and_the_original_stays(run: Run, home: Path) -> None:
    (home / "m.json").write_text(SERVERS)
    assert 0 == run("wrap", "--policy", "p.yaml", "--file", "m.json", "--out", "copy.json").code
    assert SERVERS == (home / "m.json").read_text()
    assert "samplegate" in (home / "copy.json").read_text()
    assert 0o600 == (home / "copy.json").stat().st_mode & 0o777


def test_any_file_is_edited_by_its_key_and_shape(run: Run, home: Path) -> None:
    text = '{"amp.mcpServers": {"a": {"type": "local", "command": ["npx", "-y"]}}}'
    (home / "any.json").write_text(text)
    ended = run(
        *("wrap", "--policy", "p.yaml", "--file", "any.json"),
        *("--key", "amp.mcpServers", "--shape", "command-array", "--write"),
    )
    assert 0 == ended.code, ended.err
    words = json.loads((home / "any.json").read_text())["amp.mcpServers"]["a"]["command"]
    assert ["--", "npx", "-y"] == words[-3:]


def test_a_link_out_of_home_is_refused_unless_the_file_is_named(
    run: Run, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    real = tmp_path_factory.mktemp("elsewhere") / "real.json"
    real.write_text(SERVERS)
    (home / ".claude.json").symlink_to(real)
    ended = run("wrap", "--policy", "p.yaml", "--write")
    assert (2, SERVERS) == (ended.code, real.read_text())
    assert "it is a link that leads out of your home folder" in ended.err
    assert 0 == run("wrap", "--policy", "p.yaml", "--write", "--file", ".claude.json").code
    assert (True, True) == ((home / ".claude.json").is_symlink(), "samplegate" in real.read_text())


def test_a_bad_policy_ends_it_before_any_file_is_read(run: Run, home: Path) -> None:
    (home / ".claude.json").write_text(SERVERS)
    (home / "bad.yaml").write_text("version: 1\nrules: [{effect: fly}]\n")
    ended = run("wrap", "--policy", "bad.yaml", "--write")
    assert (2, SERVERS) == (ended.code, (home / ".claude.json").read_text())
    assert "bad.yaml:2" in ended.err


def test_clients_lists_files_servers_and_reasons_as_json(run: Run, home: Path) -> None:
    (home / ".claude.json").write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://x.example/mcp"}}}')
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text("{")
    ended = run("clients", "--json", "-v")
    assert 2 == ended.code
    listed = json.loads(ended.out)
    claude, cursor = listed["files"]
    assert ["open", "skipped"] == [server["state"] for server in claude["servers"]]
    assert "1:2: expected a key" in cursor["problem"]
    assert str(home / ".codex/config.toml") in listed["missing"]


def test_the_path_of_the_policy_has_no_dots_and_no_link_is_lost(run: Run, home: Path) -> None:
    for folder in ("sub", "real/sub"):
        (home / folder).mkdir(parents=True)
    (home / "real/p.yaml").write_text((home / "p.yaml").read_text())
    (home / "link").symlink_to("real/sub")
    for given, expected in (("sub/../p.yaml", "p.yaml"), ("./p.yaml", "p.yaml"), ("link/../p.yaml", "real/p.yaml")):
        (home / "m.json").write_text(SERVERS)
        assert 0 == run("wrap", "--policy", given, "--file", "m.json", "--write").code
        args = json.loads((home / "m.json").read_text())["mcpServers"]["docs"]["args"]
        assert str(home / expected) == args[2]


def test_a_copy_does_not_replace_the_file_itself_or_a_device(run: Run, home: Path) -> None:
    (home / "m.json").write_text(SERVERS)
    (home / "link.json").symlink_to("m.json")
    for out in ("m.json", "link.json"):
        ended = run("wrap", "--policy", "p.yaml", "--file", "m.json", "--out", out)
        assert (2, SERVERS) == (ended.code, (home / "m.json").read_text())
        assert f"--out: {out} is the file itself; name another file, or use --write" in ended.err
    (home / "null").symlink_to("/dev/null")
    assert 0 == run("wrap", "--policy", "p.yaml", "--file", "m.json", "--out", "null").code
    assert Path("/dev/null").is_char_device()
    ended = run("wrap", "--policy", "p.yaml", "--file", "m.json", "--out", "no/copy.json")
    assert 2 == ended.code
    assert "--out: no/copy.json cannot be written: no such file or directory" in ended.err


def test_a_file_above_the_current_folder_is_edited_outside_of_home(
    run: Run, home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    (home / "sub").mkdir()
    (home / ".mcp.json").write_text(SERVERS)
    monkeypatch.chdir(home / "sub")
    ended = run("wrap", "--policy", str(home / "p.yaml"), "--write")
    assert 0 == ended.code, ended.err
    assert "samplegate" in (home / ".mcp.json").read_text()


@pytest.mark.parametrize(
    ("folder", "lasts"),
    [
        ("cache/uv/archive-v0/abc/bin", False),
        ("cache/uv/environments-v2/x/bin", False),
        ("pipx/.cache/1f/bin", False),
        ("uv/tools/samplegate/bin", True),
    ],
)
def test_a_gate_in_a_temporary_environment_is_not_written(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, folder: str, lasts: bool
) -> None:
    program = home / folder / "samplegate"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    (home / "m.json").write_text(SERVERS)
    ended = run("wrap", "--policy", "p.yaml", "--file", "m.json", "--write")
    assert (0 if lasts else 2) == ended.code
    if lasts:
        assert str(program) == json.loads((home / "m.json").read_text())["mcpServers"]["docs"]["command"]
    else:
        assert "this samplegate is in a temporary environment" in ended.err
        assert SERVERS == (home / "m.json").read_text()


def test_cursor_gets_no_argument_of_ours_with_a_space(run: Run, home: Path) -> None:
    (home / "my policy.yaml").write_text((home / "p.yaml").read_text())
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(SERVERS)
    ended = run("wrap", "--policy", "my policy.yaml", "--write")
    assert (0, SERVERS) == (ended.code, (home / ".cursor/mcp.json").read_text())
    assert "docs: skipped: the client ends a word at each space, but the gate needs" in ended.out


@pytest.mark.parametrize(
    "action", [["wrap", "--policy", "p.yaml"], ["wrap", "--policy", "p.yaml", "--check"], ["unwrap"]]
)
def test_a_name_that_no_server_has_is_an_error(run: Run, home: Path, action: list[str]) -> None:
    (home / ".claude.json").write_text(SERVERS)
    ended = run(*action, "--only", "dosc")
    assert (2, "samplegate: --only: no server is named 'dosc'; did you mean 'docs'?\n") == (ended.code, ended.err)
    assert "  none of 1 server selected by --only\n" in ended.out
    assert "'x'; the files have 'docs'\n" in run(*action, "--only", "x").err


def test_a_name_that_only_one_file_has_is_no_error(run: Run, home: Path) -> None:
    (home / ".claude.json").write_text(SERVERS)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text(SERVERS.replace("docs", "other"))
    ended = run("wrap", "--policy", "p.yaml", "--only", "docs")
    assert (0, "") == (ended.code, ended.err)
    assert "  none of 1 server selected by --only\n" in ended.out
