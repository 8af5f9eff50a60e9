"""Reviews whose texts attack the page: scripts, markup and control characters in every field."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from samplegate.protocol.requests import Call
from samplegate.reviews.review import Review, Unsent
from tests.fakes import page_reviews as shown
from tests.fakes.reviewers_listener import ID
from tests.fakes.reviews import NOW, model_answer, text

PAYLOAD = (
    "</textarea></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>\u202e{{7*7}}"
)


def hostile() -> list[Review]:
    call = Call("tools/call", PAYLOAD)
    blocks: list[Any] = [
        text(PAYLOAD),
        {"type": "image", "data": PAYLOAD, "mimeType": PAYLOAD},
        {"type": "audio", "data": PAYLOAD, "mimeType": PAYLOAD},
        {"type": "tool_use", "id": PAYLOAD, "name": PAYLOAD, "input": {PAYLOAD: PAYLOAD}},
        {
            "type": "tool_result",
            "toolUseId": PAYLOAD,
            "content": [text(PAYLOAD)],
            "structuredContent": {PAYLOAD: PAYLOAD},
        },
        {"type": PAYLOAD, PAYLOAD: PAYLOAD},
    ]
    params = {
        "messages": [{"role": PAYLOAD, "content": blocks}],
        "systemPrompt": PAYLOAD,
        "maxTokens": PAYLOAD,
        "temperature": PAYLOAD,
        "tools": [{"name": PAYLOAD, "description": PAYLOAD, "inputSchema": {PAYLOAD: PAYLOAD}}],
        "metadata": {PAYLOAD: PAYLOAD},
        PAYLOAD: PAYLOAD,
    }
    names: dict[str, Any] = {
        "calls": (call,),
        "arguments": {PAYLOAD: PAYLOAD},
        "server": PAYLOAD,
        "caller": PAYLOAD,
        "rule": PAYLOAD,
        "revision": PAYLOAD,
    }
    said = {"title": PAYLOAD, "description": PAYLOAD}
    fields: dict[str, Any] = {
        PAYLOAD: {"type": "string", "default": PAYLOAD, **said},
        f"{PAYLOAD}2": {"type": "string", "enum": [PAYLOAD], "default": PAYLOAD, **said},
        f"{PAYLOAD}3": {
            "type": "string",
            "oneOf": [{"const": f"{PAYLOAD}{n}", "title": PAYLOAD} for n in range(9)],
            **said,
        },
        f"{PAYLOAD}4": {"type": "array", "items": {"type": "string", "enum": [PAYLOAD]}, "default": [PAYLOAD], **said},
        f"{PAYLOAD}5": {"type": "boolean", **said},
        f"{PAYLOAD}6": {"type": "integer", **said},
        f"{PAYLOAD}7": {"type": "string", "format": PAYLOAD, **said},
        f"{PAYLOAD}8": {"type": "string", "default": f"{PAYLOAD}\n{PAYLOAD}", **said},
    }
    modern = {**names, "revision": "2025-11-25"}
    schema = {"type": "object", "properties": fields, "required": [PAYLOAD]}
    return [
        shown.sampling(
            id=ID,
            **{
                **names,
                "params": params,
                "changed": (PAYLOAD,),
                "unsent": (Unsent(PAYLOAD, {PAYLOAD: [PAYLOAD]}, PAYLOAD),),
            },
        ),
        shown.sampling(id=ID, **{**names, "params": params, "bounds": None, "why": PAYLOAD}),
        replace(model_answer(*blocks, systemPrompt=PAYLOAD), server=PAYLOAD, calls=(call,), reviewer="ops"),
        shown.form(fields, **{**modern, "id": ID, "params": {"message": PAYLOAD, "requestedSchema": schema}}),
        shown.form(**{**modern, "id": ID, "params": {"message": PAYLOAD, "requestedSchema": {PAYLOAD: PAYLOAD}}}),
        shown.url(f"https://{PAYLOAD}@evil.example/{PAYLOAD}", **{**names, "id": ID}),
        shown.url(f"javascript:alert(1)//{PAYLOAD}", **{**names, "id": ID}),
        replace(shown.sampling(id=ID, params=params), state="rejected", decided=NOW, who=PAYLOAD, door="api"),
    ]


CANARY = "window.ran = true"


TRIED = (
    f"<script>{CANARY}</script>",
    f"<img src=x onerror='{CANARY}'>",
    f"</textarea><svg onload='{CANARY}'>",
    f"\"><iframe srcdoc='<script>parent.{CANARY}</script>'></iframe>",
    f"[x](javascript:{CANARY})",
    "![x](https://evil.example/leak.png) <https://evil.example/> <link rel=stylesheet href=https://evil.example/a.css>",
    "<base href=https://evil.example/><meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><button>Approve</button></form>",
    "<style>@import 'https://evil.example/a.css'; body { display: none }</style>",
)


def everywhere(payload: str) -> list[Review]:
    """Reviews with the payload in every field that a peer writes."""
    block = [text(payload), {"type": "tool_use", "id": payload, "name": payload, "input": {payload: payload}}]
    fields = {
        payload: {"type": "string", "title": payload, "description": payload, "default": payload},
        "pick": {
            "type": "string",
            "title": payload,
            "oneOf": [{"const": f"{payload}{n}", "title": payload} for n in range(9)],
        },
    }
    params = {
        "messages": [{"role": "user", "content": block}],
        "systemPrompt": payload,
        "maxTokens": 5,
        "tools": [{"name": payload, "inputSchema": {}}],
    }
    names: dict[str, Any] = {"server": payload, "caller": payload, "rule": payload, "arguments": {payload: payload}}
    schema = {"type": "object", "properties": fields}
    return [
        shown.sampling(**names, params=params),
        shown.form(fields, (payload,), **names, params={"message": payload, "requestedSchema": schema}),
        shown.url(f"https://login.example.com/?{payload}", **names),
        shown.answer(**names, params=params, answer={"role": "assistant", "content": block, "model": payload}),
    ]
