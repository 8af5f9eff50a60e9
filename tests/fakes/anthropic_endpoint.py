"""A fake of Anthropic's messages endpoint on loopback, with whole and streamed answers. The model's name selects the
answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.fakes import model_endpoint
from tests.fakes.model_endpoint import Handler, Said, event, joined

_STOPS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool": "tool_use",
    "sequence": "stop_sequence",
    "filter": "refusal",
}


class MessagesHandler(Handler):
    """A connection that speaks the messages format."""

    def last_text(self, body: dict[str, Any]) -> str:
        content = body["messages"][-1]["content"]
        return content if isinstance(content, str) else " ".join(map(_text, content)).strip()

    def first_tool(self, body: dict[str, Any]) -> str:
        tools = body.get("tools") or [{"name": "nothing-offered"}]
        return str(tools[0]["name"])

    def has_result(self, body: dict[str, Any]) -> bool:
        content = body["messages"][-1]["content"]
        return not isinstance(content, str) and any(block["type"] == "tool_result" for block in content)

    def error(self, status: int, message: str) -> object:
        return {"type": "error", "error": {"type": "api_error", "message": message}}

    def whole(self, model: str, said: Said) -> object:
        content: list[dict[str, Any]] = []
        if said.texts:
            content.append({"type": "text", "text": joined(said.texts)})
        content += [
            {"type": "tool_use", "id": use.id or "", "name": use.name, "input": json.loads(use.arguments)}
            for use in said.uses
        ]
        message = {
            **_head(model),
            "content": content,
            "stop_reason": _STOPS.get(said.stop, said.stop),
            "stop_sequence": None,
        }
        return message if said.output < 0 else {**message, "usage": {"input_tokens": 7, "output_tokens": said.output}}

    def events(self, model: str, said: Said) -> Iterator[bytes]:
        started: dict[str, Any] = {**_head(model), "content": [], "stop_reason": None, "stop_sequence": None}
        if said.output >= 0:
            started["usage"] = {"input_tokens": 7, "output_tokens": 1}
        yield _event("message_start", message=started)
        yield _event("ping")
        blocks = ([("text", None, list(said.texts))] if said.texts else []) + [
            ("tool_use", use, _pieces(use.arguments)) for use in said.uses
        ]
        for index, (kind, use, pieces) in enumerate(blocks):
            block: dict[str, Any] = {"type": "text", "text": ""}
            if use is not None:
                block = {"type": "tool_use", "id": use.id or "", "name": use.name, "input": {}}
            yield _event("content_block_start", index=index, content_block=block)
            for piece in pieces:
                delta = (
                    {"type": "text_delta", "text": piece}
                    if kind == "text"
                    else {"type": "input_json_delta", "partial_json": piece}
                )
                yield _event("content_block_delta", index=index, delta=delta)
            if said.after == "end":
                yield _event("content_block_stop", index=index)

    def ending(self, model: str, said: Said) -> Iterator[bytes]:
        usage = {} if said.output < 0 else {"usage": {"output_tokens": said.output}}
        yield _event(
            "message_delta", delta={"stop_reason": _STOPS.get(said.stop, said.stop), "stop_sequence": None}, **usage
        )
        yield _event("message_stop")

    def broken(self) -> bytes:
        return _event("error", error={"type": "overloaded_error", "message": "the model is gone"})


class Endpoint(model_endpoint.Endpoint):
    """The endpoint for Anthropic's message format."""

    handler = MessagesHandler
    provider = "anthropic"


def _event(kind: str, **rest: Any) -> bytes:
    return event({"type": kind, **rest}, kind)


def _head(model: str) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": f"{model}-2026-01"}


def _text(block: dict[str, Any]) -> str:
    if block["type"] == "tool_result":
        content = block.get("content", "")
        return content if isinstance(content, str) else " ".join(map(_text, content))
    return str(block.get("text", ""))


def _pieces(arguments: str) -> list[str]:
    half = len(arguments) // 2
    return ["", arguments[:half], arguments[half:]] if arguments != "{}" else []
