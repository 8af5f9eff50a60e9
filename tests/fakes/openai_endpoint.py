"""A fake of OpenAI's chat completions on loopback, with whole and streamed answers. The model's name selects the
answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.fakes import model_endpoint
from tests.fakes.model_endpoint import BIG, FAULTS, SAID, Arrived, Handler, Said, event, joined

__all__ = ["ANSWERS", "BIG", "Arrived", "Endpoint"]

_STOPS: Final = {"tool": "tool_calls", "sequence": "stop", "filter": "content_filter"}


class _Handler(Handler):
    def last_text(self, body: dict[str, Any]) -> str:
        content = body["messages"][-1]["content"]
        return (
            content
            if isinstance(content, str)
            else " ".join(part["text"] for part in content if part["type"] == "text")
        )

    def first_tool(self, body: dict[str, Any]) -> str:
        tools = body.get("tools") or [{"function": {"name": "nothing-offered"}}]
        return str(tools[0]["function"]["name"])

    def has_result(self, body: dict[str, Any]) -> bool:
        return bool(body["messages"][-1]["role"] == "tool")

    def error(self, status: int, message: str) -> object:
        return {"error": {"message": message, "type": "test", "code": None}}

    def whole(self, model: str, said: Said) -> object:
        if model == "no-choices":
            return {**_head(model, "chat.completion"), "choices": []}
        message: dict[str, Any] = {
            "role": "assistant",
            "content": joined(said.texts) if said.texts else None,
            "refusal": said.refusal,
        }
        if said.uses:
            message["tool_calls"] = _calls(said)
        if said.image is not None:
            message["images"] = _images(said.image)
        choice = {"index": 0, "finish_reason": _STOPS.get(said.stop, said.stop) or None, "message": message}
        return {**_head(model, "chat.completion"), "choices": [choice], **_usage(said)}

    def events(self, model: str, said: Said) -> Iterator[bytes]:
        def delta(**words: Any) -> bytes:
            choice = {"index": 0, "delta": words, "finish_reason": None}
            return event({**_head(model, "chat.completion.chunk"), "choices": [choice]})

        if model == "no-choices":
            return
        yield delta(role="assistant", content="")
        for text in said.texts:
            yield delta(content=text)
        if said.refusal is not None:
            yield delta(refusal=said.refusal)
        if said.image is not None:
            yield delta(images=_images(said.image))
        for index, call in enumerate(_calls(said)):
            arguments = call["function"]["arguments"]
            half = len(arguments) // 2
            begun = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield delta(tool_calls=[begun])
            for piece in (arguments[:half], arguments[half:]):
                yield delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])

    def ending(self, model: str, said: Said) -> Iterator[bytes]:
        head = _head(model, "chat.completion.chunk")
        if model != "no-choices":
            yield event(
                {
                    **head,
                    "choices": [{"index": 0, "delta": {}, "finish_reason": _STOPS.get(said.stop, said.stop) or None}],
                }
            )
        if said.output >= 0:
            yield event({**head, "choices": [], **_usage(said)})
        yield b"data: [DONE]\n\n"

    def broken(self) -> bytes:
        return event({"error": {"message": "the model is gone", "type": "server_error", "code": 500}})


class Endpoint(model_endpoint.Endpoint):
    """The endpoint for OpenAI's chat format."""

    handler = _Handler
    prefix = "/v1"
    provider = "openai"


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": f"{model}-2026-01"}


def _usage(said: Said) -> dict[str, Any]:
    if said.output < 0:
        return {}
    return {"usage": {"prompt_tokens": 7, "completion_tokens": said.output, "total_tokens": 7 + said.output}}


def _images(data: str) -> list[dict[str, Any]]:
    """Images in OpenRouter's format."""
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}, "index": 0}]


def _calls(said: Said) -> list[dict[str, Any]]:
    calls = (
        {"type": "function", "function": {"name": use.name, "arguments": use.arguments}, "id": use.id}
        for use in said.uses
    )
    return [{key: value for key, value in call.items() if value is not None} for call in calls]


def _policy(handler: Handler, _body: dict[str, Any]) -> None:
    handler.send(
        400,
        {"error": {"message": "content policy", "type": "invalid_request_error", "code": "content_policy_violation"}},
    )


FAULTS["policy"] = _policy

ANSWERS: Final = ("normal", "no-choices", *SAID, *FAULTS)
"""The names of models that do something of their own."""
