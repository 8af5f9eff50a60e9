"""Safe rendering of a peer's messages, texts, Markdown and pictures. Omitted parts are counted, never dropped silently.

Markdown becomes passive HTML that shows everything: no links, no fetched images, no raw HTML. Parts that Markdown would
hide stay visible: line ends, addresses, titles of links, the info line of a fence. Reference definitions and entities
stay plain text. A text that nests too deep, would have its lines joined, or has a table whose rows differ in length is
not rendered, because a reviewer must see exactly what a model will see. nh3 cleans the result as well.

Pictures are addressed by number and recognized by their first bytes (R3, T12); a peer's media type is not trusted. SVG
is not supported. A picture of more than MAX_PIXELS pixels when decoded is not sent. Only the browser decodes pictures.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from samplegate.reviews.review import Review
from samplegate.reviews.web.context import size
from samplegate.reviews.web.visible import hides, visible

MAX_TEXT: Final = 100_000  # characters of one text
# characters of all texts of one page: a few MiB of HTML at most, which browsers lay out in a second
MAX_PAGE: Final = 400_000
MAX_MARKDOWN: Final = 100_000  # characters of one page that are parsed as Markdown, in at most a second
FOLDED: Final = 4_000  # a longer text is folded after its beginning
OPENING: Final = 600
MAX_STRING: Final = 2_000  # characters of one string within JSON on the page; the raw JSON has all of it


class ShownText(msgspec.Struct, frozen=True):
    """A text as the page shows it."""

    html: Markup
    rendered: bool
    """Rendered from Markdown; otherwise plain text with its line breaks."""
    total: int
    """Characters."""
    left_out: int
    """Characters cut from the end."""
    hidden: int
    """Invisible characters, which the page spells out."""
    opening: Markup
    """The beginning of a folded text, "" if the text is not folded."""


class PageBudget:
    """The remaining budget of a page for texts. Mutable: each text uses some of it."""

    def __init__(self) -> None:
        self.characters = MAX_PAGE
        self._markdown = MAX_MARKDOWN
        self.left_out = 0
        """Characters that did not fit, so the reviewer has not seen them."""

    def text(self, text: str, *, rendered: bool = True) -> ShownText:
        """A peer's text, as Markdown if it fits the budget."""
        kept = text[: min(MAX_TEXT, self.characters)]
        self.characters -= len(kept)
        self.left_out += len(text) - len(kept)
        html = None
        if rendered and kept == text and len(text) <= self._markdown:
            self._markdown -= len(text)
            html = html_of(text)
        return ShownText(
            visible(kept) if html is None else html, html is not None, len(text), len(text) - len(kept), hides(kept),
            visible(kept[:OPENING]) if len(kept) > FOLDED else Markup(),
        )  # fmt: skip

    def json(self, value: Any) -> ShownText:
        """Indented JSON, with its long strings cut."""
        return self.text(json.dumps(abridged(value), indent=2, ensure_ascii=False, default=str), rendered=False)


def abridged(value: Any) -> Any:
    """A copy with long strings cut, and the number of their missing characters."""
    match value:
        case dict():
            return {name: abridged(item) for name, item in value.items()}
        case list() | tuple():
            return [abridged(item) for item in value]
        case str() if len(value) > MAX_STRING:
            return f"{value[:MAX_STRING]}[... {len(value) - MAX_STRING:,} more characters]"
        case _:
            return value


MAX_BYTES: Final = 16 * 1024 * 1024
MAX_PIXELS: Final = 50_000_000  # 200 MB when decoded

_jpeg_size: Final = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]..\x08(....)", re.DOTALL)


class Picture(NamedTuple):
    """A picture that may be sent: its real type, and its width and height in pixels (0 if unknown)."""

    type: str
    data: bytes
    width: int
    height: int


def all_of(review: Review) -> Iterator[Mapping[str, Any]]:
    """The image blocks of a review in the page's order: those of the messages, then those of a model's answer."""
    messages = review.params.get("messages")
    for message in messages if isinstance(messages, list | tuple) else ():
        yield from within(message.get("content") if isinstance(message, Mapping) else None)
    if review.answer is not None:
        yield from within(review.answer.get("content"))


def within(content: Any) -> Iterator[Mapping[str, Any]]:
    """The image blocks of a message's content."""
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
        return "it is not a PNG, JPEG, GIF or WebP file"
    width, height = _size(found, data)
    if width * height > MAX_PIXELS:
        return f"it has too many pixels ({width} x {height})"
    return Picture(found, data, width, height)


