"""The files of one log that is turned over by size: their names, their order, the turn itself. Not what stands in them.

``audit.jsonl`` is the file being written. When it is full it becomes ``audit.jsonl.000001``, the next one ``audit.jsonl.000002``: the number
tells the order, the highest is the newest but for the file itself. The six digits tell them from what logrotate makes (``.1`` is its newest).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

DIGITS: Final = 6  # at least; the millionth file has seven
_tail: Final = re.compile(rf"\.([0-9]{{{DIGITS},18}})\Z")


def main_of(path: Path) -> tuple[Path, int | None]:
    """The log that a file is a part of, and its number there; None for the file being written, and for any other name."""
    found = _tail.search(path.name)
    if found is None or not path.name[: found.start()]:
        return path, None
    return path.with_name(path.name[: found.start()]), int(found[1])


def turned(path: Path) -> list[tuple[int, Path]]:
    """The files that this log had before, oldest first, with their numbers. Raises OSError; no folder is no files."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(path.name)]
    except FileNotFoundError:
        return []
    parts = [(main_of(path.with_name(name)), path.with_name(name)) for name in names]
    return sorted((number, part) for (main, number), part in parts if number is not None and main.name == path.name)


def turn(path: Path, keep: int) -> None:
    """Put the file aside, and remove the oldest of those beyond ``keep`` (0: none). For the holder of its lock, who alone may rename it.

    Raises OSError; then the file is still in place. That an old one cannot be removed is no reason to lose a record: the next turn tries again.
    """
    before = turned(path)
    path.rename(path.with_name(f"{path.name}.{(before[-1][0] if before else 0) + 1:0{DIGITS}d}"))
    for _, old in before[: max(0, len(before) + 1 - keep)] if keep else ():
        try:
            old.unlink(missing_ok=True)
        except OSError:
            return


def series(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The open files of the log in order, oldest first, none missed and none twice though it is turned meanwhile. Raises OSError.

    What is removed before its turn comes is left out.
    """
    last = 0
    while True:
        following = [part for part in turned(path) if part[0] > last]
        if following:
            last, part = following[0]
            try:
                file = part.open("rb")
            except FileNotFoundError:
                continue
            with file:
                yield part, file
            continue
        try:
            file = path.open("rb")
        except FileNotFoundError:
            if any(number > last for number, _ in turned(path)):  # it was put aside after we had looked
                continue
            if last:  # and nothing has been written since
                return
            raise
        with file:
            if any(number > last for number, _ in turned(path)):  # it was turned over before we had it
                continue
            yield path, file
            return
