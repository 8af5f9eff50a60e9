"""Reviews for the tests of the store: a plain one, with the fields that a test sets."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from msgspec.structs import replace

from samplegate.protocol.requests import Call
from samplegate.reviews.review import Review, ReviewUi, Verdict

NOW: Final = 1_763_000_000.0
YES: Final = Verdict(word="approve")
NO: Final = Verdict(word="reject", reason="not this one", tell_server=True)
APP: Final = b"<!doctype html><title>App</title>"
LOADING: Final = ReviewUi(uri="ui://db/app", dialect="sep-3118")
READY: Final = replace(LOADING, state="ready", sha256=hashlib.sha256(APP).hexdigest(), size=len(APP))


def review(id: str = "rv_a", **said: Any) -> Review:
    """A sampling request that is pending from NOW for 100 s. Its verdict is valid for another 50 s."""
    plain: dict[str, Any] = {
        "id": id,
        "digest": "sha256:d",
        "lookup": "sha256:l",
        "stage": "request",
        "reviewer": "ops",
        "rule": "ask",
        "policy_hash": "p",
        "decision_id": "d0",
        "server": "db",
        "caller": "local",
        "era": "modern",
        "revision": "2026-07-28",
        "kind": "sampling",
        "mode": None,
        "calls": (Call("tools/call", "query"),),
        "arguments": {"sql": "select 1"},
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10},
        "created": NOW,
        "expires": NOW + 100,
        "late": 50.0,
    }
    return Review(**{**plain, **said})


def form(id: str = "rv_f", **said: Any) -> Review:
    """A form elicitation of a name and a password."""
    schema = {"type": "object", "properties": {"user": {"type": "string"}, "password": {"type": "string"}}}
    return review(
        id,
        kind="elicitation",
        mode="form",
        params={"mode": "form", "message": "who?", "requestedSchema": schema},
        **said,
    )


def filled(**content: Any) -> Verdict:
    """An answer to a form."""
    return Verdict(word="answer", result={"action": "accept", "content": content})
