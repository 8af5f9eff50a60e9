"""The rules that did not decide: the condition that each of them missed, without the compared content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.decide import decide, decide_later
from samplegate.policy.decisions import TRIED, Decision, Miss, Situation
from samplegate.policy.schema import AllowRule, AnswerRule, DenyRule, ForwardRule, Match, Range, Rule
from samplegate.protocol.requests import Request
from tests.fakes.requests import compiled, form, sampling, tool, url
from tests.unit.policy.test_decide import ABLE, RULES
from tests.unit.policy.test_match import REQUESTS

RULE: list[tuple[Request, Rule, str]] = [
    (sampling(), DenyRule(name="a", match=Match(server="db")), "server"),
    (sampling(), DenyRule(name="a", match=Match(kind="elicitation", server="db")), "kind"),
    (sampling(), DenyRule(name="a", match=Match(kind="sampling", max_tokens=Range(min=10**9))), "max_tokens"),
    (sampling(), AllowRule(name="a", match=Match(kind="sampling", tool="x")), "tool"),
    (sampling("x", tool("a")), AllowRule(name="a", match=Match(tool="b")), "tool"),
    (sampling("x", tool("a"), tool("b")), AllowRule(name="a", match=Match(tool="a")), "tool"),
    (sampling("x", tool("a"), tool("b")), DenyRule(name="a", match=Match(tool="c")), "tool"),
    (sampling("x"), DenyRule(name="a", match=Match(text="y")), "text"),
    (sampling(), DenyRule(name="a", match=Match(not_=Match(server="docs"))), "not"),
    (form(a="string"), ForwardRule(name="a", match=Match(mode="url", host="x")), "mode"),
    (url("https://a.example/"), ForwardRule(name="a"), "mode"),
    (url("https://a.example/"), ForwardRule(name="a", match=Match(mode="url", host="b.example")), "host"),
    (url("javascript:x"), ForwardRule(name="a", match=Match(mode="url", host="a.example")), "host?"),
    (url("javascript:x"), ForwardRule(name="a", match=Match(mode="url")), "scheme"),
]


def misses(decision: Decision) -> list[Miss]:
    assert decision.missed is not None
    return [*decision.missed]


@pytest.mark.parametrize(("request_", "rule", "condition"), RULE)
def test_a_rule_has_the_first_condition_that_did_not_match(request_: Request, rule: Rule, condition: str) -> None:
    assert [Miss("a", condition)] == misses(decide(compiled(rule), request_, ABLE))


def test_rules_that_match_without_deciding_have_a_reason() -> None:
    rules: list[Rule] = [
        DenyRule(name="trial", shadow=True),
        AnswerRule(name="form only", content={}, otherwise="next"),
        DenyRule(name="other", match=Match(server="db")),
        DenyRule(name="last"),
        DenyRule(name="never"),
    ]
    trial, answer, other = misses(decide(compiled(*rules), sampling(), ABLE))
    assert Miss("trial", why="it matched, but it is a shadow rule") == trial
    assert answer.why.startswith("it matched, but could not be carried out: ")
    assert Miss("other", "server") == other


def test_the_rules_before_and_after_a_rule_that_was_tried_are_in_order() -> None:
    policy = compiled(
        DenyRule(name="a", match=Match(server="db")),
        ForwardRule(name="b"),
        DenyRule(name="c", match=Match(server="db")),
        DenyRule(name="d"),
    )
    first = decide(policy, sampling(), ABLE)
    later = decide_later(policy, sampling(), ABLE, first)
    assert [Miss("a", "server"), Miss("b", why=TRIED), Miss("c", "server")] == misses(later)


def test_an_undeclared_request_has_them_too() -> None:
    found = decide(compiled(DenyRule(name="a", match=Match(server="db"))), sampling(), Situation(declared=False))
    assert [Miss("a", "server")] == misses(found)


@given(RULES, REQUESTS, st.booleans())
def test_every_rule_before_the_deciding_one_is_there_once(rules: list[Rule], request: Request, able: bool) -> None:
    decision = decide(compiled(*rules), request, Situation(able))
    before = rules if decision.index < 0 else rules[: decision.index]
    assert [rule.name for rule in before] == [miss.rule for miss in misses(decision)]
    assert all(bool(miss.condition) != bool(miss.why) for miss in misses(decision))
