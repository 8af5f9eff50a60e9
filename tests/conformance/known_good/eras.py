"""The known-good server restricted to one protocol version: where it rejects requests of the other, and how."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MODERN: Final = "2026-07-28"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"


def refused(era: str, frame: Any) -> dict[str, Any] | None:
    """The error with which a server of only this version, ``legacy`` or ``modern``, answers a request of the other."""
    if not isinstance(frame, dict) or "id" not in frame:
        return None
    params = frame.get("params") or {}
    enveloped = VERSION in (params.get("_meta") or {})
    if era == "modern" and frame.get("method") == "initialize" and not enveloped:
        data = {"supported": [MODERN], "requested": params.get("protocolVersion")}
        return {"code": -32022, "message": "unsupported protocol version", "data": data}
    if era == "legacy" and frame.get("method") == "server/discover":
        return {"code": -32601, "message": "Method not found"}
    if era == "legacy" and enveloped:
        return {"code": -32602, "message": "Invalid request parameters"}
    return None


def on_stdin(era: str) -> None:
    """Filters stdin, because the SDK's own stdio server would adopt the version of the first request that it sees,
    rejected or not."""
    read, write = os.pipe()
    source = os.fdopen(os.dup(0), "rb")
    os.dup2(read, 0)

    def pump() -> None:
        for line in source:
            frame = json.loads(line)
            if error := refused(era, frame):
                print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "error": error}), flush=True)
            else:
                os.write(write, line)
        os.close(write)

    threading.Thread(target=pump, daemon=True).start()


def on_http(era: str, app: ASGIApp) -> ASGIApp:
    """Filters the requests of an application: 400, as servers of both versions answer unreadable requests."""

    async def filtered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        frame = json.loads(body) if body[:1] == b"{" else {}
        if error := refused(era, frame):
            await JSONResponse({"jsonrpc": "2.0", "id": frame["id"], "error": error}, 400)(scope, receive, send)
            return
        await app(scope, _again(body, receive), send)

    return filtered


def _again(body: bytes, receive: Receive) -> Receive:
    """The body again, and then the messages after it."""
    kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return kept.pop() if kept else await receive()

    return next_message
