"""The ``*_test.yaml`` file: its keys, every problem with its place, and the defaults. test_play.py tests the results of
the cases."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from samplegate.policy.file.load import PolicyError
from samplegate.policytest.load import CaseFile, Moment, json_schema, load_cases
from samplegate.policytest.suite import Case, capabilities, origin
from samplegate.protocol.requests import Call, ClientCapabilities

CASE = """\
cases:
  - name: one
    sampling: hello
    expect: {effect: allow}
"""


def cases(text: str) -> CaseFile:
    return load_cases(text, file="x_test.yaml")


def only(text: str) -> Case:
    (placed,) = cases(text).cases
    return placed.case


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as error:
        cases(text)
    return [str(problem) for problem in error.value.problems]


def test_a_case_knows_its_line() -> None:
    assert [2, 3] == [
        placed.line
        for placed in cases(
            "cases:\n  - {name: a, sampling: x, expect: {effect: none}}\n  - {name: b, sampling: x, expect: {effect:"
            " none}}\n"
        ).cases
    ]


def test_the_policy_is_the_files_own_word_or_nothing() -> None:
    assert None is cases(CASE).policy
    assert "ci.yaml" == cases("policy: ci.yaml\n" + CASE).policy


def test_a_case_takes_what_it_leaves_out_from_the_defaults() -> None:
    case = only("defaults: {server: db, caller: bob, tool: t, client: [sampling], environment: {A: '1'}}\n" + CASE)
    assert ("db", "bob", "t", ["sampling"], {"A": "1"}) == (
        case.server,
        case.caller,
        case.tool,
        case.client,
        case.environment,
    )


def test_a_case_overrides_the_defaults() -> None:
    case = only("defaults: {server: db, client: [sampling]}\n" + CASE + "    server: docs\n    client: []\n")
    assert ("docs", []) == (case.server, case.client)


def test_environments_are_merged() -> None:
    case = only("defaults: {environment: {A: '1', B: '2'}}\n" + CASE + "    environment: {B: '3'}\n")
    assert {"A": "1", "B": "3"} == case.environment


@pytest.mark.parametrize(
    ("defaults", "own", "calls"),
    [
        ("{}", "", ()),
        ("{tool: a}", "", (Call("tools/call", "a"),)),
        ("{tool: a}", "    tool: none\n", ()),
        ("{tool: a}", "    method: prompts/get\n", (Call("prompts/get", None),)),
        ("{method: prompts/get}", "    tool: [b, c]\n", (Call("tools/call", "b"), Call("tools/call", "c"))),
        (
            "{}",
            "    tool: b\n    method: [tools/call, resources/read]\n",
            (Call("tools/call", "b"), Call("resources/read", None)),
        ),
    ],
)
def test_the_calls_in_flight_are_replaced_as_one(defaults: str, own: str, calls: tuple[Call, ...]) -> None:
    assert calls == origin(only(f"defaults: {defaults}\n" + CASE + own)).calls


@pytest.mark.parametrize(
    ("scene", "era", "revision"),
    [
        ("{}", "legacy", "2025-11-25"),
        ("{era: legacy}", "legacy", "2025-11-25"),
        ("{era: modern}", "modern", "2026-07-28"),
        ("{revision: '2024-11-05'}", "legacy", "2024-11-05"),
        ("{revision: '2026-07-28'}", "modern", "2026-07-28"),
        ("{era: legacy, revision: '2025-06-18'}", "legacy", "2025-06-18"),
    ],
)
def test_era_and_revision_give_each_other(scene: str, era: str, revision: str) -> None:
    found = origin(only(f"defaults: {scene}\n" + CASE))
    assert (era, revision) == (found.era, found.revision)


def test_without_a_word_the_scene_is_that_of_a_plain_run() -> None:
    found = origin(only(CASE))
    assert ("default", "local") == (found.server, found.caller)


def test_a_sub_capability_of_sampling_is_sampling_too_and_one_mode_is_not_the_other() -> None:
    assert ClientCapabilities(sampling=True, sampling_tools=True, url=True) == capabilities(
        ["sampling.tools", "elicitation.url"]
    )
    assert ClientCapabilities() == capabilities([])


def test_every_problem_is_told_at_once_with_its_place() -> None:
    text = """\
polcy: x.yaml
cases:
  - name: one
    sampling: hello
    expect: {efect: allow}
  - name: two
    server: 5
    client: [smpling]
    expect: {effect: perhaps}
