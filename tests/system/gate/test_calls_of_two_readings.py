"""A call that parsers read differently does not reach the server, because rules, reviews and records might have seen
another call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.both_ends import Gate, gate, modern

POLICY = "version: 1\nrules:\n  - {name: rest, effect: forward}\n"
META: Final = '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
TWINS: Final = {
    "tools/call": [
        '"name":"safe","Name":"danger"',
        '"name":"safe","NAME":"danger"',
        '"name":"safe","n\\u0041me":"danger"',
        '"name":"safe","\uff4eame":"danger"',
        '"name":"safe","name\\u0000":"danger"',
        '"name":"safe","name":"danger"',
        '"Name":"danger"',
        '"name":"safe","arguments":{"path":"a"},"Arguments":{"path":"b"}',
        '"name":"safe","argument\u017f":{"path":"b"}',
        '"name":"safe","input_responses":{"k":{"action":"accept"}}',
        '"name":"safe","InputResponses":{"k":{"action":"accept"}}',
        '"name":"safe","request_state":"s"',
        '"name":"safe","vendor":1,"Vendor":2',
        '"name":7',
        '"name":true',
        '"name":["safe"]',
        '"name":"safe\\u0000danger"',
        '"name":"half \\ud83d"',
        '"name":"safe","meta":{"progressToken":1}',
    ],
    "prompts/get": ['"name":"safe","Name":"danger"', '"name":1', '"name":"a","Arguments":{}'],
    "resources/read": [
        '"uri":"file:///safe","URI":"file:///danger"',
        '"uri":"a","ur\u0131":"b"',
        '"uri":"a","UR\u0130":"b"',
        '"uri":5',
    ],
}
IN_META: Final = [
    '"progressToken":1,"ProgressToken":2',
    '"progressToken":1,"progress_token":2',
    '"progressToken":1,"progressToken":2',
    '"IO.modelcontextprotocol/clientCapabilities":{"sampling":{}}',
    '"io.modelcontextprotocol/client_capabilities":{"sampling":{}}',
    '"io.modelcontextprotocol\\/ProtocolVersion":"2025-06-18"',
    '"com.example/a":1,"com.example/A":2',
]
PLAIN: Final = [
    '"name":"safe"',
    '"name":"S\u00e4fe \\u0041","arguments":{"a":1,"A":2,"Name":"x"}',
    '"name":"safe","_meta":{%s"com.example/x_y":1,"com.example/xY":2,"traceparent":"x"}',
    '"vendor":{"Name":1},"name" : "safe"',
]


@pytest.fixture(scope="module", params=["legacy", "modern"])
def wires(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Gate]]:
    with gate(tmp_path_factory.mktemp("gate"), POLICY) as both:
        (both.legacy if request.param == "legacy" else both.modern)()
        yield request.param, both


def call(era: str, method: str, params: str) -> bytes:
    own = META + "," if era == "modern" else ""
    if '"_meta"' not in params:
        params += ',"_meta":{%s"x":0}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params.replace("%s", own)}}}}}'.encode()


def refused(wires: tuple[str, Gate], line: bytes) -> str:
    """The reason for which a call is refused. Nothing else may result from it."""
    passed, (answer,) = wires[1].says("client", line)
    assert [] == passed
    said = json.loads(answer)
    assert (1, -32600, "refused: ") == (said["id"], said["error"]["code"], said["error"]["message"][:9])
    return str(said["error"]["message"])


@pytest.mark.parametrize(
    ("method", "params"), [(method, params) for method, several in TWINS.items() for params in several]
)
def test_a_call_with_two_readings_is_refused(wires: tuple[str, Gate], method: str, params: str) -> None:
    refused(wires, call(wires[0], method, params))


@pytest.mark.parametrize("method", list(TWINS))
@pytest.mark.parametrize("meta", IN_META)
def test_a_call_whose_meta_has_two_readings_is_refused(wires: tuple[str, Gate], method: str, meta: str) -> None:
    member = "uri" if method == "resources/read" else "name"
    refused(wires, call(wires[0], method, f'"{member}":"x","_meta":{{%s{meta}}}'))


METHODS: Final = [
    "Tools/Call",
    "TOOLS/CALL",
    "tools/call ",
    "\u2002tools/call",
    "tools_/call",
    "tools/\uff43all",
    "prompts/Get",
    "resources/READ",
]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_resembles_a_call_is_refused(wires: tuple[str, Gate], method: str) -> None:
    assert "could be read as another method" in refused(wires, call(wires[0], method, '"name":"a"'))


def test_the_error_names_the_member_and_no_value(wires: tuple[str, Gate]) -> None:
    assert "refused: 'Name' in params could be read as another member" == refused(
        wires, call(wires[0], "tools/call", TWINS["tools/call"][0])
    )


@pytest.mark.parametrize("params", PLAIN)
def test_what_all_parsers_read_alike_passes_as_it_came(wires: tuple[str, Gate], params: str) -> None:
    line = call(wires[0], "tools/call", params)
    assert ([line], []) == wires[1].says("client", line)
    wires[1].says("server", b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}')


def test_params_that_are_a_list_are_refused(tmp_path: Path) -> None:
    with gate(tmp_path, POLICY) as both:
        both.legacy()
        refused(("legacy", both), b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["danger",{}]}')


CAPABILITIES: Final = '"io.modelcontextprotocol/clientCapabilities":'
STRIPPED: Final = [
    '"name":"a","_meta":{%s"io.modelcontextprotocol/ClientCapabilities":{"sampling":{}}}',
    '"name":"a","_meta":{%s"progressToken":1,"ProgressToken":2}',
    '"name":"a","_meta":{'
    + META.replace(CAPABILITIES + "{}", CAPABILITIES + '{"sampling":{},"Sampling":{"tools":{}}}')
    + "}",
    '"name":"a","_meta":{' + META.replace(CAPABILITIES + "{}", CAPABILITIES + '{"SAMPLING":{}}') + "}",
    '"name":"a","_meta":{'
    + META.replace(CAPABILITIES + "{}", CAPABILITIES + '{"elicitation":{"Form":{},"form":{}}}')
    + "}",
    '"name":"a","input_responses":{"k":{"action":"accept"}}',
    '"name":"a","Name":"b"',
]
ANSWERS: Final = [
    '{"k":{"action":"accept","Action":"decline"}}',
    '{"k":{"action":"accept","action":"decline"}}',
    '{"k":"accept"}',
    "[]",
]


@pytest.fixture(scope="module", params=["legacy", "modern"])
def modern_client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A client of 2026-07-28 with a server of each kind. A legacy server never sees the members of its envelope."""
    with gate(tmp_path_factory.mktemp("gate"), POLICY, "--protocol", request.param) as both:
        both.client.write(modern(0, "tools/list"))
        if request.param == "legacy":
            said = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
            id = json.loads(both.server.read())["id"]
            both.server.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": said}).encode())
            assert b"initialized" in both.server.read()
        id = json.loads(both.server.read())["id"]
        both.server.write(
            json.dumps({"jsonrpc": "2.0", "id": id, "result": {"tools": [], "resultType": "complete"}}).encode()
        )
        assert b"tools" in both.client.read()
        yield both


