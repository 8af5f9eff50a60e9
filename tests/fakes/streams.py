"""A conversation over many streams with a session or a bridge: write as one side, look at the effects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from samplegate.policy.capabilities import SessionRules
from samplegate.policy.match import compile_policy
from samplegate.protocol.bridge.calls import SessionProtocol
from samplegate.protocol.bridge.modern_client import ModernClient
from samplegate.protocol.rounds import Effect, Later, Note, Open, Release, Round, Settled, ToClient, ToServer
from samplegate.protocol.session_state import SessionState
from tests.fakes.dialogue import SEAL_KEYS, answered, one, policy, result

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
SERVER = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ENVELOPE: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}}
INFO = {"name": "s", "version": "1"}
ALL = {
    "logging": {},
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def asks(id: Any, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A modern request. ``meta`` adds members to its ``_meta``."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": {**ENVELOPE, **(meta or {})}}}


def tells(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


class Streams:
    """An object with the methods of a session, its time, and all effects so far."""

    def __init__(self, make: Callable[[SessionState], SessionProtocol], *rules: Mapping[str, Any], **more: Any) -> None:
        self.compiled = compile_policy(policy(*rules, **more), {})
        self.state = SessionState(SessionRules(self.compiled), "default", "t", SEAL_KEYS)
        self.session = make(self.state)
        self.now = 0.0
        self.log: list[Effect] = []

    def client(self, stream: int, line: bytes | Mapping[str, Any]) -> list[Effect]:
        """A client writes one line on a stream."""
        return self.take(self.session.frame("client", stream, raw(line), self.now))

    def server(self, line: bytes | Mapping[str, Any] | list[Any], stream: int = 0) -> list[Effect]:
        """The server writes one line. Over HTTP it is on the stream of the request with that number."""
        return self.take(self.session.frame("server", stream, raw(line), self.now))

    def take(self, effects: list[Effect]) -> list[Effect]:
        """Keep these effects."""
        self.log += effects
        return effects

    def settle(self, effects: list[Effect], **outcomes: Any) -> list[Effect]:
        """Settle the one round among ``effects`` with these outcomes."""
        round: Round = one(effects, Open).round
        chosen = {key: outcomes.get("all", answered(item.method)) for key, item in round.items.items()}
        return self.take(
            self.session.round_done(round.id, Settled({key: Release(o, "d") for key, o in chosen.items()}), self.now)
        )


def bridge(
    *rules: Mapping[str, Any],
    capabilities: Mapping[str, Any] | None = None,
    revision: str = "2025-11-25",
    streams: bool = False,
    **more: Any,
) -> Streams:
    """A ModernClient whose server is open. ``streams`` means HTTP. ``more``: of the policy."""
    d = Streams(ModernClient, *rules, **more)
    d.state.streams = streams
    hello = sent(d.client(99, asks("first", "server/discover")))[0]
    said = {
        "protocolVersion": revision,
        "capabilities": ALL if capabilities is None else capabilities,
        "serverInfo": INFO,
    }
    d.server(result(hello["id"], **said))
    return d


def raw(line: bytes | Mapping[str, Any] | list[Any]) -> bytes:
    """The bytes on the wire."""
    return line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()


def sent(effects: list[Effect]) -> list[Any]:
    """The frames sent to the server, decoded."""
    return [json.loads(effect.line) for effect in effects if isinstance(effect, ToServer)]


def heard(effects: list[Effect]) -> list[tuple[int, Any, bool]]:
    """The frames sent to clients: stream, frame, and whether it is an answer."""
    return [(effect.stream, json.loads(effect.line), effect.last) for effect in effects if isinstance(effect, ToClient)]


def notes(effects: list[Effect]) -> list[str]:
    """The events of the notes."""
    return [effect.event for effect in effects if isinstance(effect, Note)]


def timer(effects: list[Effect]) -> Later:
    """The only timer."""
    return one(effects, Later)
