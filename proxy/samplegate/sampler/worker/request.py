"""Pure. A createMessage request as one call of a chat model, built from an allow-list only (T25).

A request that no model can answer is refused here, with its place and type. A request that litellm's provider cannot
carry is refused by ``provider_messages`` in the worker.

An embedded text resource is sent as its text with its URI, a link as its name and URI, and structured content as JSON
if a tool gave no text. A failed tool (``isError``) is marked at the beginning of its result, because litellm has no
field for it, even for providers that have one.
"""

from __future__ import annotations

import binascii
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

# fits every provider's integers; requesting fewer tokens than the server allowed is permitted (R3)
MAX_TOKENS: Final = 2**31 - 1
# providers refuse above 2; NaN and larger values are left out
MAX_TEMPERATURE: Final = 1e6


def call(params: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """The params of one call: ``messages``, ``max_tokens`` and, if given, ``temperature``, ``stop``, ``tools``,
    ``tool_choice`` and ``offer``.

    ``limit`` is the model's own limit of output tokens. All other params are left out: ``metadata``,
    ``includeContext``, unknown keys. Raises UnsupportedRequest.
    """
    tools, choice = offered_tools(params)
    known = aliases([*(tool["name"] for tool in tools), *used_names(params)])
    ids = positions(_ids(params))
    out: dict[str, Any] = {
        "messages": _messages(params, known, ids),
        "max_tokens": _max_tokens(params.get("maxTokens"), limit),
    }
    temperature = params.get("temperature")
    if (
        isinstance(temperature, int | float)
        and not isinstance(temperature, bool)
        and abs(temperature) <= MAX_TEMPERATURE
    ):
        out["temperature"] = float(temperature)
    stop = [valid_text(text) for text in params.get("stopSequences") or () if isinstance(text, str) and text]
    if stop:
        out["stop"] = stop
    if tools:
        out["tools"] = definitions(tools, known)
        names = {} if choice == "none" else {known[tool["name"]]: tool["name"] for tool in tools}
        out["offer"] = msgspec.to_builtins(AnswerBounds(names, choice == "required", tuple(ids)))
        if choice != "auto":
            out["tool_choice"] = choice
    return out


def _max_tokens(asked: object, limit: int | None) -> int:
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked >= 1:
        raise UnsupportedRequest("params.maxTokens: not a number of at least 1; the server must set it")
    return min(int(min(asked, MAX_TOKENS)), MAX_TOKENS if limit is None else limit)


def _ids(params: Mapping[str, Any]) -> list[str]:
    found = [
        block.get("id")
        for message in params.get("messages") or ()
        if isinstance(message, Mapping)
        for block in blocks(message.get("content"))
    ]
    return [id for id in found if isinstance(id, str)]


def _messages(params: Mapping[str, Any], known: Mapping[str, str], ids: Mapping[str, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    system = params.get("systemPrompt")
    if isinstance(system, str) and system:
        out.append({"role": "system", "content": valid_text(system)})
    waiting: list[str] = []
    asked = params.get("messages") or ()
    for index, message in enumerate(asked):
        at = f"params.messages.{index}"
        if not isinstance(message, Mapping):
            raise UnsupportedRequest(f"{at}: not an object; the server must send one")
        content = blocks(message.get("content"))
        if not content:
            raise UnsupportedRequest(f"{at}.content: empty; the server must send at least one block")
        if waiting or any(block.get("type") == "tool_result" for block in content):
            out += _results(content, waiting, ids, at)
            waiting = []
        elif _role(message, at) == "assistant":
            out.append(_assistant(content, known, ids, at))
            waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
        else:
            out.append(
                {
                    "role": "user",
                    "content": _content([part(block, f"{at}.content.{n}") for n, block in enumerate(content)]),
                }
            )
    if waiting:
        raise UnsupportedRequest(
            f"params.messages.{len(asked) - 1}.content: a tool_use has no tool_result; the server must send one (R11)"
        )
    if not asked:
        raise UnsupportedRequest("params.messages: empty; the server must send at least one message")
    return out


def _role(message: Mapping[str, Any], at: str) -> str:
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise UnsupportedRequest(f"{at}.role: neither user nor assistant")
    return str(role)


def _assistant(
    content: Sequence[Mapping[str, Any]], known: Mapping[str, str], ids: Mapping[str, str], at: str
) -> dict[str, Any]:
    """A model's own message: text and tool uses. No provider accepts images or audio that a model made."""
    texts: list[Part] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(content):
        where = f"{at}.content.{index}"
        match block.get("type"):
            case "text":
                texts.append(part(block, where))
            case "tool_use":
                if not isinstance(block.get("id"), str) or block.get("name") not in known:
                    raise UnsupportedRequest(f"{where}: a tool_use needs an id and a name; the server must send both")
                calls.append(tool_call(block, known[block["name"]], ids[block["id"]], where))
            case _:
                part(block, where)  # raises a more specific error if the block is malformed
                raise UnsupportedRequest(
                    f"{where}: {block['type']} in an assistant message is not supported; the server must send it in a"
                    " user message"
                )
    if len({one["id"] for one in calls}) < len(calls):
        raise UnsupportedRequest(f"{at}.content: two tool_use blocks have the same id; the server must use unique ids")
    message: dict[str, Any] = {"role": "assistant", "content": _content(texts) if texts else None}
    return {**message, "tool_calls": calls} if calls else message


def _results(
    content: Sequence[Mapping[str, Any]], waiting: Sequence[str], ids: Mapping[str, str], at: str
) -> list[dict[str, Any]]:
    """The tools' results in the order of their uses, on which providers without ids rely (T27). Exactly one for each
    use (R10, R11)."""
    if any(block.get("type") != "tool_result" for block in content):
        raise UnsupportedRequest(
            f"{at}.content: only tool_result blocks for the preceding tool_use blocks are allowed here (R10, R11)"
        )
    found = {block.get("toolUseId"): (index, block) for index, block in enumerate(content)}
    if set(found) != set(waiting) or len(found) < len(content):
        raise UnsupportedRequest(
            f"{at}.content: tool_result blocks must match the {len(waiting)} preceding tool_use blocks, one each (R11)"
        )
    return [tool_message(found[id][1], ids[id], f"{at}.content.{found[id][0]}") for id in waiting]


def _content(parts: list[Part]) -> str | list[Part]:
    """A single text as a string, several as parts: joining them would hide where one ends."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts or [text_part("")]


FAILED: Final = "error: the tool failed"
"""The text before the result of a tool that failed."""

_HALF: Final = re.compile("[\ud800-\udfff]")
_IMAGE: Final = re.compile(r"image/[a-z0-9][a-z0-9.+-]{0,63}\Z")
_AUDIO: Final[Mapping[str, str]] = {
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
}

Part = dict[str, Any]


class UnsupportedRequest(ValueError):
    """A request that cannot be sent to a model. The message names the place and the type, never the content."""


def valid_text(text: str) -> str:
    """The text as valid UTF-8: half of a surrogate pair (a cut emoji) becomes U+FFFD."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def blocks(content: object) -> list[Mapping[str, Any]]:
    """Content as a list. A single block may be used without one (before 2025-11-25 it always is)."""
    return [block for block in (content if isinstance(content, list) else [content]) if isinstance(block, Mapping)]


def part(block: Mapping[str, Any], at: str) -> Part:
    """The message part for a text, image or audio block; ``at`` is its place. Raises UnsupportedRequest."""
    match block.get("type"):
        case "text":
            return text_part(_string(block, "text", at))
        case "image":
            return _image(_string(block, "data", at), block.get("mimeType"), at)
        case "audio":
            return _audio(_string(block, "data", at), block.get("mimeType"), at)
        case other:
            raise UnsupportedRequest(
                f"{at}: content of type {_named(other)} cannot be sent to a model; let the client answer"
                " (effect: forward)"
            )


def result_parts(result: Mapping[str, Any], at: str) -> list[Part]:
    """A tool's result as text and image parts, in order. Raises UnsupportedRequest."""
    out = [_result_part(block, f"{at}.content.{index}") for index, block in enumerate(blocks(result.get("content")))]
    if not any(one["type"] == "text" for one in out) and result.get("structuredContent") is not None:
        out.insert(0, text_part(_encoded(result["structuredContent"], f"{at}.structuredContent")))
    if result.get("isError") is True:
        out.insert(0, text_part(FAILED))
    return out


def is_base64(data: str) -> bool:
    """Whether a text is base64 of at least one byte, without other characters."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False


def text_part(text: str) -> Part:
    """A text part."""
    return {"type": "text", "text": valid_text(text)}


def _result_part(block: Mapping[str, Any], at: str) -> Part:
    match block.get("type"):
        case "resource_link":
            return text_part(_link(block, at))
        case "resource":
            return _resource(block.get("resource"), at)
        case "audio":
            raise UnsupportedRequest(
                f"{at}: audio in a tool result cannot be sent to a model; let the client answer (effect: forward)"
            )
        case _:
            return part(block, at)


def _link(block: Mapping[str, Any], at: str) -> str:
    names = [block[key] for key in ("title", "name") if isinstance(block.get(key), str) and block[key]]
    return f"[link to a resource: {', '.join([*dict.fromkeys(names), _string(block, 'uri', at)])}]"


def _resource(resource: object, at: str) -> Part:
    if not isinstance(resource, Mapping):
        raise UnsupportedRequest(f"{at}.resource: missing; the server must send it")
    if isinstance(resource.get("text"), str):
        return text_part(f"[resource {_string(resource, 'uri', at)}]\n{resource['text']}")
    kind = resource.get("mimeType")
    if not isinstance(kind, str) or not kind.startswith("image/"):
        raise UnsupportedRequest(
            f"{at}.resource: a blob of type {_named(kind)} cannot be sent to a model; let the client answer"
            " (effect: forward)"
        )
    return _image(_string(resource, "blob", at), kind, at)


def _image(data: str, kind: object, at: str) -> Part:
    if not isinstance(kind, str) or not _IMAGE.match(kind):
        raise UnsupportedRequest(
            f"{at}.mimeType: {_named(kind)} is not an image type; the server must send one, such as image/png"
        )
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{_base64(data, at)}"}}


def _audio(data: str, kind: object, at: str) -> Part:
    known = _AUDIO.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise UnsupportedRequest(
            f"{at}.mimeType: {_named(kind)} is not a supported audio type; use audio/mpeg or audio/wav"
        )
    return {"type": "input_audio", "input_audio": {"data": _base64(data, at), "format": known}}


def _base64(data: str, at: str) -> str:
    if not is_base64(data):
        raise UnsupportedRequest(f"{at}.data: not valid base64; the server must encode it")
    return data


def _string(block: Mapping[str, Any], key: str, at: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise UnsupportedRequest(f"{at}.{key}: not a string; the server must send one")
    return value


def _named(kind: object) -> str:
    """A type for a message. It is the server's text, so it is shortened."""
    return repr(kind[:40]) if isinstance(kind, str) and kind.isascii() and kind.isprintable() else "unknown"


PROVIDER: Final = "samplegate/provider"
"""The ``_meta`` key of a tool use for data that its provider needs again in the next turn (R14)."""
SIGNATURE: Final = "thought_signature"
"""Gemini's signature: without it, the provider refuses the next turn or reasons worse."""
MAX_SIGNATURE: Final = 16 * 1024
MAX_TOOLS: Final = 128  # the lowest maximum of all providers
EMPTY: Final[Mapping[str, Any]] = MappingProxyType({"type": "object", "properties": {}})
"""The schema of a tool without one."""

_SIGNED: Final = re.compile(r"[A-Za-z0-9+/=_-]+\Z")


def offered_tools(params: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str]:
    """The tools to send, and ``auto``, ``required`` or ``none``. Raises UnsupportedRequest.

    With ``none``, no tools are sent unless the conversation has tool uses: some providers refuse a tool use without its
    definition.
    """
    tools = params.get("tools") or []
    if not isinstance(tools, list) or not all(
        isinstance(tool, Mapping) and isinstance(tool.get("name"), str) and tool["name"] for tool in tools
    ):
        raise UnsupportedRequest("params.tools: a tool has no name; the server must name every tool")
    names = [tool["name"] for tool in tools]
    used = used_names(params)
    if max(len(names), len(used)) > MAX_TOOLS:
        raise UnsupportedRequest(
            f"params.tools: {max(len(names), len(used))} tools, more than the maximum of {MAX_TOOLS}; the server must"
            " offer fewer"
        )
    if len(set(names)) < len(names):
        raise UnsupportedRequest("params.tools: two tools have the same name; the server must rename one")
    choice = _choice(params.get("toolChoice"))
    if choice == "required" and not tools:
        raise UnsupportedRequest("params.toolChoice.mode: 'required' without tools; the server must offer one")
    if not used:
        return ([], "none") if choice == "none" else (tools, choice)
    if not tools:
        return [{"name": name} for name in used], "none"
    return tools, choice


def used_names(params: Mapping[str, Any]) -> list[str]:
    """The names of the tools used in the conversation."""
    messages = [message for message in params.get("messages") or () if isinstance(message, Mapping)]
    uses = (
        block for message in messages for block in blocks(message.get("content")) if block.get("type") == "tool_use"
    )
    return list(dict.fromkeys(use["name"] for use in uses if isinstance(use.get("name"), str)))


def definitions(tools: Sequence[Mapping[str, Any]], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """The definitions of the tools for the provider, under the names in ``known``. Raises UnsupportedRequest."""
    left = MAX_EXPANDED
    out: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        at = f"params.tools.{index}.inputSchema"
        schema = tool.get("inputSchema")
        parameters, left = provider_schema(schema if isinstance(schema, Mapping) else EMPTY, at, left)
        _encoded(parameters, at)
        function: dict[str, Any] = {"name": known[tool["name"]], "parameters": parameters}
        if isinstance(tool.get("description"), str):
            function["description"] = valid_text(tool["description"])
        out.append({"type": "function", "function": function})
    return out


def tool_call(block: Mapping[str, Any], alias: str, id: str, at: str) -> dict[str, Any]:
    """A ``tool_use`` block as a tool call of the assistant. Raises UnsupportedRequest."""
    given = block.get("input")
    if not isinstance(given, Mapping):
        raise UnsupportedRequest(f"{at}.input: not an object; the server must send one")
    call: dict[str, Any] = {
        "id": id,
        "type": "function",
        "function": {"name": alias, "arguments": _encoded(given, f"{at}.input")},
    }
    meta = block.get("_meta")
    kept = meta.get(PROVIDER) if isinstance(meta, Mapping) else None
    signature = kept.get(SIGNATURE) if isinstance(kept, Mapping) else None
    if (signed := valid_signature(signature)) is not None:
        call["provider_specific_fields"] = {SIGNATURE: signed}
    return call


def tool_message(block: Mapping[str, Any], id: str, at: str) -> dict[str, Any]:
    """A ``tool_result`` block as a tool message: a single text if it has only text. Raises UnsupportedRequest."""
    parts = result_parts(block, at)
    if all(part["type"] == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts)
        if text.lstrip()[:5].lower() != "data:":  # litellm would turn such a text into an image
            return {"role": "tool", "tool_call_id": id, "content": text}
        parts = [{"type": "text", "text": text}]
    return {"role": "tool", "tool_call_id": id, "content": parts}


def valid_signature(signature: object) -> str | None:
    """A valid signature to pass on, or None."""
    fits = isinstance(signature, str) and len(signature) <= MAX_SIGNATURE and _SIGNED.match(signature)
    return str(signature) if fits else None


def _choice(choice: object) -> str:
    mode = choice.get("mode", "auto") if isinstance(choice, Mapping) else "auto"
    if mode not in ("auto", "required", "none"):
        raise UnsupportedRequest("params.toolChoice.mode: not one of auto, required, none")
    return str(mode)


def _encoded(value: Any, at: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        raise UnsupportedRequest(f"{at}: cannot be encoded as JSON") from None


MAX_ALIAS: Final = 64
_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


class AnswerBounds(msgspec.Struct, frozen=True):
    """The constraints that an answer must meet."""

    names: Mapping[str, str] = {}
    """The provider's name of each tool that may be used -> the server's name. Empty: no tool may be used."""
    required: bool = False
    """Whether at least one tool must be used (R9)."""
    taken: tuple[str, ...] = ()
    """The ids of tool uses in the request; an answer's ids must differ (T27)."""


def aliases(names: Iterable[str]) -> dict[str, str]:
    """Every tool name -> its name for the provider: letters, digits, ``_`` and ``-``, 64 at most.

    A safe name stays unchanged, so another name's alias never takes it.
    """
    wanted = list(dict.fromkeys(names))
    out = {name: name for name in wanted if _SAFE.match(name)}
    used = set(out)
    tried: Counter[str] = Counter()
    for name in wanted:
        if name not in out:
            out[name] = _free(_UNSAFE.sub("_", name)[:MAX_ALIAS], used, tried)
            used.add(out[name])
    return out


def positions(ids: Iterable[str]) -> dict[str, str]:
    """Every id of a tool use -> its id for the provider, in the strictest form that a provider requires (nine letters
    and digits)."""
    return {id: f"use{number:06d}" for number, id in enumerate(dict.fromkeys(ids), 1)}


def _free(base: str, used: set[str], tried: Counter[str]) -> str:
    """The next unused alias. ``tried`` avoids trying the same numbers again if a server has ten thousand similar
    names."""
    head = base if _SAFE.match(base[:1]) else f"t_{base}"[:MAX_ALIAS]
    while True:
        tail = f"_{tried[head]}" if tried[head] else ""
        tried[head] += 1
        alias = head[: MAX_ALIAS - len(tail)] + tail
        if alias not in used:
            return alias


MAX_DEPTH: Final = 48  # deeper schemas break providers and recursive libraries
MAX_CHAIN: Final = 48  # references within references, for the same reason
# characters and nodes of all tools of a request, with references expanded; real tools have a few thousand each
MAX_EXPANDED: Final = 400_000
# litellm expands every ``$ref`` for some providers, without a bound: a dozen definitions that refer to each other twice
# become gigabytes (R17).
HEADER: Final = "x-mcp-header"
"""A member that MCP over HTTP adds to schemas; providers must not see it (T25)."""


def provider_schema(schema: Mapping[str, Any], at: str, limit: int) -> tuple[dict[str, Any], int]:
    """A copy of a schema for the provider, and what is left of ``limit``; ``at`` is its place.

    Raises UnsupportedRequest.
    """
    copy: dict[str, Any] = _copied(schema, at, MAX_DEPTH)
    left = limit - _expanded_size(copy, limit)
    if left <= 0:
        raise UnsupportedRequest(
            f"{at}: too large with its references expanded; the server must send a simpler schema, or fewer tools"
        )
    return copy, left


def _copied(value: Any, at: str, depth: int) -> Any:
    if depth == 0:
        raise UnsupportedRequest(
            f"{at}: nested more than {MAX_DEPTH} levels deep; the server must send a flatter schema"
        )
    if isinstance(value, Mapping):
        return {
            valid_text(str(key)): _copied(one, at, depth - 1)
            for key, one in value.items()
            if not (key == HEADER and isinstance(one, str))
        }
    if isinstance(value, list):
        return [_copied(one, at, depth - 1) for one in value]
    return valid_text(value) if isinstance(value, str) else value


def _expanded_size(schema: Mapping[str, Any], limit: int) -> int:
    """The expanded size of a schema, or at least ``limit`` if it is larger. The walk is litellm's: a reference is
    identified by its last segment, and is not expanded within itself."""
    targets: defaultdict[str, list[Any]] = defaultdict(list)
    for name, target in _definitions(schema):
        targets[name].append(target)
    size = 0
    todo: list[tuple[Any, frozenset[str]]] = [(schema, frozenset())]
    while todo and size < limit:
        node, inside = todo.pop()
        size += 1
        if isinstance(node, str):
            size += len(node)
        elif isinstance(node, list):
            todo += [(one, inside) for one in node]
        elif isinstance(node, Mapping):
            size += sum(map(len, node))
            todo += [(one, inside) for one in node.values()]
            meant = _reference(node)
            if meant is not None and meant not in inside:
                if len(inside) == MAX_CHAIN:
                    return limit
                todo += [(target, inside | {meant}) for target in targets.get(meant, ())]
    return size


def _reference(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _definitions(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every definition, at any depth."""
    todo: list[Any] = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, Mapping):
            todo += node.values()
            for key in ("$defs", "definitions"):
                if isinstance(node.get(key), Mapping):
                    yield from node[key].items()


# What providers carry was found by observing requests at an endpoint. litellm silently drops the rest, so it is refused
# by name here.
GEMINI: Final = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})
# Providers that receive audio: messages are sent unchanged, or through Gemini's own translation.
_HEARS: Final = frozenset(
    {
        "openai",
        "azure",
        "openrouter",
        "hosted_vllm",
        "litellm_proxy",
        "custom_openai",
        "openai_like",
        "lm_studio",
        *GEMINI,
    }
)
_RESULT_IMAGES: Final = frozenset({"anthropic", *GEMINI})
# For these providers, litellm joins the texts of a message and drops everything else.
_TEXT_ONLY: Final = frozenset(
    {
        "deepseek",
        "replicate",
        "sambanova",
        "nlp_cloud",
        "heroku",
        "langflow",
        "langgraph",
        "docker_model_runner",
        "huggingface",
        "moonshot",
        "a2a",
    }
)
_NAMES: Final = {"image_url": "image", "input_audio": "audio"}


RESPONSES: Final = "OpenAI's Responses API"
"""A pseudo-provider for models that litellm calls through OpenAI's Responses API, where it drops audio and stop
sequences."""


def provider_messages(provider: str, model: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages in the form that a provider accepts. Images that it does not accept in a tool's result follow the
    results as a user message. Raises UnsupportedRequest."""
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
    """A tool's result with a note in place of its images, and the images with a text that names their result."""
    content = message["content"]
    images = [part for part in content if part["type"] == "image_url"] if isinstance(content, list) else []
    if not images:
        return message, []
    rest = [part["text"] for part in content if part["type"] != "image_url"]
    label = f"{len(images)} image{'' if len(images) == 1 else 's'} of tool result {number}"
    return {**message, "content": "\n".join([*rest, f"[{label}: in the next message]"])}, [
        {"type": "text", "text": f"[{label}]"},
        *images,
    ]


def _fitted(provider: str, model: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        kind = _NAMES.get(part["type"])
        if kind is not None and not _carries(provider, model, kind, message["role"] == "tool"):
            where = "a tool result" if message["role"] == "tool" else "a message"
            raise UnsupportedRequest(
                f"{kind} content in {where} cannot be sent to {provider}; use another model, or let the client answer"
                " (effect: forward)"
            )
    calls = message.get("tool_calls")
    if calls is None or provider in GEMINI:
        return dict(message)
    return {
        **message,
        "tool_calls": [
            {key: value for key, value in call.items() if key != "provider_specific_fields"} for call in calls
        ],
    }


def _carries(provider: str, model: str, kind: str, in_result: bool) -> bool:
    # Vertex also serves other makers' models
    foreign = provider in GEMINI and "gemini" not in model and provider != "gemini"
    if kind == "audio":
        return provider in _HEARS and not in_result and not foreign
    if in_result:
        return provider in _RESULT_IMAGES and not foreign
    return provider not in _TEXT_ONLY
