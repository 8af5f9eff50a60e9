"""Output of the commands, as a CI runner and a JSON parser read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.cli.files import json_text, print_error
from tests.fakes.github_runner import commands
from tests.fakes.shell import Run, Write

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(["#", "##", "##[error]x", "::error::x", "\n", "\r", '"', "\\", "\u034f", "\u202e", "\x7f"]),
        st.text(st.characters(codec=None), max_size=3),
    ),
    max_size=8,
).map("".join)


@given(st.dictionaries(HOSTILE, HOSTILE, max_size=2))
def test_json_is_read_back_and_has_no_commands(value: dict[str, str]) -> None:
    text = json_text({"values": [value]})
    assert json.loads(json.dumps({"values": [value]})) == json.loads(text)
    assert [] == commands(text)
    assert text.replace("\n", "").isprintable()


def test_readable_characters_stay_as_they_are() -> None:
    assert '{\n  "käse": "日本 #\\u0023 \\u202e"\n}' == json_text({"käse": "日本 ## \u202e"})


def test_an_error_keeps_its_lines_and_none_of_them_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("a:\n  b ##[error]c\n  ::error::d\r::error::e\x1b")
    err = capsys.readouterr().err
    assert "samplegate: a:\n  b #\\x23[error]c\n  \\x3a:error::d\\r::error::e\\x1b\n" == err
    assert [] == commands(err)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("check ~/p.yaml", "~/p.yaml: cannot be read: no such file or directory; ~ is not replaced by the home folder"),
        ("check polcy.yaml", "no such file or directory; the path is relative to {}; did you mean 'policy.yaml'?"),
        (
            "test other.yaml",
            "other.yaml: cannot be read: no such file or directory; the path is relative",
        ),
        ("replay --log none --policy policy.yaml", "none: cannot be read: no such file or directory; the path is"),
        ("report --log ~/log.jsonl", "~/log.jsonl: cannot be read: no such file or directory; ~ is not replaced"),
        ("serve --check --settings ~/s.yaml", "~/s.yaml: cannot be read: no such file or directory; ~ is not replaced"),
    ],
)
def test_a_missing_file_is_told_with_a_remedy(
    run: Run, write: Write, tmp_path: Path, command: str, expected: str
) -> None:
    write("policy.yaml", "version: 1\nrules: [{name: none, effect: deny}]\n")
    ended = run(*command.split())
    assert 2 == ended.code
    assert expected.format(tmp_path) in ended.err
