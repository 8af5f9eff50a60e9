"""What makes two requests the same to whoever answers them: a fingerprint of what a model, or a person, reads. Not a secret and no proof.

Sampling: messages, system prompt and tools; an elicitation: its message and form. Not what two runs do differently with the same question:
``_meta``, ``metadata``, bounds, priorities, and the ids of tool uses, which count by their place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

SIZE: Final = 16
"""Hex digits: enough that the cases of one file never meet by chance."""


def fingerprint(params: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 over canonical JSON (sorted keys, no blanks, ASCII); empty for what has no JSON, which is like nothing else."""
    try:
        text = json.dumps(_read(params), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # values of no request that was parsed: numbers of thousands of digits, depth without end
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:SIZE]


def _read(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that are read; what is absent, null or empty is the same."""
    ids: dict[Any, str] = {}
    messages = [_message(message, ids) for message in _listed(params.get("messages"))]
    found = {
        "messages": messages,
        "systemPrompt": params.get("systemPrompt"),
        "tools": [_bare(tool) for tool in _listed(params.get("tools"))],
        "message": params.get("message"),
        "requestedSchema": params.get("requestedSchema"),
    }
    return {name: value for name, value in found.items() if value}


def _message(message: Any, ids: dict[Any, str]) -> Any:
    if not isinstance(message, Mapping):
        return message
    return {**_bare(message), "content": [_block(block, ids) for block in _listed(message.get("content"))]}


def _block(block: Any, ids: dict[Any, str]) -> Any:
    """A block with the id of a tool use replaced by its place among them."""
    if not isinstance(block, Mapping):
        return block
    return {**_bare(block), **{name: ids.setdefault(block[name], f"tool {len(ids)}") for name in _ids(block)}}


def _ids(block: Mapping[str, Any]) -> Iterator[str]:
    name = {"tool_use": "id", "tool_result": "toolUseId"}.get(str(block.get("type")))
    if name is not None and isinstance(block.get(name), str):
        yield name


def _bare(value: Any) -> Any:
    return {name: item for name, item in value.items() if name != "_meta"} if isinstance(value, Mapping) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
