"""The scripted model: its file and its answers."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.policy import script
from samplegate.policy.file.load import PolicyError
from samplegate.policy.prompt import Sampled, SampleFailed, SampleResult
from samplegate.policy.script import Script, ScriptReply, fingerprint, parse, pick, reply

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


def choose(script: Script, name: str, params: dict[str, Any]) -> SampleResult:
    """The answer to a first request."""
    return pick(script, name, params).result


def sampled(text: str, model: str = "scripted", stop: str = "endTurn", heard: int = 0, words: int = 1) -> Sampled:
    return Sampled(({"type": "text", "text": text},), model, stop, heard, words)


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as raised:
        parse(text, file="trial.yaml")
    return [str(problem) for problem in raised.value.problems]


def test_the_groups_of_both_expressions_fill_the_answer_and_other_braces_stay() -> None:
    result = choose(SCRIPT, "trial", asked("Classify 7 accounts", system="You are an AUDITOR of Acme"))

    assert isinstance(result, Sampled)
    assert (
        '{"accounts": 7, "firm": "Acme", "nested": {"a": {"b": 1}}, "as it is": "{count}"}' == result.content[0]["text"]
    )
    assert ("scripted", "endTurn") == (result.model, result.stop_reason)


def test_every_condition_of_a_case_must_hold() -> None:
    assert isinstance(choose(SCRIPT, "trial", asked("Classify 7 accounts")), SampleFailed)


def test_the_newest_message_is_searched_first() -> None:
    script = parse('cases: [{text: "n=(?P<n>[0-9])", answer: "{n}"}]', file="f")

    assert sampled("2", heard=2) == choose(script, "trial", asked("n=1", "n=2"))


def test_all_blocks_of_a_message_are_searched() -> None:
    content = [{"type": "text", "text": "first"}, {"type": "text", "text": "tell a joke"}]
    result = choose(SCRIPT, "trial", {"messages": [{"role": "user", "content": content}], "maxTokens": 9})

    assert SampleFailed("refused", "model trial: its case 4 has fail: refused") == result


def test_plain_text_is_no_expression_and_the_file_may_say_all_that_a_model_says() -> None:
    result = choose(SCRIPT, "trial", asked("the audit entry (draft"))

    assert sampled("Deleted at last.", "trial-1", "because", 12, 2) == result


def test_nothing_that_fits_is_a_failure_and_no_guess() -> None:
    result = choose(SCRIPT, "trial", asked("something else"))

    why = "model trial: none of the 4 cases in its file matches the request; add one, or a last one without conditions"
    assert SampleFailed("no_case", why, free=True) == result


def test_a_case_without_conditions_takes_everything() -> None:
    script = parse("cases: [{answer: whatever you say}]", file="f")

    assert sampled("whatever you say", words=3) == choose(script, "trial", {"messages": [], "maxTokens": 3})


def test_an_answer_is_cut_to_the_tokens_asked_for() -> None:
    script = parse("cases: [{answer: one two  three four}]", file="f")

    assert sampled("one two", stop="maxTokens", heard=2, words=2) == choose(
        script, "trial", asked("hello there", most=2)
    )


def test_tokens_named_by_the_file_are_reported_as_they_are_so_that_an_overrun_can_be_tried() -> None:
    script = parse("cases: [{answer: one, output_tokens: 500}]", file="f")

    assert sampled("one", heard=1, words=500) == choose(script, "trial", asked("hello", most=10))


def test_a_group_that_took_no_part_is_empty_and_an_empty_answer_fails() -> None:
    script = parse('cases: [{text: "a(?P<b>b)?", answer: "{b}"}]', file="f")

    result = choose(script, "trial", asked("a"))
    assert isinstance(result, SampleFailed)
    assert "empty" == result.failure


def test_half_an_emoji_in_the_request_is_survived() -> None:
    assert isinstance(choose(SCRIPT, "trial", asked("joke \ud83d")), SampleFailed)


@pytest.mark.parametrize(
    "messages", [None, 5, "text", [5], [{}], [{"content": 5}], [{"content": [5, {"type": "text", "text": 5}]}]]
)
def test_requests_of_no_known_shape_fit_nothing(messages: Any) -> None:
    result = choose(SCRIPT, "trial", {"messages": messages})

    assert isinstance(result, SampleFailed)
    assert "no_case" == result.failure


def test_all_problems_are_told_at_once_where_they_stand() -> None:
    file = "cases:\n  - text: '('\n    answer: a\n  - txt: b\n    answer: 5\n"

    places = ["trial.yaml:2:11: cases.0.text: ", "trial.yaml:4:5: cases.1.txt: ", "trial.yaml:5:13: cases.1.answer: "]
    assert [(place, True) for place in places] == [
        (place, told.startswith(place)) for place, told in zip(places, problems(file), strict=True)
    ]


def test_what_the_types_do_not_say_is_told_too() -> None:
    file = """cases:
  - {text: "(?P<a>x)", system: "(?P<a>y)", answer: "{b}"}
  - {text: x, answer: z, fail: refused}
  - {name: all, text_contains: x}
  - {answer: everything}
  - {text: late, answer: never}