def decoded(block: Mapping[str, Any]) -> bytes | None:
    """The bytes of an image or audio block; None if they are not base64."""
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
    """Width and height in pixels from the header, 0 if they are not found there."""
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


MAX_CHARACTERS: Final = 16_384  # of one text, because the parser's time is worse than linear for hostile texts

_TAGS: Final = frozenset(
    "p br hr h3 h4 h5 h6 ul ol li blockquote pre code em strong span table thead tbody tr th td".split()
)
_SHIFT: Final = {"h1": "h3", "h2": "h4", "h3": "h5"}
"""A peer's headings rank below the page's."""


class _Renderer(RendererHTML):
    """A renderer that passes all of a peer's characters through ``visible``."""

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return str(visible(tokens[idx].content))

    def text_special(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return str(visible(tokens[idx].content))

    def softbreak(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "<br>"  # show the lines that were sent; joined with blanks, logs and tables would be unreadable

    hardbreak = softbreak  # without a line end after it, because the page preserves whitespace

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<code>{visible(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<pre><code>{visible(tokens[idx].content)}</code></pre>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        info = tokens[idx].info.strip()
        label = f'<span class="info">{visible(info)}</span>\n' if info else ""
        return f"<pre>{label}<code>{visible(tokens[idx].content)}</code></pre>\n"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<{_SHIFT.get(tokens[idx].tag, 'h6')}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"</{_SHIFT.get(tokens[idx].tag, 'h6')}>"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return '<span class="link">'

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = next(
            token for token in reversed(tokens[:idx]) if token.type == "link_open" and token.level == tokens[idx].level
        )
        return "</span>" + _address(opened, "")

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        alt = "".join(child.content for child in token.children or ())
        return f'<span class="link">{visible(alt)}</span>' + _address(token, "image, not fetched: ")


def _letters(text: str) -> Counter[str]:
    """The characters that are neither blanks nor Markdown syntax, counted."""
    return Counter(c for c in text if c.isalnum() or not (c.isascii() or c.isspace()))


def _written(tokens: Iterable[Token]) -> Iterator[str]:
    """The parts of the source that the renderer outputs."""
    for token in tokens:
        yield token.info
        yield from (str(value) for value in token.attrs.values())
        if token.children:
            yield from _written(token.children)
        else:
            yield token.content


def _joins_lines(tokens: Iterable[Token]) -> bool:
    """Whether rendering would turn line ends within a paragraph into blanks, as in code, image texts, link titles."""
    return any(
        t.content.count("\n") > sum(c.type in ("softbreak", "hardbreak") for c in t.children or ())
        for t in tokens
        if t.type == "inline"
    )


_bar: Final = re.compile(r"(?<!\\)\|")
_line_end: Final = re.compile(r"\r\n?|\n")


_DELIMITERS: Final = frozenset(" \t>|:-")
MAX_CELLS: Final = 10_000
"""Cells of a text's tables. Tables without short rows have fewer, because a cell takes two characters."""


def _has_huge_tables(text: str) -> bool:
    """Whether the parser might fill up the rows of tables to more than MAX_CELLS cells, which takes seconds."""
    lines = _line_end.split(text)
    columns = max((line.count("|") + 1 for line in lines if "-" in line and _DELIMITERS.issuperset(line)), default=0)
    return columns * len(lines) > MAX_CELLS


def _has_uneven_rows(text: str, tokens: Sequence[Token]) -> bool:
    """Whether a row of a table has more or fewer cells than its header.

    Markdown drops the cells that are too many. Missing ones would make a huge table of a short text.
    """
    source = _line_end.split(text)
    columns = 0
    cells: list[int] = []
    for token in tokens:
        match token.type:
            case "table_open":
                columns = 0
            case "th_open":
                columns += 1
            case "tr_open" if token.map is not None:
                cells.append(_cells(source[token.map[0]]))
            case "table_close":
                if any(count != columns for count in cells):
                    return True
                cells = []
    return False


def _cells(line: str) -> int:
    """The number of cells in a line of a table, counted as the parser does."""
    parts = _bar.split(line.strip().lstrip("> \t"))
    return len(parts) - (not parts[0]) - (not parts[-1] and len(parts) > 1)


def _address(token: Token, what: str) -> str:
    address, title = str(token.attrGet("href") or token.attrGet("src") or ""), str(token.attrGet("title") or "")
    shown = Markup(' <span class="address">&lt;{}{}&gt;</span>').format(what, visible(address))
    return str(
        shown + Markup(' <span class="address">&quot;{}&quot;</span>').format(visible(title)) if title else shown
    )


_parser: Final = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 20}, renderer_cls=_Renderer)
_parser.enable("table")
_parser.disable(["reference", "html_block", "html_inline", "entity"])


def _unescaped(url: str) -> str:
    return url


# An address is shown as it is written, with any scheme, and never followed.
_parser.normalizeLink = _unescaped  # type: ignore[method-assign]
_parser.normalizeLinkText = _unescaped  # type: ignore[method-assign,assignment]
_parser.validateLink = lambda url: True  # type: ignore[method-assign]


def html_of(text: str) -> Markup | None:
    """The text as HTML; None if it is too long or would lose a part. It is then shown as plain text."""
    if len(text) > MAX_CHARACTERS or _has_huge_tables(text):
        return None
    try:
        tokens = _parser.parse(text)
        lost = _letters(text) - _letters("".join(_written(tokens)))
        if lost or _joins_lines(tokens) or _has_uneven_rows(text, tokens):
            return None
        html = _parser.renderer.render(tokens, _parser.options, {})
    except Exception:  # hostile text may make the parser fail; it is then shown as plain text
        return None
    return Markup(nh3.clean(html, tags=set(_TAGS), attributes={"span": {"class"}, "ol": {"start"}}, link_rel=None))


MAX_MESSAGES: Final = 200
MAX_BLOCKS: Final = 1_000  # of one page
MAX_NAME: Final = 200

What: TypeAlias = Literal["text", "image", "note", "tool_use", "tool_result"]


class Block(msgspec.Struct, frozen=True):
    """A content block as the page shows it."""

    what: What
    text: ShownText | None = None
    note: str = ""
    """The block's type and size, or why it is not shown."""
    name: str = ""
    """A tool's name, or the ID of the tool use that a result answers."""
    picture: int | None = None
    """The picture's number in its URL."""
    parts: tuple[Block, ...] = ()


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it."""

    number: int
    role: str
    blocks: tuple[Block, ...]


class ContentReader:
    """Reads the content of one page from top to bottom, counting its pictures and blocks. Mutable."""

    def __init__(self, space: PageBudget) -> None:
        self._space = space
        self._pictures = 0
        self._left = MAX_BLOCKS
        self.left_out = 0
        """Messages and blocks that did not fit."""

    def messages(self, params: Mapping[str, Any]) -> tuple[ShownMessage, ...]:
        """The messages of a sampling request."""
        all_ = params.get("messages")
        listed = list(all_) if isinstance(all_, list | tuple) else []
        self.left_out += max(0, len(listed) - MAX_MESSAGES)
        shown = [
            ShownMessage(n, str(m.get("role")), self.content(m.get("content")))
            for n, m in enumerate(listed[:MAX_MESSAGES], 1)
        ]
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
                return Block(
                    "tool_use",
                    self._space.json(block.get("input")),
                    str(block.get("id", ""))[:MAX_NAME],
                    str(block.get("name"))[:MAX_NAME],
                )
            case "tool_result":
                return self._result(block)
            case _:
                return Block("note", self._space.json(block), "unknown type of content")

    def _image(self, block: Mapping[str, Any]) -> Block:
        self._pictures += 1
        found = picture(block)
        if isinstance(found, str):
            return Block("note", note=f"image not shown: {found}")
        pixels = f", {found.width} x {found.height} pixels" if found.width else ""
        return Block("image", note=f"{found.type}{pixels}, {size(len(found.data))}", picture=self._pictures - 1)

    def _result(self, block: Mapping[str, Any]) -> Block:
        structured = block.get("structuredContent")
        return Block(
            "tool_result", None if structured is None else self._space.json(structured),
            "an error" if block.get("isError") else "",
            str(block.get("toolUseId"))[:MAX_NAME], parts=self.content(block.get("content", [])),
        )  # fmt: skip


def _pictures(content: Any) -> int:
    return sum(1 for _ in within(content))


def _sound(block: Mapping[str, Any]) -> str:
    """A note instead of a player: the raw JSON has the audio. The hash distinguishes two recordings."""
    data = decoded(block)
    media_type = str(block.get("mimeType", ""))[:60]
    if data is None:
        return f"audio, declared as {media_type}, but its data is not base64"
    return f"audio, declared as {media_type}, {size(len(data))}, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"
