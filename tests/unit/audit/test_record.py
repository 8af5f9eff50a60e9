"""A decision record and its JSON line."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.audit.record import MAX_FULL, Attempt, Record, content_hash, timestamp, to_json
from samplegate.policy.decisions import Misses
from samplegate.policy.schema import DenyRule
from samplegate.protocol.outcomes import Reason
from samplegate.protocol.requests import Call

KEY = b"k" * 32
PLAIN = Record(
    decision_id="d1",
    time=1_795_000_000.5,
    server="db",
    caller="local",
    era="legacy",
    revision="2025-11-25",
    door="push",
    kind="elicitation",
    effect="answer",
    reason=Reason.RULE,
    outcome="answered",
    policy_hash="abc",
)
FORM = {
    "message": "m",
    "requestedSchema": {"type": "object", "properties": {"user": {"type": "string"}, "x": {"title": "Password"}}},
}
ASKED = replace(PLAIN, request=FORM, result=b'{"action":"accept","content":{"user":"bob","x":"hunter2"}}')


def line(record: Record, **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(record, **how))
    return found


@pytest.mark.parametrize(
    ("units", "shown"), [(0, 0.0), (1, 1e-12), (10**12, 1.0), (123_456_789_012_345, 123.456789012345)]
)
def test_a_cost_is_in_dollars_and_free_is_not_unknown(units: int, shown: float) -> None:
    assert shown == line(replace(PLAIN, usd=units))["cost_usd"]
    assert "cost_usd" not in line(PLAIN)


def test_content_is_not_kept_unless_asked_for() -> None:
    assert to_json(PLAIN) == to_json(ASKED)
    assert "hunter2" not in repr(ASKED)


def test_the_hash_is_keyed_and_does_not_depend_on_the_spelling() -> None:
    canonical = b'{"action":"accept","content":{"user":"bob","x":"hunter2"}}'
    expected = "hmac-sha256:" + hmac.new(KEY, canonical, hashlib.sha256).hexdigest()
    respelled = replace(ASKED, result=b'{ "content": {"x": "hunter2", "user":"bob"}, "action": "accept" }')
    assert (
        expected
        == line(ASKED, content="hash", key=KEY)["result_hash"]
        == line(respelled, content="hash", key=KEY)["result_hash"]
    )
    assert content_hash(FORM, KEY) == line(ASKED, content="hash", key=KEY)["request_hash"]
    assert expected != line(ASKED, content="hash", key=b"other")["result_hash"]


def test_full_content_is_without_secret_looking_values() -> None:
    shown = line(ASKED, content="full", key=KEY)
    assert {"action": "accept", "content": {"user": "bob", "x": "[secret]"}} == shown["result"]
    assert FORM["message"] == shown["request"]["message"]
    assert "hunter2" not in str(shown)


def test_full_content_keeps_no_query_of_a_url() -> None:
    asked = replace(PLAIN, request={"message": "m", "mode": "url", "url": "https://example.com/auth?state=s3cret#frag"})
    assert "https://example.com/auth?[removed]" == line(asked, content="full", key=KEY)["request"]["url"]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://bob:hunter2@h.example/x?t=1", "https://[removed]@h.example/x?[removed]"),
        ("https://hunter2@h.example", "https://[removed]@h.example"),
        ("https://bob:hunt@er2@h.example:8443/a@b", "https://[removed]@h.example:8443/a@b"),
        ("app://bob:hunter2@callback/done", "app://[removed]@callback/done"),
        ("https://h.example/a@b", "https://h.example/a@b"),
        ("mailto:bob@h.example", "mailto:bob@h.example"),
    ],
)
def test_full_content_keeps_no_user_of_a_url(url: str, kept: str) -> None:
    asked = replace(PLAIN, request={"message": "m", "mode": "url", "url": url})
    assert kept == line(asked, content="full", key=KEY)["request"]["url"]


def test_what_is_too_large_to_keep_is_hashed() -> None:
    asked = replace(PLAIN, request={"text": "a" * MAX_FULL}, result=b"{}")
    shown = line(asked, content="full", key=KEY)
    assert (content_hash(asked.request, KEY), {}) == (shown["request_hash"], shown["result"])


def test_a_result_with_two_readings_is_hashed_as_it_stands() -> None:
    twins = b'{"password":"hunter2","password":"b"}'
    assert (
        content_hash(twins.decode(), KEY) == line(replace(PLAIN, result=twins), content="full", key=KEY)["result_hash"]
    )
    assert line(replace(PLAIN, result=b"[" * 5000 + b"]" * 5000 + b"\xff"), content="full", key=KEY)["result_hash"]


def test_names_that_peers_chose_are_bounded() -> None:
    long = "x" * 1_000_000
    record = replace(
        PLAIN,
        calls=(Call(long, long),) * 500,
        detail=long,
        revision=long,
        key=long,
        model=long,
        round=long,
        server=long,
        caller=long,
    )
    record = replace(record, attempts=(Attempt("cheap", "error", 1, 1, 1),) * 5000)
    assert len(to_json(record)) < 40_000
    assert "2025-11-25" + "x" * 245 + "…" == line(replace(PLAIN, revision="2025-11-25" + long))["revision"]


def test_rules_that_did_not_decide_are_bounded_and_the_others_counted_by_condition() -> None:
    rules = [DenyRule(name=f"rule {number}") for number in range(1000)]
    excluded = ("kind",) * 300 + ("tool",) * 699 + ("",)
    found = line(replace(PLAIN, rules=Misses(rules, excluded, ((999, "", "it matched"),), 0, 1000)))["rules"]
    assert {"rule": "rule 0", "condition": "kind"} == found[0]
    assert 201 == len(found)
    assert {"left_out": {"kind": 100, "tool": 699, "matched": 1}} == found[-1]
    long = [DenyRule(name="x" * 100_000) for _ in range(1000)]
    assert len(to_json(replace(PLAIN, rules=Misses(long, ("host?",) * 1000, (), 0, 1000)))) < 20_000


@given(st.text())
def test_no_text_breaks_the_line_or_drives_a_terminal(text: str) -> None:
    written = to_json(replace(PLAIN, detail=text, rule=text, key=text), content="none")
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", written.decode())
    assert 1 == len(written.decode().splitlines())
    assert text[:256] == (json.loads(written).get("rule") or "")[:256]


def test_times_are_utc_to_the_millisecond() -> None:
    assert ("1970-01-01T00:00:00.000Z", "2026-11-18T11:06:40.250Z") == (timestamp(0), timestamp(1_795_000_000.25))
