"""Pure. Markdown of step summaries (GitHub Flavored Markdown): code spans for any text, tables, and a bounded document.

Text of a peer goes through ``code``, which leaves it without markup, links, mentions and HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from samplegate.printable import printable

MAX_CODE: Final = 1_000  # characters of a code span
_TICKS: Final = re.compile("`+")
_ENDS: Final = re.compile(r"\s*[\r\n]\s*")


def code(text: str, *, most: int = MAX_CODE) -> str:
    """A code span that shows any text on one line, with unprintable characters escaped. Empty text is a blank."""
    shown = printable(text[: most + 1]) or " "
    if len(shown) > most:
        shown = f"{shown[: most - 1]}…"
    used = {len(run) for run in _TICKS.findall(shown)}
    fence = "`" * next(length for length in range(1, most + 2) if length not in used)
    # a renderer removes one blank at each end if there is one at both, unless all are blanks
    padded = shown[0] == "`" or shown[-1] == "`" or (shown[0] == shown[-1] == " " and shown.strip(" ") != "")
    return f"{fence} {shown} {fence}" if padded else f"{fence}{shown}{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, most: int) -> str:
    """A table with the first ``most`` rows, and a row that tells how many are left out; nothing without rows. Cells are
    Markdown. Raises ValueError if a row has another number of cells than the head."""
    if not rows:
        return ""
    shown = [list(row) for row in rows[:most]]
    if len(rows) > most:
        shown.append([f"and {len(rows) - most} more", *[""] * (len(head) - 1)])
    if wrong := next((row for row in shown if len(row) != len(head)), None):
        raise ValueError(f"a row has {len(wrong)} cells instead of {len(head)}")
    return "\n".join(_row(row) for row in (head, ["---"] * len(head), *shown))


def bounded(parts: Iterable[str], max_bytes: int) -> str:
    """A document of blocks, of at most ``max_bytes`` bytes in UTF-8. Blocks after the first that does not fit are
    replaced by a sentence. GitHub shows nothing of a summary over 1 MiB."""
    cut = f"This summary is cut at {max_bytes} bytes."
    kept: list[str] = []
    size = fitting = 0
    for block in filter(None, parts):
        kept.append(block)
        size += len(block.encode()) + 2  # the last block has one line end only
        if size - 1 > max_bytes:
            return _document([*kept[:fitting], cut] if len(cut) < max_bytes else [])
        if size + len(cut) + 1 <= max_bytes:
            fitting = len(kept)
    return _document(kept)


def _document(blocks: Sequence[str]) -> str:
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _row(cells: Sequence[str]) -> str:
    """A row. A backslash before ``|`` is removed even within code spans, after the row is split into cells."""
    row = " | ".join(_ENDS.sub(" ", cell).replace("|", r"\|") for cell in cells)
    return f"| {row} |"
