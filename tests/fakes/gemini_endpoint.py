"""A fake of Gemini's generateContent and streamGenerateContent on loopback. The model's name selects the answer.

Gemini's calls have no ids, and its arguments are values: text that is no JSON is sent as a text in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.fakes import model_endpoint
from tests.fakes.model_endpoint import Handler, Said, event, joined

_STOPS: Final = {"stop": "STOP", "length": "MAX_TOKENS", "tool": "STOP", "sequence": "STOP", "filter": "SAFETY"}


class GeminiHandler(Handler):
    """A connection that speaks Gemini's format."""

    def model_of(self, body: dict[str, Any]) -> str:
        return self.path.rpartition("/models/")[2].partition(":")[0]

    def is_stream(self, body: dict[str, Any]) -> bool:
        return ":streamGenerateContent" in self.path

    def last_text(self, body: dict[str, Any]) -> str:
        return " ".join(filter(None, map(_text, body["contents"][-1]["parts"])))

    def first_tool(self, body: dict[str, Any]) -> str:
        tools = body.get("tools") or [{"function_declarations": [{"name": "nothing-offered"}]}]
        return str(tools[0]["function_declarations"][0]["name"])

    def has_result(self, body: dict[str, Any]) -> bool:
        return any("functionResponse" in part or "function_response" in part for part in body["contents"][-1]["parts"])

    def error(self, status: int, message: str) -> object:
        return {"error": {"code": status, "message": message, "status": "TEST"}}

    def whole(self, model: str, said: Said) -> object:
        parts = [*([{"text": joined(said.texts)}] if said.texts else []), *_more(said)]
        return _answer(model, said, parts, _STOPS.get(said.stop, said.stop), last=True)

    def events(self, model: str, said: Said) -> Iterator[bytes]:
        for text in said.texts:
            yield event(_answer(model, said, [{"text": text}]))
        if more := _more(said):
            yield event(_answer(model, said, more))

    def ending(self, model: str, said: Said) -> Iterator[bytes]:
        yield event(_answer(model, said, [], _STOPS.get(said.stop, said.stop), last=True))

    def broken(self) -> bytes:
        return event(self.error(503, "the model is gone"))


class Endpoint(model_endpoint.Endpoint):
    """The endpoint for Gemini's format."""

    handler = GeminiHandler
    prefix = "/v1beta"
    provider = "gemini"


def _answer(
    model: str, said: Said, parts: list[dict[str, Any]], finish: str | None = None, last: bool = False
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts or not last:
        candidate["content"] = {"role": "model", "parts": parts}
    if finish is not None:
        candidate["finishReason"] = finish
    answer: dict[str, Any] = {"candidates": [candidate], "modelVersion": f"{model}-2026-01", "responseId": "r1"}
    if said.output >= 0 and last:
        answer["usageMetadata"] = {
            "promptTokenCount": 7,
            "candidatesTokenCount": said.output,
            "totalTokenCount": 7 + said.output,
        }
    return answer


def _more(said: Said) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = (
        [{"inlineData": {"mimeType": "image/png", "data": said.image}}] if said.image is not None else []
    )
    for use in said.uses:
        part: dict[str, Any] = {"functionCall": {"name": use.name, "args": _value(use.arguments)}}
        parts.append(part if use.signature is None else {**part, "thoughtSignature": use.signature})
    return parts


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _text(part: dict[str, Any]) -> str:
    result = part.get("functionResponse") or part.get("function_response")
    return str(part.get("text", "")) if result is None else json.dumps(result["response"])
