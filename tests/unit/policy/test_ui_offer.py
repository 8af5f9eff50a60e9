"""Where a server's own UI is declared to it: to whom the policy shows one."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.policy.capabilities import SessionRules, describe_offer, offer, offer_to
from samplegate.policy.decide import compile_policy, decide
from samplegate.policy.decisions import Escalated, Situation
from samplegate.policy.schema import (
    AllowRule,
    AnswerRule,
    DenyRule,
    EscalateRule,
    ForwardRule,
    Match,
    Policy,
    Rule,
    Server,
)
from samplegate.protocol.requests import Call, ClientCapabilities, ElicitationRequest, Origin
from tests.fakes.requests import LEGACY, MODELS, REVIEWERS, compiled, form, tool, url

FORM = ClientCapabilities(form=True)
SHOWN = ClientCapabilities(form=True, ui=True)
NOTHING = ClientCapabilities()
SHOWS = EscalateRule(name="s", reviewer="ops", ui="show")
HIDES = EscalateRule(name="h", reviewer="ops")
FORWARDS = ForwardRule(name="f", match=Match(kind="elicitation"))
URLS = EscalateRule(name="u", reviewer="ops", ui="show", match=Match(mode="url"))
OTHERS = EscalateRule(name="o", reviewer="ops", ui="show", match=Match(server="other"))
DENIES = DenyRule(name="d", match=Match(kind="elicitation"))
ANSWERS = AnswerRule(name="a", match=Match(kind="elicitation"), content={})


def declared(rules: list[Rule], client: ClientCapabilities, *, page: bool, call: Call | None = None,
             revision: str = LEGACY) -> bool:  # fmt: skip
    found = offer(
        compiled(*rules),
        server="docs",
        caller="local",
        era="modern" if revision >= "2026" else "legacy",
        revision=revision,
        client=client,
        call=call,
        page=page,
    )
    assert found.form or not found.ui
    return found.ui


@pytest.mark.parametrize(
    ("rules", "client", "with_page", "without"),
    [
        ([SHOWS], NOTHING, True, False),
        ([SHOWS], SHOWN, True, False),
        ([HIDES], SHOWN, False, False),
        ([FORWARDS], SHOWN, True, True),
        ([FORWARDS], FORM, False, False),
        ([FORWARDS], ClientCapabilities(ui=True), False, False),
        ([FORWARDS], ClientCapabilities(url=True, ui=True), False, False),
        ([FORWARDS, SHOWS], FORM, False, False),
        ([ForwardRule(name="n", otherwise="next"), SHOWS], NOTHING, True, False),
        ([DENIES, SHOWS], SHOWN, False, False),
        ([ANSWERS, SHOWS, FORWARDS], SHOWN, False, False),
        ([HIDES, SHOWS], NOTHING, False, False),
        ([URLS], NOTHING, False, False),
        ([EscalateRule(name="m", reviewer="ops", ui="show", match=Match(kind="sampling")), HIDES], SHOWN, False, False),
        ([EscalateRule(name="x", reviewer="ops", ui="show", shadow=True), HIDES], NOTHING, False, False),
        (
            [EscalateRule(name="o", reviewer="ops", ui="show", match=Match(server="other")), HIDES],
            NOTHING,
            False,
            False,
        ),
        ([AllowRule(name="l", match=Match(kind="sampling"))], SHOWN, False, False),
        ([], SHOWN, False, False),
    ],
)
def test_a_ui_is_declared_where_a_reviewer_or_the_client_may_see_it(
    rules: list[Rule], client: ClientCapabilities, with_page: bool, without: bool
) -> None:
    assert (with_page, without) == (declared(rules, client, page=True), declared(rules, client, page=False))


def test_each_call_is_offered_what_its_rules_show() -> None:
    rules: list[Rule] = [EscalateRule(name="s", reviewer="ops", ui="show", match=Match(tool="pick")), HIDES]
    modern = {"page": True, "revision": "2026-07-28"}
    assert declared(rules, NOTHING, call=tool("pick"), **modern)  # type: ignore[arg-type]
    assert not declared(rules, NOTHING, call=tool("drop"), **modern)  # type: ignore[arg-type]


def test_the_oldest_revisions_have_no_form_to_show() -> None:
    assert not declared([SHOWS], SHOWN, page=True, revision="2025-03-26")
    assert declared([SHOWS], SHOWN, page=True, revision="2025-06-18")


def test_sessions_know_whether_there_is_a_page() -> None:
    asked: dict[str, Any] = {
        "server": "docs", "caller": "local", "era": "legacy", "revision": LEGACY, "client": NOTHING, "call": None,
    }  # fmt: skip
    assert SessionRules(compiled(SHOWS), page=True).offer(**asked).ui
    assert not SessionRules(compiled(SHOWS)).offer(**asked).ui
    origin = Origin("docs", "local", "legacy", LEGACY)
    assert (True, False) == (
        offer_to(compiled(SHOWS), origin, NOTHING, page=True).ui,
        offer_to(compiled(SHOWS), origin, NOTHING).ui,
    )


def test_params_ui_is_cut_for_the_servers_that_say_so() -> None:
    policy = Policy(
        version=1,
        models=list(MODELS),
        rules=[],
        reviewers=dict(REVIEWERS),
        servers={"docs": Server(ui_forward="cut"), "other": Server()},
    )
    rules = SessionRules(compile_policy(policy, {}))
    assert [True, False, False] == [rules.cuts_ui(name) for name in ("docs", "other", "unnamed")]


@pytest.mark.parametrize(
    ("rule", "request_", "shows"),
    [
        (SHOWS, form(confirm="boolean"), True),
        (HIDES, form(confirm="boolean"), False),
        (URLS, url("https://a.example"), False),
    ],
)
def test_a_decision_says_whether_the_ui_is_shown(rule: EscalateRule, request_: ElicitationRequest, shows: bool) -> None:
    act = decide(compiled(rule), request_, Situation(True)).act
    assert isinstance(act, Escalated)
    assert shows is act.ui


ADVERTISED = "the server's own UI is advertised if reviewers have a page"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([SHOWS], [ADVERTISED]),
        ([FORWARDS, SHOWS], []),
        ([ForwardRule(name="n", otherwise="next"), SHOWS], [ADVERTISED]),
        ([HIDES], []),
        ([FORWARDS], []),
        ([DENIES, SHOWS], []),
    ],
)
def test_check_tells_of_forms_that_show_one(rules: list[Rule], told: list[str]) -> None:
    reports = describe_offer(compiled(*rules), server="docs")
    assert told == [part for report in reports for part in str(report).split("; ") if "UI" in part and "own" in part]
    assert [bool(told)] == [report.shows_ui for report in reports if report.requests == "elicitation by form"]
    assert not any(report.shows_ui for report in reports if report.requests != "elicitation by form")
