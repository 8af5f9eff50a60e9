"""The commands: ``main.py`` imports one only when it is asked for, and calls its ``arguments(parser)`` and
``command(args) -> int``."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""What was looked at has a fault."""
UNREADABLE: Final = 2
"""A file cannot be read or written; argparse leaves with the same code for wrong usage."""
