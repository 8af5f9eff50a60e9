"""Parsing server-sent events: the same events however the bytes are chunked, and none above the size limit."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.transport import sse
from samplegate.transport.sse import Oversized, Parser, ServerSentEvent


def parsed(*chunks: bytes, max_event: int = 1000) -> list[ServerSentEvent | Oversized]:
    parser = Parser(max_event)
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"data: one\n\n", [ServerSentEvent(b"one")], id="an event"),
        pytest.param(
            b"data:one\n\ndata:  two\n\n",
            [ServerSentEvent(b"one"), ServerSentEvent(b" two")],
            id="one blank belongs to the colon",
        ),
        pytest.param(b"data: a\r\ndata: b\r\n\r\n", [ServerSentEvent(b"a\nb")], id="lines of data"),
        pytest.param(
            b"data: a\rdata\rdata:\r\r", [ServerSentEvent(b"a\n\n")], id="carriage returns alone, data without a value"
        ),
        pytest.param(
            b"event: message\nid: 7\nretry: 50\ndata: x\n\n",
            [ServerSentEvent(b"x", b"message", b"7", 50)],
            id="every field",
        ),
        pytest.param(b"id: 1\ndata:\n\n", [ServerSentEvent(b"", b"", b"1")], id="a priming event"),
        pytest.param(b"id: 1\n\n", [ServerSentEvent(b"", b"", b"1")], id="an id alone"),
        pytest.param(b"retry: 9\n\n", [ServerSentEvent(b"", b"", None, 9)], id="a retry alone"),
        pytest.param(b"id\ndata: x\n\n", [ServerSentEvent(b"x", b"", b"")], id="an empty id forgets the last"),
        pytest.param(b": hello\n\n:\n\n", [], id="comments"),
        pytest.param(b"event: ping\n\n", [], id="a type alone is no event"),
        pytest.param(b"\xef\xbb\xbfdata: x\n\n", [ServerSentEvent(b"x")], id="a byte order mark"),
        pytest.param(
            b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [ServerSentEvent(b"x")], id="a byte order mark only at the start"
        ),
        pytest.param(b"DATA: x\ndata : y\nother: z\n\n", [], id="fields that are none"),
        pytest.param(
            b"id: a\0b\nretry: 1x\nretry: -1\nretry:\ndata: x\n\n",
            [ServerSentEvent(b"x")],
            id="ids and times that are none",
        ),
        pytest.param(
            b"retry: 99999999999\n\n", [ServerSentEvent(retry=sse.MAX_RETRY)], id="a time that is as good as for ever"
        ),
        pytest.param(b"id: " + b"1" * 2000 + b"\n\n", [ServerSentEvent(id=b"")], id="an id too long to send back"),
        pytest.param(b"data: x\n", [], id="an event whose end never came"),
        pytest.param(b"data: \xff\n\n", [ServerSentEvent(b"\xff")], id="bytes that are no text"),
    ],
)
def test_a_stream_is_read_as_the_standard_says(text: bytes, expected: list[ServerSentEvent]) -> None:
    assert expected == parsed(text)
    assert expected == parsed(*(text[n : n + 1] for n in range(len(text))))


WORDS = "data|data: |data:|:| |x|longlonglong|\n|\n|\r|\r\n|\n\n|id: 1|retry: 2|event: e|\0|\ufeff".split("|")
PIECES = st.sampled_from([word.encode() for word in WORDS])


@given(st.lists(PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=10))
def test_the_events_do_not_depend_on_the_chunks(text: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert parsed(text) == parsed(*(text[a:b] for a, b in pairwise(edges)))


@given(
    st.binary(max_size=200).map(lambda b: b.replace(b"\r", b"")),
    st.one_of(st.none(), st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)),
    st.one_of(st.none(), st.integers(0, sse.MAX_RETRY)),
    st.text(max_size=20),
)
def test_what_is_written_is_read_as_it_was(data: bytes, id: str | None, retry: int | None, comment: str) -> None:
    wire = sse.comment(comment) + sse.event(data, id, retry) + sse.event(b"next")
    expected = ServerSentEvent(data, b"message" if data else b"", None if id is None else id.encode(), retry)
    assert [expected, ServerSentEvent(b"next", b"message")] == parsed(wire)


def test_a_carriage_return_in_what_is_written_ends_no_event() -> None:
    assert [ServerSentEvent(b"a\n\nb", b"message")] == parsed(sse.event(b"a\r\n\rb"))


def test_an_event_of_the_greatest_size_passes_and_a_larger_one_is_discarded_whole() -> None:
    wire = b"data: 12345\n\ndata: 123456\ndata: more\n\ndata: 12\ndata: 34\n\ndata: 12\ndata: 345\n\ndata: ok\n\n"
    assert [
        ServerSentEvent(b"12345"),
        Oversized(6, b"123456"),
        ServerSentEvent(b"12\n34"),
        Oversized(6, b"12"),
        ServerSentEvent(b"ok"),
    ] == parsed(wire, max_event=5)


def test_the_id_of_a_discarded_event_counts_so_that_it_is_not_sent_again() -> None:
    assert [Oversized(6, b"123456"), ServerSentEvent(id=b"3")] == parsed(b"data: 123456\nid: 3\n\n", max_event=5)


def test_an_endless_line_is_told_once_and_not_kept() -> None:
    parser = Parser(1000)
    told = [event for _ in range(100) for event in parser.feed(b"data: " if _ == 0 else b"x" * 100)]
    assert 1 == len(told)
    assert isinstance(told[0], Oversized)
    assert b"x" * sse.HEAD == told[0].head
    assert [ServerSentEvent(b"after")] == parser.feed(b"\nid: 4\n\ndata: after\n\n")[-1:]


def test_a_flood_of_empty_data_lines_is_bounded() -> None:
    told = parsed(*[b"data\n" * 100] * 30)
    assert [Oversized(1001, b"\n" * 1000)] == told


def test_bytes_one_at_a_time_behind_a_long_line_take_no_longer_than_they_must() -> None:
    parser = Parser(1 << 25)
    assert [] == parser.feed(b"data: " + b"x" * (1 << 24))
    before = time.thread_time()
    for _ in range(10_000):
        parser.feed(b"x")
    assert time.thread_time() - before < 2  # takes 0.01 s of CPU time; a copy of the line for each takes 20 s
    assert [ServerSentEvent(b"x" * ((1 << 24) + 10_000))] == parser.feed(b"\n\n")
