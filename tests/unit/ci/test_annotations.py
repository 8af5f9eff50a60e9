"""Annotations, as GitHub's runner reads them, and lines that it must not take for commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.ci.annotations import MAX_MESSAGE, MAX_TITLE, MOST, Annotation, Level, annotation_lines, inert
from tests.fakes.github_runner import COMMANDS, Command, commands

PARTS = [
    "::",
    ":",
    "##",
    "#",
    "[",
    "]",
    "%0A",
    "%25",
    "\n",
    "\r",
    "\u034f",
    "\u200b",
    "\ufe0f",
    " ",
    ",",
    "=",
    "\u2028",
]
HOSTILE = st.lists(
    st.one_of(st.sampled_from([*PARTS, *sorted(COMMANDS)]), st.text(st.characters(codec=None), max_size=3)),
    max_size=12,
).map("".join)


def test_an_annotation_has_its_place_and_its_title() -> None:
    one = Annotation("error", "b.yaml:3:7: 100% wrong\nreally", "Policy: a, b", "a,b:c/p.yaml", 3, 7)
    (line,) = annotation_lines([one])
    assert (
        "::error file=a%2Cb%3Ac/p.yaml,line=3,col=7,title=Policy%3A a%2C b::b.yaml:3:7: 100%25 wrong%0Areally" == line
    )
    place = {"file": "a,b:c/p.yaml", "line": "3", "col": "7", "title": "Policy: a, b"}
    assert [Command("error", "b.yaml:3:7: 100% wrong\nreally", place)] == commands(line)


def test_without_a_file_there_is_no_line() -> None:
    assert ["::warning::w", "::notice title=t::n"] == annotation_lines(
        [Annotation("warning", "w", line=3), Annotation("notice", "n", "t")]
    )


def test_a_file_whose_name_is_not_printable_is_not_named() -> None:
    assert ["::error::m"] == annotation_lines([Annotation("error", "m", file="a\u202eb.yaml", line=1)])


@pytest.mark.parametrize("level", ["error", "warning", "notice"])
def test_ten_of_a_level_are_printed_and_the_last_of_more_counts_the_others(level: Level) -> None:
    ten = [Annotation(level, str(number)) for number in range(MOST)]
    assert [f"::{level}::{number}" for number in range(MOST)] == annotation_lines(ten)
    lines = annotation_lines(
        [*ten, Annotation(level, "x"), Annotation("error" if level == "notice" else "notice", "y")]
    )
    assert MOST == sum(line.startswith(f"::{level}::") for line in lines)
    assert f"::{level}::2 more annotations of this level; the log has all of them" == lines[-1]


def test_messages_and_titles_are_bounded() -> None:
    (line,) = annotation_lines([Annotation("error", "m" * 1_000_000, "t" * 1_000_000)])
    (found,) = commands(line)
    assert (MAX_MESSAGE, MAX_TITLE) == (len(found.data), len(found.properties["title"]))


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), max_size=3))
def test_each_annotation_is_exactly_one_command_whatever_its_texts_are(texts: list[tuple[str, str, str]]) -> None:
    lines = annotation_lines(Annotation("error", message, title, file, 1) for message, title, file in texts)
    found = commands("\n".join(lines))
    assert ["error"] * len(texts) == [one.name for one in found]
    for (_, _, file), one in zip(texts, found, strict=True):
        assert set(one.properties) <= {"file", "line", "title"}
        assert (file.strip() if file.isprintable() else "") == one.properties.get("file", "").strip()
        assert one.data.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p.yaml:3: rule 'a::b' # 1", "p.yaml:3: rule 'a::b' # 1"),
        ("::error::x", r"\x3a:error::x"),
        ("  \u00a0::error::x", r"  \xa0::error::x"),
        ("\u034f:\ufe0f:error::x", "\u034f\\x3a\ufe0f:error::x"),
        ("a\n::error::x\r::y", r"a\n::error::x\r::y"),
        ("a ##[error]x", r"a #\x23[error]x"),
        ("", ""),
    ],
)
def test_a_line_is_no_command(line: str, expected: str) -> None:
    assert expected == inert(line)


@given(HOSTILE)
def test_no_line_is_a_command_whatever_its_text_is(text: str) -> None:
    for line in (text, f"  {text}", f"::error::{text}", f"##[error]{text}"):
        assert [] == commands(inert(line))
        assert inert(line).isprintable()
