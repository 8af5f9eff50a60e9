"""Frames: one reading or none, and a splice that changes nothing else. Compared with a strict reading by the standard
library's parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames, rawjson
from samplegate.protocol.frames import read
from samplegate.protocol.rawjson import ENVELOPE, Malformed, fields, lookup, members, splice

SPACES = st.text(alphabet=" \t\r\n", max_size=2)
NAMES = st.one_of(
    st.sampled_from(["a", "b", "id", "_meta", "ключ", "😀", "", 'q"', "back\\", "n\n", "{", "a:1,"]),
    st.text(max_size=4),
)
NUMBERS = st.sampled_from(["0", "-0", "1", "12", "1.0", "-1.50", "1e3", "1E-9", "1e999", "12345678901234567890123"])


@st.composite
def strings(draw: st.DrawFn, text: st.SearchStrategy[str] = NAMES) -> str:
    """A JSON string in any spelling: plain, or with unnecessary escapes."""
    value = draw(text)
    spelled = json.dumps(value, ensure_ascii=draw(st.booleans()))
    if value and value[0].isalpha() and ord(value[0]) < 128 and draw(st.integers(0, 3)) == 0:
        spelled = f'"\\u{ord(value[0]):04x}' + spelled[2:]
    return spelled


def objects(values: st.SearchStrategy[str], *, most: int = 4) -> st.SearchStrategy[str]:
    """The text of a JSON object with any whitespace, including duplicate members."""
    gap = SPACES
    member = st.tuples(gap, strings(), gap, gap, values, gap).map(lambda m: f"{m[0]}{m[1]}{m[2]}:{m[3]}{m[4]}{m[5]}")
    return st.tuples(st.lists(member, max_size=most), gap, gap, gap).map(
        lambda o: f"{o[1]}{{{','.join(o[0]) or o[2]}}}{o[3]}"
    )


SCALARS = st.one_of(NUMBERS, strings(), st.sampled_from(["true", "false", "null", '"\\ud83d"', '"\\/"']))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects(inner, most=3).map(str.strip),
        st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]"),
    ),
    max_leaves=6,
)
OBJECTS = objects(VALUES)


def strictly(text: str) -> list[tuple[str, Any]]:
    """The top-level members of an object as the standard library reads them."""
    pairs = json.loads(text, object_pairs_hook=list)
    assert isinstance(pairs, list)
    return pairs


def outcome(text: bytes) -> list[str] | None:
    try:
        return list(fields(text))
    except Malformed:
        return None


class TestRead:
    @pytest.mark.parametrize(
        ("line", "kind", "id", "method", "payload"),
        [
            (b'{"jsonrpc":"2.0","id":1,"method":"a/b","params":{"x":1.0}}', "request", 1, "a/b", b'{"x":1.0}'),
            (b'{"jsonrpc":"2.0","id":"1","method":"a"}', "request", "1", "a", None),
            (b'{"jsonrpc":"2.0","method":"a","params":[1]}', "notification", None, "a", b"[1]"),
            (b'{"jsonrpc":"2.0","id":0,"result":{"a" : [1 ]}}', "result", 0, "", b'{"a" : [1 ]}'),
            (b'{"jsonrpc":"2.0","id":0,"result":null}', "result", 0, "", b"null"),
            (b'{"jsonrpc":"2.0","id":1.0,"result":{}}', "result", 1, "", b"{}"),
            (b'{"jsonrpc":"2.0","id":null,"error":{"code":-1.0}}', "error", None, "", b'{"code":-1.0}'),
            (b'{"jsonrpc":"2.0","error":{"code":1}}', "error", None, "", b'{"code":1}'),
            (b'\t{ "params" :\r\n {} , "method" : "a" , "id" : -7 , "jsonrpc" : "2.0" } \n', "request", -7, "a", b"{}"),
            (
                b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"a"}',
                "request",
                123456789012345678901234567890,
                "a",
                None,
            ),
            (b'{"jsonrpc":"2.0","id":"\\u0041","method":"\\u0061/b"}', "request", "A", "a/b", None),
            (b'{"jsonrpc":"2.0","id":1,"method":"a","vendor":{"id":1},"x":"\\ud83d"}', "request", 1, "a", None),
            ('{"jsonrpc":"2.0","ключ":"€","id":1,"method":"é","é":{}}'.encode(), "request", 1, "é", None),
            (b'{"jsonrpc":"2.0","id":"","method":""}', "request", "", "", None),
        ],
    )
    def test_an_envelope_is_read_as_it_stands(
        self, line: bytes, kind: str, id: Any, method: str, payload: bytes | None
    ) -> None:
        f = read(line)
        assert (kind, id, type(id), method, payload, line) == (f.kind, f.id, type(f.id), f.method, f.payload, f.raw)

    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"id":12,"method":"a"}',
            b'{"jsonrpc":"2.0","id":12,"id":1,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1 ,"id":1,"method":"a"}',
            b'{"id":1,"jsonrpc":"2.0","method":"a","id":1}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","method":"ab"}',
            b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":1}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","x":1,"\\u0078":1}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","x":"\\ud83d","x":1}',
        ],
    )
    def test_twins_are_refused_also_where_one_is_the_start_of_the_other(self, line: bytes) -> None:
        with pytest.raises(Malformed):
            read(line)

    @pytest.mark.parametrize(
        "name",
        [
            b"Id",
            b"ID",
            b"METHOD",
            b"Params",
            b"jsonRPC",
            b"Result",
            b"eRROR",
            b"\\u0069d",
            b"metho\\u0064",
            b"\\u0050arams",
            b"\\u0052ESULT",
        ],
    )
    def test_case_variants_and_escaped_twins_of_the_envelope_are_refused(self, name: bytes) -> None:
        for line in (
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":{},"' + name + b'":{}}',
            b'{"' + name + b'":2,"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"' + name + b'" : "\\ud83d","jsonrpc":"2.0","id":1,"result":{}}',
        ):
            with pytest.raises(Malformed):
                read(line)

    @pytest.mark.parametrize(
        "id",
        [
            b"1.0",
            b"1.5",
            b"1e2",
            b"true",
            b"false",
            b"null",
            b"{}",
            b"[1]",
            b'"\\ud83d"',
            b'"' + b"a" * 2000 + b'"',
            b"9" * 2000,
        ],
    )
    def test_a_request_needs_an_id_that_is_text_or_a_whole_number(self, id: bytes) -> None:
        """T17: some of these are notifications to a peer's parser."""
        with pytest.raises(Malformed):
            read(b'{"jsonrpc":"2.0","id":' + id + b',"method":"a"}')

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b" ",
            b"null",
            b"1",
            b'"{}"',
            b"[]",
            b"{}",
            b"{",
            b"}",
            b'{"jsonrpc":"2.0"}',
            b'{"jsonrpc":2.0,"id":1,"method":"a"}',
            b'{"jsonrpc":"1.0","id":1,"method":"a"}',
            b'{"id":1,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"method":1}',
            b'{"jsonrpc":"2.0","id":1,"method":null}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","result":{}}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","error":{}}',
            b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
            b'{"jsonrpc":"2.0","result":{}}',
            b'{"jsonrpc":"2.0","id":null,"result":{}}',
            b'{"jsonrpc":"2.0","id":true,"result":{}}',
            b'{"jsonrpc":"2.0","id":1,"method":"a"}{}',
            b'{"jsonrpc":"2.0","id":1,"method":"a"},',
            b'{"jsonrpc":"2.0","id":1,"method":"a",}',
            b'{"jsonrpc":"2.0","id":01,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":NaNa}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":[NaN100]}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":[1Infinity]}',
            b'{"jsonrpc":"2.0","id":NaN,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":tru}}',
            b"{'jsonrpc':'2.0','id':1,'method':'a'}",
            b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"a"}',
            b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
            b'{"jsonrpc":"2.0","id":1,"method":"a","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            b'{"a":' * 100_000,
        ],
    )
    def test_everything_else_is_malformed(self, line: bytes) -> None:
        with pytest.raises(Malformed):
            read(line)

    def test_a_fault_names_the_id_that_somebody_waits_for(self) -> None:
        with pytest.raises(Malformed) as caught:
            read(b'{"jsonrpc":"1.0","id":"x","result":{}}')
        assert ("x", True) == (caught.value.id, caught.value.answers)
        with pytest.raises(Malformed) as caught:
            read(b'{"jsonrpc":"2.0","id":5,"method":7}')
        assert (5, False) == (caught.value.id, caught.value.answers)


