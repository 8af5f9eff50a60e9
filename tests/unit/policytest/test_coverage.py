"""Coverage: which rules and arms are reached by which cases, and the report about the others."""

from __future__ import annotations

import pytest

from samplegate.policy.file.load import load
from samplegate.policy.match import compile_policy
from samplegate.policytest.coverage import Coverage, Missing, coverage
from samplegate.policytest.load import load_cases
from samplegate.policytest.play import run
from samplegate.yamlfile.tree import compose

HEAD = "version: 1\nmodels: [{name: main, model: openai/none}]\nlimits: {rate: {requests: 1, per: 1m}}\nrules:\n"
IMAGE = "{messages: [{role: user, content: {type: image, data: aGVsbG8=, mimeType: image/png}}]}"


def reached(rules: str, *cases: str) -> Coverage:
    """The coverage of unnamed cases; their expectations do not matter."""
    text = HEAD + "".join(f"  - {{{rule}}}\n" for rule in rules.splitlines()) + "reviewers: {ops: {}}\n"
    compiled = compile_policy(load(text, file="p.yaml", environment={}).policy, {})
    suite = "cases:\n" + "".join(
        f"  - {{name: c{number}, expect: {{effect: none}}, {case}}}\n" for number, case in enumerate(cases)
    )
    suite = suite if "steps:" not in suite else suite.replace("expect: {effect: none}, ", "", 1)
    trials = run(load_cases(suite, file="p_test.yaml").cases, compiled) if cases else ()
    return coverage(compiled, (walk for trial in trials for walk in trial.walks), compose(text)[0])


def test_a_verdict_that_is_missing_follows_the_on_timeout_of_a_rule_that_escalates() -> None:
    rule = "name: a, match: {kind: sampling}, effect: escalate, reviewer: ops, on_timeout: deny"
    without = reached(rule, "sampling: hi")
    assert (1, 1, 0, 1) == sums(without)
    assert ["on_timeout: deny never applies; add a case with `verdict: none`"] == [
        missing.what for missing in without.missing
    ]
    assert () == without.uncounted
    found = reached(rule, "sampling: hi, verdict: none")
    assert (1, 1, 1, 1) == sums(found)


def sums(found: Coverage) -> tuple[int, int, int, int]:
    return found.rules_reached, found.rules, found.arms_reached, found.arms


def test_a_rule_that_takes_a_request_is_reached_and_one_that_is_only_looked_at_is_not() -> None:
    found = reached(
        "name: a, match: {server: x}, effect: deny\nname: b, effect: deny\nname: c, match: {mode: url}, effect: deny",
        "sampling: hi",
    )
    assert (1, 3, 0, 0) == sums(found)
    assert [(5, "a"), (7, "c")] == [(missing.line, missing.rule) for missing in found.missing]


def test_a_rule_that_could_not_be_carried_out_or_had_no_room_is_not_reached() -> None:
    cannot = "name: a, effect: forward"
    assert (0, 1) == sums(reached(cannot, "sampling: hi"))[:2]
    assert (1, 1) == sums(reached(cannot, "sampling: hi, client: [sampling]"))[:2]
    full = (
        "name: a, match: {kind: sampling, server: x}, effect: allow, limits: [rate]\nname: b, match: {kind: sampling},"
        " effect: allow, limits: [rate]"
    )
    steps = "steps: [{sampling: hi, server: x}, {sampling: hi, expect: {effect: none}}]"
    assert ["b"] == [missing.rule for missing in reached(full, steps).missing]


def test_a_rule_on_trial_is_reached_by_what_it_would_have_taken() -> None:
    rules = "name: a, match: {server: [x, z]}, effect: deny, shadow: true\nname: b, effect: deny"
    assert (1, 2, 0, 2) == sums(reached(rules, "sampling: hi"))
    assert (2, 2, 1, 2) == sums(reached(rules, "sampling: hi, server: x"))
    assert "shadow rule" in reached(rules, "sampling: hi").missing[0].what


