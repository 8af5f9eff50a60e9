"""A legacy client and a modern-only server, as a conversation through the bridge between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from samplegate.policy.capabilities import SessionRules
from samplegate.protocol.bridge.legacy_client import LegacyClient
from samplegate.protocol.outcomes import Answered, Outcome, Reason, Unanswered
from samplegate.protocol.rounds import Effect, Open
from samplegate.protocol.session_state import SessionState
from tests.fakes.dialogue import SEAL_KEYS, Dialogue, answered, one, request, result, to_client, to_server

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
BOTH: dict[str, Any] = {"sampling": {}, "elicitation": {}}
URL = {"mode": "url", "message": "log in", "url": "https://a.example/x"}
INFO = {"name": "c", "version": "1"}


class Bridge(Dialogue):
    """One bridge, and the effects that it returned."""

    def __init__(self, *rules: Mapping[str, Any], policy: Mapping[str, Any] | None = None, **more: Any) -> None:
        """``policy`` has the policy's keys besides the rules; ``more``: of the session's state."""
        super().__init__(*rules, **(policy or {}))
        self.session: Any = LegacyClient(SessionState(SessionRules(self.compiled), "default", "t", SEAL_KEYS, **more))

    def on(self, stream: int, frame: Mapping[str, Any], side: Any = "client") -> list[Effect]:
        """One side writes a line on a stream."""
        return self.take(self.session.frame(side, stream, json.dumps(frame, separators=(",", ":")).encode(), self.now))

    def initialize(
        self, capabilities: Mapping[str, Any] | None = None, revision: str = "2025-11-25", id: Any = 0
    ) -> list[Effect]:
        """The client sends `initialize`. The server has not answered yet."""
        return self.client(
            request(id, "initialize", protocolVersion=revision, capabilities=dict(capabilities or {}), clientInfo=INFO)
        )

    def open(
        self,
        capabilities: Mapping[str, Any] | None = None,
        revision: str = "2025-11-25",
        *,
        server: Any = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Do the whole handshake, and return what the client received."""
        (asked,) = to_server(self.initialize(capabilities, revision))
        (said,) = to_client(self.server(discovered(asked["id"], server, **more)))
        self.opened = to_server(self.client({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        welcome: dict[str, Any] = said["result"]
        return welcome

    def call(self, id: Any = 1, **params: Any) -> dict[str, Any]:
        """The client calls a tool. Returns what the server received."""
        (seen,) = to_server(self.client(request(id, "tools/call", **{"name": "x", "arguments": {"n": 1}, **params})))
        line: dict[str, Any] = seen
        return line

    def asks(self, id: Any, requests: Any = None, **more: Any) -> list[Effect]:
        """The server asks for input."""
        return self.server(input_required(id, requests, **more))

    def handed_on(self, requests: Mapping[str, Any], *keys: str, id: Any = 1, **more: Any) -> list[Effect]:
        """The server asks for input, and all keys, or these, are forwarded to the client."""
        return self.hand_on(self.asks(id, requests, **more), *(keys or requests))

    def returned(self, effects: list[Effect]) -> list[Effect]:
        """Settle the round of the client's retry as the gate does: keys that the client left out are not answered."""
        round = one(effects, Open).round
        assert round.returned is not None
        replies = round.returned.replies
        given: dict[str, Outcome] = {key: Answered(raw, "client") for key, raw in replies.items()}
        for key, item in round.items.items():
            if key not in round.returned.seen:
                given[key] = answered(item.method)
        return self.settle(effects, answers={key: given.get(key, Unanswered(Reason.CLIENT)) for key in round.items})


def discovered(id: Any, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """A modern server's answer to `server/discover`."""
    told = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}} if capabilities is None else capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return result(id, resultType="complete", **{**told, "_meta": {SERVER_INFO: {"name": "s", "version": "2"}}, **more})


def input_required(id: Any, requests: Any = None, **more: Any) -> dict[str, Any]:
    """An ``input_required`` result."""
    return result(id, resultType="input_required", **({} if requests is None else {"inputRequests": requests}), **more)


def cancel(id: Any) -> dict[str, Any]:
    """A `notifications/cancelled` for a request."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification as an object."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
