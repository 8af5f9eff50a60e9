"""The line of a decision record, byte for byte and read back: lines are the same as in 0.1.0."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest

from samplegate.audit.record import Attempt, ContentMode, Record, RecordLine, read_line, to_json
from samplegate.audit.sqlite_log import row
from samplegate.policy.conditions import IdentityNames
from samplegate.policy.decisions import Misses, Shadow
from samplegate.policy.schema import DenyRule
from samplegate.protocol.identity import Identity
from samplegate.protocol.requests import Call
from samplegate.reviews.review import Vote
from tests.unit.audit.test_record import KEY, PLAIN

LINES: Final = Path(__file__).with_name("record_lines.jsonl").read_bytes().splitlines()
FULL = replace(
    PLAIN,
    time=1_795_000_000.0,
    round="r1",
    key="k\u202e",
    mode="form",
    calls=(Call("tools/call", "drop"), Call("prompts/get", None)),
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="00f067aa0ba902b7",
    rule="CI confirms",
    rules=Misses(
        [DenyRule(name=name) for name in ("first", "own host", "trial", "CI confirms")],
        ("server", "", "", ""),
        [(1, "host?", ""), (2, "", "it matched, but it is a shadow rule")],
        0,
        3,
    ),
    detail='why "so"\n\x1b[31m',
    shadows=(Shadow("s", "deny"), Shadow("t", "allow")),
    model="gpt",
    input_tokens=0,
    output_tokens=7,
    duration_ms=1.23456,
    action="accept",
    decided_by="client",
    fits=False,
    tried=("first: no time", "second: no room in team-day"),
    changed=("maxTokens",),
    attempts=(
        Attempt("cheap", "rate_limited", usd=0),
        Attempt("smart", "ok", 12, 7, 4_200_000_000),
        Attempt("local", "ok"),
    ),
    usd=4_200_000_000,
    reserved_usd=10**12,
    limits=("team-day", "loop"),
    refused_by="team-day",
    redacted={"aws-key": 2},
    review="rv_1",
    run="17-1-test",
    session="5e551011",
    settings_hash="def",
    reviewer="ops",
    reviewed_by="ann",
    review_door="page",
    review_ui="ab" * 32,
    reviewed_ms=1000.00049,
    votes=(
        Vote(by="ben", how="webhook", verdict="approve", at=1_700_000_000.0, digest="sha256:a", void=True),
        Vote(
            by="ann",
            how="page",
            verdict="answer",
            at=1_700_000_001.5,
            digest="sha256:b",
            proven=True,
            reason="r",
            ui="ab" * 32,
        ),
    ),
    revokes=True,
    asked={"never": "told"},
    request={
        "message": "m",
        "requestedSchema": {"type": "object", "properties": {"x": {"title": "Password"}, "user": {"type": "string"}}},
    },
    result=b'{"action":"accept","content":{"user":"b\xc3\xb6b","x":"hunter2"}}',
)
LONG = replace(
    FULL,
    server="s" * 300,
    caller="c" * 300,
    key="k" * 300,
    detail="d" * 3000,
    calls=(Call("m" * 300, "t" * 300),) * 25,
    tried=("t" * 3000,),
    reviewed_by="r" * 300,
)
EMPTY = replace(
    PLAIN,
    key="",
    detail="",
    redacted={},
    usd=0,
    input_tokens=0,
    output_tokens=0,
    duration_ms=0.0,
    reviewed_ms=0.0,
    fits=True,
)
CALLED = replace(FULL, arguments=((b'{"name":"t","arguments":{"path":"/tmp/x","password":"hunter2"}}', b"{}"),))
OF_TOKENS = replace(
    PLAIN,
    identities=(
        Identity("jwt:ann", frozenset({"sre", "ops"}), b'{"sub":"ann","dept":"eng","realm":{"roles":["a",1]}}'),
        Identity("jwt:ann", frozenset(), b'{"sub":"ann","realm":{"token":"hunter2"}}'),
    ),
    looks_at=IdentityNames(True, ("dept", "realm.roles", "realm.token")),
)
SHOWN = replace(PLAIN, review="rv_1", reviewer="ops", reviewed_by="ann", review_door="page", review_ui="ab" * 32)
NOT_KNOWN = Identity("jwt:ann", frozenset(), b'{"dept":1,"dept":2}')
CASES: Final[list[tuple[Record, ContentMode]]] = [
    (PLAIN, "none"), (FULL, "none"), (FULL, "hash"), (FULL, "full"), (LONG, "none"), (EMPTY, "full"),
    (replace(FULL, result=b'{"a":1,"a":2}'), "full"), (replace(FULL, request={"url": "https://u:p@x.example/a?b#c"},
    result=None), "full"),
    (CALLED, "none"), (CALLED, "hash"), (CALLED, "full"), (replace(FULL, arguments=((b"{}", None),)), "full"),
    (OF_TOKENS, "none"), (OF_TOKENS, "hash"), (OF_TOKENS, "full"),
    (replace(OF_TOKENS, looks_at=IdentityNames()), "full"),
    (replace(OF_TOKENS, identities=(Identity("jwt:ann"),)), "full"),
    (replace(OF_TOKENS, identities=(*OF_TOKENS.identities, NOT_KNOWN)), "full"),
    (SHOWN, "none"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "line"), [*zip(CASES, LINES, strict=True)])
def test_a_record_is_the_line_that_it_was(case: tuple[Record, ContentMode], line: bytes) -> None:
    record, content = case
    assert line == to_json(record, content=content, key=KEY)
    kept = row(record, line)
    assert (line.decode(), json.loads(line)["time"]) == (kept["record"], kept["time"])
    columns = ("decision_id", "server", "caller", "kind", "outcome", "rule")
    assert [(getattr(record, name) or "")[:256] or None for name in columns] == [kept[name] for name in columns]


def test_every_field_is_in_some_line() -> None:
    told = {name for line in LINES for name in json.loads(line)}
    unwritten = {"asked", "usd", "redactor", "identities", "looks_at"}  # `usd` is written as `cost_usd`
    assert {field.name for field in fields(Record)} - unwritten | {
        "groups",
        "claims",
        "groups_hash",
        "claims_hash",
        "cost_usd",
        "request_hash",
        "result_hash",
        "arguments_hash",
    } == told


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_back_as_it_stands(line: bytes) -> None:
    read, told = read_line(line), json.loads(line)
    assert isinstance(read, RecordLine)
    plain = ("decision_id time server caller era revision door kind effect reason outcome mode rule model input_tokens output_tokens duration_ms "  # noqa: E501
             "action decided_by cost_usd refused_by review reviewer review_door reviewed_ms").split()  # fmt: skip
    assert {name: told.get(name) for name in plain} == {name: getattr(read, name) for name in plain}
    assert told.get("calls", []) == [
        {"method": call.method} | ({"tool": call.tool} if call.tool else {}) for call in read.calls
    ]
    spent = ("model", "result", "input_tokens", "output_tokens", "cost_usd")
    assert [{name: one.get(name) for name in spent} for one in told.get("attempts", [])] == [
        {name: getattr(one, name) for name in spent} for one in read.attempts
    ]
    lists = (told.get("tried", []), told.get("limits", []), told.get("redacted", {}), told.get("revokes", False))
    assert lists == ([*read.tried], [*read.limits], read.redacted, read.revokes)
    contents = [json.loads(bytes(raw)) if bytes(raw) else None for raw in (read.request, read.result)]
    assert [told.get("request"), told.get("result")] == contents
