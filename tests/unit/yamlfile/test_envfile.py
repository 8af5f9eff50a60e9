"""Parsing of env files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.yamlfile.envfile import EnvFileError, parse

UNCLOSED = (
    "f.env:1: A has an unclosed quote, or text after its closing quote; write a line break as \\n in double quotes"
)
TAKEN = {
    "A=1": {"A": "1"},
    "\ufeffA=1\r\nB=2\r\n": {"A": "1", "B": "2"},
    "# all of it\n\n  export A = 1  # why\n": {"A": "1"},
    "A=": {"A": ""},
    "A=#x": {"A": ""},
    "A=x#y": {"A": "x#y"},
    "A=a=b": {"A": "a=b"},
    "A='it is # ${HOME} \\n'  # note": {"A": "it is # ${HOME} \\n"},
    'A="two\\nlines \\"quoted\\" \\$5 \\\\"': {"A": 'two\nlines "quoted" $5 \\'},
    'A=5"': {"A": '5"'},
    "_lower9=x": {"_lower9": "x"},
}
REFUSED = {
    "sk-abcdef": "f.env:1: the line is not a variable; write NAME=value",
    "MY-KEY=sk-abcdef": (
        "f.env:1: invalid variable name; use letters, digits and underscores, and no digit at the start"
    ),
    "A=1\nB=2\nA=sk-abcdef": "f.env:3: duplicate variable A, first on line 1; remove one",
    "A='sk-abcdef": UNCLOSED,
    'A="sk-abcdef" x': UNCLOSED,
    'A="sk-\\abcdef"': ("f.env:1: A has an unknown escape sequence; write \\\\ for a backslash, or use single quotes"),
    "A=sk-abcdef\0": "f.env:1: A contains a NUL character; remove it",
    "A=" + "x" * 1_048_576: "f.env: the file is larger than 1048576 characters; keep only variables in it",
}


@pytest.mark.parametrize("text", TAKEN)
def test_variables_are_read_as_a_shell_would_read_them(text: str) -> None:
    assert TAKEN[text] == parse(text, file="f.env")


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text[:30]))
def test_a_fault_is_told_with_its_line_and_without_the_value(text: str) -> None:
    with pytest.raises(EnvFileError) as refused:
        parse(text, file="f.env")
    assert [REFUSED[text]] == refused.value.problems
    assert "abcdef" not in str(refused.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(EnvFileError) as refused:
        parse("x\nA=1\ny", file="f.env")
    assert [
        "f.env:1: the line is not a variable; write NAME=value",
        "f.env:3: the line is not a variable; write NAME=value",
    ] == refused.value.problems


@given(st.text() | st.text(alphabet="A=\"'\\ #\n$", max_size=40))
def test_any_text_is_variables_or_problems(text: str) -> None:
    try:
        assert all(isinstance(value, str) for value in parse(text, file="f.env").values())
    except EnvFileError:
        return