class TestFields:
    @given(OBJECTS)
    def test_members_are_those_of_a_strict_parser_or_there_are_twins(self, text: str) -> None:
        raw = text.encode()
        pairs = strictly(text)
        names = [name for name, _ in pairs]
        found = outcome(raw)
        if len(set(names)) != len(names):
            assert found is None
        elif found is None:
            assert "\\" in text
            assert not ENVELOPE.isdisjoint(name.lower() for name in names)
        else:
            assert names == found == list(members(raw))
            assert [json.loads(bytes(value), object_pairs_hook=list) for value in fields(raw).values()] == [
                value for _, value in pairs
            ]

    @given(OBJECTS)
    def test_offsets_slice_to_the_values(self, text: str) -> None:
        raw = text.encode()
        if outcome(raw) is None:
            with pytest.raises(Malformed):
                members(raw)
            return
        assert {name: bytes(value) for name, value in fields(raw).items()} == {
            name: raw[m.start : m.end] for name, m in members(raw).items()
        }

    @pytest.mark.parametrize("text", [b"{}", b" { } ", b"{\n}"])
    def test_an_empty_object_has_no_members(self, text: bytes) -> None:
        assert ({}, {}) == (fields(text), members(text))

    @pytest.mark.parametrize("path", [("a",), ("a", "b"), ("a", "b", "c")])
    def test_a_lookup_ends_where_something_is_no_object(self, path: tuple[str, ...]) -> None:
        assert lookup(b'{"x":1}', *path) is None
        assert lookup(b'{"a":[{"b":1}]}', *path, "d") is None
        assert lookup(None, *path) is None
        assert lookup(b'[{"a":1}]', *path) is None

    def test_a_lookup_refuses_twins_on_its_way_only(self) -> None:
        assert b"1" == lookup(b'{"a":{"b":1},"c":{"d":1,"d":2}}', "a", "b")
        with pytest.raises(Malformed):
            lookup(b'{"a":{"b":1,"b":1}}', "a", "b")


