"""What both demos print: wrapped lines, and the command of this installation."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

WIDTH: Final = 110


def own_command() -> list[str]:
    """Command that starts this installation with any PATH, because clients have a PATH of their own."""
    beside = shutil.which("samplegate", path=str(Path(sys.executable).parent))
    return [sys.executable, "-m", "samplegate"] if beside is None else [beside]


def indented(text: str, by: int = 2) -> str:
    """The text in lines of at most WIDTH characters, indented."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * by,
        subsequent_indent=" " * (by + 3),
        break_on_hyphens=False,
        break_long_words=False,
    )
