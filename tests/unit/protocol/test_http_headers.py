"""Headers that mirror a modern frame: values survive encoding and decoding, and are compared with the body (R71 to
R73)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames, http_headers, rawjson

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def frame(method: str, id: int | None = 1, **params: Any) -> frames.Frame:
    line = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": META}} | (
        {} if id is None else {"id": id}
    )
    return frames.read(json.dumps(line).encode())


def asgi(**given: str | bytes) -> list[tuple[bytes, bytes]]:
    return [
        (name.replace("_", "-").encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in given.items()
    ]


CALL = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "add"}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("us-west1", "us-west1", id="plain"),
        pytest.param("a b", "a b", id="a blank inside"),
        pytest.param("", "", id="nothing"),
        pytest.param("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=", id="not ASCII"),
        pytest.param(" padded ", "=?base64?IHBhZGRlZCA=?=", id="blanks at the edges"),
        pytest.param("line1\nline2", "=?base64?bGluZTEKbGluZTI=?=", id="a line end"),
        pytest.param("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", id="looks encoded"),
        pytest.param("a\tb", "=?base64?YQli?=", id="a tab"),
        pytest.param("\x7f", "=?base64?fw==?=", id="delete"),
    ],
)
def test_a_value_is_written_as_the_specification_shows(value: str, written: str) -> None:
    assert written == http_headers.encode(value)
    assert value == http_headers.decode(written)


@given(st.text())
def test_what_is_written_comes_out_as_it_went_in_and_is_safe_in_a_header(value: str) -> None:
    written = http_headers.encode(value)
    assert value == http_headers.decode(written)
    assert written == written.strip()
    assert all(" " <= letter <= "~" for letter in written)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("=?base64?%%?=", id="not base64"),
        pytest.param("=?base64?YQ?=", id="no padding"),
        pytest.param("=?base64?YR==?=", id="bits left over"),
        pytest.param("=?base64?YQ==\n?=", id="a line end inside"),
        pytest.param("=?base64?/w==?=", id="not UTF-8"),
        pytest.param("=?base64?=", id="prefix and suffix share a letter"),
        pytest.param("caf\xe9", id="not ASCII"),
        pytest.param("a\x00b", id="a control character"),
    ],
)
def test_what_no_writer_would_have_written_is_not_decoded(value: str) -> None:
    assert http_headers.decode(value) is None


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "add", "uri": "no"}, "add"),
        ("prompts/get", {"name": "häiku"}, "=?base64?aMOkaWt1?="),
        ("resources/read", {"uri": "file:///a", "name": "no"}, "file:///a"),
        ("tasks/get", {"taskId": "t1"}, "t1"),
        ("tasks/update", {"taskId": "t2"}, "t2"),
        ("tasks/cancel", {"taskId": "t3"}, "t3"),
        ("tools/list", {"name": "no"}, None),
        ("tools/call", {}, None),
        ("tools/call", {"name": 7}, None),
    ],
)
def test_a_post_names_its_method_version_and_what_it_is_about(
    method: str, params: dict[str, Any], name: str | None
) -> None:
    expected = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method} | (
        {} if name is None else {"Mcp-Name": name}
    )
    assert expected == http_headers.standard_headers(method, rawjson.read(json.dumps(params).encode()), "2026-07-28")


def test_a_post_without_params_names_its_method() -> None:
    assert {"MCP-Protocol-Version": "v", "Mcp-Method": "tools/call"} == http_headers.standard_headers(
        "tools/call", rawjson.read(b"{}"), "v"
    )


@given(st.text(), st.text(alphabet=st.characters(codec=None)))
def test_no_method_or_version_breaks_out_of_its_line(method: str, version: str) -> None:
    for value in http_headers.standard_headers(method, rawjson.read(b"{}"), version).values():
        assert all(" " <= letter <= "~" for letter in value)


def test_headers_that_mirror_the_body_pass() -> None:
    assert http_headers.check(asgi(**CALL), frame("tools/call", name="add")) is None
    assert http_headers.check(asgi(**CALL | {"mcp_name": "=?base64?YWRk?="}), frame("tools/call", name="add")) is None
    assert (
        http_headers.check(
            [(b"MCP-PROTOCOL-VERSION", b" 2026-07-28 "), (b"Mcp-Method", b"tools/list")], frame("tools/list")
        )
        is None
    )


@pytest.mark.parametrize(
    ("given_headers", "fault"),
    [
        pytest.param(
            CALL | {"mcp_method": "tools/list"}, "the header Mcp-Method does not match the body", id="another method"
        ),
        pytest.param(
            CALL | {"mcp_method": "Tools/Call"}, "the header Mcp-Method does not match the body", id="values have case"
        ),
        pytest.param(CALL | {"mcp_name": "sub"}, "the header Mcp-Name does not match the body", id="another name"),
        pytest.param(CALL | {"mcp_name": "=?base64?!?="}, "the header Mcp-Name cannot be decoded", id="not base64"),
        pytest.param(CALL | {"mcp_name": b"\xe9"}, "the header Mcp-Name cannot be decoded", id="not ASCII"),
        pytest.param(
            CALL | {"mcp_protocol_version": "2027-01-01"},
            "the header MCP-Protocol-Version does not match the body",
            id="another version",
        ),
        pytest.param(
            {"mcp_protocol_version": "2026-07-28", "mcp_name": "add"},
            "the header Mcp-Method is missing",
            id="no method",
        ),
        pytest.param(
            {"mcp_method": "tools/call", "mcp_name": "add"},
            "the header MCP-Protocol-Version is missing",
            id="no version",
        ),
        pytest.param(
            {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"},
            "the header Mcp-Name is missing",
            id="no name",
        ),
        pytest.param(
            CALL | {"mcp_method": "=?base64?dG9vbHMvY2FsbA==?="},
            "the header Mcp-Method does not match the body",
            id="only names may be encoded",
        ),
    ],
)
def test_headers_that_do_not_match_the_body_are_refused(given_headers: dict[str, Any], fault: str) -> None:
    assert fault == http_headers.check(asgi(**given_headers), frame("tools/call", name="add"))


@pytest.mark.parametrize("name", [b"mcp-method", b"Mcp-Name", b"mcp-protocol-version"])
def test_a_header_that_stands_twice_is_refused_even_if_both_agree(name: bytes) -> None:
    twice = [*asgi(**CALL), (name, dict(asgi(**CALL))[name.lower()])]
    assert "appears 2 times" in str(http_headers.check(twice, frame("tools/call", name="add")))


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_may_leave_the_name_out_but_not_name_another(method: str) -> None:
    """fastmcp's client leaves it out."""
    headers = {name: value for name, value in CALL.items() if name != "mcp_name"} | {"mcp_method": method}
    assert http_headers.check(asgi(**headers), frame(method, taskId="t1")) is None
    assert http_headers.check(asgi(**headers, mcp_name="t1"), frame(method, taskId="t1")) is None
    wrong = http_headers.check(asgi(**headers, mcp_name="t2"), frame(method, taskId="t1"))
    assert "the header Mcp-Name does not match the body" == wrong


def test_a_name_that_the_body_lacks_is_a_mismatch_and_its_absence_is_none() -> None:
    without = {name: value for name, value in CALL.items() if name != "mcp_name"}
    assert http_headers.check(asgi(**without), frame("tools/call")) is None
    assert http_headers.check(asgi(**CALL), frame("tools/call")) is not None


def test_of_a_notification_only_the_headers_that_are_there_count() -> None:
    assert http_headers.check([], frame("notifications/cancelled", None)) is None
    assert http_headers.check(asgi(mcp_method="tools/call"), frame("notifications/cancelled", None)) is not None
    bare = frames.read(b'{"jsonrpc":"2.0","method":"notifications/x"}')
    assert http_headers.check(asgi(mcp_protocol_version="2026-07-28"), bare) is None


def test_a_body_of_two_readings_matches_no_header() -> None:
    twins = frames.read(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","name":"sub","_meta":{}}}'
    )
    assert http_headers.check(asgi(**CALL), twins) is not None
