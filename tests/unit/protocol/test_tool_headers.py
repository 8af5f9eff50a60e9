"""Tool arguments mirrored in headers: which ones, with which value, and which tools must not be used at all (R74)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import http_headers
from samplegate.protocol.rawjson import Malformed

WORD = {"type": "string", "x-mcp-header": "Word"}


def tool(schema: object, name: str = "t") -> bytes:
    return json.dumps({"name": name, "inputSchema": schema}).encode()


def properties(**found: Any) -> dict[str, Any]:
    return {"type": "object", "properties": found}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(properties(a={"type": "string"}), {}, id="no annotation"),
        pytest.param(properties(a=WORD), {("a",): "Word"}, id="one"),
        pytest.param(
            properties(
                a=WORD,
                b=properties(c={"type": "integer", "x-mcp-header": "N"}, d={"type": "boolean", "x-mcp-header": "b!"}),
            ),
            {("a",): "Word", ("b", "c"): "N", ("b", "d"): "b!"},
            id="below other properties",
        ),
        pytest.param(
            properties(**{"x-mcp-header": {"type": "string"}}), {}, id="a property of that name is no annotation"
        ),
        pytest.param(
            properties(a={"type": "object", "default": {"x-mcp-header": "A"}}), {}, id="data is no annotation"
        ),
        pytest.param(properties(default=WORD), {("default",): "Word"}, id="a property called default"),
        pytest.param(
            properties(a={"type": "object", "$defs": {"default": {"type": "string"}}}),
            {},
            id="a definition called default",
        ),
        pytest.param({"description": "say x-mcp-header"}, {}, id="a text that speaks of it"),
    ],
)
def test_annotated_properties_are_found_by_their_path(schema: object, expected: dict[tuple[str, ...], str]) -> None:
    assert expected == http_headers.annotations_of(tool(schema))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(properties(a={"type": "string", "x-mcp-header": ""}), id="empty"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "My Region"}), id="a blank"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "Region\r\nX: y"}), id="a line end"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "Region\n"}), id="a line end at the end"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "Région"}), id="not ASCII"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "a:b"}), id="a colon"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": 7}), id="no text"),
        pytest.param(properties(a={"type": "string", "x-mcp-header": "A" * 200}), id="too long"),
        pytest.param(properties(a={"type": "number", "x-mcp-header": "A"}), id="a number"),
        pytest.param(properties(a={"type": "object", "x-mcp-header": "A"}), id="an object"),
        pytest.param(properties(a={"type": "array", "x-mcp-header": "A"}), id="a list"),
        pytest.param(properties(a={"type": "null", "x-mcp-header": "A"}), id="null"),
        pytest.param(properties(a={"type": ["string", "null"], "x-mcp-header": "A"}), id="two types"),
        pytest.param(properties(a={"x-mcp-header": "A"}), id="no type"),
        pytest.param(properties(a=WORD, b={"type": "string", "x-mcp-header": "wORD"}), id="twice, in another case"),
        pytest.param(properties(a={"type": "array", "items": WORD}), id="below items"),
        pytest.param(properties(a={"type": "array", "prefixItems": [WORD]}), id="below prefixItems"),
        pytest.param(properties(a={"anyOf": [WORD, {"type": "null"}]}), id="below anyOf"),
        pytest.param({"allOf": [properties(a=WORD)]}, id="properties below allOf"),
        pytest.param({"if": properties(a=WORD)}, id="below if"),
        pytest.param({"not": WORD}, id="below not"),
        pytest.param(
            {"$defs": {"default": WORD}, "properties": {"a": {"$ref": "#/$defs/default"}}}, id="in a definition"
        ),
        pytest.param({"patternProperties": {"^a": WORD}}, id="below patternProperties"),
        pytest.param({"additionalProperties": WORD}, id="below additionalProperties"),
        pytest.param({"type": "string", "x-mcp-header": "A"}, id="on the whole"),
        pytest.param(
            properties(**{f"p{n}": {"type": "string", "x-mcp-header": f"h{n}"} for n in range(65)}), id="too many"
        ),
    ],
)
def test_annotations_that_are_not_valid_are_a_fault(schema: object) -> None:
    assert isinstance(http_headers.annotations_of(tool(schema)), str)


def test_a_schema_that_cannot_be_read_is_a_fault_where_it_may_hold_annotations() -> None:
    assert isinstance(http_headers.annotations_of(b'{"name":"t","inputSchema":{"x-mcp-header":"\\ud800"}}'), str)
    assert isinstance(
        http_headers.annotations_of(
            b'{"name":"t","inputSchema":' + b'{"not":' * 5000 + b'{"x-mcp-header":1}' + b"}" * 5001
        ),
        str,
    )
    assert isinstance(
        http_headers.annotations_of(b'{"name":"t","inputSchema":{},"inputSchema":{"x-mcp-header":1}}'), str
    )
    assert {} == http_headers.annotations_of(b'{"name":"t","inputSchema":{"description":"\\ud800"}}')


def test_an_annotation_spelled_with_escapes_is_one() -> None:
    assert {("a",): "A"} == http_headers.annotations_of(
        b'{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x\\u002dmcp-header":"A"}}}}'
    )


ANNOTATED = {("a",): "A", ("b", "c"): "C"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a":"us-west1"}', {"Mcp-Param-A": "us-west1"}),
        ('{"a":" padded "}', {"Mcp-Param-A": "=?base64?IHBhZGRlZCA=?="}),
        ('{"a":42,"b":{"c":-7}}', {"Mcp-Param-A": "42", "Mcp-Param-C": "-7"}),
        ('{"a":42.0}', {"Mcp-Param-A": "42"}),
        ('{"a":1e2}', {"Mcp-Param-A": "100"}),
        ('{"a":-0}', {"Mcp-Param-A": "0"}),
        ('{"a":1.5}', {"Mcp-Param-A": "1.5"}),
        ('{"a":12345678901234567890}', {"Mcp-Param-A": "12345678901234567890"}),
        ('{"a":1e999}', {"Mcp-Param-A": "1e999"}),
        ('{"a":true,"b":{"c":false}}', {"Mcp-Param-A": "true", "Mcp-Param-C": "false"}),
        ('{"a":null,"b":{"c":null}}', {}),
        ('{"a":{},"b":{"c":[]}}', {}),
        ('{"b":"no object"}', {}),
        ("{}", {}),
        (None, {}),
        ("[]", {}),
    ],
)
def test_arguments_are_mirrored_by_their_value(arguments: str | None, expected: dict[str, str]) -> None:
    assert expected == http_headers.param_headers(ANNOTATED, None if arguments is None else arguments.encode())


@given(
    st.one_of(
        st.text(),
        st.integers(),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.none(),
        st.lists(st.integers()),
    )
)
def test_what_is_mirrored_matches_its_body(value: object) -> None:
    arguments = json.dumps({"a": value}).encode()
    given_headers = [
        (name.encode(), text.encode()) for name, text in http_headers.param_headers(ANNOTATED, arguments).items()
    ]
    assert http_headers.check_params(given_headers, ANNOTATED, arguments) is None


@pytest.mark.parametrize(
    ("given_headers", "arguments", "word"),
    [
        ([], '{"a":"x"}', "missing"),
        ([(b"mcp-param-a", b"y")], '{"a":"x"}', "does not match"),
        ([(b"mcp-param-a", b"x"), (b"Mcp-Param-A", b"x")], '{"a":"x"}', "appears 2 times"),
        ([(b"mcp-param-a", b"x")], "{}", "its argument is missing"),
        ([(b"mcp-param-a", b"null")], '{"a":null}', "its argument is missing"),
        ([(b"mcp-param-a", b"=?base64?!?=")], '{"a":"x"}', "cannot be decoded"),
        ([(b"mcp-param-a", b"42.5")], '{"a":42}', "does not match"),
        ([(b"mcp-param-a", b"42.0")], '{"a":"42"}', "does not match"),
        ([(b"mcp-param-a", b"True")], '{"a":true}', "does not match"),
        ([(b"mcp-param-a", b"x")], '{"a":"x","a":"y"}', "duplicate member 'a'"),
    ],
)
def test_mirrored_headers_that_do_not_match_are_refused(
    given_headers: list[tuple[bytes, bytes]], arguments: str, word: str
) -> None:
    assert word in str(http_headers.check_params(given_headers, ANNOTATED, arguments.encode()))


def test_numbers_are_compared_as_numbers_and_unknown_headers_count_for_nothing() -> None:
    given_headers = [(b"mcp-param-a", b"42.0"), (b"mcp-param-other", b"x")]
    assert http_headers.check_params(given_headers, ANNOTATED, b'{"a":42}') is None


def test_tools_with_annotations_that_are_not_valid_are_left_out_and_the_rest_stays_byte_for_byte() -> None:
    good, plain = (
        b'{ "name":"good", "inputSchema":' + json.dumps(properties(a=WORD)).encode() + b"}",
        b'{"name" : "plain","x":1.0}',
    )
    bad = tool(properties(a={"type": "number", "x-mcp-header": "A"}), "bad")
    listed = http_headers.read_tool_list(
        b'{"a": 1.0, "tools" : [' + good + b"," + bad + b"," + plain + b'], "nextCursor":"2"}'
    )
    assert b'{"a": 1.0, "tools" : [' + good + b"," + plain + b'], "nextCursor":"2"}' == listed.result
    assert {"good": {("a",): "Word"}, "plain": {}} == listed.tools
    assert ["bad"] == list(listed.dropped)
    assert b'"2"' == listed.cursor


@pytest.mark.parametrize(
    "result", [b"{}", b"[]", b'{"tools":7}', b'{"tools": [ {"name":"a"} ,{} , 7 ],"nextCursor":null}']
)
def test_a_list_without_faults_stays_as_it_came(result: bytes) -> None:
    listed = http_headers.read_tool_list(result)
    assert result == listed.result
    assert listed.cursor is None


def test_a_list_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Malformed):
        http_headers.read_tool_list(b'{"tools":[],"tools":[]}')
