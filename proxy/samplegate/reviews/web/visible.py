"""Untrusted text made visible: HTML and plain text in which hidden characters appear as code points.

Invisible characters can carry instructions to models and reverse the order of an address (T12). Markdown is rendered in
``content.py``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

_CANDIDATES: Final = re.compile(r"[^\n\t\x20-\x7e\u00a1-\u00ac\u00ae-\u033f\u0370-\u060b]")
"""Characters to check: all except letters and signs that are certainly visible."""
MAX_RUN: Final = 16  # hidden characters in a row that are written out
# marks per text: browsers lay out about a thousand spans at once, but need minutes for a hundred thousand
MAX_MARKS: Final = 1_000
_SHAPELESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(c) for c in range(0xFE00, 0xFE10)
}
_SPACES: Final = frozenset("\u00a0\u202f\u3000")
"""Blanks that are common in normal text, such as French and Chinese."""
_JOINS: Final = frozenset("\u200d\ufe0f")
"""After an emoji, these only select its variant, so they are not marked there."""


def visible(text: str) -> Markup:
    """HTML in which every hidden or direction-changing character is a marked span such as ``U+202E``.

    In a run of hidden characters, the first MAX_RUN are written out and the rest are counted. After MAX_MARKS marks in
    a text, further ones are in brackets instead of spans.
    """
    parts: list[str] = []
    end = run = marks = 0
    for start, found in _hidden(text):
        if start > end or not run:
            parts += [_rest(run), str(escape(text[end:start]))]
            run = 0
        run += 1
        if run <= MAX_RUN:
            marks += 1
            parts.append(_mark(code(found)) if marks <= MAX_MARKS else f"[{code(found)}]")
        end = start + 1
    parts += [_rest(run), str(escape(text[end:]))]
    return Markup("".join(parts))  # escaped piece by piece above


def _rest(run: int) -> str:
    return _mark(f"and {run - MAX_RUN} more") if run > MAX_RUN else ""


def _mark(text: str) -> str:
    """Requires our own text, because it is not escaped."""
    return f'<span class="mark">{text}</span>'


def plain(text: str) -> str:
    """The same without markup, for titles and options."""
    hidden = dict(_hidden(text))
    return text if not hidden else "".join(f"[{code(c)}]" if n in hidden else c for n, c in enumerate(text))


def hides(text: str) -> int:
    """Count the hidden characters of a text."""
    return sum(1 for _ in _hidden(text))


def code(character: str) -> str:
    """A code point such as ``U+202E``."""
    return f"U+{ord(character):04X}"


def _hidden(text: str) -> Iterator[tuple[int, str]]:
    if text.isascii() and text.isprintable():
        return
    for match in _CANDIDATES.finditer(text):
        if _is_hidden(match[0]) and not (match[0] in _JOINS and _at_a_picture(text, match.start())):
            yield match.start(), match[0]


@lru_cache(maxsize=8192)
def _is_hidden(character: str) -> bool:
    if character in _SPACES:
        return False
    category = unicodedata.category(character)
    return (
        category in ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs")
        or character in _SHAPELESS
        or 0xE0100 <= ord(character) <= 0xE01EF
    )


def _at_a_picture(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    return before != "" and (unicodedata.category(before) in ("So", "Sk") or before == "\ufe0f")
