"""A request's tools and their uses in the words of a chat model. From an allow-list: name, description, schema and nothing else (T25). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from samplegate.sampler.parts import Unfit, blocks, result_parts, whole
from samplegate.sampler.schemas import MAX_GROWN, fit

PROVIDER: Final = "samplegate/provider"
"""The ``_meta`` key under which a tool use carries what its provider must see again in the next turn (R14)."""
SIGNATURE: Final = "thought_signature"
"""Gemini's: without it the provider refuses the turn that follows, or thinks worse."""
MAX_SIGNATURE: Final = 16 * 1024
MAX_TOOLS: Final = 128  # the least that a provider takes at most
EMPTY: Final[Mapping[str, Any]] = MappingProxyType({"type": "object", "properties": {}})
"""The schema of a tool that has none."""

_SIGNED: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z")


def offered(params: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str]:
    """The tools that go out, and ``auto``, ``required`` or ``none``. Raises Unfit.

    With ``none`` there are none, unless the conversation has uses of tools: some providers refuse one without their definitions.
    """
    tools = params.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) and isinstance(tool.get("name"), str) and tool["name"] for tool in tools):
        raise Unfit("params.tools: every tool needs a name; the server must give one")
    names = [tool["name"] for tool in tools]
    used = used_names(params)
    if max(len(names), len(used)) > MAX_TOOLS:
        raise Unfit(
            f"params.tools: there are {max(len(names), len(used))}, used or on offer, and {MAX_TOOLS} is the most; the server must offer fewer"
        )
    if len(set(names)) < len(names):
        raise Unfit("params.tools: two have the same name; the server must rename one")
    choice = _choice(params.get("toolChoice"))
    if choice == "required" and not tools:
        raise Unfit("params.toolChoice.mode: 'required' without a tool; the server must offer one")
    if not used:
        return ([], "none") if choice == "none" else (tools, choice)
    if not tools:
        return [{"name": name} for name in used], "none"
    return tools, choice


def used_names(params: Mapping[str, Any]) -> list[str]:
    """The names of the tools that were used in the conversation."""
    messages = [message for message in params.get("messages") or () if isinstance(message, Mapping)]
    uses = (block for message in messages for block in blocks(message.get("content")) if block.get("type") == "tool_use")
    return list(dict.fromkeys(use["name"] for use in uses if isinstance(use.get("name"), str)))


def definitions(tools: Sequence[Mapping[str, Any]], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tools for the provider, under the names in ``known``. Raises Unfit."""
    left = MAX_GROWN
    out: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        at = f"params.tools.{index}.inputSchema"
        schema = tool.get("inputSchema")
        parameters, left = fit(schema if isinstance(schema, Mapping) else EMPTY, at, left)
        _encoded(parameters, at)
        function: dict[str, Any] = {"name": known[tool["name"]], "parameters": parameters}
        if isinstance(tool.get("description"), str):
            function["description"] = whole(tool["description"])
        out.append({"type": "function", "function": function})
    return out


def use(block: Mapping[str, Any], alias: str, id: str, at: str) -> dict[str, Any]:
    """A ``tool_use`` block as a call of the assistant's. Raises Unfit."""
    given = block.get("input")
    if not isinstance(given, Mapping):
        raise Unfit(f"{at}.input: it is not an object; the server must send one")
    call: dict[str, Any] = {"id": id, "type": "function", "function": {"name": alias, "arguments": _encoded(given, f"{at}.input")}}
    meta = block.get("_meta")
    kept = meta.get(PROVIDER) if isinstance(meta, Mapping) else None
    signature = kept.get(SIGNATURE) if isinstance(kept, Mapping) else None
    if (signed := signed_with(signature)) is not None:
        call["provider_specific_fields"] = {SIGNATURE: signed}
    return call


def result(block: Mapping[str, Any], id: str, at: str) -> dict[str, Any]:
    """A ``tool_result`` block as a message of the tool's: one text where there is nothing else. Raises Unfit."""
    parts = result_parts(block, at)
    if all(part["type"] == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts)
        if text.lstrip()[:5].lower() != "data:":  # litellm would make an image of such a text
            return {"role": "tool", "tool_call_id": id, "content": text}
        parts = [{"type": "text", "text": text}]
    return {"role": "tool", "tool_call_id": id, "content": parts}


def signed_with(signature: object) -> str | None:
    """A signature that may be handed on; None for anything else."""
    fits = isinstance(signature, str) and len(signature) <= MAX_SIGNATURE and _SIGNED.match(signature)
    return str(signature) if fits else None


def _choice(choice: object) -> str:
    mode = choice.get("mode", "auto") if isinstance(choice, Mapping) else "auto"
    if mode not in ("auto", "required", "none"):
        raise Unfit("params.toolChoice.mode: it is not one of auto, required, none")
    return str(mode)


def _encoded(value: Any, at: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        raise Unfit(f"{at}: it is not JSON that can be sent on") from None
