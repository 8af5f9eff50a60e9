"""Whether a file could be written, before anything needs it. It makes nothing and opens nothing."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def fault(path: Path, *, whole: bool = False) -> str | None:
    """Why the file could not be written or made, as words to stand after its name. ``whole``: its folder must be ours too, and it a regular file."""
    try:
        return _fault(path, whole)
    except OSError as failed:
        return f"cannot be reached: {failed.strerror}"


def _fault(path: Path, whole: bool) -> str | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return _folder_fault(path.parent)
    if stat.S_ISDIR(found.st_mode):
        return "is a folder"
    if _is_stdout(found):
        return "is stdout, which belongs to the protocol"
    if not os.access(path, os.R_OK | os.W_OK):
        return "cannot be written"
    if whole and not stat.S_ISREG(found.st_mode):
        return "is no regular file: nothing there can be synced, or put aside when it is full"
    if whole and not os.access(path.parent, os.W_OK | os.X_OK):
        return f"has a folder that cannot be written: {path.parent}"
    return None


def _folder_fault(folder: Path) -> str | None:
    while not folder.exists():
        if folder == folder.parent:
            return "has no folder that exists"
        folder = folder.parent
    if not folder.is_dir():
        return f"cannot be made: {folder} is no folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"cannot be made: folder {folder} cannot be written"


def _is_stdout(found: os.stat_result) -> bool:
    try:
        ours = os.fstat(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except (OSError, ValueError):
        return False
    return not stat.S_ISCHR(found.st_mode) and os.path.samestat(found, ours)
