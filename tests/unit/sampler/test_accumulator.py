"""Accumulating a streamed response: pieces are joined and bounded, and values that litellm invents are ignored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samplegate.sampler.worker import response as module
from samplegate.sampler.worker.response import AnswerTooLarge, ResponseAccumulator


def delta(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def call(
    arguments: str | None = None, id: str | None = None, name: str | None = None, index: int | None = 0, **more: Any
) -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}, **more}


def calls_of(*deltas: dict[str, Any]) -> list[tuple[str | None, str, str]]:
    heard = ResponseAccumulator()
    for one in deltas:
        heard.add_piece(delta(tool_calls=[one]))
    return [(one.id, one.name, "".join(one.arguments)) for one in heard.calls]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([call("", "1", "a"), call('{"x"'), call(": 1}")], [("1", "a", '{"x": 1}')]),
        ([call("{}", "1", "a"), call("{}", "1", "b", index=1)], [("1", "a", "{}"), ("1", "b", "{}")]),
        ([call("{}", "1", "a"), call("{}", "2", "b")], [("1", "a", "{}"), ("2", "b", "{}")]),
        ([call("{", "1", "a"), call("}", "1", "a")], [("1", "a", "{}")]),
        ([call("{}", None, "a"), call("{}", None, "b", index=1)], [(None, "a", "{}"), (None, "b", "{}")]),
        ([call("{}", "1", "a", index=None)], [("1", "a", "{}")]),
        (
            [call("{", "1", "a"), call("{", "2", "b", index=1), call("}"), call("}", index=1)],
            [("1", "a", "{}"), ("2", "b", "{}")],
        ),
    ],
    ids=["pieces", "one-id", "one-index", "repeated-head", "no-ids", "no-index", "interleaved"],
)
def test_calls_are_put_together(deltas: list[dict[str, Any]], expected: list[tuple[str | None, str, str]]) -> None:
    assert expected == calls_of(*deltas)


@pytest.mark.parametrize(
    ("piece", "held"),
    [
        (delta(content="x"), True),
        (delta(content=""), False),
        (delta(content=None), False),
        (delta(reasoning_content="hm"), True),
        (delta(reasoning_content=""), False),
        (delta(tool_calls=[call("")]), True),
        (delta(role="assistant"), False),
        (None, False),
    ],
)
def test_a_piece_counts_if_it_holds_something(piece: Any, held: bool) -> None:
    heard = ResponseAccumulator()

    assert held is heard.add_piece(piece)
    assert held == heard.pieces


@pytest.mark.parametrize(
    "piece",
    [
        delta(content="x" * 6),
        delta(tool_calls=[call("x" * 6)]),
        delta(tool_calls=[call("", name="x" * 6)]),
        delta(images=[{"image_url": {"url": "x" * 6}}]),
    ],
)
def test_an_answer_is_bounded_while_it_grows(piece: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 10)
    heard = ResponseAccumulator()
    heard.add_piece(delta(content="12345"))

    with pytest.raises(AnswerTooLarge, match="longer than 10 characters"):
        heard.add_piece(piece)


def test_pieces_and_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PIECES", 3)
    monkeypatch.setattr(module, "MAX_USES", 3)
    heard = ResponseAccumulator()
    with pytest.raises(AnswerTooLarge, match="more than 3 tool calls"):
        heard.add_piece(delta(tool_calls=[call("", index=n) for n in range(4)]))
    heard.add_piece(delta())
    heard.add_piece(delta())
    with pytest.raises(AnswerTooLarge, match="more than 3 chunks"):
        heard.add_piece(delta())


@pytest.mark.parametrize(
    ("frame", "stop"),
    [
        ({"choices": [{"finish_reason": "stop"}]}, "stop"),
        ({"choices": [{"finish_reason": None}]}, None),
        ({"choices": []}, None),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "SAFETY"),
        ({"candidates": [{"content": {}}]}, None),
        ({"promptFeedback": {"blockReason": "OTHER"}}, "OTHER"),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "end_turn"),
        ({"type": "message_delta", "delta": {"stop_reason": "not a word"}}, None),
        ({"type": "message_start"}, None),
        ({"type": "response.completed", "response": {"status": "completed"}}, "stop"),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            "max_output_tokens",
        ),
        (
            {"type": "response.completed", "response": {"incomplete_details": {"reason": "content_filter"}}},
            "content_filter",
        ),
    ],
)
def test_only_the_providers_own_end_counts_where_its_frames_are_known(frame: dict[str, Any], stop: str | None) -> None:
    heard = ResponseAccumulator()
    heard.read_native_frame(frame)
    heard.read_chunk(SimpleNamespace(choices=[SimpleNamespace(finish_reason="stop", delta=None)]))

    assert stop == heard.stop
    assert "stop" == heard.mapped


@pytest.mark.parametrize("frame", [{}, {"type": "response.created"}, {"choices": "x"}, {"promptFeedback": 5}])
def test_litellms_word_counts_where_they_are_not(frame: dict[str, Any]) -> None:
    heard = ResponseAccumulator()
    heard.read_native_frame(frame)
    heard.read_chunk(SimpleNamespace(choices=[SimpleNamespace(finish_reason="length", delta=None)]))

    assert "length" == heard.stop


def test_what_the_last_event_of_a_response_says_takes_the_place_of_the_pieces() -> None:
    heard = ResponseAccumulator()
    heard.add_piece(delta(tool_calls=[call("{}{}", "1", "a")]))
    output = [{"type": "message"}, {"type": "function_call", "call_id": "1", "name": "a", "arguments": "{}"}, 5]
    heard.read_native_frame({"type": "response.completed", "response": {"model": "m-1", "output": output}})

    assert [("1", "a", ["{}"])] == [(one.id, one.name, one.arguments) for one in heard.calls]
    assert "m-1" == heard.model


def test_output_counted_before_the_end_is_not_the_output() -> None:
    heard = ResponseAccumulator()
    heard.read_native_frame({"type": "message_start"})
    heard.note_usage({"prompt_tokens": 7, "completion_tokens": 1})
    assert (7, None) == (heard.input_tokens, heard.output_tokens)

    heard.read_native_frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    heard.note_usage({"prompt_tokens": 0, "completion_tokens": 4})
    assert (7, 4) == (heard.input_tokens, heard.output_tokens)


@pytest.mark.parametrize("count", [0, -1, True, "5", None, 1.5])
def test_what_is_no_count_is_none(count: object) -> None:
    heard = ResponseAccumulator()
    heard.note_usage({"prompt_tokens": count, "completion_tokens": count})

    assert (None, None) == (heard.input_tokens, heard.output_tokens)


def test_no_two_answers_share_what_they_hold() -> None:
    first = ResponseAccumulator()
    first.add_piece(delta(content="x", tool_calls=[call("{}", "1", "a")]))

    assert ([], []) == (ResponseAccumulator().texts, ResponseAccumulator().calls)
