"""Messages and their content blocks as a page shows them: text, pictures by number, sound and the rest as notes. Values for templates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.web.images import decoded, picture, within
from samplegate.web.texts import Shown, Space
from samplegate.web.words import size

MAX_MESSAGES: Final = 200
MAX_BLOCKS: Final = 1_000  # of one page
MAX_NAME: Final = 200

What: TypeAlias = Literal["text", "image", "note", "tool_use", "tool_result"]


class Block(msgspec.Struct, frozen=True):
    """One content block."""

    what: What
    text: Shown | None = None
    note: str = ""
    """What is said of it: its type and size, or why it is not shown."""
    name: str = ""
    """A tool's name, or its use that a result answers."""
    picture: int | None = None
    """The number it is fetched by."""
    parts: tuple[Block, ...] = ()


class Message(msgspec.Struct, frozen=True):
    """One message."""

    number: int
    role: str
    blocks: tuple[Block, ...]


class Reader:
    """Reads the content of one page, from its top to its end: it counts pictures and blocks as they come. Not a value."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._pictures = 0
        self._left = MAX_BLOCKS
        self.left_out = 0
        """Messages and blocks that found no room."""

    def messages(self, params: Mapping[str, Any]) -> tuple[Message, ...]:
        """The messages of a sampling request."""
        all_ = params.get("messages")
        listed = list(all_) if isinstance(all_, list | tuple) else []
        self.left_out += max(0, len(listed) - MAX_MESSAGES)
        shown = [Message(n, str(m.get("role")), self.content(m.get("content"))) for n, m in enumerate(listed[:MAX_MESSAGES], 1)]
        self._pictures += sum(_pictures(m.get("content")) for m in listed[MAX_MESSAGES:])
        return tuple(shown)

    def content(self, content: Any) -> tuple[Block, ...]:
        """The blocks of a message or an answer."""
        return tuple(self._blocks(content))

    def _blocks(self, content: Any) -> Iterator[Block]:
        for block in content if isinstance(content, list | tuple) else [content]:
            if self._left > 0:
                self._left -= 1
                yield self._block(block if isinstance(block, Mapping) else {})
            else:
                self.left_out += 1
                self._pictures += _pictures(block)

    def _block(self, block: Mapping[str, Any]) -> Block:
        match block.get("type"):
            case "text":
                return Block("text", self._space.text(str(block.get("text", ""))))
            case "image":
                return self._image(block)
            case "audio":
                return Block("note", note=_sound(block))
            case "tool_use":
                return Block("tool_use", self._space.json(block.get("input")), str(block.get("id", ""))[:MAX_NAME], str(block.get("name"))[:MAX_NAME])
            case "tool_result":
                return self._result(block)
            case _:
                return Block("note", self._space.json(block), "content of another type")

    def _image(self, block: Mapping[str, Any]) -> Block:
        self._pictures += 1
        found = picture(block)
        if isinstance(found, str):
            return Block("note", note=f"a picture that is not shown: {found}")
        pixels = f", {found.width} x {found.height} pixels" if found.width else ""
        return Block("image", note=f"{found.type}{pixels}, {size(len(found.data))}", picture=self._pictures - 1)

    def _result(self, block: Mapping[str, Any]) -> Block:
        structured = block.get("structuredContent")
        return Block(
            "tool_result", None if structured is None else self._space.json(structured), "an error" if block.get("isError") else "",
            str(block.get("toolUseId"))[:MAX_NAME], parts=self.content(block.get("content", [])),
        )  # fmt: skip


def _pictures(content: Any) -> int:
    return sum(1 for _ in within(content))


def _sound(block: Mapping[str, Any]) -> str:
    """Sound is not played: who needs to hear it has it in the raw answer. Its digest tells two of them apart."""
    data = decoded(block)
    said = str(block.get("mimeType", ""))[:60]
    if data is None:
        return f"sound, said to be {said}, whose data is not base64"
    return f"sound, said to be {said}, {size(len(data))}, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"
