"""Conditions on a caller's groups and claims: types, lists, several tokens, and what is not known."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from samplegate.policy.conditions import IdentityNames
from samplegate.policy.decide import compile_policy, decide, explain
from samplegate.policy.decisions import Situation
from samplegate.policy.facts import UNKNOWN, Facts, Known
from samplegate.policy.match import compile_match
from samplegate.policy.schema import AnswerRule, ArgumentTest, DenyRule, Match, Policy, Rule, Wanted
from samplegate.protocol.identity import LOCAL, Identity, in_common, static
from samplegate.protocol.requests import Request
from tests.fakes.requests import form, tool


def said(**claims: Any) -> Identity:
    return Identity("jwt:ann", frozenset(), json.dumps(claims).encode())


def grouped(*groups: str) -> Identity:
    return static("ann", frozenset(groups))


def by(*identities: Identity, during: tuple[str, ...] = ()) -> Request:
    """A form by a caller with these identities."""
    asked = form(*map(tool, during), confirm="boolean")
    return msgspec.structs.replace(asked, origin=msgspec.structs.replace(asked.origin, identities=identities))


def holds(match: Match, *identities: Identity, every: bool = True) -> bool | None:
    return compile_match(match).holds(Facts(by(*identities)), every)


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        ("x", "x", True),
        ("x", "y", False),
        ("x", 1, None),
        ("x", None, None),
        ("x", {"x": 1}, None),
        (True, "true", None),
        ("x", ["a", "x"], True),
        ("x", ["a"], False),
        ("x", [], False),
        ("x", ["a", 1], None),
        ("x", ["x", 1], True),
        ("x", ["a", ["x"]], None),
        ("x", ["a", None], None),
        ("*", [{"x": 1}], None),
        (ArgumentTest(min=3), [1, 5], True),
        (ArgumentTest(min=3), [1, 2], False),
        (ArgumentTest(matches="^b+$"), ["a", "bb"], True),
        (ArgumentTest(absent=True), [], False),
        (ArgumentTest(absent=True), "x", False),
        ("x", ["a"] * 1_000 + ["x"], None),
    ],
)
def test_a_claim_is_compared_like_an_argument_and_a_list_by_its_items(
    wanted: Wanted, value: Any, expected: bool | None
) -> None:
    assert expected is holds(Match(claims={"a.b": wanted}), said(a={"b": value}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":"x"}', True),
        (b' {\n "a" : "x" } ', True),
        (b'{"a":"y","a":"x"}', None),
        (b'{"a":"x","A":"y"}', None),
        (b'{"b":"x"}', False),
        (b"{}", False),
        (b'{"a":"x"', None),
        (b"[]", None),
        (b"", None),
        (b'{"a":"\xff"}', None),
        (b'{"\\u0061":"x"}', True),
        (b'{"\\u0061":"x","a":"y"}', None),
        ('{"a":"x"}'.encode("utf-16"), None),
        (None, None),
    ],
)
def test_claims_with_two_readings_cannot_be_judged(text: bytes | None, expected: bool | None) -> None:
    assert expected is holds(Match(claims={"a": "x"}), Identity("jwt:ann", frozenset(), text))


def test_names_of_claims_may_have_escaped_slashes() -> None:
    text = b'{"https:\\/\\/example.com\\/dept":["https:\\/\\/x"]}'
    wanted: dict[str, Wanted] = {r"https://example\.com/dept": "https://x"}
    assert holds(Match(claims=wanted), Identity("jwt:ann", frozenset(), text))


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (grouped("dev", "ops"), True),
        (grouped("dev"), False),
        (grouped(), False),
        (LOCAL, False),
        (Identity("jwt:ann", None, b"{}"), None),
    ],
)
def test_a_caller_is_in_one_of_the_groups(identity: Identity, expected: bool | None) -> None:
    assert expected is holds(Match(groups=["ops", "sre-*"]), identity)
    negated = holds(Match(not_=Match(groups=["ops", "sre-*"])), identity)
    assert (None if expected is None else not expected) is negated


def test_of_several_tokens_a_grant_needs_all_and_a_deny_one() -> None:
    match, good, bad, unknown = Match(claims={"a": 1}), said(a=1), said(a=2), Identity("jwt:ann")
    assert [True, False, None, False] == [
        holds(match, good, said(a=1, b=2)), holds(match, good, bad), holds(match, good, unknown),
        holds(match, bad, unknown),
    ]  # fmt: skip
    assert [True, None, False] == [
        holds(match, good, bad, every=False), holds(match, bad, unknown, every=False), holds(match, bad, every=False)
    ]  # fmt: skip


GRANT = AnswerRule(name="r", match=Match(kind="elicitation", claims={"a": 1}), content={"confirm": True})
GRANT_DURING = AnswerRule(
    name="r", match=Match(kind="elicitation", tool="t", groups="g", claims={"a": 1}), content={"confirm": True}
)
DENY = DenyRule(name="r", match=Match(claims={"a": 1}))
DENY_DURING = DenyRule(name="r", match=Match(tool="t", not_=Match(claims={"a": 2})))
ONE = Identity("jwt:ann", frozenset({"g"}), b'{"a":1}')
OTHER = Identity("jwt:ann", frozenset({"g"}), b'{"a":2}')


@pytest.mark.parametrize(
    ("rule", "identities", "effect"),
    [
        (GRANT, [ONE], "answer"),
        (GRANT, [ONE, OTHER], "none"),
        (GRANT, [OTHER, ONE], "none"),
        (GRANT, [Identity("jwt:ann")], "none"),
        (GRANT, [], "none"),
        (GRANT_DURING, [ONE], "answer"),
        (GRANT_DURING, [ONE, OTHER], "none"),
        (DENY, [ONE], "deny"),
        (DENY, [OTHER, ONE], "deny"),
        (DENY, [OTHER], "none"),
        (DENY, [Identity("jwt:ann")], "deny"),
        (DENY, [], "deny"),
        (DENY_DURING, [ONE], "deny"),
        (DENY_DURING, [OTHER], "none"),
        (DENY_DURING, [OTHER, ONE], "deny"),
        (DENY_DURING, [Identity("jwt:ann")], "deny"),
    ],
)
def test_what_is_not_known_is_denied_and_never_granted(rule: Rule, identities: list[Identity], effect: str) -> None:
    compiled = compile_policy(Policy(version=1, rules=[rule]), {})
    for during in ("t",), ("t", "t"):
        asked = by(*identities, during=during)
        assert effect == decide(compiled, asked, Situation(can_forward=False)).effect
        decision, steps = explain(compiled, asked, Situation(can_forward=False))
        assert (effect, effect == "none") == (decision.effect, steps[0].why != "" and not steps[0].taken)


def test_one_tokens_claims_never_decide_anothers_request() -> None:
    """The rules that are kept for a caller and a tool do not depend on its claims."""
    compiled = compile_policy(Policy(version=1, rules=[GRANT]), {})
    effects = [decide(compiled, by(one), Situation(can_forward=False)).effect for one in (ONE, OTHER, ONE)]
    assert ["answer", "none", "answer"] == effects


def test_why_a_claim_does_not_match_is_told() -> None:
    match = compile_match(Match(claims={"a": "x"}))
    assert "claims.a: ['y', 1, unknown] is not \"x\"" == match.complaint(Facts(by(said(a=["y", 1, None]))))
    assert "claims.a: not set" == match.complaint(Facts(by(LOCAL)))
    assert "groups: ['dev'] does not include ops" == compile_match(Match(groups="ops")).complaint(
        Facts(by(grouped("dev")))
    )


def test_before_a_request_comes_groups_and_claims_are_open() -> None:
    for match in (Match(groups="ops"), Match(claims={"a": 1}), Match(not_=Match(claims={"a": 1}))):
        assert compile_match(match).holds(Known(UNKNOWN, {"server": "docs"}), True) is None


def test_claims_are_not_read_unless_a_rule_names_them() -> None:
    facts = Facts(by(ONE))
    match = Match(kind="elicitation", caller="*", arguments={"a": ArgumentTest(absent=True)}, not_=Match(server="x"))
    compile_match(match).holds(facts, True)
    assert "_identities" not in facts.__dict__


def test_a_policy_knows_what_its_rules_name() -> None:
    rules: list[Rule] = [GRANT_DURING, DenyRule(name="d", match=Match(not_=Match(claims={"b": 1, "a": 2})))]
    assert IdentityNames(True, ("a", "b")) == compile_policy(Policy(version=1, rules=rules), {}).identity_names
    assert IdentityNames() == compile_policy(Policy(version=1, rules=[]), {}).identity_names


def test_what_tokens_of_one_session_have_in_common() -> None:
    assert ONE == in_common(ONE, Identity("jwt:ann", frozenset({"g"}), b'{"a":1}'))
    both = in_common(ONE, OTHER)
    assert Identity("jwt:ann", frozenset({"g"}), None) == both
    assert both == in_common(both, ONE)
    assert Identity("jwt:ann", None, None) == in_common(both, said(a=1))


def test_an_identity_does_not_show_its_claims() -> None:
    assert "Identity('jwt:ann')" == repr(ONE)