@pytest.mark.parametrize(
    ("condition", "both"),
    [
        ("server: [a, 'b*']", ["sampling: hi, server: a", "sampling: hi, server: bb"]),
        ("caller: [a, b]", ["sampling: hi, caller: a", "sampling: hi, caller: b"]),
        ("tool: [a, none]", ["sampling: hi, tool: a", "sampling: hi"]),
        ("method: [prompts/get, tools/call]", ["sampling: hi, method: prompts/get", "sampling: hi, tool: x"]),
        ("hint: [a, b]", ["sampling: {text: hi, hints: [A]}", "sampling: {text: hi, hints: [c, b]}"]),
        ("content_types: [text, image]", ["sampling: hi", f"sampling: {IMAGE}"]),
        ("mode: [form, url]", ["elicitation: hi", "elicitation: {url: 'https://a.example/'}"]),
        (
            "mode: url, host: [a.example, '*.b.example']",
            ["elicitation: {url: 'https://a.example/'}", "elicitation: {url: 'https://c.b.example/'}"],
        ),
        (
            "mode: url, scheme: [http, https]",
            ["elicitation: {url: 'http://a.example/'}", "elicitation: {url: 'https://a.example/'}"],
        ),
        (
            "field_types: [string, boolean]",
            ["elicitation: {fields: {a: string}}", "elicitation: {fields: {a: boolean}}"],
        ),
    ],
)
def test_every_alternative_of_a_condition_is_an_arm(condition: str, both: list[str]) -> None:
    rule = f"name: a, match: {{{condition}}}, effect: deny"
    first, second = both
    assert (1, 1, 2, 2) == sums(reached(rule, first, second))
    for one in both:
        found = reached(rule, one)
        assert (1, 1, 1, 2) == sums(found)
        assert 1 == len(found.missing)
        assert ": no matching request has " in found.missing[0].what


def test_an_alternative_counts_only_where_the_rule_took_the_request() -> None:
    rules = (
        "name: first, match: {server: x}, effect: deny\nname: a, match: {server: [x, z], kind: sampling}, effect: deny"
    )
    found = reached(rules, "sampling: hi, server: x", "sampling: hi, server: z")
    assert (Missing(6, "a", "server: no matching request has 'x'; add a case with it"),) == found.missing


def test_one_of_several_candidate_calls_is_enough_for_an_alternative() -> None:
    assert (1, 1, 2, 2) == sums(reached("name: a, match: {tool: [a, b]}, effect: deny", "sampling: hi, tool: [a, b]"))


def test_every_value_of_an_argument_is_an_arm() -> None:
    rule = "name: a, match: {tool: t, arguments: {x.y: [1, prod]}}, effect: deny"
    calls = [f"sampling: hi, tool: t, arguments: {{x: {{y: {value}}}}}" for value in ("1", "prod")]
    assert (1, 1, 2, 2) == sums(reached(rule, *calls))
    assert (1, 1, 2, 2) == sums(reached(rule, "sampling: hi, tool: t, arguments: [{x: {y: 1}}, {x: {y: prod}}]"))
    (missing,) = reached(rule, calls[0]).missing
    assert 'arguments.x.y: no matching request has "prod"; add a case with it' == missing.what


def test_every_value_of_a_claim_and_every_group_is_an_arm() -> None:
    rule = "name: a, match: {groups: [ops, sre], claims: {x.y: [1, prod]}}, effect: deny"
    cases = [
        "sampling: hi, groups: [ops], claims: {x: {y: 1}}",
        "sampling: hi, groups: [dev, sre], claims: {x: {y: [a, prod]}}",
    ]
    assert (1, 1, 4, 4) == sums(reached(rule, *cases))
    assert [
        "groups: no matching request has 'sre'; add a case with it",
        'claims.x.y: no matching request has "prod"; add a case with it',
    ] == [missing.what for missing in reached(rule, cases[0]).missing]


def test_a_request_of_two_types_meets_both() -> None:
    both = (
        "{messages: [{role: user, content: [{type: text, text: a}, {type: image, data: aGVsbG8=, mimeType:"
        " image/png}]}]}"
    )
    assert (1, 1, 2, 3) == sums(
        reached("name: a, match: {content_types: [text, image, audio]}, effect: deny", f"sampling: {both}")
    )


def test_a_single_alternative_and_the_names_of_a_form_are_no_arms() -> None:
    assert (1, 1, 0, 0) == sums(
        reached(
            "name: a, match: {server: [x], fields: [a, b]}, effect: deny",
            "elicitation: {fields: {a: string, b: string}}, server: x",
        )
    )


