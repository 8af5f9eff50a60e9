"""What is in a file, or in a folder, brought to the disk: it then outlives a power cut. Nothing is written here."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def sync_file(fd: int) -> None:
    """Returns once the file's bytes and its length are on the disk. Raises OSError: what was written may be lost, then and later."""
    if sys.platform == "darwin":  # its fsync leaves the bytes in the disk's own memory
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_folder(folder: Path) -> None:
    """Returns once the names in the folder are on the disk: a new file has none without it. Raises OSError."""
    if sys.platform == "win32":  # there a folder cannot be opened, and its names are journalled
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
