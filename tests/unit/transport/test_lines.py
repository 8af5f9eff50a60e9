"""Splitting a byte stream into lines: the same lines however the bytes are chunked."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.transport.lines import Lines
from tests.fakes.recorder import Recorder


def fed(*chunks: bytes, max_line: int = 1000) -> Recorder:
    recorder = Recorder()
    lines = Lines(recorder, max_line)
    for chunk in chunks:
        lines.feed(chunk)
    lines.end()
    return recorder


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([b"one\n"], [b"one"], id="a line alone"),
        pytest.param([b"one\ntwo\nthree\n"], [b"one", b"two", b"three"], id="three lines in one chunk"),
        pytest.param([b"on", b"e", b"\ntw", b"o\n"], [b"one", b"two"], id="lines cut anywhere"),
        pytest.param([b"one\r\n", b"two\r", b"\n"], [b"one", b"two"], id="carriage returns before the line end"),
        pytest.param([b"\n\r\n\n", b"one\n\n"], [b"one"], id="empty lines are nothing"),
        pytest.param([b"one\ntw", b"o"], [b"one", b"two"], id="the rest at the end is a line"),
        pytest.param([b"one\r"], [b"one"], id="the rest may end in a carriage return"),
        pytest.param([b"a\rb\r\r\n"], [b"a\rb\r"], id="only one carriage return belongs to the line end"),
        pytest.param([b"\xff\xfe\x00{\n", b"\xc3\n"], [b"\xff\xfe\x00{", b"\xc3"], id="bytes that are no text pass"),
        pytest.param([b" \n"], [b" "], id="a blank is a line"),
        pytest.param([], [], id="nothing at all"),
    ],
)
def test_chunks_become_lines(chunks: list[bytes], expected: list[bytes]) -> None:
    assert expected == fed(*chunks).lines


@given(
    st.binary(max_size=60).map(lambda b: b.replace(b"x", b"\n").replace(b"y", b"\r\n")),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_the_lines_do_not_depend_on_the_chunks(text: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    whole = [line[:-1] if line.endswith(b"\r") else line for line in text.split(b"\n")]
    recorder = fed(*(text[a:b] for a, b in pairwise(edges) if b > a))
    assert [line for line in whole if line] == recorder.lines
    assert 1 == recorder.ends


def test_a_line_of_the_greatest_length_passes_and_a_longer_one_is_discarded_whole() -> None:
    recorder = fed(b"12345\n", b"1234", b"5\r\n", b"123456\n", b"1234", b"56", b"7890", b"\nok\n", max_line=5)
    assert [b"12345", b"12345", b"ok"] == recorder.lines
    assert [6, 10] == recorder.oversizes


def test_an_endless_line_is_told_once_and_not_kept() -> None:
    recorder = Recorder()
    lines = Lines(recorder, 5)
    for _ in range(100):
        lines.feed(b"1234")
    assert [8] == recorder.oversizes
    assert lines.mid_line
    lines.feed(b"\nok\n")
    lines.end()
    assert [b"ok"] == recorder.lines


def test_the_end_is_told_once() -> None:
    recorder = Recorder()
    lines = Lines(recorder)
    lines.end()
    lines.end()
    assert 1 == recorder.ends


def test_after_a_drop_nothing_is_told() -> None:
    recorder = Recorder()
    lines = Lines(recorder)
    lines.feed(b"begun")
    lines.drop()
    lines.feed(b"more\n")
    lines.end()
    assert ([], 0) == (recorder.lines, recorder.ends)


def test_a_receiver_may_drop_the_rest_of_a_chunk() -> None:
    class Fussy(Recorder):
        def received(self, line: bytes) -> None:
            super().received(line)
            lines.drop()

    fussy = Fussy()
    lines = Lines(fussy)
    lines.feed(b"one\ntwo\n")
    assert [b"one"] == fussy.lines
