"""Short requests and rules for the tests of the policy's decisions."""

from __future__ import annotations

from typing import Any, Final

from samplegate.policy.match import CompiledPolicy, compile_policy
from samplegate.policy.schema import Model, Policy, Reviewer, Rule
from samplegate.protocol.requests import Call, ElicitationRequest, Origin, SamplingRequest

LEGACY: Final = "2025-11-25"
MODELS: Final = (
    Model(name="smart", model="anthropic/claude-sonnet-4-5", max_tokens=500),
    Model(name="cheap", model="openai/gpt-5-mini"),
    Model(name="local", model="openai/qwen3"),
)


REVIEWERS: Final = {"ops": Reviewer(timeout="30m", late_verdict="2h"), "desk": Reviewer()}


def tool(name: str) -> Call:
    return Call("tools/call", name)


PROMPT: Final = Call("prompts/get", None)


def origin(*calls: Call, server: str = "docs", caller: str = "local", revision: str = LEGACY) -> Origin:
    return Origin(server, caller, "modern" if revision >= "2026" else "legacy", revision, calls)


def text(what: str) -> dict[str, Any]:
    return {"type": "text", "text": what}


def sampling(
    what: str | list[Any] = "hello", *calls: Call, server: str = "docs", revision: str = LEGACY, **params: Any
) -> SamplingRequest:
    content: Any = text(what) if isinstance(what, str) else what
    whole = {"messages": [{"role": "user", "content": content}], "maxTokens": 1000, **params}
    return SamplingRequest(origin(*calls, server=server, revision=revision), whole, 100)


def form(
    *calls: Call, required: list[str] | None = None, server: str = "docs", revision: str = LEGACY, **fields: Any
) -> ElicitationRequest:
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields) if required is None else required}
    params = {"message": "Really delete?", "requestedSchema": schema}
    return ElicitationRequest(origin(*calls, server=server, revision=revision), params, 100, "form")


def url(address: str, *calls: Call, server: str = "docs") -> ElicitationRequest:
    params = {"mode": "url", "message": "Please sign in", "url": address, "elicitationId": "1"}
    return ElicitationRequest(origin(*calls, server=server), params, 100, "url")


def compiled(
    *rules: Rule, environment: dict[str, str] | None = None, hints: dict[str, str | list[str]] | None = None
) -> CompiledPolicy:
    policy = Policy(version=1, models=list(MODELS), hints=hints or {}, rules=list(rules), reviewers=dict(REVIEWERS))
    return compile_policy(policy, environment or {})
