"""The command line: its arguments, exit codes and start time. The tests of each command are beside this file and in
``unit/cli/``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from samplegate import __version__
from samplegate.cli.main import main, parse
from tests.paths import ROOT


def left_with(argv: list[str]) -> object:
    with pytest.raises(SystemExit) as left:
        main(argv)
    return left.value.code


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT / "proxy",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == left_with(["--version"])
    assert f"samplegate {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["check"],
        ["test"],
        ["explain"],
        ["explain", "r.json"],
        ["run"],
        ["schema", "extra"],
        ["check", "--fly", "x"],
    ],
)
def test_wrong_usage_leaves_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == left_with(argv)
    assert "usage: samplegate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("run", {0, 1, 2, 3}),
        *((command, {0, 1, 2}) for command in ("demo", "check", "test", "explain", "replay", "init")),
        ("report", {0, 1, 2}),
        ("schema", {0, 2}),
    ],
)
def test_every_command_tells_the_exit_codes(command: str, codes: set[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == left_with([command, "--help"])
    told = capsys.readouterr().out
    assert "exit codes:" in told
    assert codes == {code for code in (0, 1, 2, 3) if f"\n  {code}  " in told}


def test_the_wrapped_command_keeps_its_own_options() -> None:
    args = parse(["run", "--policy", "p.yaml", "--strict", "--", "server", "--policy", "its own", "--", "more"])
    assert ["server", "--policy", "its own", "--", "more"] == args.command
    assert (Path("p.yaml"), True) == (args.policy, args.strict)


def test_what_the_line_does_not_say_is_left_to_the_settings() -> None:
    args = parse(["run", "--policy", "p.yaml", "--", "server"])
    assert [None] * 5 == [args.server, args.settings, args.env_file, args.decision_log, args.metrics_file]


@pytest.mark.parametrize(
    "argv",
    [["run", "--policy", "p.yaml"], ["run", "--policy", "p.yaml", "--"], ["run", "--policy", "p.yaml", "server"]],
)
def test_run_without_a_command_says_where_it_goes(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == left_with(argv)
    assert "samplegate" in capsys.readouterr().err


def test_the_line_of_a_run_loads_no_other_command_and_no_part_of_the_gate() -> None:
    program = (
        "import sys; from samplegate.cli.main import parse; parse(['run', '--policy', 'p', '--', 'x']);"
        "print(*sorted(name for name in sys.modules if name.startswith('samplegate.')))"
    )
    loaded = ["samplegate.cli", "samplegate.cli.database_argument", "samplegate.cli.main", "samplegate.cli.run"]
    assert loaded == python("-c", program).stdout.split()


@pytest.mark.parametrize(
    "hook", yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")), ids=lambda hook: hook["id"]
)
def test_a_pre_commit_hook_is_a_command_that_takes_files(hook: dict[str, str]) -> None:
    program, *arguments = hook["entry"].split()
    assert "samplegate" == program
    assert [Path("a.yaml"), Path("a_test.yaml")] == parse([*arguments, "a.yaml", "a_test.yaml"]).policies
    assert re.search(hook["files"], "deploy/policies/ci.yaml")


def test_the_package_runs_as_a_module() -> None:
    assert f"samplegate {__version__}\n" == python("-m", "samplegate", "--version").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's pipe")
def test_a_reader_that_goes_away_is_no_crash() -> None:
    ended = subprocess.run(
        ["sh", "-c", '"$0" -m samplegate schema | head -c 1', sys.executable],
        cwd=ROOT / "proxy",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert ("{", "") == (ended.stdout, ended.stderr)


def test_a_reader_that_is_gone_before_a_short_output_is_no_crash() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "samplegate", "token", "ana"],
            cwd=ROOT / "proxy",
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    finally:
        os.close(write)
    assert (1, []) == (ended.returncode, [line for line in ended.stderr.splitlines() if "Broken pipe" in line])


@pytest.mark.parametrize("command", ["run", "serve"])
def test_headers_are_for_a_server_at_a_url(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == left_with([command, "--policy", "p.yaml", "--header-from", "A=b", "--", "server"])
    assert f"{command}: --header-from needs --url" in capsys.readouterr().err
    assert ["A=b", "C=d"] == parse(
        [command, "--policy", "p.yaml", "--url", "x", "--header-from", "A=b", "--header-from", "C=d"]
    ).header_from


@pytest.mark.parametrize(("out", "code"), [("/dev/null", 0), ("/dev/full", 2)])
def test_a_report_needs_no_encoding_and_a_full_disk_is_no_verdict(tmp_path: Path, out: str, code: int) -> None:
    line = {
        "decision_id": "d", "time": "2026-11-18T12:00:00.000Z", "server": "dö", "caller": "local", "era": "legacy",
        "revision": "2025-11-25", "door": "push", "kind": "sampling", "effect": "allow", "reason": "rule",
        "outcome": "answered",
    }  # fmt: skip
    (tmp_path / "log.jsonl").write_text(json.dumps(line, ensure_ascii=False) + "\n", "utf-8")
    with Path(out).open("w") as stdout:
        ended = subprocess.run(
            [sys.executable, "-m", "samplegate", "report", "--log", "log.jsonl"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT / "proxy")},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    assert (code, True) == (ended.returncode, "Traceback" not in ended.stderr)
