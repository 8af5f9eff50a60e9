"""The agents' model: an endpoint on loopback that asks for given tool calls in turn, and then repeats their results."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import model_endpoint
from tests.fakes.anthropic_endpoint import MessagesHandler
from tests.fakes.gemini_endpoint import GeminiHandler
from tests.fakes.model_endpoint import Handler, Said, Use
from tests.fakes.responses_endpoint import ResponsesHandler


@dataclass(frozen=True)
class Call:
    """A tool call that the model asks for."""

    server: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class ScriptedEndpoint(model_endpoint.Endpoint):
    """A running endpoint. Every request contains its whole conversation, so it serves any number of agents."""

    calls: Sequence[Call] = ()
    holds: bool = False
    """Whether it holds the last request instead of answering it."""

    def wait_for_results(self) -> None:
        """Wait until an agent has the results of all calls. Raises queue.Empty if a request is late."""
        for _ in range(len(self.calls) + 1):
            self.next()


class _ScriptedHandler(Handler):
    @property
    def script(self) -> ScriptedEndpoint:
        assert isinstance(self.at, ScriptedEndpoint)
        return self.at

    @abstractmethod
    def results(self, body: dict[str, Any]) -> list[str]:
        """The results of the calls so far."""

    @abstractmethod
    def use(self, call: Call, id: str) -> Use:
        """The call under the name that the agent gives the tool."""

    def said(self, model: str, body: dict[str, Any]) -> Said:
        results = self.results(body)
        if len(results) < len(self.script.calls):
            return Said((), (self.use(self.script.calls[len(results)], f"call-{len(results)}"),), "tool")
        return Said(("\n".join(results),), after="hold" if self.script.holds else "end")


class _ScriptedMessages(_ScriptedHandler, MessagesHandler):
    def results(self, body: dict[str, Any]) -> list[str]:
        contents = [one["content"] for one in body["messages"] if not isinstance(one["content"], str)]
        return [
            json.dumps(block["content"]) for blocks in contents for block in blocks if block["type"] == "tool_result"
        ]

    def use(self, call: Call, id: str) -> Use:
        return Use(json.dumps(dict(call.arguments)), f"mcp__{call.server}__{call.tool}", id)


class _ScriptedResponses(_ScriptedHandler, ResponsesHandler):
    def results(self, body: dict[str, Any]) -> list[str]:
        return [json.dumps(item["output"]) for item in body["input"] if item["type"] == "function_call_output"]

    def use(self, call: Call, id: str) -> Use:
        return Use(json.dumps(dict(call.arguments)), call.tool, id, namespace=f"mcp__{call.server}")


class _ScriptedGemini(_ScriptedHandler, GeminiHandler):
    def results(self, body: dict[str, Any]) -> list[str]:
        parts = [part for content in body["contents"] for part in content["parts"]]
        return [json.dumps(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]

    def use(self, call: Call, id: str) -> Use:
        return Use(json.dumps(dict(call.arguments)), f"mcp_{call.server}_{call.tool}", id)


class MessagesEndpoint(ScriptedEndpoint):
    """The endpoint for Anthropic's message format."""

    handler = _ScriptedMessages


class ResponsesEndpoint(ScriptedEndpoint):
    """The endpoint for the responses format."""

    handler = _ScriptedResponses
    prefix = "/v1"


class GeminiEndpoint(ScriptedEndpoint):
    """The endpoint for Gemini's format."""

    handler = _ScriptedGemini