"""
    assert [
        "trial.yaml:2:12: cases.0.text: group 'a' is in both system and text; rename one",
        (
            "trial.yaml:2:52: cases.0.answer: '{b}' refers to no group in system or text; add a group (?P<b>...), or"
            " write {{b}} for a literal {b}"
        ),
        "trial.yaml:3:5: cases.1: case 2 has answer and fail; use exactly one of answer, content, fail, action",
        "trial.yaml:4:5: cases.2: case 'all' has no answer; use exactly one of answer, content, fail, action",
        "trial.yaml:6:5: cases.4: case 5 is never reached: case 4 matches everything; put that one last",
    ] == problems(file)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("", "trial.yaml:1:1: "),
        ("cases: []", "trial.yaml:1:8: cases: there are no cases"),
        ("cases: [", "trial.yaml:"),
        ("cases: [{answer: a, answer: b}]", "trial.yaml:1:21: cases.0.answer: duplicate key"),
        ("[]", "trial.yaml:1:1: "),
        ("cases: {a: b}", "trial.yaml:1:8: cases: "),
        ("cases: [{fail: often}]", "trial.yaml:1:16: cases.0.fail: "),
    ],
)
def test_a_file_that_is_not_cases_says_where(file: str, place: str) -> None:
    assert problems(file)[0].startswith(place)


class TestContent:
    """Content blocks instead of a text."""

    def test_blocks_are_answered_as_they_are_and_say_that_a_tool_is_used(self) -> None:
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": "let {me} see"},
            {"type": "tool_use", "id": "a", "name": "rm", "input": {"all": True}},
        ]
        script = parse(
            'cases: [{content: [{type: text, text: "let {me} see"}, {type: tool_use, id: a, name: rm, input: {all:'
            " true}}]}]",
            file="f",
        )

        assert Sampled(tuple(blocks), "scripted", "toolUse", 1, 3) == choose(script, "trial", asked("hello"))

    def test_blocks_are_cut_to_the_tokens_asked_for_too(self) -> None:
        script = parse(
            "cases: [{content: [{type: text, text: one two}, {type: text, text: three four}, {type: text, text:"
            " five}]}]",
            file="f",
        )

        cut = ({"type": "text", "text": "one two"}, {"type": "text", "text": "three"})
        assert Sampled(cut, "scripted", "maxTokens", 1, 3) == choose(script, "trial", asked("hello", most=3))

    @pytest.mark.parametrize(
        ("blocks", "what"),
        [
            ("[]", "the list is empty"),
            ("[{type: text}]", "a block of type text needs a string as `text`"),
            ("[{type: tool_result, toolUseId: a, content: []}]", "this is not a content block"),
            ("[{type: image, data: '${X}', mimeType: image/png}]", "data is not base64"),
        ],
    )
    def test_blocks_that_are_none_are_problems_of_the_file(self, blocks: str, what: str) -> None:
        assert what in problems(f"cases: [{{content: {blocks}}}]")[0]


class TestFingerprints:
    """Cases for exactly one request."""

    ONE = asked("hello", system="be kind")

    def test_a_case_takes_the_request_whose_fingerprint_it_names_and_no_other(self) -> None:
        script = parse(f"cases: [{{fingerprint: '{fingerprint(self.ONE)}', answer: mine}}]", file="f")

        assert isinstance(choose(script, "trial", self.ONE), Sampled)
        assert isinstance(choose(script, "trial", asked("hello", system="be rude")), SampleFailed)

    def test_cases_of_one_fingerprint_take_turns_and_the_last_one_stays(self) -> None:
        name = fingerprint(self.ONE)
        script = parse(
            f"cases: [{{fingerprint: '{name}', answer: a}}, {{answer: x, text: other}}, {{fingerprint: '{name}',"
            " answer: b}]",
            file="f",
        )

        picked = [pick(script, "trial", self.ONE, {name: turn}) for turn in (0, 1, 2, 500)]
        assert ["a", "b", "b", "b"] == [
            one.result.content[0]["text"] for one in picked if isinstance(one.result, Sampled)
        ]
        assert {name} == {one.fingerprint for one in picked}

    def test_a_name_that_is_no_fingerprint_is_a_problem_of_the_file(self) -> None:
        assert problems("cases: [{fingerprint: yes-that-one, answer: a}]")


class TestElicitations:
    """Cases with an action."""

    SCRIPT = parse(
        """