"""
    places = [
        "x_test.yaml:1:1: polcy",
        "x_test.yaml:5:13: cases.0.expect.effect",
        "x_test.yaml:5:14: cases.0.expect.efect",
        "x_test.yaml:7:13: cases.1.server",
        "x_test.yaml:8:14: cases.1.client.0",
        "x_test.yaml:9:22: cases.1.expect.effect",
    ]
    assert places == [": ".join(problem.split(": ")[:2]) for problem in problems(text)]


def test_a_misspelled_key_is_told_with_the_likely_one() -> None:
    assert ["x_test.yaml:1:1: polcy: unknown key; did you mean 'policy'?"] == problems("polcy: x.yaml\n" + CASE)


def test_a_file_without_cases_is_a_problem() -> None:
    assert ["x_test.yaml:1:8: cases: there are no cases; add at least one"] == problems("cases: []\n")


@pytest.mark.parametrize(
    ("own", "what"),
    [
        (
            "sampling: hi\n    elicitation: {fields: {}}",
            (
                "cases.0: a case must have exactly one of request, sampling and elicitation; it has sampling and"
                " elicitation"
            ),
        ),
        ("server: docs", "cases.0: a case must have exactly one of request, sampling and elicitation; it has none"),
        ("sampling: {maxTokens: 5}", "cases.0: sampling must have exactly one of text and messages"),
        ("sampling: {text: a, messages: []}", "cases.0: sampling must have exactly one of text and messages"),
        (
            "sampling: {text: a, hints: [b], modelPreferences: {}}",
            "cases.0: sampling can have only one of hints and modelPreferences",
        ),
        (
            "elicitation: {url: 'https://a.example', fields: {}}",
            "cases.0: elicitation can have only one of url and fields",
        ),
        (
            "sampling: hi\n    revision: '2020-01-01'",
            "cases.0: revision: '2020-01-01' is not one of 2024-11-05, 2025-03-26, ",
        ),
        (
            "sampling: hi\n    revision: '2026-07-28'\n    era: legacy",
            "cases.0: era: revision 2026-07-28 is not legacy; remove one of the two",
        ),
        (
            "sampling: hi\n    verdict: {}",
            "cases.0.verdict: a verdict must have exactly one of answer and edits, or be one of approve",
        ),
        (
            "sampling: hi\n    verdict: {answer: a, edits: {maxTokens: 5}}",
            "cases.0.verdict: a verdict must have exactly one of answer and edits",
        ),
        (
            "sampling: hi\n    votes: {anna: {answer: a, edits: {maxTokens: 5}}}",
            "cases.0.votes.anna: a verdict must have exactly one of answer and edits",
        ),
        (
            "sampling: hi\n    verdict: approve\n    votes: {anna: approve}",
            "cases.0.votes: verdict is also set; keep one of the two",
        ),
        (
            "sampling: hi\n    verdict: perhaps",
            "cases.0.verdict: 'perhaps' is not one of accept, approve, cancel, decline, none, reject or a mapping",
        ),
        (
            "sampling: hi\n    verdict: {edits: {max_tokens: 5}}",
            "cases.0.verdict.edits.max_tokens: unknown key; did you mean 'maxTokens'?",
        ),
        ("sampling: {text: a, max_tokens: 5}", "cases.0.sampling.max_tokens: unknown key; did you mean 'maxTokens'?"),
    ],
)
def test_a_contradiction_is_a_problem(own: str, what: str) -> None:
    (problem,) = problems(f"cases:\n  - name: one\n    expect: {{effect: none}}\n    {own}\n")
    assert what in problem


def test_a_name_that_stands_twice_is_a_problem() -> None:
    again = CASE.removeprefix("cases:\n")
    assert [
        "x_test.yaml:5:11: cases.1.name: 'one' is already the name of the case on line 2; use unique names"
    ] == problems(CASE + again)


@pytest.mark.parametrize("text", ["", "cases: [", "- a", "cases: {}", "cases: &a []", "a: 1\na: 2", "\x00"])
def test_a_file_that_is_no_test_file_is_a_problem_and_no_crash(text: str) -> None:
    assert problems(text)


def test_the_schema_takes_what_the_loader_takes() -> None:
    jsonschema.validate(yaml.safe_load(CASE), json_schema())


def test_the_schema_refuses_an_unknown_key() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cases": [], "polcy": "x"}, json_schema())


STEPS = """\
cases:
  - name: one
    server: db
    tool: a
    sampling: hello
    steps:
      - {at: 5s, expect: {effect: allow}}
      - {repeat: 3, tool: b, call: first}
      - {at: 1m, elicitation: "Sure?", caller: ann}
