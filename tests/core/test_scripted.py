"""The scripted model: its file and its answers."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.core.load import PolicyError
from samplegate.core.samples import Sampled, SampleFailed
from samplegate.core.scripted import choose, parse

FILE = """
cases:
  - name: risk
    system: "(?i)auditor of (?P<firm>[A-Za-z]+)"
    text: "Classify (?P<count>[0-9]+)"
    answer: '{"accounts": {count}, "firm": "{firm}", "nested": {"a": {"b": 1}}, "as it is": "{{count}}"}'
  - text_contains: "audit entry (draft"
    answer: Deleted at last.
    model: trial-1
    stop_reason: because
    input_tokens: 12
    output_tokens: 2
  - system_contains: only the system
    answer: heard it
  - text: "(?i)joke"
    fail: refused
"""
SCRIPT = parse(FILE, file="trial.yaml")


def asked(*texts: str, system: str | None = None, most: int = 100) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": text}} for text in texts]
    return {"messages": messages, "maxTokens": most, **({} if system is None else {"systemPrompt": system})}


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as raised:
        parse(text, file="trial.yaml")
    return [str(problem) for problem in raised.value.problems]


def test_the_groups_of_both_expressions_fill_the_answer_and_other_braces_stay() -> None:
    result = choose(SCRIPT, "trial", asked("Classify 7 accounts", system="You are an AUDITOR of Acme"))

    assert isinstance(result, Sampled)
    assert '{"accounts": 7, "firm": "Acme", "nested": {"a": {"b": 1}}, "as it is": "{count}"}' == result.text
    assert ("scripted", "endTurn") == (result.model, result.stop_reason)


def test_every_condition_of_a_case_must_hold() -> None:
    assert isinstance(choose(SCRIPT, "trial", asked("Classify 7 accounts")), SampleFailed)


def test_the_newest_message_is_searched_first() -> None:
    script = parse('cases: [{text: "n=(?P<n>[0-9])", answer: "{n}"}]', file="f")

    assert Sampled("2", "scripted", "endTurn", 2, 1) == choose(script, "trial", asked("n=1", "n=2"))


def test_all_blocks_of_a_message_are_searched() -> None:
    content = [{"type": "text", "text": "first"}, {"type": "text", "text": "tell a joke"}]
    result = choose(SCRIPT, "trial", {"messages": [{"role": "user", "content": content}], "maxTokens": 9})

    assert SampleFailed("refused", "model trial: its case 4 says so (fail: refused)") == result


def test_plain_text_is_no_expression_and_the_file_may_say_all_that_a_model_says() -> None:
    result = choose(SCRIPT, "trial", asked("the audit entry (draft"))

    assert Sampled("Deleted at last.", "trial-1", "because", 12, 2) == result


def test_nothing_that_fits_is_a_failure_and_no_guess() -> None:
    result = choose(SCRIPT, "trial", asked("something else"))

    assert SampleFailed("no_case", "model trial: no case of its file fits the request, tried 4; add one, or a last one without conditions") == result


def test_a_case_without_conditions_takes_everything() -> None:
    script = parse("cases: [{answer: whatever you say}]", file="f")

    assert Sampled("whatever you say", "scripted", "endTurn", 0, 3) == choose(script, "trial", {"messages": [], "maxTokens": 3})


def test_an_answer_is_cut_to_the_tokens_asked_for() -> None:
    script = parse("cases: [{answer: one two  three four}]", file="f")

    assert Sampled("one two", "scripted", "maxTokens", 2, 2) == choose(script, "trial", asked("hello there", most=2))


def test_tokens_named_by_the_file_do_not_exceed_what_was_asked_for() -> None:
    script = parse("cases: [{answer: one, output_tokens: 500}]", file="f")

    assert Sampled("one", "scripted", "endTurn", 1, 10) == choose(script, "trial", asked("hello", most=10))


def test_a_group_that_took_no_part_is_empty_and_an_empty_answer_fails() -> None:
    script = parse('cases: [{text: "a(?P<b>b)?", answer: "{b}"}]', file="f")

    result = choose(script, "trial", asked("a"))
    assert isinstance(result, SampleFailed)
    assert "empty" == result.failure


def test_half_an_emoji_in_the_request_is_survived() -> None:
    assert isinstance(choose(SCRIPT, "trial", asked("joke \ud83d")), SampleFailed)


@pytest.mark.parametrize("messages", [None, 5, "text", [5], [{}], [{"content": 5}], [{"content": [5, {"type": "text", "text": 5}]}]])
def test_requests_of_no_known_shape_fit_nothing(messages: Any) -> None:
    result = choose(SCRIPT, "trial", {"messages": messages})

    assert isinstance(result, SampleFailed)
    assert "no_case" == result.failure


def test_all_problems_are_told_at_once_where_they_stand() -> None:
    file = "cases:\n  - text: '('\n    answer: a\n  - txt: b\n    answer: 5\n"

    places = ["trial.yaml:2:11: cases.0.text: ", "trial.yaml:4:5: cases.1.txt: ", "trial.yaml:5:13: cases.1.answer: "]
    assert [(place, True) for place in places] == [(place, told.startswith(place)) for place, told in zip(places, problems(file), strict=True)]


def test_what_the_types_do_not_say_is_told_too() -> None:
    file = """cases:
  - {text: "(?P<a>x)", system: "(?P<a>y)", answer: "{b}"}
  - {text: x, answer: z, fail: refused}
  - {name: all, text_contains: x}
  - {answer: everything}
  - {text: late, answer: never}
"""
    assert [
        "trial.yaml:2:12: cases.0.text: group 'a' stands in system and in text; rename one",
        "trial.yaml:2:52: cases.0.answer: '{b}' names no group of system or text; name a group (?P<b>...), or write {{b}} for the text itself",
        "trial.yaml:3:5: cases.1: case 2 has both answer and fail; give one of the two",
        "trial.yaml:4:5: cases.2: case 'all' has neither answer nor fail; give one of the two",
        "trial.yaml:6:5: cases.4: case 5 is never reached: case 4 fits everything; put that one last",
    ] == problems(file)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("", "trial.yaml:1:1: "),
        ("cases: []", "trial.yaml:1:8: cases: there is no case"),
        ("cases: [", "trial.yaml:"),
        ("cases: [{answer: a, answer: b}]", "trial.yaml:1:21: cases.0.answer: the key stands twice"),
        ("[]", "trial.yaml:1:1: "),
        ("cases: {a: b}", "trial.yaml:1:8: cases: "),
        ("cases: [{fail: often}]", "trial.yaml:1:16: cases.0.fail: "),
    ],
)
def test_a_file_that_is_not_cases_says_where(file: str, place: str) -> None:
    assert problems(file)[0].startswith(place)
