"""A peer's text so that all of it can be seen: escaped, and what has no shape or turns others around written out. Not
Markdown (``reviews/web/content.py``).

Invisible marks carry instructions to models and turn addresses around (T12); here they stand as their code points.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

_CANDIDATES: Final = re.compile(r"[^\n\t\x20-\x7e\u00a1-\u00ac\u00ae-\u033f\u0370-\u060b]")
"""What is looked at closely: all but letters and signs that are surely seen."""
MAX_RUN: Final = 16  # written out of many in a row
# of one text: browsers lay out some thousand spans in a moment, and a hundred thousand in minutes
MAX_MARKS: Final = 1_000
_SHAPELESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(c) for c in range(0xFE00, 0xFE10)
}
_SPACES: Final = frozenset("\u00a0\u202f\u3000")
"""Blanks that people write: French and Chinese need them. They look like what they are."""
_JOINS: Final = frozenset("\u200d\ufe0f")
"""Between and behind pictures they only say which picture it is."""


def visible(text: str) -> Markup:
    """As HTML: every character that would not be seen, or that turns the direction of others, as ``U+202E`` in a marked
    span.

    Of many in a row the first are written out and the rest are counted; after MAX_MARKS of a text they stand in
    brackets, without a span each.
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
    """``text`` is ours, never a peer's."""
    return f'<span class="mark">{text}</span>'


def plain(text: str) -> str:
    """The same without markup, for where only text may stand: titles and options."""
    hidden = dict(_hidden(text))
    return text if not hidden else "".join(f"[{code(c)}]" if n in hidden else c for n, c in enumerate(text))


def hides(text: str) -> int:
    """How many characters of it would not be seen."""
    return sum(1 for _ in _hidden(text))


def code(character: str) -> str:
    """``U+202E``."""
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


# Lines for the operator on stderr: each stays one line and drives nothing, for names and faults in it may be a peer's
# words. Not the log.

LONGEST: Final = 4096  # characters of one line; a name that a peer chose may be of any length


def say(line: str) -> None:
    """One line to the operator."""
    with suppress(OSError, ValueError):  # nobody reads our stderr any more
        print(f"samplegate: {escaped(line)}", file=sys.stderr, flush=True)


def escaped(text: str) -> str:
    """What is no visible character (control, bidi, line ends, surrogates) as its escape, and no ``##``, with which CI
    systems are commanded.

    They look for it anywhere in a line; for ``::``, the other sign, only at its start, where our name stands.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text.replace("##", "#\\x23")
