"""The code of a JSON-RPC error is a JSON integer. Parsers that convert types may read another code than the gate did
from a text or a boolean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.both_ends import Gate, gate, modern

POLICY = """
version: 1
rules:
  - {name: never, effect: deny, match: {mode: url, host: denied.example}}
  - {name: urls, effect: forward, match: {mode: url, host: allowed.example}}
  - {name: rest, effect: forward}
"""
URLS = b'"data":{"elicitations":[{"mode":"url","message":"m","url":"https://denied.example","elicitationId":"e"}]}'
TWO_READINGS = [
    b'"code":"-32042"',
    b'"code":" -32042 "',
    b'"code":"-32_042"',
    b'"code":"-32042.0"',
    b'"code":true',
    b'"code":[-32042]',
    b'"code":{"value":-32042}',
    b'"code":null',
    b'"code":NaN',
    b'"code":-Infinity',
    b'"code":-32042.5',
    b'"code":1e999',
    b'"code":-32000,"Code":-32042',
    b'"code":-32000,"code":-32042',
    b'"CODE":-32042',
    b'"c\\u006fde\\u0000":-32042,"code":-32000',
    b'"cod\xc4\x93":-32042',
]
URL_ERRORS = [b'"code":-32042', b'"code":-32042.0', b'"code":-3.2042e4', b'"code":-32042e0', b'"c\\u006fde":-32042']
OTHERS = [b'"code":-32000', b'"code":-32000.0', b'"code":0', b'"code":404']


@pytest.fixture(scope="module", params=["legacy", "modern"])
def wires(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Gate]]:
    with gate(tmp_path_factory.mktemp("gate"), POLICY) as both:
        (both.legacy if request.param == "legacy" else both.modern)(elicitation={"form": {}, "url": {}}, roots={})
        yield request.param, both


def fails(wires: tuple[str, Gate], code: bytes, data: bytes = URLS) -> list[bytes]:
    """The client's answer when the server fails its call with this error."""
    era, both = wires
    able: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
    plain = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}'
    both.says("client", plain if era == "legacy" else modern(1, "tools/call", able, name="t"))
    both.server.write(b'{"jsonrpc":"2.0","id":1,"error":{' + code + b',"message":"m",' + data + b"}}")
    answer = both.client.read()
    return [answer, *both.says("server", b'{"jsonrpc":"2.0","method":"notifications/x"}')[0][:-1]]


@pytest.mark.parametrize("code", TWO_READINGS)
def test_an_error_whose_code_is_no_integer_ends_its_call_and_nothing_of_it_passes(
    wires: tuple[str, Gate], code: bytes
) -> None:
    (line,) = fails(wires, code)
    answer = json.loads(line)
    assert (1, -32603) == (answer["id"], answer["error"]["code"])
    assert b"denied.example" not in line


@pytest.mark.parametrize("code", URL_ERRORS)
def test_every_spelling_of_the_number_is_the_url_error_that_a_rule_denies(wires: tuple[str, Gate], code: bytes) -> None:
    (line,) = fails(wires, code)
    assert json.loads(line)["result"]["isError"]
    assert b"denied.example" not in line


@pytest.mark.parametrize("code", OTHERS)
def test_any_other_error_passes_as_it_came(wires: tuple[str, Gate], code: bytes) -> None:
    assert [b'{"jsonrpc":"2.0","id":1,"error":{' + code + b',"message":"m",' + URLS + b"}}"] == fails(wires, code)


@pytest.mark.parametrize("code", TWO_READINGS)
def test_an_error_for_no_request_is_dropped(wires: tuple[str, Gate], code: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":null,"error":{' + code + b',"message":"m",' + URLS + b"}}"
    assert ([], []) == wires[1].says("server", line)


@pytest.mark.parametrize("data", [b'"data":{"elicitations":[%s],"Elicitations":[%s]}', b'"data":{"ELICITATIONS":[%s]}'])
def test_urls_that_only_a_parser_that_folds_case_finds_do_not_pass(wires: tuple[str, Gate], data: bytes) -> None:
    denied = URLS.removeprefix(b'"data":{"elicitations":[').removesuffix(b"]}")
    allowed = denied.replace(b"denied", b"allowed")
    (line,) = fails(wires, b'"code":-32042', data % ((allowed, denied) if data.count(b"%s") == 2 else denied))
    assert b"denied.example" not in line


def records(folder: Path) -> list[dict[str, Any]]:
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture(scope="module")
def asked_by(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Gate]]:
    """A gate whose client can be asked."""
    folder = tmp_path_factory.mktemp("gate")
    with gate(folder, POLICY) as both:
        both.legacy(sampling={})
        yield folder, both


@pytest.mark.parametrize(
    "code", [b'"code":"-1"', b'"code":true', b'"code":"x"', b'"message":"no code"', b'"code":-1,"Code":-32000']
)
def test_a_clients_refusal_with_two_readings_is_nobodys_and_does_not_reach_the_server(
    asked_by: tuple[Path, Gate], code: bytes
) -> None:
    folder, both = asked_by
    before = records(folder)
    sample = {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 9}
    both.server.write(
        json.dumps({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": sample}).encode()
    )
    asked = json.loads(both.client.read())
    both.client.write(
        b'{"jsonrpc":"2.0","id":%s,"error":{%s,"data":"secret"}}' % (json.dumps(asked["id"]).encode(), code)
    )
    line = both.server.read()
    assert (7, -32603) == (json.loads(line)["id"], json.loads(line)["error"]["code"])
    assert b"secret" not in line
    (record,) = records(folder)[len(before) :]
    assert ("forward", "unanswered") == (record["effect"], record["outcome"])
