"""Features that litellm's providers support. ``test_shapes.py`` tests what really arrives; this file tests what is
refused, and by which name."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.sampler.worker.request import RESPONSES, UnsupportedRequest, provider_messages

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ=="}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}


@pytest.mark.parametrize(
    ("provider", "model", "role", "part", "taken"),
    [
        ("openai", "gpt-4o", "user", IMAGE, True),
        ("anthropic", "claude-x", "user", IMAGE, True),
        ("gemini", "gemini-x", "user", IMAGE, True),
        ("deepseek", "deepseek-chat", "user", IMAGE, False),
        ("openai", "gpt-4o", "user", AUDIO, True),
        ("gemini", "gemini-x", "user", AUDIO, True),
        ("vertex_ai", "gemini-x", "user", AUDIO, True),
        ("vertex_ai", "claude-x", "user", AUDIO, False),
        ("anthropic", "claude-x", "user", AUDIO, False),
        (RESPONSES, "gpt-x", "user", AUDIO, False),
        (RESPONSES, "gpt-x", "user", IMAGE, True),
        ("bedrock", "x", "user", AUDIO, False),
        ("somebody-new", "x", "user", AUDIO, False),
        ("deepseek", "x", "tool", IMAGE, False),
        ("anthropic", "claude-x", "tool", IMAGE, True),
        ("gemini", "gemini-x", "tool", IMAGE, True),
        ("gemini", "gemini-x", "tool", AUDIO, False),
    ],
)
def test_what_does_not_arrive_is_refused_by_name(
    provider: str, model: str, role: str, part: dict[str, Any], taken: bool
) -> None:
    messages = [{"role": role, "content": [{"type": "text", "text": "x"}, part]}]
    if taken:
        assert messages == provider_messages(provider, model, messages)
        return
    with pytest.raises(UnsupportedRequest, match=f"cannot be sent to {provider}"):
        provider_messages(provider, model, messages)


@pytest.mark.parametrize(
    ("provider", "kept"), [("gemini", True), ("vertex_ai", True), ("openai", False), ("anthropic", False)]
)
def test_only_gemini_is_given_signatures(provider: str, kept: bool) -> None:
    call = {"id": "1", "type": "function", "function": {}, "provider_specific_fields": {"thought_signature": "x"}}
    (message,) = provider_messages(provider, "x", [{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert kept is ("provider_specific_fields" in message["tool_calls"][0])


@pytest.mark.parametrize(("provider", "model"), [(RESPONSES, "gpt-x"), ("openai", "gpt-4o"), ("somebody-new", "x")])
def test_images_in_results_follow_all_results_where_a_provider_takes_none_in_them(provider: str, model: str) -> None:
    first = {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a map"}, IMAGE]}
    second = {"role": "tool", "tool_call_id": "2", "content": "rain"}
    after = {"role": "assistant", "content": "I see"}

    assert [
        {**first, "content": "a map\n[1 image of tool result 1: in the next message]"},
        second,
        {"role": "user", "content": [{"type": "text", "text": "[1 image of tool result 1]"}, IMAGE]},
        after,
    ] == provider_messages(provider, model, [first, second, after])