cases:
  - {message: "(?i)delete [0-9]+", action: accept, values: {confirm: true, tags: [a, b]}}
  - {message_contains: "Your token", action: decline}
  - {text: hello, answer: hi}
  - {action: cancel}
  - {answer: anything}
""",
        file="f",
    )

    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ("Delete 12 rows?", ScriptReply("accept", {"confirm": True, "tags": ["a", "b"]})),
            ("Your token, please", ScriptReply("decline", {})),
            ("hello", ScriptReply("cancel", {})),
        ],
    )
    def test_the_first_case_that_fits_the_message_says_what_is_answered(
        self, message: str, expected: ScriptReply
    ) -> None:
        assert expected == reply(self.SCRIPT, {"message": message, "requestedSchema": {}})

    def test_sampling_takes_no_case_of_an_elicitation(self) -> None:
        assert sampled("anything", heard=2) == choose(self.SCRIPT, "trial", asked("Delete 12"))

    def test_no_case_is_no_reply(self) -> None:
        assert reply(SCRIPT, {"message": "joke"}) is None

    def test_keys_of_the_two_kinds_do_not_mix(self) -> None:
        file = """cases:
  - {text: x, action: accept}
  - {message: x, answer: z}
  - {message: x, action: decline, values: {a: 1}}
  - {message: x, action: accept, values: {a: {b: c}}}
"""
        assert [
            (
                "trial.yaml:2:12: cases.0.text: the key is for sampling, but the case has an action; remove one of"
                " the two"
            ),
            (
                "trial.yaml:3:15: cases.1.message: the key is for elicitations, but the case has no action;"
                " remove the key or add an action"
            ),
            "trial.yaml:4:43: cases.2.values: `action: decline` sends no values; remove one of the two",
            (
                "trial.yaml:5:46: cases.3.values.a: a field value must be a string, a number, true, false or a list"
                " of strings"
            ),
        ] == problems(file)


def test_a_failure_may_have_cost_something_and_else_says_whether_it_was_free() -> None:
    script = parse(
        "cases: [{text: a, fail: refused, input_tokens: 7}, {text: b, fail: rate_limited}, {fail: crashed}]", file="f"
    )

    paid, refused, crashed = (choose(script, "trial", asked(text)) for text in "abc")
    assert isinstance(paid, SampleFailed)
    assert isinstance(refused, SampleFailed)
    assert isinstance(crashed, SampleFailed)
    assert (7, False) == (paid.input_tokens, paid.free)
    assert (True, False) == (refused.free, crashed.free)


def test_a_case_may_wait_before_it_answers() -> None:
    script = parse("cases: [{delay: 200ms, answer: late}]", file="f")

    assert 0.2 == pick(script, "trial", asked("hello")).delay


def test_an_image_may_be_as_large_as_a_recorded_one() -> None:
    data = "AAAA" * 500_000

    assert isinstance(
        choose(
            parse(f"cases: [{{content: [{{type: image, data: {data}, mimeType: image/png}}]}}]", file="f"),
            "t",
            asked("a"),
        ),
        Sampled,
    )


def test_the_texts_of_a_tools_result_are_searched_too() -> None:
    script = parse("cases: [{text_contains: degrees, answer: cold}, {text_contains: weather, answer: look}]", file="f")
    result = {"type": "tool_result", "toolUseId": "u", "content": [{"type": "text", "text": "12 degrees"}]}
    resource = {**result, "content": [{"type": "resource", "resource": {"uri": "a:b", "text": "12 degrees"}}]}
    for block in (result, resource):
        params = asked("weather?")
        params["messages"].append({"role": "user", "content": [block]})
        found = choose(script, "trial", params)
        assert isinstance(found, Sampled)
        assert "cold" == found.content[0]["text"]


def test_a_file_of_cases_is_bounded_in_bytes() -> None:
    with pytest.raises(PolicyError, match="larger than 16777216 bytes"):
        parse("#" * (script.MAX_BYTES + 1), file="cases.yaml")


def test_a_file_of_cases_is_bounded_in_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 500_000 == script.MAX_VALUES
    monkeypatch.setattr(script, "MAX_VALUES", 500)
    with pytest.raises(PolicyError, match="500"):
        parse("cases: [" + "{}," * 500 + "{}]", file="cases.yaml")
