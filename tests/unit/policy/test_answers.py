"""Canned answers, and whether a result fits its request."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.policy.answers import answer, answer_error, can_answer
from samplegate.policy.facts import Facts
from samplegate.policy.schema import AnswerRule
from samplegate.policy.script import parse
from samplegate.protocol.requests import Request
from tests.fakes.requests import form, sampling, text, url

IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "", "mimeType": "audio/wav"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]
ENVIRONMENT = {"ID": "42", "YES": "True", "LIST": "a, b", "RATE": "0.5", "EMPTY": ""}


def answered(request: Request, content: Any, *, defaults: bool = False) -> Any:
    return answer(AnswerRule(name="r", content=content, defaults=defaults), Facts(request), ENVIRONMENT)


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def test_sampling_is_answered_with_text_in_the_name_of_the_rule() -> None:
    expected = {"role": "assistant", "content": text("style 42"), "model": "samplegate/r", "stopReason": "endTurn"}
    assert expected == answered(sampling(), "style ${ID}")


def test_sampling_is_answered_with_blocks() -> None:
    assert [text("a 42"), IMAGE] == answered(sampling(), [text("a ${ID}"), IMAGE])["content"]


@pytest.mark.parametrize(
    ("request_", "content", "why"),
    [
        (sampling(), {"confirm": True}, "its content is not text or content blocks, as sampling requires"),
        (sampling(), None, "its content is not text or content blocks, as sampling requires"),
        (sampling(), "${UNSET}", "the variable UNSET is not set"),
        (sampling(), [], "its content is not a list of content blocks"),
        (sampling(), [{"type": "text"}], "its content is not a list of content blocks"),
        (sampling(), [USE], "it uses a tool, but none is allowed"),
        (sampling(tools=TOOLS, toolChoice={"mode": "required"}), "text", "it uses no tool, but one is required"),
        (
            sampling(revision="2025-06-18"),
            [text("a"), IMAGE],
            "its content cannot be sent with protocol version 2025-06-18",
        ),
        (sampling(revision="2024-11-05"), [AUDIO], "its content cannot be sent with protocol version 2024-11-05"),
        (form(a="string"), "text", "its content is not a mapping of field names to values, as elicitation requires"),
        (form(a="string"), {}, "the required field 'a' has no value"),
        (form(a="string"), {"a": "${UNSET}"}, "the variable UNSET is not set"),
        (form(a="string"), {"a": 1}, "its content does not fit the form: 'a' violates type"),
        (form(a="boolean"), {"a": "true"}, "its content does not fit the form: 'a' violates type"),
        (form(a="boolean"), {"a": "${ID}"}, "its content does not fit the form: 'a' violates type"),
        (form(a="integer"), {"a": "${RATE}"}, "its content does not fit the form: 'a' violates type"),
        (form(a="integer"), {"a": "${EMPTY}"}, "its content does not fit the form: 'a' violates type"),
        (
            form(password="string"),
            {"password": "x"},
            "field 'password' looks like a secret, and the gate never fills in secrets",
        ),
        (form(apiKey="string"), {}, "field 'apiKey' looks like a secret, and the gate never fills in secrets"),
        (
            form(a={"type": "string", "title": "Card number"}),
            {"a": "1"},
            "field 'a' looks like a secret, and the gate never fills in secrets",
        ),
        (
            form(required=[], token="string"),
            {"token": "x"},
            "field 'token' looks like a secret, and the gate never fills in secrets",
        ),
        (url("https://a.example/"), {"a": 1}, "the gate never accepts a URL"),
        (url("https://a.example/"), None, "the gate never accepts a URL"),
    ],
)
def test_it_cannot_be_answered_and_says_why(request_: Request, content: Any, why: str) -> None:
    assert why == answered(request_, content)


def test_a_form_that_is_not_flat_is_never_answered() -> None:
    asked = form(a={"anyOf": [{"type": "string"}, {"type": "null"}]})
    why = "the form is not flat: requestedSchema.properties.a: type is not supported in a flat form"
    assert why == answered(asked, {"a": "x"})


@pytest.mark.parametrize(
    ("request_", "content", "expected"),
    [
        (
            form(confirm="boolean", reason="string"),
            {"reason": "run ${ID}", "confirm": True},
            accepted(confirm=True, reason="run 42"),
        ),
        (form(a="integer"), {"a": "${ID}"}, accepted(a=42)),
        (form(a="number"), {"a": "${RATE}"}, accepted(a=0.5)),
        (form(a="number"), {"a": "${ID}"}, accepted(a=42)),
        (form(a="boolean"), {"a": "${YES}"}, accepted(a=True)),
        (form(a="string"), {"a": "${YES}"}, accepted(a="True")),
        (form(a="string"), {"a": "$${ID}"}, accepted(a="${ID}")),
        (
            form(a={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
            {"a": "${LIST}"},
            accepted(a=["a", "b"]),
        ),
        (form(a={"type": "array", "items": {"type": "string", "enum": ["42"]}}), {"a": ["${ID}"]}, accepted(a=["42"])),
        (form(a="string"), {"a": "x", "unknown": "${UNSET}"}, accepted(a="x")),
        (form(a="string", b="string", required=["a"]), {"a": "x"}, accepted(a="x")),
        (form(), None, accepted()),
        (form(reset_password="boolean"), {"reset_password": True}, accepted(reset_password=True)),
        (form(a="string", token="string", required=["a"]), {"a": "x"}, accepted(a="x")),
    ],
)
def test_a_form_is_filled_in_by_field_name(request_: Request, content: Any, expected: dict[str, Any]) -> None:
    assert expected == answered(request_, content)
    assert answer_error(request_, expected) is None


def test_defaults_are_taken_only_where_the_rule_says_so_and_never_for_secrets() -> None:
    asked = form(a={"type": "string", "default": "d"}, token={"type": "string", "default": "t"}, required=["a"])
    assert answered(asked, None) == "the required field 'a' has no value"
    assert accepted(a="d") == answered(asked, None, defaults=True)
    assert accepted(a="mine") == answered(asked, {"a": "mine"}, defaults=True)


def test_a_default_that_breaks_the_servers_own_schema_is_not_sent() -> None:
    asked = form(a={"type": "integer", "default": "x"})
    assert answered(asked, None, defaults=True) == "its content does not fit the form: 'a' violates type"


SAID = {"role": "assistant", "model": "m", "content": text("a")}


@pytest.mark.parametrize(
    ("request_", "result", "good"),
    [
        (sampling(), SAID, True),
        (sampling(), SAID | {"stopReason": "endTurn", "_meta": {}}, True),
        (sampling(), SAID | {"content": [text("a"), IMAGE]}, True),
        (sampling(revision="2025-06-18"), SAID | {"content": [text("a")]}, False),
        (sampling(revision="2024-11-05"), SAID | {"content": AUDIO}, False),
        (sampling(), SAID | {"content": "a"}, False),
        (sampling(), SAID | {"content": {"type": ["text"]}}, False),
        (sampling(), SAID | {"role": "system"}, False),
        (sampling(), SAID | {"stopReason": 1}, False),
        (sampling(), {"role": "assistant", "content": text("a")}, False),
        (sampling(tools=TOOLS), SAID | {"content": USE}, True),
        (sampling(tools=TOOLS, toolChoice={"mode": "none"}), SAID | {"content": USE}, False),
        (sampling(tools=TOOLS, toolChoice={"mode": "required"}), SAID, False),
        (sampling(), None, False),
        (sampling(), [], False),
        (form(a="string"), {"action": "decline"}, True),
        (form(a="string"), {"action": "cancel"}, True),
        (form(a="string"), {"action": "yes"}, False),
        (form(a="string"), {"action": ["accept"]}, False),
        (form(a="string"), {"action": "accept"}, False),
        (form(a="string", required=[]), {"action": "accept"}, True),
        (form(a="string"), {"action": "accept", "content": []}, False),
        (form(a="string"), {"action": "accept", "content": {"a": None}}, False),
        (form(a="string"), {"action": "accept", "content": {"a": "x"}}, True),
        (form(a="integer"), {"action": "accept", "content": {"a": True}}, False),
        (form(a={"$ref": "#/$defs/x"}), {"action": "accept", "content": {"a": "x"}}, False),
        (url("https://a.example/"), {"action": "accept"}, True),
        (url("https://a.example/"), {"action": "accept", "content": {}}, False),
    ],
)
def test_whether_a_result_fits(request_: Request, result: Any, good: bool) -> None:
    assert good is (answer_error(request_, result) is None)


class TestCases:
    """A rule that answers from a file, with the same protections."""

    RULE = AnswerRule(name="r", cases="tape.yaml")

    def played(self, request: Request, cases: str) -> Any:
        return answer(self.RULE, Facts(request), {"HOME": "x"}, parse(f"cases: [{cases}]", file="f"))

    def test_sampling_is_answered_by_the_first_case_that_fits_in_the_name_of_the_rule(self) -> None:
        expected = {
            "role": "assistant",
            "content": [text("hi ${HOME}")],
            "model": "samplegate/r",
            "stopReason": "endTurn",
        }
        assert expected == self.played(sampling(), '{text: bye, answer: go}, {answer: "hi ${{HOME}}"}')

    def test_a_case_may_name_the_model(self) -> None:
        assert "gpt-5" == self.played(sampling(), "{answer: hi, model: gpt-5}")["model"]

    def test_tools_are_used_as_they_were_offered(self) -> None:
        use = "{content: [{type: tool_use, id: '1', name: t, input: {}}]}"
        assert "toolUse" == self.played(sampling(tools=TOOLS), use)["stopReason"]
        assert "it uses a tool, but none is allowed" == self.played(sampling(), use)

    def test_a_form_is_answered_with_the_values_as_they_are(self) -> None:
        case = "{action: accept, values: {a: '${HOME}', more: 1}}"
        assert accepted(a="${HOME}") == self.played(form(a="string"), case)

    @pytest.mark.parametrize("action", ["decline", "cancel"])
    def test_no_is_an_answer_to_anything(self, action: str) -> None:
        for request in (form(a="string"), form(password="string"), url("https://example.com")):
            assert {"action": action} == self.played(request, f"{{action: {action}}}")

    @pytest.mark.parametrize(
        ("request_", "cases", "why"),
        [
            (sampling(), "{text: bye, answer: hi}", "no case in its file matches"),
            (sampling(), "{action: decline}", "no case in its file matches"),
            (sampling(), "{fail: refused}", "the matching case has fail: refused"),
            (
                sampling(revision="2024-11-05"),
                "{content: [{type: audio, data: '', mimeType: audio/wav}]}",
                "its content cannot be sent with protocol version 2024-11-05",
            ),
            (form(a="string"), "{answer: hi}", "no case in its file matches"),
            (form(a="string"), "{action: accept}", "the required field 'a' has no value"),
            (
                form(a="string"),
                "{action: accept, values: {a: 1}}",
                "its content does not fit the form: 'a' violates type",
            ),
            (
                form(password="string"),
                "{action: accept, values: {password: x}}",
                "field 'password' looks like a secret, and the gate never fills in secrets",
            ),
            (
                form(a={"type": "object"}),
                "{action: accept, values: {a: 1}}",
                "the form is not flat: requestedSchema.properties.a: type is not supported in a flat form",
            ),
            (url("https://example.com"), "{action: accept}", "the gate never accepts a URL"),
        ],
    )
    def test_what_cannot_be_answered_says_why(self, request_: Request, cases: str, why: str) -> None:
        assert why == self.played(request_, cases)

    def test_a_file_that_nobody_read_answers_nothing(self) -> None:
        assert "its case file was not loaded" == answer(self.RULE, Facts(sampling()), {})

    def test_a_file_may_answer_every_class_of_requests_and_content_only_its_own(self) -> None:
        classes = ("sampling", "sampling with tools", "elicitation by form", "elicitation by url")
        assert [True] * 4 == [can_answer(self.RULE, class_) for class_ in classes]
        assert [True, True, False, False] == [
            can_answer(AnswerRule(name="r", content="x"), class_) for class_ in classes
        ]
        assert [False, False, True, False] == [
            can_answer(AnswerRule(name="r", defaults=True), class_) for class_ in classes
        ]