"""


def moments(text: str) -> list[Moment]:
    (placed,) = cases(text).cases
    return list(placed.moments)


def test_a_case_of_one_request_is_one_moment() -> None:
    (moment,) = moments(CASE + "    at: 5s\n")
    assert ("", 2, "hello", "5s", 1) == (
        moment.place,
        moment.line,
        moment.step.sampling,
        moment.step.at,
        moment.step.repeat,
    )


def test_a_step_knows_its_place_and_its_line() -> None:
    assert [("steps.0", 7), ("steps.1", 8), ("steps.2", 9)] == [
        (moment.place, moment.line) for moment in moments(STEPS)
    ]


def test_a_step_takes_what_it_leaves_out_from_its_case() -> None:
    steps = [moment.step for moment in moments(STEPS)]
    assert [("db", "a", None), ("db", "b", None), ("db", "a", "ann")] == [
        (step.server, step.tool, step.caller) for step in steps
    ]
    assert [("hello", None), ("hello", None), (None, "Sure?")] == [(step.sampling, step.elicitation) for step in steps]


def test_a_step_takes_the_defaults_of_the_file_too_and_environments_are_merged() -> None:
    text = "defaults: {era: modern, environment: {A: '1'}}\n" + STEPS.replace(
        "repeat: 3,", "repeat: 3, environment: {B: '2'},"
    )
    assert [{"A": "1"}, {"A": "1", "B": "2"}, {"A": "1"}] == [moment.step.environment for moment in moments(text)]
    assert {"modern"} == {moment.step.era for moment in moments(text)}


@pytest.mark.parametrize(
    ("own", "what"),
    [
        ("sampling: a", ":2:5: cases.0.expect: the key is required; set it to a mapping"),
        ("sampling: a\n    steps: []", ":4:12: cases.0.steps: there are no steps; add at least one"),
        (
            "sampling: a\n    steps: [{}]",
            ":4:12: cases.0.steps: no step has an expect, so the case can never fail; add at least one",
        ),
        (
            "steps: [{expect: {effect: none}}]",
            ":3:13: cases.0.steps.0: a step must have exactly one of request, sampling and elicitation; it has none",
        ),
        (
            "steps: [{sampling: a, elicitation: b, expect: {effect: none}}]",
            (
                ":3:13: cases.0.steps.0: a step must have exactly one of request, sampling and elicitation; it has"
                " sampling and elicitation"
            ),
        ),
        (
            "sampling: a\n    steps:\n    - {at: 5s, expect: {effect: none}}\n    - {}\n    - {at: 4s}",
            ":7:12: cases.0.steps.2.at: 4s is earlier than the previous step at 5s; put the steps in order of time",
        ),
        (
            "sampling: a\n    at: 1s\n    steps: [{expect: {effect: none}}]",
            ":4:9: cases.0.at: a case with steps cannot have this key; move it to the steps",
        ),
        (
            "sampling: a\n    steps: [{at: 5, expect: {effect: none}}]",
            ":4:18: cases.0.steps.0.at: 5 is not a duration such as 500ms, 50s, 15m or 1h",
        ),
        (
            "sampling: a\n    steps: [{repeat: 10001, expect: {effect: none}}]",
            ":4:22: cases.0.steps.0.repeat: 10001 is not a whole number from 1 to 10000",
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    at: 8785h",
            ":5:9: cases.0.at: '8785h' is longer than a year; use at most 8784h",
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    start: tomorrow",
            """:5:12: cases.0.start: 'tomorrow' is not a time with a time zone; use a time such as "2026-01-31T23:59:00Z\"""",  # noqa: E501
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    start: '2026-01-31T23:59:00'",
            """:5:12: cases.0.start: '2026-01-31T23:59:00' is not a time with a time zone; use a time such as "2026-01-31T23:59:00Z\"""",  # noqa: E501
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    start: '0001-01-01T00:00:00+14:00'",
            (
                ":5:12: cases.0.start: '0001-01-01T00:00:00+14:00' is not between 1970 and 2999; take a year in which"
                " the policy is used"
            ),
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    arguments: {a: 1}",
            ":2:5: cases.0: arguments: no call is in flight; add a tool, or remove the arguments",
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    call: x",
            ":5:11: cases.0.call: no call is in flight, so there is none to name; add a tool or a method",
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    tool: [a, b]\n    call: x",
            (
                ":6:11: cases.0.call: the number of names is 1, but the number of calls in flight is 2; name each"
                " call, in order"
            ),
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    fails: bad_key\n    usage: {output_tokens: 1}",
            (
                ":6:12: cases.0.usage: a request that fails as bad_key is not charged, so it has no usage; remove one"
                " of the two"
            ),
        ),
        (
            "sampling: a\n    expect: {effect: none}\n    fails: timeout\n    hold: true",
            (
                ":6:11: cases.0.hold: a request that stays open has no usage and no failure; use a duration, or"
                " remove them"
            ),
        ),
    ],
)
def test_a_sequence_that_cannot_be_is_a_problem_with_its_place(own: str, what: str) -> None:
    assert ["x_test.yaml" + what] == problems(f"cases:\n  - name: one\n    {own}\n")


def test_the_schema_takes_steps() -> None:
    jsonschema.validate(yaml.safe_load(STEPS), json_schema())


@pytest.mark.parametrize(
    "own", ["sampling: a", "sampling: a\n    steps: [{repeat: 0}]", "sampling: a\n    steps: [{at: soon}]"]
)
def test_the_schema_refuses_a_case_that_expects_nothing_and_steps_that_cannot_be(own: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(f"cases:\n  - name: one\n    {own}\n"), json_schema())
