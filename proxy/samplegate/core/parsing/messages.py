"""The messages of a sampling request: are they what the negotiated revision allows, and do tool results balance. Not their meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from samplegate.core.eras import has_modes
from samplegate.core.parsing.strictjson import Fault, folded, named, told

MAX_MESSAGES: Final = 10_000  # a year's chat; every one of them is looked at in one go
MAX_BLOCKS: Final = 10_000

Object: TypeAlias = dict[str, Any]

_MESSAGE: Final = frozenset({"role", "content", "_meta"})
_CONTENT: Final = frozenset(
    "type text data mimeType id name input toolUseId content structuredContent isError annotations resource uri title description size _meta".split()
)
_RESOURCE: Final = frozenset({"uri", "mimeType", "text", "blob", "_meta"})


def check_messages(messages: Any, revision: str) -> None:
    """Raises Fault where ``messages`` is not what ``revision`` allows (R2, R6, R13) or its tool results do not balance (R10, R11)."""
    if not isinstance(messages, list):
        raise Fault("messages: must be a list")
    if len(messages) > MAX_MESSAGES:
        raise Fault(f"messages: are more than {MAX_MESSAGES}")
    wanted: set[str] = set()
    for index, message in enumerate(messages):
        place = f"messages.{index}"
        wanted = _balance(_checked(message, revision, place), message["role"], wanted, place)
    if wanted:
        raise Fault(f"messages.{len(messages) - 1}: uses a tool whose result does not follow")


def _checked(message: Any, revision: str, place: str) -> list[Object]:
    """The content blocks of one message."""
    if not isinstance(message, dict):
        raise Fault(f"{place}: must be an object")
    unambiguous(message, _MESSAGE, place)
    if message.get("role") not in ("user", "assistant"):
        raise Fault(f"{place}.role: must be user or assistant")
    optional(message, "_meta", dict, "an object", place)
    content = message.get("content")
    if not isinstance(content, list):
        _check_block(content, revision, f"{place}.content")
        assert isinstance(content, dict)
        return [content]
    if not has_modes(revision):
        raise Fault(f"{place}.content: is a list, which {told(revision)} does not have")
    if len(content) > MAX_BLOCKS:
        raise Fault(f"{place}.content: has more than {MAX_BLOCKS} blocks")
    for index, block in enumerate(content):
        _check_block(block, revision, f"{place}.content.{index}")
    return content


def _balance(blocks: list[Object], role: str, wanted: set[str], place: str) -> set[str]:
    """The ids of the tool uses that the next message must answer, all of them and nothing else (R10, R11)."""
    results = [block["toolUseId"] for block in blocks if block["type"] == "tool_result"]
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if results and role != "user":
        raise Fault(f"{place}: has a tool result that is not the user's")
    if uses and role != "assistant":
        raise Fault(f"{place}: uses a tool though it is not the assistant's")
    if results and len(results) != len(blocks):
        raise Fault(f"{place}: mixes tool results with other content")
    if len(results) != len(wanted) or set(results) != wanted:
        raise Fault(f"{place}: its tool results are not those of the tool uses before it")
    if len(set(uses)) != len(uses):
        raise Fault(f"{place}: two tool uses have one id")
    return set(uses)


def _check_block(block: Any, revision: str, place: str) -> None:
    if not isinstance(block, dict):
        raise Fault(f"{place}: must be a content block")
    unambiguous(block, _CONTENT, place)
    type_ = block.get("type")
    since, check = _BLOCKS.get(type_, ("", None)) if isinstance(type_, str) else ("", None)
    if check is None or revision < since:
        raise Fault(f"{place}.type: is no type of content that {told(revision)} has")
    optional(block, "annotations", dict, "an object", place)
    optional(block, "_meta", dict, "an object", place)
    check(block, revision, place)


def _check_text(block: Object, revision: str, place: str) -> None:
    required(block, "text", str, "a string", place)


def _check_media(block: Object, revision: str, place: str) -> None:
    required(block, "data", str, "a string", place)
    required(block, "mimeType", str, "a string", place)


def _check_use(block: Object, revision: str, place: str) -> None:
    required(block, "id", str, "a string", place)
    required(block, "name", str, "a string", place)
    required(block, "input", dict, "an object", place)


def _check_result(block: Object, revision: str, place: str) -> None:
    required(block, "toolUseId", str, "a string", place)
    optional(block, "isError", bool, "true or false", place)
    if revision < "2026":
        optional(block, "structuredContent", dict, "an object", place)
    required(block, "content", list, "a list", place)
    for index, inner in enumerate(block["content"]):
        at = f"{place}.content.{index}"
        if not isinstance(inner, dict) or not isinstance(inner.get("type"), str):
            raise Fault(f"{at}: must be a content block")
        if inner["type"] in ("text", "image", "audio"):
            _check_block(inner, revision, at)
        else:
            _check_other(inner, at)


def _check_other(block: Object, place: str) -> None:
    """A block of a tool's result that no message has by itself: a resource or a link to one, or what is not known here."""
    unambiguous(block, _CONTENT, place)
    if isinstance(resource := block.get("resource"), dict):
        unambiguous(resource, _RESOURCE, f"{place}.resource")


_BLOCKS: Final[dict[str, tuple[str, Callable[[Object, str, str], None]]]] = {
    "text": ("", _check_text),
    "image": ("", _check_media),
    "audio": ("2025-03-26", _check_media),
    "tool_use": ("2025-11-25", _check_use),
    "tool_result": ("2025-11-25", _check_result),
}
"""Each type of content: the first revision that has it, and what it must hold."""


def unambiguous(node: Object, known: frozenset[str], place: str) -> None:
    """Raises Fault where a member resembles one of ``known`` so much that another parser may take it for that one."""
    if (name := folded(node, known)) is not None:
        raise Fault(f"{place}: {named(name)} could be read as another member")


def required(node: Object, name: str, type_: type | tuple[type, ...], what: str, place: str) -> None:
    """Raises Fault unless the member is there and of that JSON type."""
    if not isinstance(node.get(name), type_):
        raise Fault(f"{place}.{name}: must be {what}" if place else f"{name}: must be {what}")


def optional(node: Object, name: str, type_: type | tuple[type, ...], what: str, place: str) -> None:
    """As required, for a member that may be absent. A null is taken out: several SDKs read it as absent."""
    if node.get(name) is not None:
        required(node, name, type_, what, place)
    elif name in node:
        del node[name]