PATHS = st.lists(st.sampled_from(["a", "b", "id", "_meta", "new", "ключ"]), min_size=1, max_size=3).map(tuple)


def model_set(value: Any, path: tuple[str, ...], new: Any) -> Any:
    """The same splice on decoded values."""
    here = dict(value) if isinstance(value, dict) else {}
    if len(path) == 1:
        here.pop(path[0], None) if new is None else here.__setitem__(path[0], new)
    elif new is not None or path[0] in here:
        here[path[0]] = model_set(here.get(path[0]), path[1:], new)
    return here


class TestSplice:
    @pytest.mark.parametrize(
        ("text", "path", "value", "wanted"),
        [
            (b'{"a":1,"b":2,"c":3}', ("a",), None, b'{"b":2,"c":3}'),
            (b'{"a":1,"b":2,"c":3}', ("b",), None, b'{"a":1,"c":3}'),
            (b'{"a":1,"b":2,"c":3}', ("c",), None, b'{"a":1,"b":2}'),
            (b'{"a":1}', ("a",), None, b"{}"),
            (b'{"a":1}', ("b",), None, b'{"a":1}'),
            (b'{"a":1}', ("b", "c"), None, b'{"a":1}'),
            (b"{}", ("a",), b"1", b'{"a":1}'),
            (b"{}", ("a", "b"), b"1", b'{"a":{"b":1}}'),
            (b'{"a":5}', ("a", "b"), b"1", b'{"a":{"b":1}}'),
            (b' { "a" : 1.0 , "b" : [1 ] } ', ("a",), b"2", b' { "a" : 2 , "b" : [1 ] } '),
            (b'{"\\u0061":1}', ("a",), b"2", b'{"\\u0061":2}'),
            (b'{"a":"\\ud83d","b":1}', ("b",), b"2", b'{"a":"\\ud83d","b":2}'),
            ('{"é":"€","b":1}'.encode(), ("b",), b"2", '{"é":"€","b":2}'.encode()),
            (b'{"a":{"x":"}","y":1}}', ("a", "z"), b"3", b'{"a":{"x":"}","y":1,"z":3}}'),
            (b'{"id":"a","x":"{\\"id\\":1}"}', ("id",), b"9", b'{"id":9,"x":"{\\"id\\":1}"}'),
        ],
    )
    def test_only_the_member_changes(
        self, text: bytes, path: tuple[str, ...], value: bytes | None, wanted: bytes
    ) -> None:
        assert wanted == splice(text, path, value)

    @pytest.mark.parametrize("gap", ["", " "], ids=["plain", "spaced"])
    def test_several_changes_leave_an_object_that_can_be_changed_again(self, gap: str) -> None:
        made = {"a": 1, "bb": "xyz", "c": [2], 'd"': 3}
        here = rawjson.read(json.dumps(made, separators=("," + gap, ":" + gap)).encode())
        for changes in (
            {"a": 10, "c": "{"},
            {"bb": 5},
            {'e"': 6, "a": 7},
            {"c": 8, 'e"': 9},
            {"bb": ...},
            {"a": 1, "c": 2},
        ):
            made = {name: value for name, value in {**made, **changes}.items() if value is not ...}
            here = here.changed(
                {name: None if value is ... else json.dumps(value).encode() for name, value in changes.items()}
            )
            assert made == json.loads(here.text)
            assert made == {name: json.loads(bytes(raw)) for name, raw in here.members.items()}
            assert list(made) == list(here.at)

    @pytest.mark.parametrize("name", ["a", "b", "c"])
    def test_a_member_goes_with_its_comma_whatever_spaces_stand_around(self, name: str) -> None:
        text = b'\r\n{ \t"a" : 1 ,\n "b":\t[ 2, 3 ] , "c" : "x" \n} '
        after = splice(text, (name,), None)
        assert [n for n in "abc" if n != name] == list(json.loads(after))
        assert text[: text.index(b"{") + 1] == after[: after.index(b"{") + 1]
        assert b"} " == after[-2:]

    @given(OBJECTS, PATHS, st.one_of(st.none(), VALUES))
    def test_a_strict_parser_reads_what_was_meant_and_the_rest_stays_byte_for_byte(
        self, text: str, path: tuple[str, ...], value: str | None
    ) -> None:
        raw = text.encode()
        try:
            after = splice(raw, path, None if value is None else value.encode())
        except Malformed:
            return
        new = None if value is None else json.loads(value)
        wanted = model_set(json.loads(text), path, ... if value == "null" else new)
        wanted = json.loads(json.dumps(wanted, default=lambda _: None))
        assert wanted == json.loads(after)
        before, now = members(raw), members(after)
        assert [n for n in before if n != path[0]] == [n for n in now if n != path[0]]
        assert all(
            raw[before[n].start : before[n].end] == after[now[n].start : now[n].end] for n in before if n != path[0]
        )
        if path[0] in before and path[0] in now:
            assert (raw[: before[path[0]].start], raw[before[path[0]].end :]) == (
                after[: now[path[0]].start],
                after[now[path[0]].end :],
            )

    @given(OBJECTS, PATHS)
    def test_a_removal_of_nothing_changes_nothing(self, text: str, path: tuple[str, ...]) -> None:
        raw = text.encode()
        try:
            missing = lookup(raw.strip(b" \t\r\n"), *path) is None
            after = splice(raw, path, None)
        except Malformed:
            return
        if missing and len(path) == 1:
            assert raw == after


