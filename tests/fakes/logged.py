"""Short decision log records, for the tests of code that reads them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from samplegate.audit.record import ContentMode, Record, RecordLine, Released, read_line, to_json
from samplegate.policy.decide import CompiledPolicy, decide
from samplegate.policy.decisions import Decision, DenyAs, FixedAnswer, LeftOpen, Situation
from samplegate.protocol.requests import Request


def record(compiled: CompiledPolicy, request: Request, *, can: bool = False, result: Any = None, **more: Any) -> Record:
    """The record that the gate would write of a request that a policy decides. A model or a client answers with
    ``result``."""
    decision = decide(compiled, request, Situation(can_forward=can))
    answer = decision.act.result if isinstance(decision.act, FixedAnswer) else result
    fields: dict[str, Any] = {
        "decision_id": "0" * 24,
        "time": 1_800_000_000.0,
        "server": request.origin.server,
        "caller": request.origin.caller,
        "era": request.origin.era,
        "revision": request.origin.revision,
        "door": "push",
        "kind": request.kind,
        "effect": decision.effect,
        "reason": decision.reason,
        "outcome": _outcome(decision),
        "policy_hash": "abc",
        "mode": request.mode if request.kind == "elicitation" else None,
        "calls": request.origin.calls,
        "rule": decision.rule,
        "action": decision.act.as_ if isinstance(decision.act, DenyAs) else None,
        "arguments": request.origin.params,
        "identities": request.origin.identities,
        "looks_at": compiled.identity_names,
        "request": request.params,
        "result": None if answer is None else msgspec.json.encode(answer),
    }
    return Record(**{**fields, **more})


def _outcome(decision: Decision) -> Released:
    if isinstance(decision.act, LeftOpen):
        return "unanswered"
    return "denied" if isinstance(decision.act, DenyAs) else "answered"


def text(record: Record, content: ContentMode = "full") -> str:
    """The record's line in the log."""
    return to_json(record, content=content, key=b"key").decode()


def line(record: Record, content: ContentMode = "full", **more: Any) -> RecordLine:
    """The record's line, read back. ``more`` adds members to it."""
    found = read_line(json.dumps({**json.loads(text(record, content)), **more}).encode())
    assert isinstance(found, RecordLine), found
    return found
