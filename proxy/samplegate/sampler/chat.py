"""A createMessage request as one call of a chat model, from an allow-list and nothing else (T25). Not litellm's words: ``ask.py`` adds those.

Pure. Text only: images, audio and tools are refused here, should a rule let them through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MOST_TOKENS: Final = 2**31 - 1  # what every provider's integers hold; asking for fewer than the server allowed is allowed (R3)
HOTTEST: Final = 1e6  # providers refuse above 2; what is no such number at all (NaN, ten to the 400th) is left out
_HALF: Final = re.compile("[\ud800-\udfff]")


class Unfit(ValueError):
    """A text model cannot be asked this. The message names the place, never the content."""


def call(params: Mapping[str, Any], most: int | None) -> dict[str, Any]:
    """What one model is asked: ``messages``, ``max_tokens`` and, where given, ``temperature`` and ``stop``.

    ``most`` is the model's own bound on output tokens. Everything else in ``params`` stays behind: ``metadata``, ``includeContext``, unknown
    keys. Raises Unfit.
    """
    if params.get("tools") or params.get("toolChoice"):
        raise Unfit("params.tools: models are not offered tools yet; let a client answer this one (effect: forward)")
    out: dict[str, Any] = {"messages": _messages(params), "max_tokens": _max_tokens(params.get("maxTokens"), most)}
    temperature = params.get("temperature")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and abs(temperature) <= HOTTEST:
        out["temperature"] = float(temperature)
    stop = [whole(text) for text in params.get("stopSequences") or () if isinstance(text, str) and text]
    if stop:
        out["stop"] = stop
    return out


def whole(text: str) -> str:
    """Text that UTF-8 can carry: half of a surrogate pair (a cut emoji) becomes U+FFFD."""
    return _HALF.sub("\ufffd", text)


def blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A message's content as a list: one block may stand for itself (before 2025-11-25 it always does)."""
    content = message.get("content")
    return [block for block in (content if isinstance(content, list) else [content]) if isinstance(block, Mapping)]


def _max_tokens(asked: object, most: int | None) -> int:
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked >= 1:
        raise Unfit("params.maxTokens: it is not a number of at least 1; the server must say how much it wants")
    return min(int(min(asked, MOST_TOKENS)), MOST_TOKENS if most is None else most)


def _messages(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    system = params.get("systemPrompt")
    if isinstance(system, str) and system:
        out.append({"role": "system", "content": whole(system)})
    for index, message in enumerate(params.get("messages") or ()):
        out.append({"role": _role(message, index), "content": _content(message, index)})
    if not out or out[-1]["role"] == "system":
        raise Unfit("params.messages: there is none; the server must send at least one")
    return out


def _role(message: Mapping[str, Any], index: int) -> str:
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise Unfit(f"params.messages.{index}.role: it is neither user nor assistant")
    return str(role)


def _content(message: Mapping[str, Any], index: int) -> str | list[dict[str, str]]:
    """One text as it is, several as parts: joining them would blur where one ends."""
    parts = [_text(block, index) for block in blocks(message)]
    if len(parts) == 1:
        return parts[0]
    return [{"type": "text", "text": part} for part in parts]


def _text(block: Mapping[str, Any], index: int) -> str:
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        raise Unfit(f"params.messages.{index}.content: models are asked text only so far; let a client answer this one (effect: forward)")
    return whole(text)
