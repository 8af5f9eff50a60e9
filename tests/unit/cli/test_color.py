"""Color of status words: on a terminal only, and only where the user wants it."""

from __future__ import annotations

import io
import re

import pytest

from samplegate.cli.color import has_color, painted
from samplegate.cli.files import print_lines


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_a_terminal_has_color_unless_the_user_wants_none(environment: dict[str, str], *, expected: bool) -> None:
    assert expected == has_color(Terminal(), environment)


def test_a_pipe_and_a_closed_stream_have_no_color() -> None:
    assert (False, False) == (has_color(io.StringIO(), {"TERM": "xterm"}), has_color(None, {"TERM": "xterm"}))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p.yaml: ok, 6 rules", "p.yaml: <32>ok<0>, 6 rules"),
        ("p.yaml:3:9: warning: rules.1: key: ok", "p.yaml:3:9: <33>warning<0>: rules.1: key: ok"),
        ("p.yaml:3:9: note: rules.1: x", "p.yaml:3:9: <36>note<0>: rules.1: x"),
        ("p_test.yaml:8: failed: it passed: yes", "p_test.yaml:8: <31>failed<0>: it passed: yes"),
        ("p_test.yaml:8: passed: a case", "p_test.yaml:8: <32>passed<0>: a case"),
        ("run 1: unknown: 2 problems", "run 1: <33>unknown<0>: 2 problems"),
        ("p.yaml:1:2: rules.0: unknown key 'x'", "p.yaml:1:2: rules.0: unknown key 'x'"),
        ("server ok", "server ok"),
        ("a look: okay", "a look: okay"),
    ],
)
def test_the_status_word_of_a_line_has_a_color(line: str, expected: str) -> None:
    assert expected == re.sub("\x1b\\[([0-9]+)m", r"<\1>", painted(line))


def test_text_of_a_peer_gives_a_terminal_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    print_lines(["p.yaml: ok, \x1b[31mevil", "\x1b[2J: ok"], file=out)
    assert "p.yaml: \x1b[32mok\x1b[0m, \\x1b[31mevil\n\\x1b[2J: \x1b[32mok\x1b[0m\n" == out.getvalue()
