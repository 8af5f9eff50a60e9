"""How an SQLite file is told from others: by its prefix in a setting, by its first bytes on the disk. It imports no database."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PREFIX: Final = "sqlite:"
_MAGIC: Final = b"SQLite format 3\0"


def is_sqlite(path: Path, *, empty: bool) -> bool:
    """Whether the file is one; ``empty`` is what is said of a file without any bytes, which can become one. Raises OSError.

    Not while this process has it open: closing the file would end SQLite's locks.
    """
    with path.open("rb") as file:
        found = file.read(len(_MAGIC))
    return found == _MAGIC if found else empty
