"""A session under a policy, as a conversation: write as one side, look at the effects. Rounds are settled by hand, or
by the real decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from samplegate.policy.capabilities import SessionRules, can_forward
from samplegate.policy.decide import decide
from samplegate.policy.decisions import Decision, Situation
from samplegate.policy.match import compile_policy
from samplegate.policy.schema import Policy
from samplegate.protocol.outcomes import Answered, Outcome, SealedDecision
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import (
    Conclusion,
    Effect,
    ForwardRound,
    Open,
    Release,
    Round,
    Settled,
    ToClient,
    ToServer,
)
from samplegate.protocol.seals import SealKeys
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState

SEAL_KEYS = SealKeys([bytes(range(32))], b"a gate process..")
NONCE = bytes(12)
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
T = TypeVar("T")

ALLOW = {"name": "models", "match": {"kind": "sampling"}, "effect": "allow", "with": {"models": ["m"]}}
ANSWER = {"name": "forms", "match": {"kind": "elicitation"}, "effect": "answer", "content": {"confirm": True}}
FORWARD = {"name": "client", "effect": "forward"}
FORWARD_URLS = {"name": "urls", "match": {"kind": "elicitation", "mode": "url"}, "effect": "forward"}
DENY = {"name": "never", "effect": "deny"}
MODELS = [{"name": "m", "model": "openai/m"}]


def policy(*rules: Mapping[str, Any], **more: Any) -> Policy:
    """A policy of these rules, with one model ``m``."""
    return msgspec.convert({"version": 1, "models": MODELS, "rules": list(rules), **more}, Policy)


class Dialogue:
    """One session with its time and all effects so far."""

    def __init__(self, *rules: Mapping[str, Any], server: str = "default", **more: Any) -> None:
        self.compiled = compile_policy(policy(*rules, **more), {})
        self.session = Session(SessionState(SessionRules(self.compiled), server, "t", SEAL_KEYS))
        self.now = 0.0
        self.log: list[Effect] = []
        self.rounds: dict[str, Round] = {}

    def client(self, line: bytes | Mapping[str, Any] | list[Any]) -> list[Effect]:
        """The client writes one line."""
        return self.take(self.session.frame("client", 0, _line(line), self.now))

    def server(self, line: bytes | Mapping[str, Any] | list[Any]) -> list[Effect]:
        """The server writes one line."""
        return self.take(self.session.frame("server", 0, _line(line), self.now))

    def take(self, effects: list[Effect]) -> list[Effect]:
        """Keep these effects."""
        self.log += effects
        self.rounds.update({effect.round.id: effect.round for effect in effects if isinstance(effect, Open)})
        return effects

    def open_legacy(self, revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        """Do the handshake. Returns the capabilities that the server sees."""
        hello = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
        out = self.client(request(0, "initialize", **hello))
        self.server(result(0, protocolVersion=revision, capabilities={}, serverInfo={"name": "s", "version": "1"}))
        self.client({"jsonrpc": "2.0", "method": "notifications/initialized"})
        seen: dict[str, Any] = to_server(out)[0]["params"]["capabilities"]
        return seen

    def settle(self, effects: list[Effect], *, answers: Mapping[str, Outcome] | None = None) -> list[Effect]:
        """Settle the one round among ``effects`` with these outcomes."""
        round = one(effects, Open).round
        chosen = answers if answers is not None else {key: answered(item.method) for key, item in round.items.items()}
        return self.done(round, Settled({key: Release(outcome, f"d-{key}") for key, outcome in chosen.items()}))

    def hand_on(self, effects: list[Effect], *keys: str) -> list[Effect]:
        """Forward ``keys`` of the one round among ``effects`` to the client. Without keys and without roots to ask for,
        the call is put off."""
        round = one(effects, Open).round
        seen = {key: SealedDecision(f"d-{key}", "forward" if key in keys else "allow", "r") for key in round.items}
        return self.done(round, ForwardRound(frozenset(keys), seen, "hash", NONCE))

    def done(self, round: Round, conclusion: Conclusion) -> list[Effect]:
        """End a round with this conclusion."""
        return self.take(self.session.round_done(round.id, conclusion, self.now))

    def decide(self, effects: list[Effect]) -> dict[str, Decision]:
        """The policy's decisions about the requests of the one round among ``effects``."""
        round = one(effects, Open).round
        out: dict[str, Decision] = {}
        for key, item in round.items.items():
            assert not isinstance(item.request, BadRequest), item.request
            out[key] = decide(self.compiled, item.request, Situation(can_forward(item.request, round.client)))
        return out


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request as an object."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def modern(id: Any, method: str, capabilities: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A request with the envelope of 2026-07-28."""
    return request(id, method, **params, _meta={**META, CAPABILITIES: dict(capabilities or {})})


def result(id: Any, **payload: Any) -> dict[str, Any]:
    """A result as an object."""
    return {"jsonrpc": "2.0", "id": id, "result": payload}


def error(id: Any, code: int, message: str = "no", **more: Any) -> dict[str, Any]:
    """An error as an object."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **more}}


def sample(text: str = "hello", **more: Any) -> dict[str, Any]:
    """Params of a sampling request."""
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 100, **more}


def form(**properties: Any) -> dict[str, Any]:
    """Params of a form elicitation. The default form has one required boolean, ``confirm``."""
    properties = properties or {"confirm": {"type": "boolean"}}
    return {
        "message": "Sure?",
        "requestedSchema": {"type": "object", "properties": properties, "required": list(properties)},
    }


def ask(params: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of ``inputRequests``."""
    return {
        "method": "sampling/createMessage" if "messages" in params else "elicitation/create",
        "params": dict(params),
    }


def answered(method: str) -> Answered:
    """An outcome that answers this method."""
    if method.startswith("sampling/"):
        return Answered(b'{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}', "policy")
    return Answered(b'{"action":"accept","content":{"confirm":true}}', "policy")


def to_server(effects: list[Effect]) -> list[Any]:
    """The frames sent to the server, decoded."""
    return [json.loads(effect.line) for effect in effects if isinstance(effect, ToServer)]


def to_client(effects: list[Effect]) -> list[Any]:
    """The frames sent to the client, decoded."""
    return [json.loads(effect.line) for effect in effects if isinstance(effect, ToClient)]


def one(effects: list[Effect], kind: type[T]) -> T:
    """The only effect of this type."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def _line(line: bytes | Mapping[str, Any] | list[Any]) -> bytes:
    return line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()