def answered(both: Gate, line: bytes) -> dict[str, Any]:
    """The error of a call that does not reach the server: the server's next line is the list that the client requests
    afterwards."""
    both.client.write(line)
    both.client.write(modern(2, "tools/list"))
    listing = json.loads(both.server.read())
    assert "tools/list" == listing["method"]
    said: dict[str, Any] = json.loads(both.client.read())
    both.server.write(
        json.dumps({"jsonrpc": "2.0", "id": listing["id"], "result": {"tools": [], "resultType": "complete"}}).encode()
    )
    assert b"tools" in both.client.read()
    return said


@pytest.mark.parametrize("params", STRIPPED)
def test_what_the_gate_takes_off_for_a_legacy_server_is_checked_as_before_a_modern_one(
    modern_client: Gate, params: str
) -> None:
    said = answered(modern_client, call("modern", "tools/call", params))
    assert (1, -32600, "refused: ") == (said["id"], said["error"]["code"], said["error"]["message"][:9])


@pytest.mark.parametrize("method", METHODS)
def test_so_is_a_method_that_resembles_a_call(modern_client: Gate, method: str) -> None:
    said = answered(modern_client, call("modern", method, '"name":"a"'))
    assert (1, -32600, "refused: ") == (said["id"], said["error"]["code"], said["error"]["message"][:9])


@pytest.mark.parametrize("answers", ANSWERS)
def test_so_are_answers_that_nobody_asked_for(modern_client: Gate, answers: str) -> None:
    said = answered(modern_client, call("modern", "tools/call", f'"name":"a","inputResponses":{answers}'))
    expected = "an answer in inputResponses is not a JSON object, or is ambiguous JSON"
    assert (1, -32602, expected) == (said["id"], said["error"]["code"], said["error"]["message"])