class TestOurs:
    @pytest.mark.parametrize("id", [1, "1", 2**70, "é\n", ""])
    def test_what_we_write_reads_back(self, id: Any) -> None:
        assert ("request", id, "a", b"{}") == _seen(frames.request(id, "a", b"{}"))
        assert ("result", id, "", b'{"a":1}') == _seen(frames.result(id, b'{"a":1}'))
        assert ("notification", None, "n", b"[]") == _seen(frames.notification("n", b"[]"))
        f = read(frames.error(id, -1, 'no "quotes"', b"[1]"))
        assert {"code": -1, "message": 'no "quotes"', "data": [1]} == json.loads(f.payload or b"")

    def test_a_batch_is_taken_apart_byte_for_byte(self) -> None:
        assert [b'{"a" : 1.0}', b"5", b"[ ]"] == frames.batch(b' [ {"a" : 1.0} , 5,[ ] ] ')
        assert [True, True, False] == [frames.is_batch(line) for line in (b"[]", b" \t[1]", b'{"a":1}')]
        for line in (b"[", b"[1,]", b"[" * 100_000, b"[1]2"):
            with pytest.raises(Malformed):
                frames.batch(line)


def _seen(line: bytes) -> tuple[Any, ...]:
    f = read(line)
    return f.kind, f.id, f.method, f.payload
