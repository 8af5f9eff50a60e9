"""Verdicts as JSON: valid ones, and the errors of invalid ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.answers import answer_error
from samplegate.protocol.elicitation_schema import Form, check, read_form
from samplegate.protocol.requests import ElicitationRequest, Origin
from samplegate.reviews.edits import problems
from samplegate.reviews.review import Edits, FieldProblem, Review, Verdict
from samplegate.reviews.verdict import MAX_BYTES, MAX_PROBLEMS, read
from samplegate.reviews.views import verdict_json as as_given
from tests.fakes.reviews import DIGEST, address, form, model_answer, review, said, text

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}}
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]


def verdict(of: Review, **given: Any) -> Verdict | tuple[FieldProblem, ...]:
    return read(json.dumps(given).encode(), of, digest="optional")


def wrong(of: Review, **given: Any) -> dict[str, str]:
    found = verdict(of, **given)
    assert isinstance(found, tuple), found
    return {problem.path: problem.what for problem in found}


# --- what is a verdict
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "given", "expected"),
    [
        (review(), {"verdict": "approve"}, Verdict(word="approve")),
        (model_answer(text("hi")), {"verdict": "approve"}, Verdict(word="approve")),
        (review(), {"verdict": "reject"}, Verdict(word="reject")),
        (form(a="string"), {"verdict": "reject", "reason": " too risky "}, Verdict(word="reject", reason="too risky")),
        (
            review(),
            {"verdict": "reject", "reason": "no", "tell_server": True},
            Verdict(word="reject", reason="no", tell_server=True),
        ),
        (
            form(a="string"),
            {"verdict": "answer", "action": "accept", "content": {"a": "x"}},
            Verdict(word="answer", result={"action": "accept", "content": {"a": "x"}}),
        ),
        (
            form(),
            {"verdict": "answer", "action": "accept"},
            Verdict(word="answer", result={"action": "accept", "content": {}}),
        ),
        (
            form(a="string"),
            {"verdict": "answer", "action": "decline"},
            Verdict(word="answer", result={"action": "decline"}),
        ),
        (
            form(a="string"),
            {"verdict": "answer", "action": "cancel", "content": None},
            Verdict(word="answer", result={"action": "cancel"}),
        ),
        (address(), {"verdict": "answer", "action": "accept"}, Verdict(word="answer", result={"action": "accept"})),
        (
            review(),
            {"verdict": "approve", "edits": {"maxTokens": 10.0}},
            Verdict(word="approve", edits=Edits(max_tokens=10)),
        ),
        (
            review(),
            {"verdict": "approve", "edits": {"model": "smart", "temperature": 0.5, "maxTokens": 200}},
            Verdict(word="approve"),
        ),
    ],
)
def test_it_is_read(of: Review, given: dict[str, Any], expected: Verdict) -> None:
    assert expected == verdict(of, **given)


@pytest.mark.parametrize(
    ("content", "kept"), [("hi", text("hi")), ([text("a"), IMAGE], [text("a"), IMAGE]), (text("hi"), text("hi"))]
)
def test_a_persons_answer_to_sampling_is_a_whole_result_in_the_reviewers_name(content: Any, kept: Any) -> None:
    read = verdict(review(), verdict="answer", content=content)
    assert isinstance(read, Verdict)
    assert {"role": "assistant", "content": kept, "model": "human/ops", "stopReason": "endTurn"} == read.result


def test_the_uses_of_tools_in_a_models_answer_can_be_edited() -> None:
    read = verdict(
        model_answer(text("I will"), USE, tools=TOOLS), verdict="answer", content=[{**USE, "input": {"a": 2}}]
    )
    assert isinstance(read, Verdict)
    assert read.result is not None
    assert ("toolUse", [{**USE, "input": {"a": 2}}]) == (read.result["stopReason"], read.result["content"])


def test_no_default_of_a_form_is_filled_in() -> None:
    of = form(required=[], a={"type": "string", "default": "x"})
    assert Verdict(word="answer", result={"action": "accept", "content": {}}) == verdict(
        of, verdict="answer", action="accept", content={}
    )


def test_messages_with_a_picture_larger_than_a_verdict_can_be_edited_by_a_door_of_ours() -> None:
    picture = {"role": "user", "content": {**IMAGE, "data": "A" * (2 * MAX_BYTES)}}
    of = review(params={"messages": [picture, said("what is it")], "maxTokens": 10})
    given = {"verdict": "approve", "edits": {"messages": [picture, said("what is this")]}}
    assert isinstance(read(given, of, digest="optional"), Verdict)
    assert (FieldProblem("", f"larger than {MAX_BYTES} bytes"),) == read(
        json.dumps(given).encode(), of, digest="optional"
    )


# --- what is none
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "not valid JSON"),
        (b"<html>", "not valid JSON"),
        (b"[]", "must be an object"),
        (b'"approve"', "must be an object"),
        (b'{"verdict":"reject","verdict":"approve"}', "an object has a duplicate member"),
        (b'{"verdict":"approve","edits":{"temperature":NaN}}', "contains NaN, which is not valid JSON"),
        (b'{"verdict":' + b"[" * 65 + b"]" * 65 + b"}", "nested deeper than 64 levels"),
        (b"[" * 90_000, "nested too deeply"),
        (b'"' + b"a" * MAX_BYTES + b'"', f"larger than {MAX_BYTES} bytes"),
        (b'{"verdict":"appr\xff"}', "not valid UTF-8"),
        ({"verdict": {1, 2}}, "not valid JSON"),
        ({"verdict": "approve", "edits": {"temperature": float("inf")}}, "not valid JSON"),
    ],
)
def test_what_is_no_json_with_one_reading_is_no_verdict(raw: bytes | Mapping[str, Any], what: str) -> None:
    assert (FieldProblem("", what),) == read(raw, review(), digest="optional")


@pytest.mark.parametrize(
    ("of", "given", "expected"),
    [
        (review(), {}, {"verdict": "must be approve, reject or answer"}),
        (review(), {"verdict": ["approve"]}, {"verdict": "must be approve, reject or answer"}),
        (review(), {"verdict": "approved"}, {"verdict": "must be approve, reject or answer"}),
        (
            review(),
            {"verdict": "approve", "Edits": {}},
            {"Edits": "is unknown; expected one of action, content, digest, edits, reason, tell_server, verdict"},
        ),
        (
            review(),
            {"verdict": "approve", "digest": "sha256:00"},
            {"digest": "does not match this review; read the review again, then decide"},
        ),
        (review(), {"verdict": "reject", "edits": {}}, {"edits": "is not allowed with verdict 'reject'"}),
        (review(), {"verdict": "approve", "content": "x"}, {"content": "is not allowed with verdict 'approve'"}),
        (
            review(),
            {"verdict": "reject", "reason": "x" * 1001},
            {"reason": "must be a string of at most 1000 characters"},
        ),
        (review(), {"verdict": "reject", "reason": "a\x1b[2J"}, {"reason": "must not contain control characters"}),
        (review(), {"verdict": "reject", "reason": "a\u202eb"}, {"reason": "must not contain control characters"}),
        (
            review(),
            {"verdict": "reject", "tell_server": True},
            {"reason": "must not be empty if it is sent to the server"},
        ),
        (review(), {"verdict": "reject", "tell_server": "yes"}, {"tell_server": "must be true or false"}),
        (
            review(),
            {"verdict": "approve", "reason": "x", "tell_server": True},
            {"tell_server": "only a rejection can send its reason to the server"},
        ),
        (
            form(a="string"),
            {"verdict": "reject", "reason": "x", "tell_server": True},
            {"tell_server": "is not allowed for an elicitation, because its answer has no field for a reason"},
        ),
        (
            form(a="string"),
            {"verdict": "approve"},
            {"verdict": "must be answer or reject, because forms and URLs are answered, not approved"},
        ),
        (
            review(bounds=None, why="no model accepts images"),
            {"verdict": "approve"},
            {"verdict": "must be answer or reject, because no model can be called (no model accepts images)"},
        ),
        (
            model_answer(text("hi")),
            {"verdict": "approve", "edits": {"maxTokens": 1}},
            {"edits": "are not allowed for a model's answer; send the edited answer with verdict 'answer'"},
        ),
        (form(a="string"), {"verdict": "answer"}, {"action": "must be accept, decline or cancel"}),
        (
            form(a="string"),
            {"verdict": "answer", "action": "decline", "content": {}},
            {"content": "is not allowed with action 'decline'"},
        ),
        (
            address(),
            {"verdict": "answer", "action": "accept", "content": {}},
            {"content": "is not allowed with an accepted URL"},
        ),
        (
            form(a="string"),
            {"verdict": "answer", "action": "accept", "content": []},
            {"content": "must be an object with the form's fields"},
        ),
        (
            review(),
            {"verdict": "answer", "action": "accept", "content": "x"},
            {"action": "is only allowed for elicitations"},
        ),
        (
            form(a={"anyOf": [{"type": "string"}, {"type": "null"}]}),
            {"verdict": "answer", "action": "accept", "content": {}},
            {
                "content": (
                    "cannot be checked, because the form is not flat: requestedSchema.properties.a: type is not"
                    " supported in a flat form"
                ),
            },
        ),
        (review(), {"verdict": "answer"}, {"content": "is missing; give the answer as a string or as content blocks"}),
        (review(), {"verdict": "answer", "content": []}, {"content": "must be a string or 1 to 100 content blocks"}),
        (review(), {"verdict": "answer", "content": ""}, {"content": "must be a non-empty string"}),
        (
            review(),
            {"verdict": "answer", "content": 5},
            {"content": "must be a content block of type text, image or audio"},
        ),
        (
            review(),
            {
                "verdict": "answer",
                "content": [text(""), {"type": "resource_link"}, {**IMAGE, "data": "%", "mimeType": "text/html"}],
            },
            {
                "content.0.text": "must be a non-empty string",
                "content.1": "must be a content block of type text, image or audio",
                "content.2.data": "must be base64",
                "content.2.mimeType": "must be a media type such as image/png",
            },
        ),
        (
            review(),
            {"verdict": "answer", "content": [{**text("a"), "_meta": {}}]},
            {"content.0._meta": "is unknown; expected one of text, type"},
        ),
        (
            review(),
            {"verdict": "answer", "content": [USE]},
            {"content.0": "adds a tool call that the model's answer does not have"},
        ),
        (
            model_answer(USE, tools=TOOLS),
            {"verdict": "answer", "content": [{**USE, "name": "rm"}]},
            {"content.0": "adds a tool call that the model's answer does not have"},
        ),
        (
            review(revision="2025-06-18"),
            {"verdict": "answer", "content": [text("a"), IMAGE]},
            {"content": "does not fit protocol version 2025-06-18, which allows one text, image or audio block"},
        ),
        (
            review(
                params={"messages": [said("x")], "maxTokens": 5, "tools": TOOLS, "toolChoice": {"mode": "required"}}
            ),
            {"verdict": "answer", "content": "x"},
            {"content": "does not answer the request: it uses no tool, but one is required"},
        ),
    ],
)
def test_it_is_none_and_every_field_says_why(of: Review, given: dict[str, Any], expected: dict[str, str]) -> None:
    assert expected == wrong(of, **given)


def test_all_problems_are_told_at_once() -> None:
    given = {
        "verdict": "answer",
        "digest": "x",
        "action": "accept",
        "content": {"a": 1, "b": "x"},
        "reason": 5,
        "more": 1,
    }
    assert {"digest", "content.a", "content.b", "reason", "more"} == wrong(
        form(a="string", b="integer"), **given
    ).keys()


def test_a_digest_is_needed_where_the_request_was_shown_elsewhere() -> None:
    missing = (FieldProblem("digest", "is missing; send the digest that was shown"),)
    assert missing == read({"verdict": "reject"}, review(), digest="needed")
    assert Verdict(word="reject") == read({"verdict": "reject", "digest": DIGEST}, review(), digest="needed")


def test_there_are_never_more_problems_than_anybody_reads() -> None:
    assert MAX_PROBLEMS == len(wrong(review(), verdict="reject", **{f"m{n}": 1 for n in range(500)}))


def test_nothing_that_was_given_is_repeated_at_length() -> None:
    for path, what in wrong(
        form(a="string"), verdict="answer", action="accept", content={"s" * 5000: 1}, **{"k" * 5000: 1}
    ).items():
        assert len(path) + len(what) < 300


def test_a_problem_says_its_field_before_what_is_wrong() -> None:
    assert ("edits.model: must be one of smart", "not valid JSON") == (
        str(FieldProblem("edits.model", "must be one of smart")),
        str(FieldProblem("", "not valid JSON")),
    )


# --- always
# ----------------------------------------------------------------------------------------------------------------------

FORM = form(
    required=["name"],
    name={"type": "string", "minLength": 2, "maxLength": 5},
    port={"type": "integer", "minimum": 1, "maximum": 9},
    ratio={"type": "number", "exclusiveMaximum": 1},
    sure="boolean",
    color={"type": "string", "enum": ["red", "green"]},
    size={"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    tags={
        "type": "array",
        "items": {"anyOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]},
        "minItems": 1,
    },
)
REVIEWS = (review(), review(bounds=None), FORM, address(), model_answer(text("hi"), USE, tools=TOOLS))
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["red", "s", "x", "smart", "cheap"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
CONTENT = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("name", "port", "ratio", "sure", "color", "size", "tags"), ANY)
)
FITTING = st.fixed_dictionaries(
    {"name": st.text(st.characters(codec="utf-8"), min_size=2, max_size=5)},
    optional={
        "port": st.integers(1, 9),
        "ratio": st.floats(-5, 0.5),
        "sure": st.booleans(),
        "color": st.sampled_from(["red", "green"]),
        "size": st.sampled_from("sl"),
        "tags": st.lists(st.sampled_from("xy"), min_size=1, max_size=3),
    },
)
EDITS = st.fixed_dictionaries(
    {}, optional={"maxTokens": ANY, "temperature": ANY, "model": ANY, "systemPrompt": ANY, "messages": ANY, "x": ANY}
)
GIVEN = st.fixed_dictionaries(
    {"verdict": st.sampled_from(["approve", "reject", "answer"]) | ANY},
    optional={
        "digest": st.just(DIGEST) | ANY,
        "edits": EDITS | ANY,
        "action": st.sampled_from(["accept", "decline"]) | ANY,
        "content": CONTENT | FITTING | st.lists(st.sampled_from([text("a"), IMAGE, USE])) | ANY,
        "reason": ANY,
        "tell_server": ANY,
    },
)


@given(raw=GIVEN | ANY | st.binary(max_size=50), of=st.sampled_from(REVIEWS))
def test_whatever_is_given_no_verdict_breaks_the_schema_or_a_bound(raw: Any, of: Review) -> None:
    for each in (raw, raw if isinstance(raw, bytes) else json.dumps(raw).encode()):
        if not isinstance(each, bytes | Mapping):
            continue
        found = read(each, of, digest="optional")
        if isinstance(found, tuple):
            assert found
            assert all(problem.what for problem in found)
        else:
            assert None is broken(found, of)


def broken(verdict: Verdict, of: Review) -> str | None:
    """What is wrong with a verdict by the checks that other results undergo; None if nothing is."""
    if verdict.edits is not None:
        assert "approve" == verdict.word
        assert [] == problems(of, verdict.edits)
    if verdict.word != "answer":
        return None if verdict.result is None else "it has a result"
    assert verdict.result is not None
    if of.kind == "sampling":
        return None if verdict.result["model"] == "human/ops" else "it is in another name"
    origin = Origin(of.server, of.caller, of.era, of.revision)
    return answer_error(ElicitationRequest(origin, of.params, 0, "url" if of.mode == "url" else "form"), verdict.result)


@given(content=FITTING)
def test_what_fits_the_form_is_read_and_is_told_as_it_was_given(content: dict[str, Any]) -> None:
    given = {"verdict": "answer", "action": "accept", "content": content}
    found = read(given, FORM, digest="optional")
    assert isinstance(found, Verdict)
    assert given == as_given(found, FORM)


@given(content=CONTENT)
def test_a_form_is_refused_exactly_where_the_schema_refuses_it(content: dict[str, Any]) -> None:
    form = read_form(FORM.params["requestedSchema"], FORM.revision)
    assert isinstance(form, Form)
    found = read({"verdict": "answer", "action": "accept", "content": content}, FORM, digest="optional")
    try:
        plain = json.loads(json.dumps(content, allow_nan=False))
    except ValueError:
        assert isinstance(found, tuple)
        return
    if isinstance(found, Verdict) or not any(problem.path == "" for problem in found):
        assert isinstance(found, Verdict) == (check(form, plain) is None)


@given(raw=GIVEN, of=st.sampled_from(REVIEWS))
def test_a_verdict_is_told_in_the_form_that_it_is_read_from(raw: dict[str, Any], of: Review) -> None:
    found = read(raw, of, digest="optional")
    if isinstance(found, Verdict):
        assert found == read(as_given(found, of), of, digest="optional")
