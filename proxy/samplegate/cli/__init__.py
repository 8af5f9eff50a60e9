"""Commands of the command line. ``main.py`` imports a command's module on use, and calls its ``arguments(parser)`` and
``command(args) -> int``."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The checked input has a problem."""
UNREADABLE: Final = 2
"""A file cannot be read or written. argparse uses the same code for wrong usage."""
