"""A call that another parser could take for another one does not reach the server: rules, reviews and records would have looked at the wrong one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.system.both_ends import Gate, gate

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
    "resources/read": ['"uri":"file:///safe","URI":"file:///danger"', '"uri":"a","ur\u0131":"b"', '"uri":"a","UR\u0130":"b"', '"uri":5'],
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
    """Why a call is refused, which must be all that comes of it."""
    passed, (answer,) = wires[1].says("client", line)
    assert [] == passed
    said = json.loads(answer)
    assert (1, -32600, "refused: ") == (said["id"], said["error"]["code"], said["error"]["message"][:9])
    return str(said["error"]["message"])


@pytest.mark.parametrize(("method", "params"), [(method, params) for method, several in TWINS.items() for params in several])
def test_a_call_with_two_readings_is_refused(wires: tuple[str, Gate], method: str, params: str) -> None:
    refused(wires, call(wires[0], method, params))


@pytest.mark.parametrize("method", list(TWINS))
@pytest.mark.parametrize("meta", IN_META)
def test_a_call_whose_meta_has_two_readings_is_refused(wires: tuple[str, Gate], method: str, meta: str) -> None:
    member = "uri" if method == "resources/read" else "name"
    refused(wires, call(wires[0], method, f'"{member}":"x","_meta":{{%s{meta}}}'))


def test_the_error_names_the_member_and_no_value(wires: tuple[str, Gate]) -> None:
    assert "refused: its params have 'Name', which could be read as another member" == refused(
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
