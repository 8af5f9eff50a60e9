"""What litellm's provider can carry: the second net, behind the catalogue's. Pure. What it would drop without a word is refused by name.

Known from what arrives at an endpoint, not from what is documented: audio sent to Anthropic is left out, images in a tool's result reach
Anthropic and Gemini only, and some providers get a message's texts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from samplegate.sampler.parts import Unfit

GEMINI: Final = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})
# Their messages go out as they are, or through Gemini's own translation.
_AUDIO: Final = frozenset({"openai", "azure", "openrouter", "hosted_vllm", "litellm_proxy", "custom_openai", "openai_like", "lm_studio", *GEMINI})
_RESULT_IMAGES: Final = frozenset({"anthropic", *GEMINI})
# litellm joins the texts of a message for these and leaves everything else out.
_TEXT_ONLY: Final = frozenset(
    {"deepseek", "replicate", "sambanova", "nlp_cloud", "heroku", "langflow", "langgraph", "docker_model_runner", "huggingface", "moonshot", "a2a"}
)
_NAMES: Final = {"image_url": "image", "input_audio": "audio"}


RESPONSES: Final = "OpenAI's responses"
"""In place of a provider, where litellm asks its model that way: it leaves audio out there, and stop sequences."""


def fitted(provider: str, model: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as this provider takes them. Raises Unfit."""
    return [_fitted(provider, model.lower(), message) for message in messages]


def _fitted(provider: str, model: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        kind = _NAMES.get(part["type"])
        if kind is not None and not _carries(provider, model, kind, message["role"] == "tool"):
            where = "a tool's result" if message["role"] == "tool" else "a message"
            raise Unfit(f"{kind} in {where} does not reach {provider}; ask another model, or let a client answer this one (effect: forward)")
    calls = message.get("tool_calls")
    if calls is None or provider in GEMINI:
        return dict(message)
    return {**message, "tool_calls": [{key: value for key, value in call.items() if key != "provider_specific_fields"} for call in calls]}


def _carries(provider: str, model: str, kind: str, in_result: bool) -> bool:
    foreign = provider in GEMINI and "gemini" not in model and provider != "gemini"  # Vertex serves other makers' models too
    if kind == "audio":
        return provider in _AUDIO and not in_result and not foreign
    if in_result:
        return provider in _RESULT_IMAGES and not foreign
    return provider not in _TEXT_ONLY
