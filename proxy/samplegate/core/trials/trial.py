"""Cases of a ``*_test.yaml`` put to a policy: what came of each, and what differs from the expected. Not the file (``cases.py``), no output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from samplegate.core.capabilities import can_forward
from samplegate.core.cases import Case, Elicitation, Expect, Placed, Sampling
from samplegate.core.decide import Rulebook, compile_policy, explain
from samplegate.core.decisions import Allowed, Decision, DenyAs, FixedAnswer, Forwarded, LeftOpen, Situation, Step
from samplegate.core.parsing.parse import ELICITATION, SAMPLING, parse
from samplegate.core.policy import Policy
from samplegate.core.requests import BadRequest
from samplegate.core.trials import scenes

Object: TypeAlias = dict[str, Any]


class Mismatch(msgspec.Struct, frozen=True):
    """One expectation that was not met; both sides as they are to be printed."""

    what: str
    expected: Any
    got: Any


class Trial(msgspec.Struct, frozen=True):
    """What came of one case: it passed if nothing differs. ``steps`` are the rules that were looked at; none of a malformed request."""

    case: Case
    line: int
    mismatches: tuple[Mismatch, ...]
    steps: tuple[Step, ...]
    detail: str


def run(cases: Sequence[Placed], policy: Policy) -> Iterator[Trial]:
    """Every case in its order. The policy is compiled once for each environment that the cases name."""
    books: dict[tuple[tuple[str, str], ...], Rulebook] = {}
    for placed in cases:
        environment = placed.case.environment or {}
        key = tuple(sorted(environment.items()))
        if key not in books:
            books[key] = compile_policy(policy, environment)
        yield _try(placed, books[key])


def _try(placed: Placed, book: Rulebook) -> Trial:
    case = placed.case
    method, params = wire(case)
    request = parse(method, msgspec.json.encode(params), scenes.origin(case))
    if isinstance(request, BadRequest):
        seen = {"effect": "none", "reason": "malformed"}
        return Trial(case, placed.line, tuple(_differences(case.expect, seen)), (), request.message)
    situation = Situation(can_forward=can_forward(request, scenes.capabilities(case.client or [])))
    decision, steps = explain(book, request, situation)
    return Trial(case, placed.line, tuple(_differences(case.expect, _seen(decision))), tuple(steps), decision.detail)


def wire(case: Case) -> tuple[str, Object]:
    """The method and params of a case's request, as a server would write them."""
    if case.request is not None:
        return case.request.method, case.request.params
    if case.sampling is not None:
        return SAMPLING, _sampling(Sampling(text=case.sampling) if isinstance(case.sampling, str) else case.sampling)
    asked = case.elicitation
    return ELICITATION, _elicitation(Elicitation(message=asked) if isinstance(asked, str) else asked or Elicitation())


def _sampling(short: Sampling) -> Object:
    params: Object = {"messages": short.messages, "maxTokens": short.max_tokens, **msgspec.to_builtins(short)}
    if short.text is not None:
        params["messages"] = [{"role": "user", "content": {"type": "text", "text": params.pop("text")}}]
    if short.hints is not None:
        params["modelPreferences"] = {"hints": [{"name": name} for name in params.pop("hints")]}
    return params


def _elicitation(short: Elicitation) -> Object:
    if short.url is not None:
        return {"mode": "url", "message": short.message, "url": short.url, "elicitationId": "case"}
    fields = short.fields or {}
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    required = list(fields) if short.required is None else short.required
    return {"message": short.message, "requestedSchema": {"type": "object", "properties": properties, "required": required}}


def _seen(decision: Decision) -> Object:
    """What became of a request, by the names of ``Expect``."""
    seen: Object = {
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason.value,
        "shadows": [shadow.rule for shadow in decision.shadows],
    }
    match decision.act:
        case Allowed(models=models, params=params):
            seen |= {"models": list(models), "model": models[0] if models else None, "params": dict(params), "max_tokens": params.get("maxTokens")}
        case FixedAnswer(result=result):
            seen["content"] = result.get("content")
        case DenyAs(as_=as_):
            seen["as"] = as_
        case Forwarded() | LeftOpen():
            pass
        case _ as never:
            assert_never(never)
    return seen


def _differences(expect: Expect, seen: Object) -> Iterator[Mismatch]:
    for what, expected in msgspec.to_builtins(expect).items():
        got = seen.get(what)
        if what == "params":
            yield from _params(expected, got or {})
        elif not same(expected, _words(got) if isinstance(expected, str) else got):
            yield Mismatch(what, expected, got)


def _params(expected: Object, got: Object) -> Iterator[Mismatch]:
    for name, value in expected.items():
        if not same(value, got.get(name)):
            yield Mismatch(f"params.{name}", value, got.get(name))


def _words(content: Any) -> Any:
    """The text of content that is one text block, so that a case may say it as text."""
    match content:
        case {"type": "text", "text": str(text)} | [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return content


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: 1 is 1.0 and neither is true (T15)."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case list() | tuple(), list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
