"""One MCP content block as the parts of a chat message. Pure; nothing is fetched, and what has no part is refused by name, never left out.

An embedded text resource goes as its text with its uri, a link as its name and uri, structured content as JSON where a tool gave no text. A
tool's failure (``isError``) is the first word of its result: litellm has no field for it, not even for the providers that do.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

FAILED: Final = "error: the tool failed"
"""What precedes the result of a tool that failed."""

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


class Unfit(ValueError):
    """A model cannot be asked this. The message names the place and the type, never the content."""


def whole(text: str) -> str:
    """Text that UTF-8 can carry: half of a surrogate pair (a cut emoji) becomes U+FFFD."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def blocks(content: object) -> list[Mapping[str, Any]]:
    """Content as a list: one block may stand for itself (before 2025-11-25 it always does)."""
    return [block for block in (content if isinstance(content, list) else [content]) if isinstance(block, Mapping)]


def part(block: Mapping[str, Any], at: str) -> Part:
    """The part of a message for a text, image or audio block; ``at`` is its place. Raises Unfit."""
    match block.get("type"):
        case "text":
            return text_part(_string(block, "text", at))
        case "image":
            return _image(_string(block, "data", at), block.get("mimeType"), at)
        case "audio":
            return _audio(_string(block, "data", at), block.get("mimeType"), at)
        case other:
            raise Unfit(f"{at}: content of type {_named(other)} cannot be sent to a model; let a client answer this one (effect: forward)")


def result_parts(result: Mapping[str, Any], at: str) -> list[Part]:
    """What a tool answered: text and image parts, in order. Raises Unfit."""
    out = [_result_part(block, f"{at}.content.{index}") for index, block in enumerate(blocks(result.get("content")))]
    if not any(one["type"] == "text" for one in out) and result.get("structuredContent") is not None:
        out.insert(0, text_part(_json(result["structuredContent"], at)))
    if result.get("isError") is True:
        out.insert(0, text_part(FAILED))
    return out


def is_base64(data: str) -> bool:
    """Whether that is base64, of at least one byte, without anything in between."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False


def text_part(text: str) -> Part:
    """A part of text."""
    return {"type": "text", "text": whole(text)}


def _result_part(block: Mapping[str, Any], at: str) -> Part:
    match block.get("type"):
        case "resource_link":
            return text_part(_link(block, at))
        case "resource":
            return _resource(block.get("resource"), at)
        case "audio":
            raise Unfit(f"{at}: audio in a tool's result reaches no model; let a client answer this one (effect: forward)")
        case _:
            return part(block, at)


def _link(block: Mapping[str, Any], at: str) -> str:
    names = [block[key] for key in ("title", "name") if isinstance(block.get(key), str) and block[key]]
    return f"[link to a resource: {', '.join([*dict.fromkeys(names), _string(block, 'uri', at)])}]"


def _resource(resource: object, at: str) -> Part:
    if not isinstance(resource, Mapping):
        raise Unfit(f"{at}.resource: there is none; the server must send one")
    if isinstance(resource.get("text"), str):
        return text_part(f"[resource {_string(resource, 'uri', at)}]\n{resource['text']}")
    kind = resource.get("mimeType")
    if not isinstance(kind, str) or not kind.startswith("image/"):
        raise Unfit(f"{at}.resource: a blob of type {_named(kind)} cannot be sent to a model; let a client answer this one (effect: forward)")
    return _image(_string(resource, "blob", at), kind, at)


def _image(data: str, kind: object, at: str) -> Part:
    if not isinstance(kind, str) or not _IMAGE.match(kind):
        raise Unfit(f"{at}.mimeType: {_named(kind)} is no type of image; the server must send one, like image/png")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{_base64(data, at)}"}}


def _audio(data: str, kind: object, at: str) -> Part:
    known = _AUDIO.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise Unfit(f"{at}.mimeType: audio of type {_named(kind)} cannot be sent to a model, only audio/mpeg and audio/wav")
    return {"type": "input_audio", "input_audio": {"data": _base64(data, at), "format": known}}


def _base64(data: str, at: str) -> str:
    if not is_base64(data):
        raise Unfit(f"{at}.data: it is not base64; the server must encode it")
    return data


def _json(value: object, at: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        raise Unfit(f"{at}.structuredContent: it is not JSON that can be sent on") from None


def _string(block: Mapping[str, Any], key: str, at: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise Unfit(f"{at}.{key}: it is not a text; the server must send one")
    return value


def _named(kind: object) -> str:
    """A type in a message: the server's words, so short ones only."""
    return repr(kind[:40]) if isinstance(kind, str) and kind.isascii() and kind.isprintable() else "no known name"
