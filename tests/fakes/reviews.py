"""Short reviews for the tests of their presentation."""

from __future__ import annotations

from typing import Any, Final

from samplegate.protocol.requests import Call
from samplegate.reviews.review import EditBounds, Review

NOW: Final = 1_800_000_000.0
DIGEST: Final = "sha256:" + "ab" * 32
BOUNDS: Final = EditBounds(models=("smart", "cheap"), max_tokens={"smart": 500, "cheap": 100}, temperature_max=1.0)


def text(what: str) -> dict[str, Any]:
    return {"type": "text", "text": what}


def said(what: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text(what)}


def review(**values: Any) -> Review:
    """A sampling request that reviewers may approve, pending for a quarter of an hour."""
    given: dict[str, Any] = {
        "id": "rv_" + "a" * 24,
        "digest": DIGEST,
        "lookup": DIGEST,
        "stage": "request",
        "reviewer": "ops",
        "rule": "a person decides",
        "policy_hash": "p",
        "decision_id": "d1",
        "server": "docs",
        "caller": "local",
        "era": "legacy",
        "revision": "2025-11-25",
        "kind": "sampling",
        "mode": None,
        "calls": (Call("tools/call", "purge"),),
        "arguments": {"name": "purge", "arguments": {"ticket": "T-1"}},
        "params": {
            "messages": [said("Classify this")],
            "maxTokens": 200,
            "systemPrompt": "Be brief",
            "temperature": 0.5,
        },
        "bounds": BOUNDS,
        "created": NOW,
        "expires": NOW + 900,
        "late": 3600.0,
    }
    return Review(**(given | values))


def form(required: list[str] | None = None, **fields: Any) -> Review:
    """A form elicitation. A field is a type's name or a schema."""
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields) if required is None else required}
    return review(
        kind="elicitation", mode="form", bounds=None, params={"message": "Really delete?", "requestedSchema": schema}
    )


def address(url: str = "https://sign.example.com/in?state=xyz") -> Review:
    """A URL elicitation."""
    return review(
        kind="elicitation",
        mode="url",
        bounds=None,
        params={"mode": "url", "message": "Please sign in", "url": url, "elicitationId": "1"},
    )


def model_answer(*blocks: dict[str, Any], **params: Any) -> Review:
    """A model's answer that waits for its release."""
    content: Any = blocks[0] if len(blocks) == 1 else list(blocks)
    answer = {"role": "assistant", "content": content, "model": "smart", "stopReason": "endTurn"}
    return review(
        stage="answer", bounds=None, answer=answer, params={"messages": [said("hi")], "maxTokens": 200, **params}
    )
