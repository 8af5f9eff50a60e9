"""A stdio MCP server that asks for colors with a UI of its own: `python -m samplegate.demo.color_server`.

It has no SDK, because Python's removes the name of a UI from forms of 2026-07-28. One tool names the UI as in SEP-3118,
the other as in RICH elicitation. Each tool's result is the answer that the server got.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

BANNER: Final = "choose_banner_color"
LABEL: Final = "choose_label_color"

PICKER: Final = "ui://colors/picker.html"
HTML: Final = Path(__file__).with_name("color_picker.html").read_text("utf-8")
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "title": "Color", "description": "Such as #3b82f6", "pattern": "^#[0-9a-fA-F]{6}$"},
        "name": {"type": "string", "title": "Color name", "maxLength": 40},
    },
    "required": ["color"],
}
TOOLS: Final[dict[str, dict[str, Any]]] = {
    BANNER: {
        "message": "Which color should the banner of the status page have?",
        "requestedSchema": SCHEMA,
        "_meta": {"ui": {"resourceUri": PICKER}},
    },
    LABEL: {
        "message": "Which color should the label of the incident have?",
        "requestedSchema": SCHEMA,
        "ui": {"uri": PICKER, "mode": "inline", "context": {"defaultColor": "#3b82f6"}},
    },
}
"""The params of each tool's form."""
REVISION: Final = "2026-07-28"
UI: Final = "io.modelcontextprotocol/ui"
CAPABILITIES: Final[dict[str, Any]] = {"tools": {}, "resources": {}, "extensions": {UI: {"elicitation": {}}}}


def shows_ui(client: Mapping[str, Any]) -> bool:
    """Whether a client's capabilities permit a UI in forms (SEP-3118)."""
    ui = client.get("extensions", {}).get(UI, {})
    return (
        "form" in client.get("elicitation", {})
        and "elicitation" in ui
        and "text/html;profile=mcp-app" in ui.get("mimeTypes", ())
    )


class ColorServer:
    """One session: messages in, messages out."""

    def __init__(self) -> None:
        self._client: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        """The call in which each form was sent, by the form's ID; 2025-11-25 and older only."""

    def message(self, frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The messages that follow a message of the client."""
        id, method, params = frame.get("id"), frame.get("method"), frame.get("params", {})
        if method is None and id in self._asked:
            yield {"id": self._asked.pop(id), "result": self._done(frame.get("result", {"action": "cancel"}), {})}
        elif method is None or id is None:
            return
        elif method == "tools/call" and params.get("name") in TOOLS:
            yield from self._call(id, params)
        elif (result := self._result(method, params)) is not None:
            yield {"id": id, "result": result}
        else:
            yield {"id": id, "error": {"code": -32601, "message": "Method not found"}}

    def _call(self, id: Any, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        meta = params.get("_meta", {})
        client = meta.get("io.modelcontextprotocol/clientCapabilities", self._client)
        form = dict(TOOLS[params["name"]])
        if not shows_ui(client):
            form.pop("_meta", None)  # the same form without the UI
        if "inputResponses" in params:
            yield {"id": id, "result": self._done(params["inputResponses"]["color"], _modern(REVISION))}
        elif meta.get("io.modelcontextprotocol/protocolVersion") == REVISION:
            asked = {"color": {"method": "elicitation/create", "params": form}}
            yield {"id": id, "result": {"resultType": "input_required", "inputRequests": asked}}
        else:
            own = f"form-{id}"
            self._asked[own] = id
            yield {"id": own, "method": "elicitation/create", "params": form}

    def _done(self, answer: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        got = {name: answer[name] for name in ("action", "content") if name in answer}
        return {"content": [{"type": "text", "text": json.dumps(got)}], "structuredContent": got, **more}

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        modern = _modern(params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion"))
        kept = {"ttlMs": 0, "cacheScope": "private", **modern} if modern else {}
        info = {"name": "colors", "version": "1.0.0"}
        match method:
            case "initialize":
                self._client = params.get("capabilities", {})
                return {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": info}
            case "server/discover":
                named = {"_meta": {"io.modelcontextprotocol/serverInfo": info}}
                return {"supportedVersions": [REVISION], "capabilities": CAPABILITIES, **kept, **named}
            case "ping":
                return modern
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
                return {"tools": tools, **kept}
            case "resources/read" if params.get("uri") == PICKER:
                content = {"uri": PICKER, "mimeType": "text/html;profile=mcp-app", "text": HTML}
                return {"contents": [content], **kept}
            case _:
                return None


def _modern(revision: str | None) -> dict[str, Any]:
    return {"resultType": "complete"} if revision == REVISION else {}


def main() -> None:
    """Serve one client on stdin and stdout."""
    server = ColorServer()
    for line in sys.stdin:
        for frame in server.message(json.loads(line)):
            print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)


if __name__ == "__main__":
    main()
