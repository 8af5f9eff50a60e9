"""Every member that the gate's decision may depend on, in every spelling that parsers read differently: how the gate
treats it, and how other parsers read it.

What the gate passes on is read alike by all of them; a parser may also refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.both_ends import Gate, gate
from tests.fakes.readers import (
    DIFFERS,
    MARKS,
    Read,
    by_folding,
    by_pydantic,
    compared,
    typescript,
)

POLICY = "version: 1\nrules:\n  - {name: rest, effect: forward}\n"
META: Final = '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
CALL: Final = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,"_meta":{META"x":0}}}'
READ: Final = '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{%s,"_meta":{META"x":0}}}'
IN_META: Final = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{META%s}}}'
ASKS: Final = '{%s,"params":{"name":"t","_meta":{META"x":0}}}'
FAILS: Final = '{"jsonrpc":"2.0","id":1,"error":{%s,"message":"m"}}'
SAYS: Final = '{"jsonrpc":"2.0","id":1,"result":{"content":[],%s}}'

TABLE: Final = r"""
jsonrpc | "jsonrpc":"2.0" | passed | passed | = | = | = | =
jsonrpc | "jsonrpc":2.0 | refused | refused | - | - | - | =
jsonrpc | "jsonrpc":"2" | refused | refused | - | - | - | =
jsonrpc | "jsonrpc":"2.\u0030" | refused | refused | = | = | = | =
jsonrpc | "JsonRpc":"2.0" | refused | refused | - | - | - | =
jsonrpc | "jsonrpc":"1.0","jsonrpc":"2.0" | refused | refused | = | = | = | =
jsonrpc | "jsonrpc" : "2.0" | passed | passed | = | = | = | =
jsonrpc | "jsonrpc":"2.0 " | refused | refused | - | - | - | =
jsonrpc | "jsonrpc":true | refused | refused | - | - | - | =
jsonrpc | "jsonrpc":["2.0"] | refused | refused | - | - | - | =
id | "id":1 | passed | passed | = | = | = | =
id | "id":"1" | passed | passed | = | = | = | =
id | "id":1.0 | dropped | dropped | another | = | = | =
id | "id":1e0 | dropped | dropped | another | = | = | =
id | "id":true | dropped | dropped | another | - | - | =
id | "id":null | dropped | dropped | = | - | - | =
id | "id":NaN | dropped | dropped | another | - | - | =
id | "ID":1 | dropped | dropped | = | - | - | another
id | "id":1,"id":2 | refused | refused | = | = | = | =
id | "id":1,"Id":2 | refused | refused | = | - | - | another
id | "i\u0064":1 | refused | refused | = | = | = | =
id | "id":[1] | dropped | dropped | another | - | - | =
id | "id" :<TAB>1 | passed | passed | = | = | = | =
id | "id":01 | dropped | dropped | - | - | - | -
id | "id":1,"id\u0000":2 | refused | refused | = | - | - | another
method | "method":"tools/call" | passed | passed | = | = | = | =
method | "method":"tools\/call" | passed | passed | = | = | = | =
method | "method":"tools\u002fcall" | passed | passed | = | = | = | =
method | "METHOD":"tools/call" | dropped | dropped | - | - | - | another
method | "method":"ping","Method":"tools/call" | refused | refused | another | - | - | another
method | "method":"ping","method":"tools/call" | refused | refused | = | = | = | =
method | "method":["tools/call"] | refused | refused | - | - | - | =
method | "method":true | refused | refused | - | - | - | another
method | "\u006dethod":"tools/call" | refused | refused | = | = | = | =
method | "method":"tools/call\u0000x" | refused | refused | another | = | = | another
method | "method":"tools/call\ud83d" | refused | refused | - | = | = | =
code | "code":-32042.5 | refused | refused | - | - | - | another
code | "code":"-32042" | refused | refused | another | - | - | another
code | "code":" -32042 " | refused | refused | another | - | - | another
code | "code":"-32_042" | refused | refused | another | - | - | another
code | "code":true | refused | refused | = | - | - | =
code | "code":null | refused | refused | - | - | - | -
code | "code":NaN | refused | refused | - | - | - | -
code | "code":[-32042] | refused | refused | - | - | - | another
code | "CODE":-32042 | refused | refused | - | - | - | another
code | "code":-1,"Code":-32042 | refused | refused | = | = | = | another
code | "code":-1,"code":-32042 | refused | refused | = | = | = | =
code | "message2":0 | refused | refused | - | - | - | =
code | "code":-1 | passed | passed | = | = | = | =
code | "code":-1.0 | passed | passed | = | = | = | =
code | "code":-10e-1 | passed | passed | = | = | = | =
code | "code" : -1 | passed | passed | = | = | = | =
code | "c\u006fde":-1 | passed | passed | = | = | = | =
code | "code":1e999 | refused | refused | - | - | - | -
code | "code":-1,"code\u0000":-32042 | refused | refused | = | = | = | another
resultType | "resultType":"complete" | passed | passed | = | = | = | =
resultType | "x":0 | passed | passed | = | = | = | =
resultType | "resultType":"com.example/other" | passed | passed | = | = | = | =
resultType | "resultType":null | passed | passed | - | = | = | =
resultType | "resultType":5 | refused | refused | - | = | = | another
resultType | "resultType":true | refused | refused | - | = | = | another
resultType | "resultType":["input_required"] | refused | refused | - | = | = | =
resultType | "ResultType":"input_required" | refused | refused | = | = | = | another
resultType | "result_type":"input_required" | refused | refused | another | = | = | =
resultType | "resultType":"Input_Required" | refused | refused | = | = | = | another
resultType | "resultType":"complete","resultType":"input_required" | refused | refused | = | = | = | =
resultType | "resultType":"complete","RESULTTYPE":"input_required" | refused | refused | = | = | = | another
resultType | "resultType":"COMPLETE" | refused | refused | = | = | = | another
resultType | "result\u0054ype":"complete" | passed | passed | = | = | = | =
resultType | "resultType\u0000":"input_required" | refused | refused | = | = | = | another
resultType | "resultType":"input_required\u0000" | refused | refused | = | = | = | another
inputRequests | "inputRequests":{"k":{"method":"roots/list"}} | refused | refused | another | = | = | =
inputRequests | "InputRequests":{"k":{"method":"roots/list"}} | refused | refused | = | = | = | another
inputRequests | "input_requests":{"k":{"method":"roots/list"}} | refused | refused | another | = | = | =
inputRequests | "inputRequests":null | refused | refused | = | = | = | =
inputRequests | "resultType":"complete","inputRequests":{"k":{"method":"roots/list"}} | refused | refused | another | = | = | =
result.requestState | "requestState":"s" | refused | refused | another | = | = | =
result.requestState | "RequestState":"s" | refused | refused | = | = | = | another
result.requestState | "request_state":"s" | refused | refused | another | = | = | =
name | "name":"t" | passed | passed | = | = | = | =
name | "name":"\u0074" | passed | passed | = | = | = | =
name | "name":" t " | passed | passed | = | = | = | =
name | "name":7 | refused | refused | - | - | - | another
name | "name":true | refused | refused | - | - | - | another
name | "name":null | passed | passed | - | - | - | =
name | "name":["t"] | refused | refused | - | - | - | =
name | "Name":"t" | refused | refused | - | - | - | another
name | "name":"t","Name":"u" | refused | refused | = | = | = | another
name | "name":"t","name":"u" | refused | refused | = | = | = | =
name | "n\u0061me":"t" | passed | passed | = | = | = | =
name | "name":"t","name\u0000":"u" | refused | refused | = | = | = | another
name | "name":"t\u0000u" | refused | refused | = | = | = | another
name | "name":"\ud83d" | refused | refused | - | = | = | =
name | "name":"t<LS>u" | passed | passed | = | = | = | =
name | "name":<CR>"t" | blanked | blanked | = | = | = | =
name | "name":<BOM>"t" | refused | refused | - | - | - | -
name | "name":<NEL>"t" | refused | refused | - | - | - | -
name | "name":NaN | refused | refused | - | - | - | another
uri | "uri":"file:///a" | passed | passed | = | = | = | =
uri | "URI":"file:///a" | refused | refused | - | - | - | another
uri | "uri":"file:///a","Uri":"file:///b" | refused | refused | = | = | = | another
uri | "uri":5 | refused | refused | - | - | - | another
uri | "uri":"file:\/\/\/a" | passed | passed | = | = | = | =
uri | "uri":"file:///a","ur<dotless i>":"file:///b" | refused | refused | = | = | = | =
uri | "uri":"file:///a\u0000b" | refused | refused | = | = | = | another
uri | "uri":["file:///a"] | refused | refused | - | - | - | =
arguments | "arguments":{"a":1,"A":2} | passed | passed | = | = | = | =
arguments | "Arguments":{"a":1} | refused | refused | = | = | = | another
arguments | "arguments":{"a":1},"ARGUMENTS":{"a":2} | refused | refused | = | = | = | another
arguments | "arguments":{"a":1},"arguments":{"a":2} | refused | refused | = | = | = | =
arguments | "argument<long s>":{"a":1} | refused | refused | = | = | = | another
arguments | "arguments":[1] | passed | passed | - | - | - | =
arguments | "arguments":"{}" | passed | passed | - | - | - | =
arguments | "arguments":null | passed | passed | = | - | - | =
inputResponses | "inputResponses":{} | refused | passed | = | = | = | =
inputResponses | "InputResponses":{"k":{"action":"accept"}} | refused | refused | = | = | = | another
inputResponses | "input_responses":{"k":{"action":"accept"}} | refused | refused | another | = | = | =
inputResponses | "inputResponses\u0000":{"k":{}} | refused | refused | = | = | = | another
requestState | "RequestState":"s" | refused | refused | = | = | = | another
requestState | "request_state":"s" | refused | refused | another | = | = | =
requestState | "\u0072equest_state":"s" | refused | refused | another | = | = | =
_meta | "progressToken":1 | passed | passed | = | = | = | =
_meta | "progressToken":"1" | passed | passed | = | = | = | =
_meta | "ProgressToken":1 | refused | refused | = | = | = | another
_meta | "progressToken":1,"PROGRESSTOKEN":2 | refused | refused | = | = | = | another
_meta | "progressToken":1,"progressToken":2 | refused | refused | = | = | = | =
_meta | "io.modelcontextprotocol/ClientCapabilities":{"sampling":{}} | refused | refused | = | = | = | another
_meta | "io.modelcontextprotocol\/protocol_version":"2026-07-28" | refused | refused | = | = | = | =
_meta | "com.example/a":1,"com.example/A":2 | refused | refused | = | = | = | =
_meta | "com.example/x":NaN | passed | passed | = | - | - | =
"""  # noqa: E501
"""Member | spelling | what the gate does, legacy | and modern | pydantic | the TypeScript SDK 1.x | 2.x | a parser that
folds and converts."""


def frame(member: str, spelling: str, era: str) -> tuple[str, bytes]:
    """The side that writes the frame, and its line."""
    shape = {"jsonrpc": ASKS, "id": ASKS, "method": ASKS, "uri": READ, "_meta": IN_META, "code": FAILS}.get(member)
    if shape is None:
        shape = SAYS if member in ("resultType", "inputRequests", "result.requestState") else CALL
    rest = {
        "jsonrpc": ',"id":1,"method":"tools/call"',
        "id": ',"jsonrpc":"2.0","method":"tools/call"',
        "method": ',"jsonrpc":"2.0","id":1',
    }
    for mark, sign in MARKS.items():
        spelling = spelling.replace(mark, sign)
    spelling += rest.get(member, "")
    if member in ("arguments", "inputResponses", "requestState"):
        spelling = f'"name":"t",{spelling}'
    text = shape % spelling
    line = text.replace("META", META + "," if era == "modern" else "").encode("utf-8", "surrogatepass")
    return ("server" if shape in (FAILS, SAYS) else "client"), line


def treated(both: Gate, era: str, side: str, line: bytes) -> str:
    """How the gate treats a line."""
    call = CALL.replace("META", META + "," if era == "modern" else "") % '"name":"t"'
    if side == "server":
        both.says("client", call.encode())
    passed, back = both.says(side, line)
    if side == "server":
        both.says("server", b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}')
        if passed == [line]:
            return "passed"
        said = [json.loads(one) for one in passed]
        return (
            "refused"
            if [(1, -32603)] == [(one["id"], one.get("error", {}).get("code")) for one in said]
            else "dropped"
            if not said
            else "other"
        )
    both.says("server", b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}')
    both.says("server", b'{"jsonrpc":"2.0","id":"1","result":{"resultType":"complete"}}')
    if passed:
        return "passed" if passed == [line] else "blanked" if passed == [line.replace(b"\r", b" ")] else "other"
    return "refused" if back else "dropped"


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Gate]]:
    with (
        gate(tmp_path_factory.mktemp("legacy"), POLICY) as legacy,
        gate(tmp_path_factory.mktemp("modern"), POLICY) as modern,
    ):
        legacy.legacy()
        modern.modern()
        yield {"legacy": legacy, "modern": modern}


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, Read]]:
    with typescript("@modelcontextprotocol/sdk/types.js") as by_1, typescript("@modelcontextprotocol/core") as by_2:
        yield {"pydantic": by_pydantic, "typescript 1": by_1, "typescript 2": by_2, "folding": by_folding}


def row(gates: dict[str, Gate], readers: dict[str, Read], member: str, spelling: str) -> str:
    done = [treated(gates[era], era, *frame(member, spelling, era)) for era in ("legacy", "modern")]
    _, line = frame(member, spelling, "legacy")
    return " | ".join([member, spelling, *done, *(compared(read(line, "other"), line) for read in readers.values())])


ROWS: Final = [line for line in TABLE.strip().split("\n") if line]


@pytest.mark.parametrize("expected", ROWS)
def test_each_spelling_is_treated_and_read_as_the_table_says(
    gates: dict[str, Gate], readers: dict[str, Read], expected: str
) -> None:
    member, spelling, *_ = expected.split(" | ")
    assert expected == row(gates, readers, member, spelling)


@pytest.mark.parametrize("expected", ROWS)
def test_what_the_table_lets_pass_is_read_alike(expected: str) -> None:
    _, _, legacy, modern, *readings = expected.split(" | ")
    if {"passed", "blanked"} & {legacy, modern}:
        assert DIFFERS not in readings


NAMES: Final = (
    "name",
    "uri",
    "arguments",
    "_meta",
    "inputResponses",
    "requestState",
    "resultType",
    "inputRequests",
    "code",
    "id",
    "method",
    "jsonrpc",
)
VALUES: Final = (
    '"t"',
    '"1"',
    "1",
    "1.0",
    "true",
    "null",
    '"-32042"',
    "-32042",
    "-3.2042e4",
    "NaN",
    "[]",
    "{}",
    '{"k":{}}',
    '"input_required"',
)
SPELLINGS: Final = (
    *VALUES,
    '"complete"',
    '"Input_Required"',
    '"a\\u0000b"',
    '"tools/call"',
    '"\\u0074"',
    '"\\ud83d"',
    '" t "',
    '"\u2028"',
)


@st.composite
def spelled(draw: st.DrawFn) -> tuple[str, str]:
    """A member, and one to three spellings that may be read as it."""
    member = draw(
        st.sampled_from(
            (
                "name",
                "uri",
                "arguments",
                "_meta",
                "inputResponses",
                "requestState",
                "resultType",
                "inputRequests",
                "code",
            )
        )
    )

    def name() -> str:
        base = draw(st.sampled_from(("progressToken", member) if member == "_meta" else (member, member, *NAMES)))
        how = draw(st.integers(0, 9))
        cased = "".join(letter.upper() if draw(st.booleans()) else letter for letter in base)
        snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in base)
        odd = base.replace("i", "\u0131").replace("s", "\u017f").replace("k", "\u212a")
        escaped = f"\\u{ord(base[0]):04x}{base[1:]}"
        return (base, base, base, cased, base.upper(), snake, odd, escaped, base + "\\u0000", base.strip("_"))[how]

    blank = draw(st.sampled_from(("", " ", "\t", "\r", "\ufeff", "\u0085")))
    parts = [f'"{name()}"{blank}:{blank}{draw(st.sampled_from(SPELLINGS))}' for _ in range(draw(st.integers(1, 3)))]
    return member, ",".join(parts)


@pytest.mark.timeout(240)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=spelled(), era=st.sampled_from(("legacy", "modern")))
def test_what_passes_is_read_alike_whatever_the_spelling(
    gates: dict[str, Gate], readers: dict[str, Read], case: tuple[str, str], era: str
) -> None:
    side, line = frame(*case, era)
    if treated(gates[era], era, side, line) in ("passed", "blanked"):
        found = {name: compared(read(line, "other"), line) for name, read in readers.items()}
        assert DIFFERS not in found.values(), (
            line,
            found,
            {name: read(line, "other") for name, read in readers.items()},
        )
