"""Color of status words (ok, passed, failed, warning, note) on a terminal, unless NO_COLOR is set."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, TextIO

_GREEN, _RED, _YELLOW, _CYAN = 32, 31, 33, 36
_COLORS: Final = {
    "ok": _GREEN,
    "passed": _GREEN,
    "failed": _RED,
    "no answer": _RED,
    "unknown": _YELLOW,
    "warning": _YELLOW,
    "note": _CYAN,
}
_STATUS: Final = re.compile(rf"(\A|: )({'|'.join(_COLORS)})(?=: |, | \(|\Z)")
"""A status word that begins a line or a part of it: ``FILE:LINE: warning: ...``."""


def has_color(stream: TextIO | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal that shows colors, and the user wants them."""
    return (
        stream is not None
        and stream.isatty()
        and not environment.get("NO_COLOR")
        and environment.get("TERM", "dumb") != "dumb"
        and os.name == "posix"
    )


def painted(line: str) -> str:
    """The line with its first status word in color. Its text must be printable already."""
    return _STATUS.sub(lambda found: f"{found[1]}\x1b[{_COLORS[found[2]]}m{found[2]}\x1b[0m", line, count=1)
