"""A peer's pictures: found in a review by number, known by their first bytes, sent so that they are nothing but pictures (R3, T12).

Not a decoder: the browser decodes. What a peer says of the type is not believed, SVG is none of the types, and a picture that would unfold
to more than MAX_PIXELS is not sent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from samplegate.core.review.review import Review

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_PIXELS: Final = 50_000_000  # 200 MB once it is decoded

_jpeg_size: Final = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]..\x08(....)", re.DOTALL)


class Picture(NamedTuple):
    """What may be sent: the type its bytes have, width and height in pixels where its head says them."""

    type: str
    data: bytes
    width: int
    height: int


def all_of(review: Review) -> Iterator[Mapping[str, Any]]:
    """The image blocks of a review in the order that the page has them: the messages', then those of a model's answer."""
    messages = review.params.get("messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        yield from within(message.get("content") if isinstance(message, Mapping) else None)
    if review.answer is not None:
        yield from within(review.answer.get("content"))


def within(content: Any) -> Iterator[Mapping[str, Any]]:
    """The image blocks of a content."""
    for block in content if isinstance(content, list | tuple) else (content,):
        if isinstance(block, Mapping):
            if block.get("type") == "image":
                yield block
            elif block.get("type") == "tool_result":
                yield from within(block.get("content"))


def picture(block: Mapping[str, Any]) -> Picture | str:
    """The picture, or why it is not shown."""
    data = decoded(block)
    if data is None:
        return "its data is not base64"
    if len(data) > MAX_BYTES:
        return f"it is larger than {MAX_BYTES // 1024**2} MiB"
    found = _type(data)
    if found is None:
        return "its bytes are none of PNG, JPEG, GIF and WebP"
    width, height = _size(found, data)
    if width * height > MAX_PIXELS:
        return f"it has {width} x {height} pixels, too many to unfold"
    return Picture(found, data, width, height)


def decoded(block: Mapping[str, Any]) -> bytes | None:
    """The bytes of an image or audio block; None where they are no base64."""
    data = block.get("data")
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _type(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _size(type_: str, data: bytes) -> tuple[int, int]:
    """Pixels as the head says, 0 where it does not say them plainly."""
    match type_:
        case "image/png":
            return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        case "image/gif":
            return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
        case "image/jpeg":
            found = _jpeg_size.search(data, 0, 1024 * 1024)
            return (int.from_bytes(found[1][2:], "big"), int.from_bytes(found[1][:2], "big")) if found else (0, 0)
        case _:
            return _webp_size(data)


def _webp_size(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
