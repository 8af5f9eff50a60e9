"""The commands that look at policies and run nothing: each is a module with ``command(args) -> int``, imported only when it is asked for."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""What was looked at has a fault."""
UNREADABLE: Final = 2
"""A file cannot be read or written; argparse leaves with the same code for wrong usage."""
