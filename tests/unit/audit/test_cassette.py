"""Cassette cases built from answers: what is replayed, what is left out, and that nothing harmful gets into the
file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.audit.cassette import EXCERPT, HEADER, answer_case, failure_case
from samplegate.policy.prompt import Sampled, SampleFailed
from samplegate.policy.script import ScriptReply, parse, pick, reply
from tests.fakes.requests import form, sampling, url

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def params(what: str) -> dict[str, Any]:
    return dict(sampling(what).params)


@given(
    st.text(),
    st.text(),
    st.dictionaries(
        st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.none()
    ),
)
def test_whatever_was_said_is_said_again_or_left_out(asked: str, answer: str, values: dict[str, Any]) -> None:
    blocks = [{"type": "text", "text": answer}, {"type": "tool_use", "id": "1", "name": asked, "input": values}]
    taped = answer_case(params(asked), {"content": blocks, "model": "m"})
    if taped is not None:
        again = pick(parse(HEADER + taped.text, file="f"), "t", params(asked)).result
        assert isinstance(again, Sampled)
        assert blocks == list(again.content)
    else:
        assert any(
            len(name) > 100 or (isinstance(value, int) and abs(value) >= 2**63) for name, value in values.items()
        )


@given(st.text(), st.dictionaries(st.text(), NUMBERS | st.text() | st.booleans() | st.lists(st.text())))
def test_whatever_a_person_filled_in_is_filled_in_again_or_left_out(message: str, values: dict[str, Any]) -> None:
    asked = {**form().params, "message": message}
    taped = answer_case(asked, {"action": "accept", "content": values})
    if taped is not None:
        assert ScriptReply("accept", values) == reply(parse(HEADER + taped.text, file="f"), asked)


@given(st.text(st.characters()))
def test_no_question_breaks_the_file(what: str) -> None:
    taped = failure_case(params(what), "refused")
    assert taped is not None
    assert isinstance(pick(parse(HEADER + taped.text, file="f"), "t", params(what)).result, SampleFailed)
    comment = taped.text.splitlines()[0]
    assert comment.startswith("# ")
    assert len(comment) <= EXCERPT + 2


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (params("a"), None),
        (params("a"), {"content": []}),
        (params("a"), {"content": {"type": "text"}}),
        (params("a"), {"content": {"type": "tool_use", "id": "1", "name": "n", "input": {"n": 2**64}}}),
        (params("a"), {"content": {"type": "text", "text": "x"}, "model": 5}),
        (form(a="string").params, {"action": "think"}),
        (form(a="string").params, {"action": "accept", "content": {"a": {"b": 1}}}),
        (form(a="string").params, {"action": "accept", "content": [1]}),
        (form(pin="string").params, {"action": "accept", "content": {"pin": "1234"}}),
        (url("https://example.com").params, {"action": "accept"}),
    ],
)
def test_what_no_machine_may_say_again_has_no_case(asked: Any, result: Any) -> None:
    assert answer_case(asked, result) is None


def test_a_failure_that_is_none_of_a_models_has_no_case() -> None:
    assert failure_case(params("a"), "cancelled") is None
