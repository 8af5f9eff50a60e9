"""What a request's headers show at the door."""

from __future__ import annotations

import pytest

from samplegate.callers.shown import MAX_TOKEN, shown


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b"Bearer abc", "abc"),
        (b"bearer  a.b-c_d~e+f/g== ", "a.b-c_d~e+f/g=="),
        (b"BEARER x", "x"),
        (b"Basic dTpw", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearera", None),
        (b"Bearer a b", None),
        (b"Bearer a,b", None),
        (b'Bearer "a"', None),
        (b"Bearer \xc3\xa4", None),
        (b"Bearer a\n", None),
        (b"Bearer " + b"a" * MAX_TOKEN, None),
        (b"Bearer " + b"a" * (MAX_TOKEN - 7), "a" * (MAX_TOKEN - 7)),
    ],
)
def test_a_bearer_token_is_taken_out_of_its_header_and_nothing_else_is(value: bytes, token: str | None) -> None:
    assert token == shown([(b"authorization", value)]).token


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization"])
def test_a_header_that_stands_twice_is_named(name: bytes) -> None:
    assert name.decode() == shown([(name, b"a"), (b"accept", b"a"), (name, b"a")]).twice
    assert shown([(name, b"a"), (b"accept", b"a"), (b"accept", b"b")]).twice is None


def test_a_browsers_wishes_are_repeated_only_where_they_are_names() -> None:
    assert b"content-type, mcp-session-id" == shown([(b"access-control-request-headers", b"content-type, mcp-session-id")]).wanted
    assert shown([(b"access-control-request-headers", b"x\r\nset-cookie: a=b")]).wanted is None
