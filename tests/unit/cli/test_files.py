"""Output of the commands, as a CI runner and a JSON parser read it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.cli.files import json_text, print_error
from tests.fakes.github_runner import commands

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
