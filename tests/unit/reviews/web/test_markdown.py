"""A peer's Markdown on the page: everything in it is readable, and nothing in it is active."""

from __future__ import annotations

import re
import time
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.web.content import MAX_CHARACTERS, html_of

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "![a](http://evil.example/?leak)",
    "<https://evil.example/>",
    '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "[a](http://x/\"onmouseover=alert(1)> '<script>')",
    "<svg/onload=alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "[a](data:text/html,<script>alert(1)</script>)",
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    "# <iframe srcdoc='<script>alert(1)</script>'>",
    "| <script>alert(1)</script> | [a](javascript:x) |\n|:-:|-:|\n| <img src=x onerror=alert(1)> | </td></table> |",
)


TAGS = frozenset("p br hr h3 h4 h5 h6 ul ol li blockquote pre code em strong span table thead tbody tr th td".split())


class Tags(HTMLParser):
    """The tags, attributes and text that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[tuple[str, tuple[str, ...]]] = set()
        self.text = ""
        self.feed(str(html))  # a Markup would escape text that is added to it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += str(data)


def shown(text: str) -> str:
    html = html_of(text)
    return text if html is None else Tags(html).text.strip()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_is_written_becomes_a_tag_that_does_something(text: str) -> None:
    html = html_of(text)
    assert html is not None
    assert {tag for tag, _ in Tags(html).found} <= TAGS
    assert {attrs for _, attrs in Tags(html).found} <= {(), ("class",), ("start",)}


def test_a_link_is_its_text_with_its_address_beside_it() -> None:
    html = html_of('See [the runbook](https://evil.example/a?b=1 "a title") now')
    assert html is not None
    assert 'See the runbook <https://evil.example/a?b=1> "a title" now' == Tags(html).text.strip()
    assert "<a" not in html


def test_a_picture_is_not_fetched_and_its_address_stands_there() -> None:
    assert "alt <image, not fetched: https://evil.example/p.png>" == shown("![alt](https://evil.example/p.png)")


def test_what_markdown_would_swallow_stays() -> None:
    assert "[x]: http://evil.example 'hidden'" == shown("[x]: http://evil.example 'hidden'")
    assert "hidden" in shown("```python hidden\nx\n```")
    assert "&#105;gnore" in shown("&#105;gnore")
    assert "<!-- hidden -->" in shown("<!-- hidden -->")


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "12:00 up\n12:01 down",
        "a\\\nb",
        "- one\n  more\n- two",
        "> a\n> b",
        "a\nb\n===",
    ],
)
def test_every_line_that_is_written_is_a_line(text: str) -> None:
    html = html_of(text)
    assert html is not None
    seen = re.sub("<(?:br|/?p|/?li|/?h3|/?tr)>", "\n", str(html).replace("\n", " "))
    assert words_of(text) == words_of(re.sub("<[^>]*>", "", seen))


def words_of(text: str) -> list[list[str]]:
    """The words of each line that has any."""
    return [words for line in text.split("\n") if (words := re.findall(r"\w+", line))]


@pytest.mark.parametrize("text", ["`a\nb`", "![a\nb](c)", '[a](b "c\nd")'])
def test_where_markdown_would_join_lines_it_is_not_rendered(text: str) -> None:
    assert None is html_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|:-:|\n| 1 | 2 |",
        "a|b\n-|-\n1|2",
        "> | a | b |\n> |---|---|\n> | 1 | 2 |",
        "| a | b |\r\n|---|---|\r\n| 1 | 2 |",
        "words\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nwords",
    ],
)
def test_a_table_is_a_table(text: str) -> None:
    html = str(html_of(text))
    assert [2, 2, 2] == [html.count(tag) for tag in ("<th>", "<td>", "<tr>")]


def test_a_bar_that_is_escaped_divides_no_cells() -> None:
    assert "<td>1 | 2</td>" in str(html_of("| a |\n|---|\n| 1 \\| 2 |"))


@pytest.mark.parametrize("row", ["| 1 | 2 | $; |", "| 1 |", "|", "| 1 | 2 | 3", "1|2||"])
def test_a_table_whose_rows_differ_in_length_is_not_rendered(row: str) -> None:
    """Markdown would drop the last cells of a row that is too long."""
    assert None is html_of(f"| a | b |\n|---|---|\n{row}\n")


def test_a_huge_table_is_no_larger_than_its_text() -> None:
    head = "|a" * 2_000 + "|\n" + "|-" * 2_000 + "|\n"
    assert None is html_of(head + "|\n" * 4_000)
    rows = "|1|2|\n" * 400
    assert len(str(html_of("|a|b|\n|-|-|\n" + rows))) < 10 * len(rows)


def test_what_turns_others_around_is_written_out_within_markdown() -> None:
    assert "aU+202Eb" == shown("a\u202eb")
    assert "U+200B" in shown("`a\u200bb`")


WORDS = st.sampled_from("alpha beta gamma delta epsilon zeta eta theta iota kappa".split())
MARKS = st.sampled_from(
    [
        "# ",
        "> ",
        "- ",
        "1. ",
        "*",
        "**",
        "`",
        "```",
        "[",
        "](",
        ")",
        "![",
        "|",
        "\n",
        "\n\n",
        "    ",
        "<",
        ">",
        "&amp;",
        "\\",
        ":",
        '"',
        "~~~",
        "---",
        "\t",
    ]
)


@given(st.lists(st.one_of(WORDS, MARKS), max_size=60))
def test_every_word_that_is_written_is_shown(parts: list[str]) -> None:
    text = "".join(parts)
    words = re.findall("[a-z]{3,}", re.sub("[^a-z]", " ", text))
    seen = re.sub("[^a-z]", " ", shown(text).replace("image, not fetched", ""))
    assert [] == [word for word in words if word not in seen]


def test_short_rows_of_many_tables_are_not_filled_up_by_the_parser() -> None:
    table = "|a" * 250 + "|\n" + "|-" * 250 + "|\n" + "|\n" * 250 + "\n"
    began = time.process_time()
    assert None is html_of(table * 10)
    assert time.process_time() - began < 1


@given(st.text(max_size=300))
def test_any_text_is_rendered_or_left_as_it_is(text: str) -> None:
    html = html_of(text)
    assert html is None or {tag for tag, _ in Tags(html).found} <= TAGS


@pytest.mark.cpu(5)  # texts of the greatest size
@pytest.mark.parametrize(
    "seed",
    [
        "[",
        ">",
        "*a **a ",
        "![",
        "[a](",
        "<",
        "`a",
        "- ",
        "1. a\n",
        "**x* ",
        "\\[",
        "[]",
        "a**b",
        "> > > a\n",
        "_a",
        "|a",
        "|-|\n",
    ],
)
def test_what_is_written_to_hurt_the_parser_takes_seconds_at_most(seed: str) -> None:
    began = time.process_time()
    html_of((seed * MAX_CHARACTERS)[:MAX_CHARACTERS])
    assert time.process_time() - began < 5


def test_a_text_that_nests_too_deep_is_not_rendered_rather_than_shown_in_part() -> None:
    assert None is html_of("\n".join("  " * n + f"- word{n}" for n in range(60)))


def test_a_long_text_is_not_parsed() -> None:
    assert None is html_of("a" * (MAX_CHARACTERS + 1))


def test_entities_that_are_written_are_no_entities() -> None:
    assert "&lt;b&gt;" == unescape(str(html_of("&lt;b&gt;")).removeprefix("<p>").removesuffix("</p>\n"))
