"""A createMessage request as one call of a chat model, from an allow-list and nothing else (T25). Not litellm's words: ``ask.py`` adds those.

Pure. What a model cannot be asked is refused here, by its place and type; what its provider cannot carry, by ``fits.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.sampler.names import Offer, aliases, positions
from samplegate.sampler.parts import Part, Unfit, blocks, part, text_part, whole
from samplegate.sampler.tools import definitions, offered, result, use, used_names

__all__ = ["HOTTEST", "MOST_TOKENS", "Unfit", "call"]

MOST_TOKENS: Final = 2**31 - 1  # what every provider's integers hold; asking for fewer than the server allowed is allowed (R3)
HOTTEST: Final = 1e6  # providers refuse above 2; what is no such number at all (NaN, ten to the 400th) is left out


def call(params: Mapping[str, Any], most: int | None) -> dict[str, Any]:
    """What one model is asked: ``messages``, ``max_tokens`` and, where given, ``temperature``, ``stop``, ``tools``, ``tool_choice`` and ``offer``.

    ``most`` is the model's own bound on output tokens. Everything else in ``params`` stays behind: ``metadata``, ``includeContext``, unknown
    keys. Raises Unfit.
    """
    tools, choice = offered(params)
    known = aliases([*(tool["name"] for tool in tools), *used_names(params)])
    ids = positions(_ids(params))
    out: dict[str, Any] = {"messages": _messages(params, known, ids), "max_tokens": _max_tokens(params.get("maxTokens"), most)}
    temperature = params.get("temperature")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and abs(temperature) <= HOTTEST:
        out["temperature"] = float(temperature)
    stop = [whole(text) for text in params.get("stopSequences") or () if isinstance(text, str) and text]
    if stop:
        out["stop"] = stop
    if tools:
        out["tools"] = definitions(tools, known)
        names = {} if choice == "none" else {known[tool["name"]]: tool["name"] for tool in tools}
        out["offer"] = msgspec.to_builtins(Offer(names, choice == "required", tuple(ids)))
        if choice != "auto":
            out["tool_choice"] = choice
    return out


def _max_tokens(asked: object, most: int | None) -> int:
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked >= 1:
        raise Unfit("params.maxTokens: it is not a number of at least 1; the server must say how much it wants")
    return min(int(min(asked, MOST_TOKENS)), MOST_TOKENS if most is None else most)


def _ids(params: Mapping[str, Any]) -> list[str]:
    found = [block.get("id") for message in params.get("messages") or () if isinstance(message, Mapping) for block in blocks(message.get("content"))]
    return [id for id in found if isinstance(id, str)]


def _messages(params: Mapping[str, Any], known: Mapping[str, str], ids: Mapping[str, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    system = params.get("systemPrompt")
    if isinstance(system, str) and system:
        out.append({"role": "system", "content": whole(system)})
    waiting: list[str] = []
    asked = params.get("messages") or ()
    for index, message in enumerate(asked):
        at = f"params.messages.{index}"
        if not isinstance(message, Mapping):
            raise Unfit(f"{at}: it is not an object")
        content = blocks(message.get("content"))
        if not content:
            raise Unfit(f"{at}.content: there is none; the server must send at least one block")
        if waiting or any(block.get("type") == "tool_result" for block in content):
            out += _results(content, waiting, ids, at)
            waiting = []
        elif _role(message, at) == "assistant":
            out.append(_assistant(content, known, ids, at))
            waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
        else:
            out.append({"role": "user", "content": _content([part(block, f"{at}.content.{n}") for n, block in enumerate(content)])})
    if waiting:
        raise Unfit(f"params.messages.{len(asked) - 1}.content: a use of a tool has no result; the server must send one (R11)")
    if not asked:
        raise Unfit("params.messages: there is none; the server must send at least one")
    return out


def _role(message: Mapping[str, Any], at: str) -> str:
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise Unfit(f"{at}.role: it is neither user nor assistant")
    return str(role)


def _assistant(content: Sequence[Mapping[str, Any]], known: Mapping[str, str], ids: Mapping[str, str], at: str) -> dict[str, Any]:
    """A model's own words: text and uses of tools. No provider takes back images or sounds that a model made."""
    texts: list[Part] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(content):
        where = f"{at}.content.{index}"
        match block.get("type"):
            case "text":
                texts.append(part(block, where))
            case "tool_use":
                if not isinstance(block.get("id"), str) or block.get("name") not in known:
                    raise Unfit(f"{where}: a use of a tool needs an id and a name; the server must send both")
                calls.append(use(block, known[block["name"]], ids[block["id"]], where))
            case _:
                part(block, where)  # refused by its own name, if it has no shape at all
                raise Unfit(f"{where}: {block['type']} in the assistant's own words reaches no model; the server must send it as the user's")
    if len({one["id"] for one in calls}) < len(calls):
        raise Unfit(f"{at}.content: two uses of tools have the same id; the server must keep them apart")
    said: dict[str, Any] = {"role": "assistant", "content": _content(texts) if texts else None}
    return {**said, "tool_calls": calls} if calls else said


def _results(content: Sequence[Mapping[str, Any]], waiting: Sequence[str], ids: Mapping[str, str], at: str) -> list[dict[str, Any]]:
    """The tools' answers in the order of their uses, which providers without ids go by (T27). Exactly those that were asked for (R10, R11)."""
    if any(block.get("type") != "tool_result" for block in content):
        raise Unfit(f"{at}.content: it must hold the results of the tools that were used, and nothing else (R10, R11)")
    found = {block.get("toolUseId"): (index, block) for index, block in enumerate(content)}
    if set(found) != set(waiting) or len(found) < len(content):
        raise Unfit(f"{at}.content: the results are not those of the {len(waiting)} tool uses before, one each (R11)")
    return [result(found[id][1], ids[id], f"{at}.content.{found[id][0]}") for id in waiting]


def _content(parts: list[Part]) -> str | list[Part]:
    """One text as it is, several as parts: joining them would blur where one ends."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts or [text_part("")]
