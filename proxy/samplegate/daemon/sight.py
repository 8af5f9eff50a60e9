"""How a file looks from outside, every link on the way to it included: enough to see that it changed. It reads no content.

A file may change in its bytes, be replaced by a rename, or be another one because a link above it was turned (Kubernetes turns ``..data``). The
mark of each of these is on the way that the system walks from the root to the file, so that way is walked here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

MAX_LINKS: Final = 40  # what Linux follows, too

Mark: TypeAlias = tuple[int, int, int, int, int]
Folder: TypeAlias = tuple[str, int, int]


class Sight(msgspec.Struct, frozen=True):
    """One look at a file. Two that are equal in ``marks`` are of the same file with the same content."""

    marks: tuple[Mark | None, ...]
    """Device, inode, size and the two times in nanoseconds of each link and of the file; None where the way ends before it."""
    folders: frozenset[str]
    """Where a change would show: the folder of each link and of the file, or the nearest that exists."""

    @property
    def newest(self) -> float:
        """Unix seconds of the latest change to any of it; 0 for a file that is not there."""
        return max((mark[4] for mark in self.marks if mark is not None), default=0) / 1e9


def look(path: Path) -> Sight:
    """Walk the way to a file. Never raises: what cannot be reached is not there. May wait for a disk."""
    marks: list[Mark | None] = []
    folders: set[str] = set()
    here, *names = path.absolute().parts
    names.reverse()
    while names:
        name = names.pop()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 # of a place without links, so it is the real one
            continue
        step = os.path.join(here, name)  # noqa: PTH118
        info = _lstat(step)
        is_link = info is not None and stat.S_ISLNK(info.st_mode)
        if is_link or not names or info is None:
            folders.add(here)
            marks.append(None if info is None else (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
        if info is None or len(marks) > MAX_LINKS:
            break
        here = _turn(step, here, names) if is_link else step
    return Sight(tuple(marks), frozenset(folders))


def known_folders(sights: Iterable[Sight]) -> frozenset[Folder]:
    """The folders of some files, each with device and inode: one that was replaced by another is another."""
    names = {name for sight in sights for name in sight.folders}
    return frozenset((name, info.st_dev, info.st_ino) for name in names if (info := _lstat(name)) is not None)


def _turn(link: str, here: str, names: list[str]) -> str:
    """Put what a link says before what is still to walk; where the walk goes on from."""
    try:
        target = Path(os.readlink(link))  # noqa: PTH115
    except OSError:  # gone in between: the next look tells
        names.clear()
        return here
    parts = list(target.parts)
    start = parts.pop(0) if target.is_absolute() else here
    names.extend(reversed(parts))
    return start


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None
