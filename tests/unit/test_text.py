"""Text lines for operators."""

from __future__ import annotations

import pytest

from samplegate.text import MAX_LINE, escaped, print_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("rule 'käse' at 10 °C: C:\\new", "rule 'käse' at 10 °C: C:\\new", id="what can be read stays"),
        pytest.param(
            "a\n::error::b\r\x85\u2028\u2029\x0b", r"a\n::error::b\r\x85\u2028\u2029\x0b", id="it stays one line"
        ),
        pytest.param("\x1b[2J\x9b2J\x07\x7f\x00", r"\x1b[2J\x9b2J\x07\x7f\x00", id="nothing drives a terminal"),
        pytest.param(
            "\u202eabc\u2066\u200b\ufeff\U000e0041",
            r"\u202eabc\u2066\u200b\ufeff\U000e0041",
            id="nothing is turned round or hidden",
        ),
        pytest.param("##vso[x] ##[error] ###", r"#\x23vso[x] #\x23[error] #\x23#", id="no CI system is commanded"),
        pytest.param("\udc80", r"\udc80", id="a byte of a name that is not UTF-8"),
    ],
)
def test_a_line_is_one_line_and_drives_nothing(text: str, expected: str) -> None:
    assert expected == escaped(text)


def test_a_line_has_an_end() -> None:
    assert MAX_LINE == len(escaped("x" * 1_000_000))


def test_it_goes_to_stderr_under_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("a\n::error::b")
    assert ("", "samplegate: a\\n::error::b\n") == tuple(capsys.readouterr())
