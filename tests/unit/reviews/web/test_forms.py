"""From a browser's POST to the verdict as JSON: each value has its field's type, and untouched fields stay
untouched."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.protocol.elicitation_schema import Form, read_form
from samplegate.reviews import verdict as verdicts
from samplegate.reviews.review import EditBounds, Review, Verdict
from samplegate.reviews.web.forms import MAX_FIELDS, FormEntry, content, drawable, entries, parse_form
from tests.fakes import page_reviews as shown
from tests.fakes import reviews as made
from tests.fakes.reviews import DIGEST, model_answer, review, text


def form(required: list[str] | None = None, **fields: Any) -> Form:
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    found = read_form({"type": "object", "properties": properties, "required": required or []}, "2025-11-25")
    assert isinstance(found, Form), found
    return found


def drawn(schema: Any, **more: Any) -> FormEntry:
    return entries(form(field=schema, **more), None, {})[0]


def posted(**fields: str | list[str]) -> dict[str, list[str]]:
    return {name.replace("__", "."): [value] if isinstance(value, str) else value for name, value in fields.items()}


# --- what is drawn


@pytest.mark.parametrize(
    ("schema", "draws"),
    [
        ("string", "line"),
        ("integer", "number"),
        ("number", "number"),
        ("boolean", "radios"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "line"),
        ({"type": "string", "format": "email"}, "email"),
        ({"type": "string", "format": "uri"}, "url"),
        ({"type": "string", "maxLength": 500}, "lines"),
        ({"type": "string", "default": "a\nb"}, "lines"),
        ({"type": "string", "enum": ["a", "b"]}, "radios"),
        ({"type": "string", "enum": list("abcdefgh")}, "select"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "radios"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, "checkboxes"),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, "checkboxes"),
    ],
)
def test_every_kind_of_field_has_its_input(schema: Any, draws: str) -> None:
    assert draws == drawn(schema).draws


@pytest.mark.parametrize(
    ("schema", "labels"),
    [
        ({"type": "string", "enum": ["a", "b"]}, ["No answer", "a", "b"]),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["One", "Two"]}, ["No answer", "One (a)", "Two (b)"]),
        ({"type": "string", "oneOf": [{"const": "a", "title": "One"}]}, ["No answer", "One (a)"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "One"}, {"const": "b"}]}}, ["One (a)", "b"]),
        ({"type": "string", "enum": ["a"], "enumNames": ["x" * 999]}, ["No answer", f"{'x' * 150}... (a)"]),
        ("boolean", ["No answer", "Yes", "No"]),
    ],
)
def test_choices_have_their_titles_and_what_is_optional_can_be_left_open(schema: Any, labels: list[str]) -> None:
    assert labels == [option.label for option in drawn(schema).options]


def test_defaults_are_filled_in() -> None:
    fields = entries(read(shown.form()), None, {})
    values = {entry.key: entry.value or [option.label for option in entry.options if option.chosen] for entry in fields}
    assert ("8080", "2026-11-01", "first line\nsecond line") == (values["port"], values["since"], values["notes"])
    assert (["No"], ["Medium (m)"], ["web"]) == (values["restart"], values["size"], values["tags"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "default": "x"},
        {"type": "integer", "default": 5},
        {"type": "string", "enum": ["a"], "default": "a"},
        {"type": "boolean", "default": True},
    ],
)
def test_what_looks_like_a_secret_is_warned_of_and_never_filled_in(schema: Any) -> None:
    entry = entries(form(password=schema), None, {})[0]
    assert entry.secret
    assert "" == entry.value
    assert {"No answer"} >= {option.label for option in entry.options if option.chosen}


def test_bounds_are_said_in_words() -> None:
    assert ("a whole number", "at least 1", "at most 9") == drawn({"type": "integer", "minimum": 1, "maximum": 9}).hints
    assert ("min length 2", "max length 5") == drawn({"type": "string", "minLength": 2, "maxLength": 5}).hints
    assert ("min length 1",) == drawn({"type": "string", "minLength": 1}).hints


def test_a_form_with_too_many_fields_or_choices_is_not_drawn() -> None:
    assert drawable(form(None, **{f"f{n}": "string" for n in range(MAX_FIELDS)}))
    assert not drawable(form(None, **{f"f{n}": "string" for n in range(MAX_FIELDS + 1)}))
    assert not drawable(form(field={"type": "string", "enum": [str(n) for n in range(5_000)]}))


def test_what_was_typed_comes_back() -> None:
    fields = form(
        a="integer",
        b={"type": "string", "enum": ["x", "y"]},
        c={"type": "array", "items": {"type": "string", "enum": ["p", "q"]}, "default": ["p"]},
    )
    found = entries(fields, posted(f__0="twelve", f__1="1", f__2=["1"]), {"a": "must be a whole number"})
    assert ("twelve", "must be a whole number") == (found[0].value, found[0].problem)
    assert (["y"], ["q"]) == (
        [o.label for o in found[1].options if o.chosen],
        [o.label for o in found[2].options if o.chosen],
    )


# --- what is read


def read(found: Review) -> Form:
    form_ = read_form(found.params["requestedSchema"], found.revision)
    assert isinstance(form_, Form)
    return form_


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ("string", "ann", "ann"),
        ("string", "a\r\nb", "a\nb"),
        ("integer", " 12 ", 12),
        ("integer", "-3", -3),
        ("number", "0.5", 0.5),
        ("number", "2", 2),
        ("number", "1e3", 1000.0),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ({"type": "string", "enum": ["a", "b"]}, "1", "b"),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "0", "x"),
    ],
)
def test_a_value_has_the_type_of_its_field(schema: Any, typed: str, value: Any) -> None:
    values, problems = content(form(field=schema), posted(f__0=typed))
    assert ({"field": value}, {}) == (values, problems)
    assert type(value) is type(values["field"])


@pytest.mark.parametrize(
    ("schema", "typed", "what"),
    [
        ("integer", "twelve", "must be a whole number"),
        ("integer", "1.5", "must be a whole number"),
        ("integer", "9" * 30, "is too large"),
        ("number", "1,5", "must be a number, with a decimal point for fractions"),
        ("number", "1e999", "is too large"),
        ("number", "NaN", "must be a number"),
        ("number", "0x10", "must be a number"),
        ("boolean", "maybe", "must be yes or no"),
        ({"type": "string", "enum": ["a"]}, "7", "must be one of the choices"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, "a", "must be among the choices"),
    ],
)
def test_what_is_no_value_of_the_field_is_a_problem_at_it(schema: Any, typed: str, what: str) -> None:
    values, problems = content(form(field=schema), posted(f__0=typed))
    assert {} == values
    assert problems["field"].startswith(what)


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        "integer",
        "boolean",
        {"type": "string", "enum": ["a"]},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1},
    ],
)
def test_an_empty_field_is_left_out_or_needed(schema: Any) -> None:
    assert ({}, {}) == content(form(field=schema), {})
    assert ({}, {"field": "is required"}) == content(form(["field"], field=schema), {})


def test_no_default_is_sent_that_was_taken_out() -> None:
    assert ({}, {}) == content(form(field={"type": "string", "default": "x"}), posted(f__0=""))


def test_a_list_that_is_needed_and_may_be_empty_is_empty() -> None:
    assert ({"field": []}, {}) == content(
        form(["field"], field={"type": "array", "items": {"type": "string", "enum": ["a"]}}), {}
    )


def test_an_untouched_default_with_odd_line_ends_is_sent_to_the_letter() -> None:
    assert ({"field": "a\rb\r\nc"}, {}) == content(
        form(field={"type": "string", "default": "a\rb\r\nc"}), posted(f__0="a\r\nb\r\nc")
    )


# --- verdicts


def verdict(found: Review, **fields: str | list[str]) -> Any:
    words = parse_form(found, posted(digest=DIGEST, **fields))
    assert {} == words.problems
    return verdicts.read(words.verdict, found, digest="needed")


def test_approval_as_it_is() -> None:
    assert Verdict(word="approve") == verdict(review(), do="approve")


def test_a_form_that_comes_back_untouched_edits_nothing() -> None:
    odd = "line\r\nends\r and \0"
    found = review(
        params={
            "messages": [{"role": "user", "content": [text("hi"), text(odd)]}],
            "maxTokens": 200,
            "systemPrompt": odd,
        }
    )
    typed = odd.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n").replace("\0", "\ufffd")
    fields = {
        "edit__system": typed,
        "edit__text__0__0": "hi",
        "edit__text__0__1": typed,
        "edit__model": "smart",
        "edit__max_tokens": "200",
        "edit__temperature": "",
    }
    assert Verdict(word="approve") == verdict(found, do="approve", **fields)
    assert "Nothing was edited" in parse_form(found, posted(digest=DIGEST, do="edit", **fields)).problems[""]


def test_edits_are_of_the_field_that_was_changed() -> None:
    found = shown.sampling(digest=DIGEST)
    words = parse_form(
        found,
        posted(
            do="edit",
            digest=DIGEST,
            edit__text__0__0="Short, please",
            edit__model="quick",
            edit__max_tokens="50",
            edit__temperature="0",
        ),
    )
    picture = found.params["messages"][0]["content"][1]
    messages = [{"role": "user", "content": [text("Short, please"), picture]}]
    assert {"messages": messages, "model": "quick", "maxTokens": 50, "temperature": 0} == words.verdict["edits"]
    assert isinstance(verdicts.read(words.verdict, found, digest="needed"), Verdict)


@pytest.mark.parametrize(
    ("field", "typed", "path"),
    [
        ("edit__max_tokens", "many", "edits.maxTokens"),
        ("edit__max_tokens", "", "edits.maxTokens"),
        ("edit__temperature", "warm", "edits.temperature"),
    ],
)
def test_an_edit_that_is_no_number_is_a_problem_at_its_field(field: str, typed: str, path: str) -> None:
    assert [path] == list(parse_form(review(), posted(do="edit", digest=DIGEST, **{field: typed})).problems)


def test_an_edit_over_a_bound_is_refused_and_not_clamped() -> None:
    found = review(bounds=EditBounds(models=("smart",), max_tokens={"smart": 500}))
    problems = verdict(found, do="edit", edit__max_tokens="501")
    assert ["edits.maxTokens"] == [problem.path for problem in problems]


def test_rejection_with_a_reason_that_the_server_sees() -> None:
    assert Verdict(word="reject", reason="not now", tell_server=True) == verdict(
        review(), do="reject", reason="not now\r\n", tell_server="yes"
    )
    assert Verdict(word="reject", reason="not now") == verdict(review(), do="reject", reason="not now")


def test_an_answer_by_hand() -> None:
    found = verdict(review(), do="answer", answer__0="forty\r\ntwo")
    assert found.result is not None
    assert "forty\ntwo" == found.result["content"]["text"]


def test_an_edited_answer_of_a_model_keeps_what_is_no_text() -> None:
    picture = {"type": "image", "data": shown.png(), "mimeType": "image/png"}
    found = verdict(model_answer(text("one"), picture, text("two")), do="edit", answer__0="one", answer__2="three")
    assert [text("one"), picture, text("three")] == found.result["content"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_an_elicitation_is_declined_or_cancelled(action: str) -> None:
    found = verdict(shown.form(digest=DIGEST), do=action)
    assert {"action": action} == found.result


def test_a_filled_in_form_is_accepted() -> None:
    found = verdict(made.form(port="integer", host="string"), do="accept", f__0="80", f__1="a")
    assert {"action": "accept", "content": {"port": 80, "host": "a"}} == found.result


def test_an_address_is_accepted_without_content() -> None:
    assert {"action": "accept"} == verdict(made.address(), do="accept").result


def test_a_form_that_is_too_large_to_draw_is_written_as_json() -> None:
    found = made.form(required=[], **{f"f{n}": "string" for n in range(MAX_FIELDS + 1)})
    assert {"f7": "x"} == verdict(found, do="accept", content='{"f7": "x"}').result["content"]
    assert ["content"] == list(parse_form(found, posted(do="accept", content='{"f7": 1, "f7": 2}')).problems)


@pytest.mark.parametrize("do", ["", "delete", "accept-all"])
def test_a_button_that_is_none_of_the_page_decides_nothing(do: str) -> None:
    assert [""] == list(parse_form(review(), posted(do=do, digest=DIGEST)).problems)


def test_what_was_not_shown_cannot_be_decided() -> None:
    words = parse_form(review(), posted(do="approve", digest="sha256:" + "00" * 32))
    problems = verdicts.read(words.verdict, review(), digest="needed")
    assert isinstance(problems, tuple)
    assert ["digest"] == [problem.path for problem in problems]
