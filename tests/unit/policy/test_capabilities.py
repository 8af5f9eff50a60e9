"""Capabilities that are advertised to a server before any request arrives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.capabilities import can_forward, describe_offer, offer, unsolicited
from samplegate.policy.decide import compile_policy, decide
from samplegate.policy.decisions import Allowed, Escalated, FixedAnswer, Forwarded, Situation
from samplegate.policy.schema import (
    AllowRule,
    AnswerRule,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    Model,
    Policy,
    Range,
    Rule,
    Server,
    With,
)
from samplegate.protocol import server_requests
from samplegate.protocol.frames import Era
from samplegate.protocol.identity import LOCAL, Identity
from samplegate.protocol.requests import Call, ClientCapabilities, Kind, Offer, Request
from tests.fakes.requests import LEGACY, MODELS, PROMPT, REVIEWERS, compiled, form, origin, sampling, text, tool, url
from tests.unit.policy.test_decide import RULES
from tests.unit.policy.test_match import REQUESTS

NOTHING, ALL = ClientCapabilities(), ClientCapabilities(True, True, True, True, True)
PLAIN = ClientCapabilities(sampling=True, form=True)
SAMPLING = Match(kind="sampling")
FORWARD: list[Rule] = [ForwardRule(name="f"), ForwardRule(name="u", match=Match(mode="url"))]


def offered(
    rules: list[Rule],
    client: ClientCapabilities = NOTHING,
    *,
    call: Call | None = None,
    revision: str = LEGACY,
    models: Sequence[Model] = MODELS,
    plain: bool = False,
) -> Offer:
    era: Era = "modern" if revision >= "2026" else "legacy"
    policy = Policy(
        version=1,
        models=list(models),
        rules=rules,
        reviewers=dict(REVIEWERS),
        servers={"docs": Server(plain_sampling=plain)},
    )
    return offer(
        compile_policy(policy, {}), server="docs", caller="local", era=era, revision=revision, client=client, call=call
    )


@pytest.mark.parametrize(
    ("expected", "rules", "client"),
    [
        (Offer(), [], ALL),
        (Offer(), FORWARD, NOTHING),
        (Offer(sampling=True, form=True), FORWARD, PLAIN),
        (Offer(True, True, True, True, True), FORWARD, ALL),
        (Offer(), [DenyRule(name="d"), *FORWARD[:1]], ALL),
        (Offer(url=True), [DenyRule(name="d"), *FORWARD], ALL),
        (Offer(sampling=True), [AllowRule(name="a", match=SAMPLING)], NOTHING),
        (Offer(sampling=True), [AllowRule(name="a", match=SAMPLING)], ALL),
        (Offer(), [AllowRule(name="a", match=SAMPLING, with_=With(models=["gone"]))], NOTHING),
        (Offer(), [AllowRule(name="a", match=SAMPLING, shadow=True)], NOTHING),
        (Offer(sampling=True, sampling_tools=True, form=True), [AnswerRule(name="a", cases="tape.yaml")], NOTHING),
        (
            Offer(url=True),
            [AnswerRule(name="a", cases="tape.yaml", match=Match(kind="elicitation", mode="url"))],
            NOTHING,
        ),
        (Offer(), [AnswerRule(name="a", content={}, match=Match(kind="elicitation", mode="url"))], NOTHING),
        (Offer(), [AllowRule(name="a", match=Match(kind="sampling", server="db"))], NOTHING),
        (Offer(sampling=True, form=True), [EscalateRule(name="e", reviewer="ops")], NOTHING),
        (
            Offer(form=True, url=True),
            [EscalateRule(name="e", reviewer="ops", match=Match(mode=["form", "url"]))],
            NOTHING,
        ),
        (Offer(), [EscalateRule(name="e", reviewer="ops", shadow=True)], ALL),
        (
            Offer(sampling=True),
            [DenyRule(name="d", match=Match(text="x")), AllowRule(name="a", match=SAMPLING)],
            NOTHING,
        ),
        (Offer(), [DenyRule(name="d", match=Match(server="docs")), AllowRule(name="a", match=SAMPLING)], NOTHING),
        (Offer(), [ForwardRule(name="f"), AllowRule(name="a", match=SAMPLING)], NOTHING),
        (Offer(sampling=True), [ForwardRule(name="f", otherwise="next"), AllowRule(name="a", match=SAMPLING)], NOTHING),
        (Offer(form=True), [AnswerRule(name="a", content={})], NOTHING),
        (Offer(sampling=True), [AnswerRule(name="a", content="x")], NOTHING),
        (Offer(), [AnswerRule(name="a", match=Match(mode="url"), content={})], ALL),
        (Offer(sampling=True), [AnswerRule(name="a", match=Match(max_tokens=Range(max=1)), content="x")], NOTHING),
        (Offer(), [AnswerRule(name="a", match=Match(max_tokens=Range(max=1)), content={})], NOTHING),
        (
            Offer(sampling=True, sampling_tools=True, sampling_context=True),
            [ForwardRule(name="f", match=Match(tools=True))],
            ALL,
        ),
        (Offer(), [ForwardRule(name="f", match=Match(tools=True))], PLAIN),
        (Offer(sampling=True, sampling_context=True), [ForwardRule(name="f", match=Match(tools=False))], ALL),
        (Offer(url=True), [ForwardRule(name="f", match=Match(mode="url", host="x.example"))], ALL),
        (Offer(form=True), [ForwardRule(name="f", match=Match(mode=["form", "url"]))], PLAIN),
    ],
)
def test_declared_is_what_a_rule_may_answer(expected: Offer, rules: list[Rule], client: ClientCapabilities) -> None:
    assert expected == offered(rules, client)


ABLE = [Model(name="plain", model="a/plain"), Model(name="able", model="a/able", accepts=["tools"])]
TOOLS = Match(kind="sampling", tools=True)
NO_TOOLS = Match(kind="sampling", tools=False)


@pytest.mark.parametrize(
    ("expected", "rules", "plain"),
    [
        (Offer(sampling=True, sampling_tools=True), [AllowRule(name="a", match=SAMPLING)], False),
        (Offer(sampling=True, sampling_tools=True), [AllowRule(name="a", match=TOOLS)], False),
        (
            Offer(sampling=True, sampling_tools=True),
            [AllowRule(name="a", match=SAMPLING, with_=With(models=["plain", "able"]))],
            False,
        ),
        (Offer(sampling=True), [AllowRule(name="a", match=SAMPLING, with_=With(models=["plain"]))], False),
        (Offer(), [AllowRule(name="a", match=TOOLS, with_=With(models=["plain"]))], False),
        (Offer(sampling=True), [AllowRule(name="a", match=NO_TOOLS)], False),
        (Offer(sampling=True), [DenyRule(name="d", match=TOOLS), AllowRule(name="a", match=SAMPLING)], False),
        (
            Offer(sampling=True),
            [AllowRule(name="a", match=Match(kind="sampling", content_types=["text"], tools=False))],
            False,
        ),
        (Offer(sampling=True), [AnswerRule(name="a", match=SAMPLING, content="x")], False),
        (Offer(sampling=True, sampling_tools=True), [AnswerRule(name="a", match=SAMPLING, cases="c.yaml")], False),
        (Offer(sampling=True), [AllowRule(name="a", match=SAMPLING)], True),
        (Offer(), [AllowRule(name="a", match=TOOLS)], True),
    ],
)
def test_tools_are_declared_where_a_model_takes_them(expected: Offer, rules: list[Rule], plain: bool) -> None:
    assert expected == offered(rules, models=ABLE, plain=plain)
    assert not offered(rules, models=ABLE, plain=plain, revision="2025-06-18").sampling_tools


def test_plain_sampling_takes_tools_and_context_from_what_is_declared() -> None:
    assert Offer(sampling=True, form=True, url=True) == offered(FORWARD, ALL, plain=True)


def test_a_request_with_tools_was_not_declared_to_a_server_with_plain_sampling() -> None:
    params = b'{"messages": [], "maxTokens": 1, "tools": []}'
    told = [
        server_requests.item("sampling/createMessage", params, origin(), offered(FORWARD, ALL, plain=plain)).offered
        for plain in (False, True)
    ]
    assert [True, False] == told


def test_a_revision_is_offered_only_what_it_has() -> None:
    assert Offer(sampling=True) == offered(FORWARD, ALL, revision="2024-11-05")
    assert Offer(sampling=True, form=True) == offered(FORWARD, ALL, revision="2025-06-18")
    assert Offer(True, True, True, True, True) == offered(FORWARD, ALL, revision="2026-07-28")


def test_during_a_known_call_only_its_rules_count() -> None:
    rules: list[Rule] = [AllowRule(name="a", match=Match(kind="sampling", tool="summarize_*"))]
    assert Offer(sampling=True) == offered(rules)
    assert Offer(sampling=True) == offered(rules, call=tool("summarize_page"), revision="2026-07-28")
    assert Offer() == offered(rules, call=tool("delete"), revision="2026-07-28")
    assert Offer() == offered(rules, call=PROMPT, revision="2026-07-28")


def test_a_rule_for_one_tool_does_not_end_the_way_of_the_others() -> None:
    rules: list[Rule] = [DenyRule(name="d", match=Match(tool="a")), ForwardRule(name="f")]
    assert Offer(sampling=True, form=True) == offered(rules, PLAIN)
    assert Offer() == offered(rules, PLAIN, call=tool("a"), revision="2026-07-28")
    assert Offer(sampling=True, form=True) == offered(
        [DenyRule(name="d", match=Match(not_=Match(tool="a"))), *FORWARD], PLAIN
    )


@pytest.mark.parametrize(
    ("request_", "client", "can"),
    [
        (sampling(), PLAIN, True),
        (sampling(), ClientCapabilities(form=True, url=True), False),
        (sampling(tools=[]), PLAIN, False),
        (sampling(toolChoice={}), PLAIN, False),
        (sampling([{"type": "tool_use", "id": "1", "name": "t", "input": {}}]), PLAIN, False),
        (sampling(tools=[]), ALL, True),
        (sampling([text("a")]), PLAIN, True),
        (form(), PLAIN, True),
        (form(), ClientCapabilities(url=True), False),
        (url("https://a.example/"), PLAIN, False),
        (url("https://a.example/"), ALL, True),
    ],
)
def test_the_client_is_asked_only_what_it_declared(request_: Request, client: ClientCapabilities, can: bool) -> None:
    assert can is can_forward(request_, client)


@pytest.mark.parametrize(
    ("expected", "rules"),
    [
        ("strip", []),
        ("pass", FORWARD),
        ("pass", [ForwardRule(name="f", match=Match(tool="a*")), DenyRule(name="d", match=Match(tool="b"))]),
        ("refuse", [*FORWARD[:1], DenyRule(name="d", match=Match(mode="url"))]),
        ("pass", [ForwardRule(name="f", match=Match(mode=["form"])), ForwardRule(name="s"), DenyRule(name="d")]),
        ("refuse", [DenyRule(name="d", match=Match(text="x")), *FORWARD]),
        ("strip", [DenyRule(name="d", match=Match(text="x"), shadow=True), AllowRule(name="a", match=SAMPLING)]),
        ("strip", [AllowRule(name="a", match=SAMPLING), *FORWARD]),
        ("refuse", [AllowRule(name="a", match=SAMPLING, otherwise="deny"), *FORWARD]),
        ("strip", [ForwardRule(name="f", match=Match(arguments={"path": "a"})), *FORWARD]),
    ],
)
def test_answers_that_nobody_asked_for(expected: str, rules: list[Rule]) -> None:
    assert expected == unsolicited(compiled(*rules), server="docs", identity=LOCAL, call=tool("ab"))


VERIFIED: list[Rule] = [ForwardRule(name="f", verify=True)]
FORMS: list[Rule] = [ForwardRule(name="f", match=Match(kind="elicitation", mode="form"))]
TEXTS: list[Rule] = [ForwardRule(name="f", match=SAMPLING)]


@pytest.mark.parametrize(
    ("expected", "rules", "client", "kinds"),
    [
        ("pass", FORWARD, PLAIN, {"sampling", "elicitation"}),
        ("strip", VERIFIED, PLAIN, {"elicitation"}),
        ("strip", FORWARD, NOTHING, {"elicitation"}),
        ("strip", FORWARD, NOTHING, set()),
        ("strip", FORWARD, ClientCapabilities(sampling=True), {"elicitation"}),
        ("pass", FORWARD, ClientCapabilities(url=True), {"elicitation"}),
        ("strip", FORWARD[:1], ClientCapabilities(url=True), {"elicitation"}),
        ("pass", FORMS, ALL, {"elicitation"}),
        ("strip", FORMS, ALL, {"sampling"}),
        ("strip", TEXTS, ALL, {"elicitation"}),
        ("strip", TEXTS, ALL, {"sampling", "elicitation"}),
        ("pass", TEXTS, PLAIN, {"sampling"}),
        ("refuse", [DenyRule(name="d", match=Match(era="modern")), *FORWARD], ALL, {"sampling"}),
        ("pass", [DenyRule(name="d", match=Match(era="legacy")), *FORWARD], ALL, {"sampling"}),
    ],
)
def test_unasked_answers_pass_only_where_the_client_could_have_been_asked(
    expected: str, rules: list[Rule], client: ClientCapabilities, kinds: set[Kind]
) -> None:
    made = unsolicited(
        compiled(*rules), server="docs", identity=LOCAL, call=tool("ab"), client=client, kinds=frozenset(kinds)
    )
    assert expected == made


BY_CLAIM: list[Rule] = [ForwardRule(name="f", match=Match(kind="elicitation", mode="form", claims={"dept": "finance"}))]
NOT_BY: list[Rule] = [ForwardRule(name="f", match=Match(kind="elicitation", mode="form", not_=Match(groups="temps")))]
DENIED: list[Rule] = [DenyRule(name="d", match=Match(claims={"suspended": True})), *FORWARD]


@pytest.mark.parametrize(
    ("expected", "rules", "identity"),
    [
        ("pass", BY_CLAIM, Identity("ann", frozenset(), b'{"dept":"finance"}')),
        ("strip", BY_CLAIM, Identity("ann", frozenset(), b'{"dept":"hr"}')),
        ("strip", BY_CLAIM, Identity("ann", frozenset(), b'{"dept":1}')),
        ("strip", BY_CLAIM, Identity("ann")),
        ("strip", BY_CLAIM, LOCAL),
        ("pass", NOT_BY, LOCAL),
        ("strip", NOT_BY, Identity("ann", frozenset({"temps"}), b"{}")),
        ("strip", NOT_BY, Identity("ann", None, b"{}")),
        ("pass", DENIED, LOCAL),
        ("refuse", DENIED, Identity("ann", frozenset(), b'{"suspended":true}')),
        ("refuse", DENIED, Identity("ann", frozenset(), b'{"suspended":1}')),
        ("refuse", DENIED, Identity("ann")),
    ],
)
def test_unasked_answers_pass_only_for_callers_that_could_have_been_asked(
    expected: str, rules: list[Rule], identity: Identity
) -> None:
    kinds: frozenset[Kind] = frozenset({"elicitation"})
    made = unsolicited(compiled(*rules), server="docs", identity=identity, call=tool("ab"), client=ALL, kinds=kinds)
    assert expected == made


def test_check_can_say_what_is_declared_and_what_no_rule_takes() -> None:
    rules: list[Rule] = [
        AllowRule(name="a", match=Match(kind="sampling", max_tokens=Range(max=10))),
        ForwardRule(name="f", match=Match(mode=["form", "url"])),  # only http and https: the rule names no scheme
    ]
    assert [
        "sampling: advertised; some requests may match no rule",
        "sampling with tools: not advertised, because no model accepts tools; some requests may match no rule",
        "form elicitation: advertised if the client declares it; every request matches a rule",
        "URL elicitation: advertised if the client declares it; some requests may match no rule",
    ] == [str(line) for line in describe_offer(compiled(*rules), server="docs")]
    assert ["all"] * 4 == [line.untaken for line in describe_offer(compiled(), server="docs")]


CLIENTS = st.builds(ClientCapabilities, *[st.booleans()] * 5)


@given(RULES, REQUESTS, CLIENTS, st.booleans(), st.booleans())
def test_whatever_is_answered_was_declared(
    rules: list[Rule], request: Request, client: ClientCapabilities, told: bool, able: bool
) -> None:
    """Soundness of reachability: no rule answers a request of a kind that was not advertised to its server."""
    calls = request.origin.calls
    call = calls[0] if told and len(calls) == 1 else None
    models = [msgspec.structs.replace(model, accepts=["tools"]) for model in MODELS] if able else MODELS
    rulebook = compile_policy(Policy(version=1, models=list(models), rules=rules, reviewers=dict(REVIEWERS)), {})
    made = decide(rulebook, request, Situation(can_forward(request, client)))
    if isinstance(made.act, (Allowed, FixedAnswer, Forwarded, Escalated)):
        found = offer(rulebook, server="docs", caller="local", era="legacy", revision=LEGACY, client=client, call=call)
        if request.kind == "elicitation":
            assert found.url if request.mode == "url" else found.form
        elif not request.params.get("tools"):
            assert found.sampling
        elif isinstance(made.act, (Allowed, Forwarded)) or made.allowed is not None:
            assert found.sampling_tools
