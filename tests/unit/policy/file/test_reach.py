"""A rule that is reported as unreachable never decides a request, whatever the policy and the request. In doubt there
is no warning."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.decide import compile_policy, decide
from samplegate.policy.decisions import Situation
from samplegate.policy.file import rule_checks
from samplegate.policy.file.draft import Draft
from samplegate.policy.schema import (
    AllowRule,
    AnswerRule,
    ArgumentTest,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    Model,
    Policy,
    Range,
    Reviewer,
    Rule,
    With,
)
from samplegate.protocol.requests import Call, ElicitationRequest, Origin, Request, SamplingRequest
from samplegate.yamlfile.tree import Mapping, Mark

NAMES: Final = st.sampled_from(["a", "b", "a*", "*", ["a", "b"], ["b*", "a"]])
CONDITIONS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "kind": st.sampled_from(["sampling", "elicitation"]),
    "server": NAMES,
    "tool": st.sampled_from(["a", "*", "none", ["a", "none"]]),
    "method": st.sampled_from(["tools/call", "prompts/*"]),
    "arguments": st.dictionaries(
        st.sampled_from(["p", "q"]),
        st.sampled_from([1, True, "x", "x*", ["x", 1], [1, 2], ArgumentTest(min=1), ArgumentTest(max=1, absent=True)]),
        min_size=1,
    ),
    "mode": st.sampled_from(["form", "url", ["form", "url"]]),
    "era": st.sampled_from(["legacy", "modern"]),
    "max_tokens": st.builds(
        lambda low, high: Range(min=low, max=high), st.sampled_from([None, 1, 5]), st.sampled_from([None, 5, 9])
    ),
    "hint": NAMES,
    "text": st.sampled_from(["x", "y"]),
    "fields": st.sampled_from([["f"], ["f", "g"]]),
    "has": st.sampled_from([["f"], ["f", "g"]]),
    "field_types": st.sampled_from([["string"], ["string", "boolean"]]),
    "host": st.sampled_from(["h.example", "*.example"]),
    "scheme": st.sampled_from(["https", "app", ["https", "app"], "*"]),
}
PLAIN: Final = st.fixed_dictionaries({}, optional=CONDITIONS)
MATCHES: Final = st.builds(
    lambda outer, inner: Match(**outer, not_=None if inner is None else Match(**inner)),
    PLAIN,
    st.one_of(st.none(), st.none(), st.none(), PLAIN),
)
OTHERWISE: Final = st.sampled_from(["unanswered", "deny", "next"])
RULES: Final = st.one_of(
    st.builds(lambda match: AllowRule(name="r", match=match, with_=With()), MATCHES),
    st.builds(
        lambda match, otherwise: AnswerRule(name="r", match=match, content={"f": "x"}, otherwise=otherwise),
        MATCHES,
        OTHERWISE,
    ),
    st.builds(lambda match, otherwise: ForwardRule(name="r", match=match, otherwise=otherwise), MATCHES, OTHERWISE),
    st.builds(
        lambda match, otherwise: EscalateRule(name="r", reviewer="ops", match=match, otherwise=otherwise),
        MATCHES,
        OTHERWISE,
    ),
    st.builds(lambda match, shadow: DenyRule(name="r", match=match, shadow=shadow), MATCHES, st.booleans()),
)
CALLS: Final = st.lists(
    st.sampled_from([Call("tools/call", "a"), Call("tools/call", "b"), Call("prompts/get", None)]),
    max_size=2,
    unique=True,
)
PARAMS: Final = st.one_of(
    st.none(),
    st.builds(
        lambda arguments: json.dumps({"arguments": arguments}).encode(),
        st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from([0, 1, 2, True, "x", "xy", None])),
    ),
)
ORIGINS: Final = st.builds(
    lambda server, modern, calls, params: Origin(
        server,
        "local",
        *(("modern", "2026-07-28") if modern else ("legacy", "2025-11-25")),
        tuple(calls),
        params=tuple(tuple(each) for each in params[: len(calls)]),
    ),
    st.sampled_from(["a", "b", "ab"]),
    st.booleans(),
    CALLS,
    st.lists(st.lists(PARAMS, min_size=1, max_size=2), min_size=2, max_size=2),
)
TEXTS: Final = st.sampled_from(["x", "y", "xy"])


def sampling(origin: Origin, text: str, most: int, hints: list[str]) -> SamplingRequest:
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    hinted = {"modelPreferences": {"hints": [{"name": hint} for hint in hints]}}
    return SamplingRequest(origin, {"messages": messages, "maxTokens": most, **hinted}, 100)


def form(origin: Origin, text: str, fields: dict[str, str]) -> ElicitationRequest:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items() if kind != "more"},
    }
    if "more" in fields.values():
        schema["allOf"] = [{}]
    return ElicitationRequest(origin, {"message": text, "requestedSchema": schema}, 100, "form")


def url(origin: Origin, text: str, host: str) -> ElicitationRequest:
    return ElicitationRequest(
        origin,
        {"mode": "url", "message": text, "url": host if ":" in host else f"https://{host}/", "elicitationId": "1"},
        100,
        "url",
    )


REQUESTS: Final[st.SearchStrategy[Request]] = st.one_of(
    st.builds(
        sampling, ORIGINS, TEXTS, st.sampled_from([1, 5, 9, 20]), st.lists(st.sampled_from(["a", "b", "c"]), max_size=2)
    ),
    st.builds(
        form,
        ORIGINS,
        TEXTS,
        st.dictionaries(st.sampled_from(["f", "g"]), st.sampled_from(["string", "boolean", "more"])),
    ),
    st.builds(
        url,
        ORIGINS,
        TEXTS,
        st.sampled_from(["h.example", "i.example", "other", "app://h.example/", "app:x", "https://a@h.example/"]),
    ),
)


@given(st.lists(RULES, min_size=2, max_size=4), st.lists(REQUESTS, min_size=3, max_size=8), st.booleans())
def test_an_unreachable_rule_never_takes_a_request(
    rules: list[Rule], requests: list[Request], can_forward: bool
) -> None:
    named = [msgspec.structs.replace(rule, name=f"r{index}") for index, rule in enumerate(rules)]
    policy = Policy(version=1, reviewers={"ops": Reviewer()}, models=[Model(name="m", model="a/b")], rules=named)
    draft = Draft(policy, Mapping(Mark(1, 1)), set())
    rule_checks.check_reach(draft)
    unreachable = {f"r{fault.path[1]}" for fault in draft.warnings}
    compiled = compile_policy(policy, {})
    for request in requests:
        decision = decide(compiled, request, Situation(can_forward=can_forward))
        assert decision.rule not in unreachable
        assert not unreachable & {shadow.rule for shadow in decision.shadows}


def test_the_same_match_twice_is_found() -> None:
    twice: list[Rule] = [
        DenyRule(name="r0", match=Match(tool="a", not_=Match(text="x"))),
        DenyRule(name="r1", match=Match(tool="a", not_=Match(text="x"))),
    ]
    draft = Draft(Policy(version=1, rules=twice), Mapping(Mark(1, 1)), set())
    rule_checks.check_reach(draft)
    assert [("rules", 1)] == [fault.path for fault in draft.warnings]


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        (
            ForwardRule(name="r0", match=Match(mode="url")),
            ForwardRule(name="r1", match=Match(mode="url", scheme="app")),
            False,
        ),
        (ForwardRule(name="r0", match=Match(mode="url")), DenyRule(name="r1", match=Match(mode="url")), False),
        (
            ForwardRule(name="r0", match=Match(mode="url")),
            ForwardRule(name="r1", match=Match(mode="url", scheme="https")),
            True,
        ),
        (
            ForwardRule(name="r0", match=Match(mode="url")),
            ForwardRule(name="r1", match=Match(mode="url", host="a.example")),
            True,
        ),
        (
            ForwardRule(name="r0", match=Match(mode=["form", "url"])),
            DenyRule(name="r1", match=Match(mode="form")),
            True,
        ),
        (
            DenyRule(name="r0", match=Match(mode="url")),
            ForwardRule(name="r1", match=Match(mode="url", scheme="app")),
            True,
        ),
        (
            ForwardRule(name="r0", match=Match(mode="url", scheme=["app", "x"])),
            ForwardRule(name="r1", match=Match(mode="url", scheme="app")),
            True,
        ),
        (ForwardRule(name="r0", match=Match(fields=["f"])), DenyRule(name="r1", match=Match(fields=["f"])), False),
        (
            ForwardRule(name="r0", match=Match(mode="url", host="h")),
            DenyRule(name="r1", match=Match(mode="url", host="h")),
            False,
        ),
        (
            ForwardRule(name="r0", match=Match(not_=Match(has=["f"]))),
            DenyRule(name="r1", match=Match(not_=Match(has=["f"]))),
            False,
        ),
        (DenyRule(name="r0", match=Match(fields=["f"])), ForwardRule(name="r1", match=Match(fields=["f"])), True),
    ],
)
def test_a_rule_is_reached_by_what_the_first_may_not_grant(first: Rule, later: Rule, found: bool) -> None:
    draft = Draft(Policy(version=1, rules=[first, later]), Mapping(Mark(1, 1)), set())
    rule_checks.check_reach(draft)
    assert found is bool(draft.warnings)
