"""Progress: on a terminal only, from the second second on, and without a trace at the end."""

from __future__ import annotations

import io
from itertools import count

import pytest

from samplegate.cli.progress import counted


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


def test_long_work_is_counted_and_the_line_is_removed() -> None:
    out, ticks = Terminal(), count(0, 0.5)
    assert list(range(3)) == list(counted(range(3), "files", total=3, stream=out, clock=lambda: next(ticks)))
    assert "\r\x1b[K1 of 3 files\r\x1b[K2 of 3 files\r\x1b[K" == out.getvalue()


def test_the_line_is_removed_when_the_work_fails() -> None:
    out, ticks = Terminal(), count(0, 1)
    with pytest.raises(ZeroDivisionError):
        for _ in counted((1 / (2 - number) for number in range(5)), "records", stream=out, clock=lambda: next(ticks)):
            pass
    assert out.getvalue().endswith("records\r\x1b[K")


def test_short_work_shows_nothing() -> None:
    out = Terminal()
    assert 5 == len(list(counted(range(5), "files", stream=out, clock=lambda: 0.0)))
    assert "" == out.getvalue()


def test_a_pipe_gets_nothing() -> None:
    out, ticks = io.StringIO(), count()
    assert 5 == len(list(counted(range(5), "files", stream=out, clock=lambda: next(ticks))))
    assert "" == out.getvalue()


def test_the_line_fits_a_narrow_terminal() -> None:
    out, ticks = Terminal(), count()
    list(counted(range(2), "x" * 100, stream=out, clock=lambda: next(ticks)))
    assert 39 >= max(len(text) for text in out.getvalue().split("\r\x1b[K"))
