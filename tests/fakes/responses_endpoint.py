"""A fake of OpenAI's responses endpoint on loopback, streamed: litellm uses it for some models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.fakes import model_endpoint
from tests.fakes.model_endpoint import FAULTS, SAID, Handler, Said, event, joined

_INCOMPLETE: Final = {"length": "max_output_tokens", "filter": "content_filter"}


class ResponsesHandler(Handler):
    """A connection that speaks the responses format."""

    def model_of(self, body: dict[str, Any]) -> str:
        """The first text of the request if it names an answer, else the model's name: litellm streams these models only
        under names that it knows."""
        words = self._text(body["input"][0])
        return words if words in SAID or words in FAULTS or words.startswith("status-") else str(body.get("model"))

    def _text(self, item: dict[str, Any]) -> str:
        content = item.get("output", item.get("content", ""))
        return content if isinstance(content, str) else " ".join(part["text"] for part in content if "text" in part)

    def last_text(self, body: dict[str, Any]) -> str:
        return self._text(body["input"][-1])

    def first_tool(self, body: dict[str, Any]) -> str:
        tools = body.get("tools") or [{"name": "nothing-offered"}]
        return str(tools[0]["name"])

    def has_result(self, body: dict[str, Any]) -> bool:
        return bool(body["input"][-1].get("type") == "function_call_output")

    def error(self, status: int, message: str) -> object:
        return {"error": {"message": message, "type": "test", "code": None}}

    def whole(self, model: str, said: Said) -> object:
        return _response(model, said)

    def events(self, model: str, said: Said) -> Iterator[bytes]:
        head = {"id": "resp_1", "object": "response", "created_at": 1, "model": f"{model}-2026-01", "output": []}
        yield event({"type": "response.created", "response": {**head, "status": "in_progress"}}, "response.created")
        for text in said.texts:
            yield event(
                {
                    "type": "response.output_text.delta",
                    "item_id": "msg_1",
                    "output_index": 0,
                    "content_index": 0,
                    "delta": text,
                }
            )
        if said.texts:
            yield event({"type": "response.output_item.done", "output_index": 0, "item": _message(said)})
        for index, item in enumerate(_calls(said), 1):
            yield event(
                {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}}
            )
            more = {"item_id": item["id"], "output_index": index}
            yield event({"type": "response.function_call_arguments.delta", **more, "delta": item["arguments"]})
            yield event({"type": "response.function_call_arguments.done", **more, "arguments": item["arguments"]})
            yield event({"type": "response.output_item.done", "output_index": index, "item": item})

    def ending(self, model: str, said: Said) -> Iterator[bytes]:
        kind = "response.incomplete" if said.stop in _INCOMPLETE else "response.completed"
        yield event({"type": kind, "response": _response(model, said)}, kind)

    def broken(self) -> bytes:
        return event({"type": "error", "code": "server_error", "message": "the model is gone", "param": None})


class Endpoint(model_endpoint.Endpoint):
    """The endpoint for the responses format."""

    handler = ResponsesHandler
    prefix = "/v1"
    provider = "openai"


def _calls(said: Said) -> list[dict[str, Any]]:
    return [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": use.id or "",
            "name": use.name,
            **({} if use.namespace is None else {"namespace": use.namespace}),
            "arguments": use.arguments,
            "status": "completed",
        }
        for n, use in enumerate(said.uses)
    ]


def _message(said: Said) -> dict[str, Any]:
    text = {"type": "output_text", "text": joined(said.texts), "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}


def _response(model: str, said: Said) -> dict[str, Any]:
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": f"{model}-2026-01",
        "status": "incomplete" if said.stop in _INCOMPLETE else "completed",
        "incomplete_details": {"reason": _INCOMPLETE[said.stop]} if said.stop in _INCOMPLETE else None,
        "output": [*([_message(said)] if said.texts else []), *_calls(said)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
    }
    if said.output >= 0:
        response["usage"] = {"input_tokens": 7, "output_tokens": said.output, "total_tokens": 7 + said.output}
    return response
