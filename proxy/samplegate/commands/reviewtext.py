"""Words of servers and models on a terminal: nothing in them drives it, hides, or passes for a line of ours. And moments as people read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from samplegate.core.review.withholding import all_without_media

MARK: Final = "  | "
"""Before every line that is not ours."""
MOST: Final = 200_000  # characters of one text; what is cut off is said


def harmless(text: str) -> str:
    """On one line; what is not seen (control, escape sequences, bidi, halves of characters) as its escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(text: str, most: int) -> str:
    """The same, cut to so many characters, with blanks drawn together."""
    text = harmless(" ".join(text[: most * 20].split()))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str) -> Iterator[str]:
    """Its lines, each marked as not ours."""
    for line in text[:MOST].replace("\r\n", "\n").split("\n"):
        yield MARK + harmless(line)
    if len(text) > MOST:
        yield f"  CUT HERE: {len(text) - MOST} more characters; --json shows them"


def as_json(value: Any) -> Iterator[str]:
    """A decoded value for people, pictures as their size."""
    yield from quoted(json.dumps(all_without_media(value), indent=2, ensure_ascii=False))


def block(found: Any) -> Iterator[str]:
    """One content block: a text as it reads, all else as JSON."""
    if isinstance(found, dict) and found.get("type") == "text" and isinstance(found.get("text"), str) and found.keys() <= {"type", "text"}:
        yield from quoted(found["text"])
    else:
        yield from as_json(found)


def content(found: Any) -> Iterator[str]:
    """A message's content, one block or several."""
    for one in found if isinstance(found, list) else [found]:
        yield from block(one)


def moment(seconds: float) -> str:
    """Unix seconds as a time of UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
