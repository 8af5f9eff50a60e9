"""Content blocks -> parts of a chat message: every block becomes a part or is refused with its position and type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.sampler.worker.request import UnsupportedRequest, part, result_parts, valid_text

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "text", "data", "uri", "resource", "blob"]), inner, max_size=4)
    ),
    max_leaves=10,
)
KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "tool_use", "video"])
BLOCKS = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    KINDS,
    st.dictionaries(st.sampled_from(["text", "data", "mimeType", "uri"]), ANY_JSON),
)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("kind", "format"),
    [
        ("audio/mpeg", "mp3"),
        ("audio/mp3", "mp3"),
        ("audio/wav", "wav"),
        ("audio/x-wav", "wav"),
        ("audio/wave", "wav"),
        ("audio/vnd.wave", "wav"),
    ],
)
def test_audio_is_told_by_its_type(kind: str, format: str) -> None:
    assert {"type": "input_audio", "input_audio": {"data": "YQ==", "format": format}} == part(
        {"type": "audio", "data": "YQ==", "mimeType": kind}, "x"
    )


@pytest.mark.parametrize(
    ("block", "what"),
    [
        (
            {"type": "audio", "data": "YQ==", "mimeType": "audio/ogg"},
            "here.mimeType: 'audio/ogg' is not a supported audio type; use audio/mpeg or audio/wav",
        ),
        ({"type": "audio", "data": "YQ=="}, "here.mimeType: unknown is not a supported audio type"),
        ({"type": "image", "data": "YQ==", "mimeType": "text/html"}, "here.mimeType: 'text/html' is not an image type"),
        ({"type": "image", "data": "YQ==", "mimeType": "image/png;base64,evil"}, "here.mimeType"),
        ({"type": "image", "data": "YQ==", "mimeType": "image/png\n"}, "here.mimeType"),
        ({"type": "image", "data": "", "mimeType": "image/png"}, "here.data: not valid base64"),
        ({"type": "image", "data": "YQ", "mimeType": "image/png"}, "here.data: not valid base64"),
        ({"type": "image", "data": "Y Q==", "mimeType": "image/png"}, "here.data: not valid base64"),
        ({"type": "image", "data": "é===", "mimeType": "image/png"}, "here.data: not valid base64"),
        ({"type": "image", "mimeType": "image/png"}, "here.data: not a string"),
        ({"type": "text"}, "here.text: not a string"),
        ({"type": "video"}, "here: content of type 'video' cannot be sent to a model"),
        ({}, "here: content of type unknown"),
    ],
)
def test_what_has_no_part_is_refused_by_place_and_type(block: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedRequest) as refused:
        part(block, "here")
    assert what in str(refused.value)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [text("a"), text("b")]}, [text("a"), text("b")]),
        ({"content": text("a")}, [text("a")]),
        ({"content": [], "structuredContent": {"a": [1]}}, [text('{"a":[1]}')]),
        ({"content": [text("a")], "structuredContent": {"a": 1}}, [text("a")]),
        ({"content": [], "structuredContent": 5, "isError": True}, [text("error: the tool failed"), text("5")]),
        ({"content": [text("no")], "isError": True}, [text("error: the tool failed"), text("no")]),
        ({"content": [text("no")], "isError": "yes"}, [text("no")]),
        (
            {"content": [{"type": "resource_link", "uri": "http://x/1", "name": "one", "title": "The one"}]},
            [text("[link to a resource: The one, one, http://x/1]")],
        ),
        (
            {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]},
            [text("[link to a resource: x, file:///x]")],
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "words"}}]},
            [text("[resource file:///x]\nwords")],
        ),
        (
            {
                "content": [
                    {"type": "resource", "resource": {"uri": "file:///x", "blob": "YQ==", "mimeType": "image/png"}}
                ]
            },
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ=="}}],
        ),
    ],
)
def test_a_tools_result_in_order(result: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert expected == result_parts(result, "here")


@pytest.mark.parametrize(
    ("block", "what"),
    [
        (
            {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"},
            "here.content.0: audio in a tool result cannot be sent to a model",
        ),
        (
            {"type": "resource", "resource": {"uri": "x", "blob": "YQ==", "mimeType": "application/pdf"}},
            "here.content.0.resource: a blob of type 'application/pdf'",
        ),
        (
            {"type": "resource", "resource": {"uri": "x", "blob": "YQ=="}},
            "here.content.0.resource: a blob of type unknown",
        ),
        ({"type": "resource"}, "here.content.0.resource: missing"),
        ({"type": "resource_link", "name": "x"}, "here.content.0.uri: not a string"),
        ({"type": "tool_use"}, "here.content.0: content of type 'tool_use'"),
    ],
)
def test_what_a_result_cannot_carry_is_refused(block: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedRequest) as refused:
        result_parts({"content": [block]}, "here")
    assert what in str(refused.value)


@given(block=BLOCKS)
def test_a_hostile_block_becomes_one_part_or_is_refused_and_is_never_left_out(block: dict[str, Any]) -> None:
    try:
        parts = result_parts({"content": [block]}, "here")
    except UnsupportedRequest:
        return
    assert 1 == len(parts)


def test_half_a_character_is_replaced() -> None:
    assert "a\ufffdb" == valid_text("a\ud83db")
