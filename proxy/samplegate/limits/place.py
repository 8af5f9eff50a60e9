"""Whether the state folder can be written, before anything needs it. It makes nothing and opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

from samplegate.gate.ports import Unavailable


def check_writable(state: Path) -> None:
    """Raises Unavailable, for the operator, where limits that processes share could not be kept in this folder."""
    try:
        problem = _problem(state)
    except OSError as failed:
        problem = f"cannot be reached: {failed.strerror}"
    if problem is not None:
        raise Unavailable(f"limits: state folder {state} {problem}; give --state a folder that can be written")


def _problem(state: Path) -> str | None:
    folder = state
    while not folder.exists():
        if folder == folder.parent:
            return "has no folder above it that exists"
        folder = folder.parent
    said = "" if folder == state else f"cannot be made: {folder} "
    if not folder.is_dir():
        return f"{said}is no folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{said}cannot be written"
    return next(
        (f"has a {name} that cannot be written" for name in ("limits.sqlite3", "holders") if not _ours(state / name)),
        None,
    )


def _ours(path: Path) -> bool:
    return not path.exists() or (os.access(path, os.R_OK | os.W_OK) and path.is_dir() == (path.name == "holders"))
