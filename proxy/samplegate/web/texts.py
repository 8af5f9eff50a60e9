"""How much of a peer's text and JSON a page carries, and how: rendered, folded or cut. What is not shown is counted and said, never passed over."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from markupsafe import Markup

from samplegate.web import markdown
from samplegate.web.visible import hides, visible

MAX_TEXT: Final = 100_000  # characters of one text
MAX_PAGE: Final = 400_000  # characters of all texts of one page: some MiB of HTML at worst, which browsers lay out in a second
MAX_MARKDOWN: Final = 100_000  # characters of one page that are parsed: at worst a second
FOLDED: Final = 4_000  # a longer text shows its beginning, and opens
OPENING: Final = 600
MAX_STRING: Final = 2_000  # characters of one string within JSON on the page; the raw answer has it whole


class Shown(msgspec.Struct, frozen=True):
    """A text as the page has it."""

    html: Markup
    rendered: bool
    """From Markdown; else as it is, with its line breaks."""
    total: int
    """Characters."""
    left_out: int
    """Characters of its end that the page does not have."""
    hidden: int
    """Characters that would not be seen, and are written out."""
    opening: Markup
    """The beginning of a long text, "" for one that is shown at once."""


class Space:
    """What is left of a page. Not a value: it is used up as the page is made."""

    def __init__(self) -> None:
        self.characters = MAX_PAGE
        self._markdown = MAX_MARKDOWN
        self.left_out = 0
        """Characters that found no room: whoever approves did not see them."""

    def text(self, text: str, *, rendered: bool = True) -> Shown:
        """A peer's prose."""
        kept = text[: min(MAX_TEXT, self.characters)]
        self.characters -= len(kept)
        self.left_out += len(text) - len(kept)
        html = None
        if rendered and kept == text and len(text) <= self._markdown:
            self._markdown -= len(text)
            html = markdown.rendered(text)
        return Shown(
            visible(kept) if html is None else html, html is not None, len(text), len(text) - len(kept), hides(kept),
            visible(kept[:OPENING]) if len(kept) > FOLDED else Markup(),
        )  # fmt: skip

    def json(self, value: Any) -> Shown:
        """Decoded JSON, laid out, with its long strings cut."""
        return self.text(json.dumps(abridged(value), indent=2, ensure_ascii=False, default=str), rendered=False)


def abridged(value: Any) -> Any:
    """The same with the ends of long strings counted instead of shown."""
    match value:
        case dict():
            return {name: abridged(item) for name, item in value.items()}
        case list() | tuple():
            return [abridged(item) for item in value]
        case str() if len(value) > MAX_STRING:
            return f"{value[:MAX_STRING]}[... {len(value) - MAX_STRING:,} more characters]"
        case _:
            return value
