"""Lines for the operator on stderr: untrusted text is escaped and stays on one line.

The names and errors in such lines may come from a peer.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

from samplegate.printable import printable, without_hashes

# characters of one line on stderr: a name chosen by a peer may have any length
MAX_LINE: Final = 4096


def print_line(line: str) -> None:
    """Print one line for the operator on stderr."""
    with suppress(OSError, ValueError):  # stderr is closed
        print(f"samplegate: {escaped(line)}", file=sys.stderr, flush=True)


def escaped(text: str) -> str:
    """One line with every unprintable character (control, bidi, line end, surrogate) escaped, and without ``##``.

    ``##`` starts a command in the logs of some CI systems, anywhere in a line. ``::`` does so only at the start of a
    line, where our name is.
    """
    if len(text) > MAX_LINE:
        text = text[: MAX_LINE - 1] + "…"
    return without_hashes(printable(text))
