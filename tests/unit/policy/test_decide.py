"""Decisions: which rule matches a request, and the resulting action."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy import facts
from samplegate.policy.decide import decide, explain
from samplegate.policy.decisions import (
    Allowed,
    Decision,
    DenyAs,
    Escalated,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    RuleStep,
    Shadow,
    Situation,
)
from samplegate.policy.match import CompiledPolicy
from samplegate.policy.schema import (
    AllowRule,
    AnswerRule,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    Otherwise,
    Rule,
    With,
)
from samplegate.protocol.elicitation_schema import Form, NotFlat, read_form
from samplegate.protocol.outcomes import Reason
from samplegate.protocol.requests import Request
from tests.fakes.requests import compiled, form, sampling, text, tool, url
from tests.unit.policy.test_match import REQUESTS, matches

ABLE, UNABLE = Situation(can_forward=True), Situation(can_forward=False)
SAMPLING = Match(kind="sampling")
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}


def made(request: Request, *rules: Rule, situation: Situation = ABLE, start: int = 0) -> Decision:
    return without_misses(decide(compiled(*rules), request, situation, start))


def without_misses(decision: Decision) -> Decision:
    """A decision to compare with another one; ``test_misses.py`` compares its misses."""
    return msgspec.structs.replace(decision, missed=None)


def test_without_a_rule_nobody_answers() -> None:
    assert Decision(LeftOpen(), "none", None, Reason.NO_RULE, "no rule matched") == made(sampling())


def test_the_first_rule_that_matches_wins() -> None:
    decision = made(
        sampling(),
        DenyRule(name="other", match=Match(server="db")),
        DenyRule(name="a", as_="decline"),
        ForwardRule(name="b"),
    )
    assert Decision(DenyAs("decline"), "deny", "a", Reason.RULE, index=1) == decision


def test_an_allowed_request_goes_to_a_model_within_the_rule() -> None:
    rule = AllowRule(
        name="a",
        match=SAMPLING,
        with_=With(models=["cheap", "smart"], max_tokens=10, timeout="1.5s"),
        on_timeout="next",
    )
    asked = sampling("hello", metadata={"x": 1}, modelPreferences={"hints": [{"name": "sonnet"}]})
    decision = made(asked, rule)
    assert (
        Allowed(("smart", "cheap"), {"messages": asked.params["messages"], "maxTokens": 10}, 1.5, ("maxTokens",))
        == decision.act
    )
    assert ("allow", "a", Reason.RULE, "next", 0) == (
        decision.effect,
        decision.rule,
        decision.reason,
        decision.on_timeout,
        decision.index,
    )
    assert decision.detail == "model 'smart': hint 'sonnet' is part of its name"


def test_a_forwarded_request_keeps_the_rules_words() -> None:
    rule = ForwardRule(name="a", verify=True, timeout="2m", on_timeout="deny")
    assert Decision(Forwarded(True, 120.0), "forward", "a", Reason.RULE, on_timeout="deny", index=0) == made(
        form(a="string"), rule
    )


def test_an_escalated_request_says_who_is_asked_for_how_long_and_what_a_model_would_be() -> None:
    rule = EscalateRule(
        name="a",
        reviewer="ops",
        match=SAMPLING,
        with_=With(models=["cheap"], max_tokens=10),
        review_answer="desk",
        on_timeout="next",
    )
    asked = sampling()
    decision = made(asked, rule)
    params = {"messages": asked.params["messages"], "maxTokens": 10}
    allowed = Allowed(("cheap",), params, None, ("maxTokens",), review_answer="desk")
    assert Escalated("ops", allowed, 1800.0, 7200.0) == decision.act
    assert ("escalate", "a", Reason.RULE, "next", 0) == (
        decision.effect,
        decision.rule,
        decision.reason,
        decision.on_timeout,
        decision.index,
    )
    assert allowed == decision.allowed


def test_a_rules_own_time_goes_before_its_reviewers() -> None:
    assert (
        Escalated("ops", None, 5.0, 7200.0)
        == made(form(a="string"), EscalateRule(name="a", reviewer="ops", timeout="5s")).act
    )


def test_what_no_model_takes_a_person_is_asked_all_the_same() -> None:
    decision = made(sampling([IMAGE]), EscalateRule(name="a", reviewer="ops", match=SAMPLING))
    why = "no model accepts images (smart, cheap, local: text only)"
    assert Escalated("ops", None, 1800.0, 7200.0, why) == decision.act
    assert f"reviewer 'ops'; no model: {why}" == decision.detail
    assert decision.allowed is None


def test_a_link_is_escalated_only_where_a_rule_says_so() -> None:
    link = url("https://a.example/")
    assert "none" == made(link, EscalateRule(name="a", reviewer="ops")).effect
    assert (
        Escalated("ops", None, 1800.0, 7200.0)
        == made(link, EscalateRule(name="a", reviewer="ops", match=Match(mode="url"))).act
    )


def test_an_answer_takes_variables_from_the_environment_of_the_policy() -> None:
    rules = compiled(AnswerRule(name="a", content="v ${X}"), environment={"X": "1", "PATH": "never kept"})
    decision = decide(rules, sampling(), ABLE)
    assert isinstance(decision.act, FixedAnswer)
    assert text("v 1") == decision.act.result["content"]
    assert {"X": "1"} == rules.environment
    assert "'1'" not in repr(rules)


CANNOT: list[tuple[Rule, Request, Situation, str]] = [
    (
        AllowRule(name="a", match=SAMPLING),
        sampling([IMAGE]),
        ABLE,
        "no model accepts images (smart, cheap, local: text only)",
    ),
    (
        AllowRule(name="a", match=SAMPLING),
        sampling(tools=[{"name": "t"}]),
        ABLE,
        "no model accepts tools (smart, cheap, local: text only)",
    ),
    (
        AllowRule(name="a", match=SAMPLING, with_=With(models=["gone"])),
        sampling(),
        ABLE,
        "the policy has no model for the rule",
    ),
    (AllowRule(name="a"), form(), ABLE, "models answer sampling only"),
    (
        EscalateRule(name="a", reviewer="ops"),
        form(a={"type": "object"}),
        ABLE,
        "the form is not flat: requestedSchema.properties.a: type is not supported in a flat form",
    ),
    (ForwardRule(name="a"), sampling(), UNABLE, "the client did not declare the capability"),
    (AnswerRule(name="a", content={}), form(a="string"), ABLE, "the required field 'a' has no value"),
    (
        AnswerRule(name="a", match=Match(mode="url"), content={}),
        url("https://a.example/"),
        ABLE,
        "the gate never accepts a URL",
    ),
]


@pytest.mark.parametrize(("rule", "request_", "situation", "why"), CANNOT)
def test_what_cannot_be_carried_out_takes_the_otherwise(
    rule: Rule, request_: Request, situation: Situation, why: str
) -> None:
    said = f"rule 'a' could not be carried out: {why}"
    last = DenyRule(name="last", match=Match(mode=["form", "url"]) if request_.kind == "elicitation" else SAMPLING)
    assert Decision(LeftOpen(), "none", "a", Reason.CANNOT, said, index=0) == made(
        request_, with_otherwise(rule, "unanswered"), last, situation=situation
    )
    assert Decision(DenyAs("cancel"), "deny", "a", Reason.CANNOT, said, index=0) == made(
        request_, with_otherwise(rule, "deny"), last, situation=situation
    )
    assert Decision(DenyAs("cancel"), "deny", "last", Reason.RULE, index=1) == made(
        request_, with_otherwise(rule, "next"), last, situation=situation
    )
    none = Decision(LeftOpen(), "none", None, Reason.NO_RULE, f"{said}; no later rule matched")
    assert none == made(request_, with_otherwise(rule, "next"), situation=situation)


def with_otherwise(rule: Rule, otherwise: Otherwise) -> Rule:
    return type(rule)(**{name: getattr(rule, name) for name in rule.__struct_fields__} | {"otherwise": otherwise})


def test_shadow_rules_are_recorded_and_not_enforced() -> None:
    rules: list[Rule] = [
        DenyRule(name="s1", shadow=True),
        AllowRule(name="s2", match=SAMPLING, with_=With(models=["gone"]), shadow=True),
        AllowRule(name="s3", match=SAMPLING, with_=With(models=["gone"]), otherwise="next", shadow=True),
        DenyRule(name="s4", match=Match(server="db"), shadow=True),
        ForwardRule(name="real"),
        DenyRule(name="s5", shadow=True),
    ]
    decision = made(sampling(), *rules)
    assert decision.rule == "real"
    assert (Shadow("s1", "deny"), Shadow("s2", "none")) == decision.shadows


def test_on_timeout_next_goes_on_behind_the_rule() -> None:
    rules: list[Rule] = [
        AllowRule(name="a", match=SAMPLING, on_timeout="next"),
        ForwardRule(name="b"),
        DenyRule(name="c"),
    ]
    first = made(sampling(), *rules)
    assert made(sampling(), *rules, start=first.index + 1).rule == "b"
    assert made(sampling(), *rules, start=2).rule == "c"
    assert made(sampling(), *rules, start=3).reason is Reason.NO_RULE


def test_one_candidate_call_is_enough_to_deny_and_not_to_grant() -> None:
    asked = sampling("hello", tool("good"), tool("bad"))
    assert made(asked, DenyRule(name="d", match=Match(tool="bad"))).rule == "d"
    assert made(asked, ForwardRule(name="f", match=Match(tool="good"))).rule is None
    assert made(asked, ForwardRule(name="f", match=Match(tool=["good", "bad"]))).rule == "f"
    assert made(asked, ForwardRule(name="f", match=Match(not_=Match(tool="bad")))).rule is None


def test_a_url_with_two_readings_is_denied_by_a_host_and_granted_by_none() -> None:
    asked = url("https://good.example@evil.example/")
    for host in ("good.example", "evil.example", "*"):
        assert made(asked, ForwardRule(name="f", match=Match(mode="url", host=host))).rule is None
        assert made(asked, DenyRule(name="d", match=Match(mode="url", host=host))).rule == "d"
    assert made(asked, ForwardRule(name="f", match=Match(mode="url", not_=Match(host="evil.example")))).rule is None


WEB = ["https://a.example/", "HTTP://a.example/", "https://good.example@evil.example/"]
OTHER = [
    "javascript:fetch(1)",
    "data:text/html,x",
    "view-source:https://a.example/",
    "file:///x",
    "intent://a.example#x",
    "javascript://a.example/%0ax",
]


def test_a_grant_takes_urls_of_other_schemes_only_by_name() -> None:
    for address in WEB:
        assert made(url(address), ForwardRule(name="f", match=Match(mode="url"))).rule == "f"
    for address in OTHER:
        for match in (
            Match(mode="url"),
            Match(mode=["form", "url"]),
            Match(mode="url", host="*"),
            Match(mode="url", not_=Match(scheme="data")),
        ):
            assert made(url(address), ForwardRule(name="f", match=match)).rule is None
        assert made(url(address), DenyRule(name="d", match=Match(mode="url"))).rule == "d"
    assert (
        made(
            url("app://a.example/x"), ForwardRule(name="f", match=Match(mode="url", scheme="app", host="a.example"))
        ).rule
        == "f"
    )
    assert (
        made(url("mailto:a@b.example"), ForwardRule(name="f", match=Match(mode="url", scheme=["https", "mailto"]))).rule
        == "f"
    )
    assert made(form(a="string"), ForwardRule(name="f", match=Match(mode=["form", "url"]))).rule == "f"


def test_a_deny_by_host_takes_what_has_no_host() -> None:
    for address in ("javascript:fetch(1)", "data:text/html,x", "view-source:https://evil.example/", "file:///x"):
        assert made(url(address), DenyRule(name="d", match=Match(mode="url", host="evil.example"))).rule == "d"


def test_a_form_is_read_once_however_many_rules_would_fill_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def reading(schema: Any, revision: str) -> Form | NotFlat:
        read.append(schema)
        return read_form(schema, revision)

    monkeypatch.setattr(facts, "read_form", reading)
    rules: list[Rule] = [DenyRule(name="t", match=Match(field_types=["boolean"]))]
    rules += [AnswerRule(name=f"a{n}", match=Match(kind="elicitation"), content={}, otherwise="next") for n in range(5)]
    assert made(form(a="string"), *rules).reason is Reason.NO_RULE
    assert 1 == len(read)


def test_explain_says_of_every_rule_why_it_did_not_take_the_request() -> None:
    rules: list[Rule] = [
        DenyRule(name="a", match=Match(server="db")),
        DenyRule(name="b", shadow=True),
        AnswerRule(name="c", content={}, otherwise="next"),
        AllowRule(name="d", match=SAMPLING, with_=With(models=["cheap"])),
        DenyRule(name="e"),
    ]
    decision, steps = explain(compiled(*rules), sampling(), ABLE)
    assert without_misses(decision) == made(sampling(), *rules)
    assert [
        RuleStep("a", "deny", False, "server: 'docs' is not db"),
        RuleStep("b", "deny", False, "shadow: matches, recorded only"),
        RuleStep(
            "c",
            "answer",
            False,
            "it matches but cannot be carried out: its content is not text or content blocks, as sampling requires;"
            " otherwise: next",
        ),
        RuleStep("d", "allow", True, "model 'cheap': the only model in the rule's list"),
    ] == steps


def test_explain_marks_the_rule_whose_otherwise_ended_it() -> None:
    _, steps = explain(compiled(ForwardRule(name="a", otherwise="deny"), DenyRule(name="b")), sampling(), UNABLE)
    why = "it matches but cannot be carried out: the client did not declare the capability; otherwise: deny"
    assert [RuleStep("a", "forward", True, why)] == steps


def test_a_detail_holds_no_content() -> None:
    asked = form(a={"type": "string", "enum": ["hunter2"], "default": "hunter2"})
    decision = made(asked, AnswerRule(name="a", content={"a": "s3cret"}))
    assert "hunter2" not in decision.detail
    assert "s3cret" not in decision.detail


def build(index: int, kind: str, match: Match, shadow: bool, otherwise: Otherwise) -> Rule:
    name = f"{index}"
    match kind:
        case "allow":
            return AllowRule(name=name, match=match, shadow=shadow, otherwise=otherwise)
        case "answer":
            return AnswerRule(name=name, match=match, content="x", shadow=shadow, otherwise=otherwise)
        case "forward":
            return ForwardRule(name=name, match=match, shadow=shadow, otherwise=otherwise)
        case "escalate":
            return EscalateRule(name=name, match=match, shadow=shadow, otherwise=otherwise, reviewer="ops")
        case _:
            return DenyRule(name=name, match=match, shadow=shadow, otherwise=otherwise)


OTHERWISE: st.SearchStrategy[Otherwise] = st.sampled_from(["next", "unanswered", "deny"])
RULES = st.lists(
    st.tuples(
        st.sampled_from(["allow", "answer", "forward", "escalate", "deny"]), matches(1), st.booleans(), OTHERWISE
    ),
    max_size=5,
).map(lambda found: [build(index, *rule) for index, rule in enumerate(found)])


@given(RULES, REQUESTS, st.booleans())
def test_explain_and_decide_agree_on_any_policy(rules: list[Rule], request: Request, able: bool) -> None:
    compiled_policy = compiled(*rules)
    decision, steps = explain(compiled_policy, request, Situation(able))
    assert without_misses(decision) == without_misses(decide(compiled_policy, request, Situation(able)))
    again = decide(compiled_policy, request, Situation(able))  # from the cached shortlist
    assert without_misses(decision) == without_misses(again)
    assert decision.missed is not None
    assert again.missed is not None
    assert [(miss.rule, bool(miss.condition)) for miss in decision.missed] == [
        (miss.rule, bool(miss.condition)) for miss in again.missed
    ]
    assert [] == [step for step in steps if step.taken and step.rule != decision.rule]


@given(RULES, REQUESTS, st.booleans())
def test_nothing_is_granted_without_a_rule_that_matches_and_is_enforced(
    rules: list[Rule], request: Request, able: bool
) -> None:
    decision = decide(compiled(*rules), request, Situation(able))
    if isinstance(decision.act, (Allowed, FixedAnswer, Forwarded)):
        rule = rules[decision.index]
        assert (rule.name, False) == (decision.rule, rule.shadow)
        assert decision.rule == decide(compiled(rule), request, Situation(able)).rule
        assert request.kind == "sampling" or isinstance(decision.act, Forwarded)


@given(RULES, REQUESTS)
def test_a_rule_that_denies_everything_first_leaves_nothing_granted(rules: list[Rule], request: Request) -> None:
    stop = [DenyRule(name="stop"), DenyRule(name="stop urls", match=Match(mode="url"))]
    assert DenyAs("cancel") == decide(compiled(*stop, *rules), request, ABLE).act


@given(RULES, REQUESTS, REQUESTS)
def test_what_a_rulebook_remembers_changes_no_decision(rules: list[Rule], one: Request, other: Request) -> None:
    used = compiled(*rules)
    for request in (one, other, one):
        fresh: CompiledPolicy = compiled(*rules)
        assert decide(fresh, request, ABLE) == decide(used, request, ABLE)


def test_a_rulebook_remembers_a_bounded_number_of_askers() -> None:
    rules = compiled(ForwardRule(name="a"))
    for number in itertools.islice(itertools.count(), 300):
        decide(rules, sampling("hello", tool(f"t{number}")), ABLE)
    assert len(rules._shortlists) <= 256


def test_no_model_is_asked_nothing() -> None:
    request = sampling("x")
    empty = type(request)(request.origin, {**request.params, "messages": []}, request.size)
    rule = AllowRule(name="a", match=SAMPLING, otherwise="next")
    assert "no message" in made(empty, AllowRule(name="a", match=SAMPLING)).detail
    assert "later" == made(empty, rule, AnswerRule(name="later", content="hi")).rule