@pytest.mark.parametrize(
    ("case", "arms"),
    [
        ("sampling: hi, server: z", 0),  # the `not` lets it match
        ("sampling: hi, server: x, caller: ann", 1),
        ("elicitation: hi, server: x", 0),  # the kind excludes it too
        ("sampling: hi, server: early", 0),  # an earlier rule decides it
    ],
)
def test_a_not_is_reached_where_it_alone_keeps_a_request_away(case: str, arms: int) -> None:
    rules = (
        "name: early, match: {server: early}, effect: deny\nname: a, match: {kind: sampling, not: {server: [x,"
        " early]}}, effect: deny"
    )
    assert arms == reached(rules, case).arms_reached


def test_a_not_of_a_not_is_no_arm() -> None:
    assert (1, 1, 0, 0) == sums(reached("name: a, match: {not: {not: {kind: sampling}}}, effect: deny", "sampling: hi"))


@pytest.mark.parametrize("otherwise", ["next", "deny"])
def test_an_otherwise_is_reached_where_the_rule_cannot_be_carried_out(otherwise: str) -> None:
    rules = f"name: a, match: {{kind: sampling}}, effect: forward, otherwise: {otherwise}\nname: b, effect: deny"
    able, unable = "sampling: hi, client: [sampling]", "sampling: hi"
    assert (0, 1) == sums(reached(rules, able, "elicitation: hi"))[2:]
    assert (1, 1) == sums(reached(rules, able, unable))[2:]


@pytest.mark.parametrize(("on_limit", "arms"), [("next", 1), ("deny", 1), ("wait", 1), ("unanswered", 0)])
def test_an_on_limit_is_reached_where_a_limit_has_no_room(on_limit: str, arms: int) -> None:
    rules = (
        f"name: a, match: {{kind: sampling}}, effect: allow, limits: [rate], on_limit: {on_limit}\nname: b, effect:"
        " deny"
    )
    assert (0, arms) == sums(reached(rules, "sampling: hi"))[2:]
    assert (arms, arms) == sums(reached(rules, "steps: [{sampling: hi}, {sampling: hi, expect: {effect: none}}]"))[2:]


def test_a_time_out_is_told_and_not_counted() -> None:
    found = reached("name: a, match: {kind: sampling}, effect: allow, on_timeout: deny", "sampling: hi")
    assert (1, 1, 0, 0) == sums(found)
    assert ((), (Missing(5, "a", "on_timeout: deny is not counted, because cases take no time"),)) == (
        found.missing,
        found.uncounted,
    )


def test_an_otherwise_of_a_rule_on_trial_is_not_followed_and_no_arm() -> None:
    assert 0 == reached("name: a, effect: forward, otherwise: next, shadow: true", "sampling: hi").arms


def test_the_arms_of_a_rule_that_is_not_reached_are_told_with_it() -> None:
    found = reached("name: a, match: {server: [x, z]}, effect: deny", "sampling: hi")
    assert (
        Missing(
            5,
            "a",
            "no case covers its effect; add a case that this rule matches and decides (2 of its branches are not"
            " covered either)",
        ),
    ) == found.missing


def test_a_missing_arm_stands_where_it_is_written() -> None:
    text = HEAD + "  - name: a\n    match:\n      server:\n        - x\n        - z\n    effect: deny\n"
    compiled = compile_policy(load(text, file="p.yaml", environment={}).policy, {})
    cases = load_cases("cases: [{name: a, sampling: hi, server: x, expect: {effect: deny}}]\n", file="t").cases
    (missing,) = coverage(
        compiled, [walk for trial in run(cases, compiled) for walk in trial.walks], compose(text)[0]
    ).missing
    assert 9 == missing.line


def test_a_malformed_request_and_one_that_is_braked_reach_nothing() -> None:
    assert (0, 1, 0, 0) == sums(reached("name: a, effect: deny", "sampling: {text: hi, maxTokens: 0}"))


def test_the_percentage_is_of_rules_and_arms_together() -> None:
    assert 100 * 2 / 3 == reached("name: a, match: {server: [x, z]}, effect: deny", "sampling: hi, server: x").percent
    assert 100 == Coverage(0, 0, 0, 0).percent
    assert 0 == reached("name: a, effect: deny").percent
