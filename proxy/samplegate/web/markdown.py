"""Markdown of a peer as HTML that shows everything that is written and does nothing. No links, no fetched images, no raw HTML.

What Markdown would swallow stays to be read: line ends, addresses, titles of links, the info line of a fence. So reference definitions, which render
as nothing, tables, which drop cells, and entities are left as the text they are, and what nests so deep that the parser gives it up, or would have
its lines joined, is not rendered at all: a person must see what a model will see. nh3 cleans what comes out, as a second layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from samplegate.web.visible import visible

MAX_CHARACTERS: Final = 16_384  # of one text; the parser's time is worse than linear in what is written to hurt it

_TAGS: Final = frozenset("p br hr h3 h4 h5 h6 ul ol li blockquote pre code em strong span".split())
_SHIFT: Final = {"h1": "h3", "h2": "h4", "h3": "h5"}
"""A peer's headings stand below ours."""


class _Renderer(RendererHTML):
    """Every rule that puts a peer's characters into HTML, through ``visible``."""

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return str(visible(tokens[idx].content))

    def text_special(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return str(visible(tokens[idx].content))

    def softbreak(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "<br>"  # a person sees the lines that were sent: as blanks, logs and tables would run together

    hardbreak = softbreak  # and no line end after it: the page keeps blanks as they are

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
        opened = next(token for token in reversed(tokens[:idx]) if token.type == "link_open" and token.level == tokens[idx].level)
        return "</span>" + _address(opened, "")

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        alt = "".join(child.content for child in token.children or ())
        return f'<span class="link">{visible(alt)}</span>' + _address(token, "image, not fetched: ")


def _letters(text: str) -> Counter[str]:
    """All that is no blank and no mark of Markdown."""
    return Counter(c for c in text if c.isalnum() or not (c.isascii() or c.isspace()))


def _written(tokens: Iterable[Token]) -> Iterator[str]:
    """What the renderer puts out of the source."""
    for token in tokens:
        yield token.info
        yield from (str(value) for value in token.attrs.values())
        if token.children:
            yield from _written(token.children)
        else:
            yield token.content


def _joins_lines(tokens: Iterable[Token]) -> bool:
    """Whether line ends within a paragraph would be blanks: those in code, in what stands for a picture and in a link's title are."""
    return any(t.content.count("\n") > sum(c.type in ("softbreak", "hardbreak") for c in t.children or ()) for t in tokens if t.type == "inline")


def _address(token: Token, what: str) -> str:
    address, title = str(token.attrGet("href") or token.attrGet("src") or ""), str(token.attrGet("title") or "")
    shown = Markup(' <span class="address">&lt;{}{}&gt;</span>').format(what, visible(address))
    return str(shown + Markup(' <span class="address">&quot;{}&quot;</span>').format(visible(title)) if title else shown)


_parser: Final = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 20}, renderer_cls=_Renderer)
_parser.disable(["reference", "html_block", "html_inline", "entity"])


def _unescaped(url: str) -> str:
    return url


# An address is shown, never followed: it is shown as it is written, and whatever its scheme.
_parser.normalizeLink = _unescaped  # type: ignore[method-assign]
_parser.normalizeLinkText = _unescaped  # type: ignore[method-assign,assignment]
_parser.validateLink = lambda url: True  # type: ignore[method-assign]


def rendered(text: str) -> Markup | None:
    """As HTML; None where it is too long, or something of it would be lost: then it is shown as the text it is."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        tokens = _parser.parse(text)
        if _letters(text) - _letters("".join(_written(tokens))) or _joins_lines(tokens):
            return None
        html = _parser.renderer.render(tokens, _parser.options, {})
    except Exception:  # a peer wrote it: whatever it makes the parser do, it can still be read
        return None
    return Markup(nh3.clean(html, tags=set(_TAGS), attributes={"span": {"class"}, "ol": {"start"}}, link_rel=None))
