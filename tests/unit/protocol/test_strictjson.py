"""Strict JSON: texts with only one reading."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import strictjson
from samplegate.protocol.strictjson import JsonFault, decode, quoted_name, resembling

REFUSED = {
    "a twin member": (b'{"a":1,"a":2}', "an object has a duplicate member"),
    "a twin spelled with escapes, deep inside": (b'[{"x":{"a":1,"\\u0061":2}}]', "an object has a duplicate member"),
    "NaN": (b'{"a":NaN}', "contains NaN, which is not valid JSON"),
    "an infinity": (b"[-Infinity]", "contains -Infinity, which is not valid JSON"),
    "a number that overflows": (b"[1e999]", "contains a number that overflows to infinity"),
    "a whole number beyond 64 bits": (b"[18446744073709551616]", "contains an integer of more than 64 bits"),
    "a number of a million digits": (b"[" + b"9" * 1_000_000 + b"]", "contains an integer of more than 64 bits"),
    "bytes that are not UTF-8": (b'{"a":"\xff"}', "not valid UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not valid JSON"),
    "half an object": (b'{"a":', "not valid JSON"),
    "something behind it": (b"{} {}", "not valid JSON"),
    "a raw control character": (b'{"a":"\n"}', "not valid JSON"),
    "nothing": (b"", "not valid JSON"),
    "65 levels": (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels"),
    "ninety thousand levels": (b"[" * 90_000 + b"]" * 100_000, "nested too deeply"),
    "a million values": (b"[" + b"1," * 1_000_000 + b"1]", "contains more than 100000 values"),
    "a million strings": (b"[" + b'"",' * 1_000_000 + b"1]", "contains more than 100000 values"),
    "33 MiB": (b'"' + b"a" * (33 << 20) + b'"', "larger than 33554432 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_fault_named(name: str) -> None:
    text, fault = REFUSED[name]
    with pytest.raises(JsonFault) as refused:
        decode(text)
    assert fault == str(refused.value)


def test_the_bounds_themselves_are_allowed() -> None:
    assert [18446744073709551615, -9223372036854775808] == decode(b"[18446744073709551615,-9223372036854775808]")
    assert decode(b"[" * 64 + b"]" * 64)


def test_separators_in_a_long_text_are_not_values() -> None:
    prose = 'one, "two", [three], {four}\\ ' * 200_000
    assert prose == decode(json.dumps([prose]).encode())[0]


def test_a_lone_surrogate_becomes_the_replacement_character_and_a_pair_stays() -> None:
    assert {"\ufffd": ["a\ufffd", "\U0001f600"]} == decode(b'{"\\ud83d": ["a\\ude00", "\\ud83d\\ude00"]}')


def test_names_that_become_twins_by_mending_are_refused() -> None:
    with pytest.raises(JsonFault, match="duplicate member"):
        decode(b'{"\\ud800": 1, "\\ud801": 2}')


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ud8019.eE-+natrfls ', max_size=60).map(str.encode))
def test_any_bytes_become_a_value_that_can_be_written_again_or_a_fault(text: bytes) -> None:
    try:
        value = decode(text)
    except JsonFault:
        return
    assert value == decode(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=15,
    )
)
def test_what_is_well_formed_comes_back_as_it_was(value: object) -> None:
    assert value == decode(json.dumps(value).encode())


def test_a_text_that_fits_no_memory_is_refused_by_its_size_alone() -> None:
    assert strictjson.MAX_BYTES < 100_000_000


KNOWN = frozenset({"messages", "url", "maxTokens", "_meta", "isError"})


@pytest.mark.parametrize(
    "name",
    [
        "Messages",
        "MESSAGES",
        "URL",
        "maxtokens",
        "_Meta",
        "me\u017f\u017fages",
        "maxTo\u212aens",
        "\uff55rl",
        "is_error",
        "meta",
        "url\0",
        "\u0131serror",
    ],
)
def test_a_name_that_another_parser_takes_for_a_known_one_is_found(name: str) -> None:
    assert name == resembling(["x", "messages", name], KNOWN)


def test_known_and_other_names_resemble_nothing() -> None:
    assert resembling({*KNOWN, "message", "vendor/extra", "is-error", "ключ", ""}, KNOWN) is None


def test_a_name_is_shown_quoted_bounded_and_with_what_is_odd_escaped() -> None:
    assert ["'f-1_x'", "'a b'", "'\\u202e'", "'" + "a" * 55 + "...'"] == [
        quoted_name(name) for name in ("f-1_x", "a b", "\u202e", "a" * 1000)
    ]
