"""Lines for the operator on stderr: each stays one line and drives nothing, for names and faults in it may be a peer's
words. Not the log."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

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
