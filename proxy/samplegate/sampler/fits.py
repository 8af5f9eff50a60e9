"""What litellm's provider can carry: the second net, behind the catalogue's. Pure. What it would drop without a word is refused by name.

Known from what arrives at an endpoint, not from what is documented: audio sent to Anthropic is left out, images in a tool's result reach
Anthropic and Gemini only (for others they follow the results), and some providers get a message's texts alone.
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
    """The messages as this provider takes them: images that it does not take in a tool's result follow the results, as the user's. Raises Unfit."""
    model = model.lower()
    if _carries(provider, model, "image", True) or not _carries(provider, model, "image", False):
        return [_fitted(provider, model, message) for message in messages]
    out: list[dict[str, Any]] = []
    images: list[Mapping[str, Any]] = []
    number = 0
    for message in messages:
        if message["role"] != "tool":
            if images:
                out.append({"role": "user", "content": images})
            images, number = [], 0
        else:
            number += 1
            text, moved = _without_images(message, number)
            images = [*images, *moved]
            out.append(_fitted(provider, model, text))
            continue
        out.append(_fitted(provider, model, message))
    return [*out, {"role": "user", "content": images}] if images else out


def _without_images(message: Mapping[str, Any], number: int) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """A tool's result with a note in place of its images, and the images with a text that says whose they are."""
    content = message["content"]
    images = [part for part in content if part["type"] == "image_url"] if isinstance(content, list) else []
    if not images:
        return message, []
    rest = [part["text"] for part in content if part["type"] != "image_url"]
    said = f"{len(images)} image{'' if len(images) == 1 else 's'} of tool result {number}"
    return {**message, "content": "\n".join([*rest, f"[{said}: in the next message]"])}, [{"type": "text", "text": f"[{said}]"}, *images]


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
