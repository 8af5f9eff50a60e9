"""The help of every command, word for word, because users, scripts and READMEs rely on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest
import yaml

from samplegate import __version__
from samplegate.cli.help_text import EXAMPLES
from samplegate.cli.main import COMMANDS, main, parse
from tests.fakes.github_runner import commands

HELP: Final = Path(__file__).with_name("help.yaml")
TABLE: Final[dict[str, str]] = yaml.safe_load(HELP.read_text("utf-8"))


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The command's help with line breaks folded, because they differ between versions of Python."""
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "--help"])
    assert 0 == left.value.code
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.cpu(1)  # that of the demo imports the MCP SDK
@pytest.mark.parametrize("command", TABLE)
def test_the_help_of_a_command_reads_as_before(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert TABLE[command].strip() == printed("" if command == "samplegate" else command, capsys)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fly", "samplegate: error: unknown command 'fly'; list the commands with: samplegate --help"),
        ("chek p.yaml", "samplegate: error: unknown command 'chek'; did you mean 'check'?"),
        ("--vesion", "; --vesion is unknown; did you mean '--version'?"),
        ("check p --env-fil x", "unrecognized arguments: --env-fil x; did you mean '--env-file'?"),
        ("check p --formt=json", "unrecognized arguments: --formt=json; did you mean '--format'?"),
        ("run --polcy p -- x --pol", "are required: --policy; --polcy is unknown; did you mean '--policy'?"),
        ("run -- x --polcy", "samplegate run: error: the following arguments are required: --policy\n"),
        ("reviews aprove rv", "); did you mean 'approve'?"),
        ("demo --era modrn", "); did you mean 'modern'?"),
        ("reviews list --servr x", "unrecognized arguments: --servr x"),
        ("--fly", "samplegate: error: the following arguments are required: COMMAND"),
        ("--fly check p.yaml", "samplegate: error: unrecognized arguments: --fly"),
        ("check", "samplegate check: error: the following arguments are required: FILE"),
        ("check --fly x", "samplegate check: error: unrecognized arguments: --fly"),
        ("schema extra", "samplegate schema: error: unrecognized arguments: extra"),
        (
            "test p --fail-under 101",
            "samplegate test: error: argument --fail-under: '101' is not a percentage; use a number from 0 to 100",
        ),
        (
            "test p --fail-under x",
            "samplegate test: error: argument --fail-under: 'x' is not a percentage; use a number from 0 to 100",
        ),
        ("explain r.json", "samplegate explain: error: the following arguments are required: --policy"),
        ("demo --era new", "samplegate demo: error: argument --era: invalid choice: 'new' (choose from"),
        ("run", "samplegate run: error: the following arguments are required: --policy"),
        ("run --policy p x", "samplegate run: error: unrecognized arguments: x"),
        (
            "run --policy p",
            (
                "samplegate: error: run: no command to wrap; put the server's command after --, for example:"
                " samplegate run --policy FILE -- python server.py"
            ),
        ),
        (
            "run --policy p --url u -- x",
            "samplegate: error: run: a command cannot be combined with --url; remove one of them",
        ),
        ("run --policy p --record-mode all -- x", "samplegate: error: run: --record-mode needs --record FILE"),
        ("run --policy p --unused fail -- x", "samplegate: error: run: --unused needs --record FILE"),
        (
            "run --policy p --record f --record-mode all --unused ignore -- x",
            "samplegate: error: run: --unused needs --record-mode replay, but the mode is all",
        ),
        ("run --policy p --record f --record-mode new -- x", "samplegate run: error: argument --record-mode: invalid"),
        ("serve --url u -- x", "samplegate: error: serve: a command cannot be combined with --url; remove one of them"),
        (
            "serve --header-from A=b",
            "samplegate: error: serve: --header-from needs --url; it applies only to a server at a URL",
        ),
        (
            "run --policy p --header-env A=b -- x",
            "samplegate: error: run: --header-env needs --url; it applies only to a server at a URL",
        ),
        ("run --pol p -- x", "samplegate run: error: the following arguments are required: --policy"),
        ("reviews", "samplegate reviews: error: the following arguments are required: ACTION"),
        ("reviews fly", "samplegate reviews: error: argument ACTION: invalid choice: 'fly' (choose from"),
        (
            "reviews list --limit 0",
            "samplegate reviews list: error: argument --limit: expected a number from 1 to 999, got '0'",
        ),
        (
            "reviews list --all --state-of pending",
            "samplegate reviews list: error: argument --state-of: not allowed with argument --all",
        ),
        (
            "reviews answer rv",
            (
                "samplegate reviews answer: error: one of the arguments --accept --json --text --decline --cancel is"
                " required"
            ),
        ),
        ("token x --role boss", "samplegate token: error: argument --role: invalid choice: 'boss' (choose from"),
    ],
)
def test_wrong_usage_is_told_as_before(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert 2 == left.value.code
    out, said = capsys.readouterr()
    assert "" == out
    assert why in said


def test_an_argument_in_an_error_is_no_command_for_a_ci_runner(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "p.yaml", "--x\n::error::y", "--##[error]z"])
    err = capsys.readouterr().err
    assert [] == commands(err)
    assert err.endswith("samplegate check: error: unrecognized arguments: --x\\n::error::y --#\\x23[error]z\n")


@pytest.mark.parametrize("option", ["--answer-by-itself", "--keep", "--seconds 5"])
def test_an_option_of_the_review_demo_needs_review(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["demo", *option.split()])
    assert ("", f"samplegate: demo: {option.split(maxsplit=1)[0]} needs --review; add it\n") == capsys.readouterr()


def test_a_call_without_a_word_lists_the_commands_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    out, said = capsys.readouterr()
    assert (2, "") == (left.value.code, out)
    assert set(COMMANDS) <= set(said.split())
    assert "samplegate demo  " in said
    assert "exit codes:" not in said


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_told(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([option])
    assert (0, f"samplegate {__version__}\n") == (left.value.code, capsys.readouterr().out)


def test_the_help_of_every_command_has_two_examples_and_its_exit_codes() -> None:
    commands = {"samplegate", *COMMANDS} - {"reviews"}
    assert commands <= set(TABLE)
    for name, text in TABLE.items():
        examples, found, codes = text.partition(" examples: ")[2].partition(" exit codes: 0 ")
        assert found, name
        assert 2 <= examples.count("samplegate "), name
        assert " 2 " in codes, name


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_valid_command_line(line: str) -> None:
    words = shlex.split(line, comments=True)
    for command in split_at(words, "&&"):
        own = next(split_at(list(next(split_at(list(command), ">"))), "<"))
        assert "samplegate" == own[0]
        assert own[1] == parse(own[1:]).name


def split_at(words: list[str], mark: str) -> Iterator[list[str]]:
    """The parts of a command line between marks."""
    for is_mark, part in groupby(words, lambda word: word == mark):
        if not is_mark:
            yield list(part)


@pytest.mark.parametrize("command", TABLE)
def test_the_help_is_whole_in_a_narrow_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = printed("" if command == "samplegate" else command, capsys)
    assert "".join(TABLE[command].split()) == "".join(shown.split())
