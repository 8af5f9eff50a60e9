"""What can be wrong with the state's file, as one exception with words for the operator. The words name no path: a server may be shown them."""

from __future__ import annotations

import sqlite3
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["busy", "full", "read_only", "damaged", "newer", "foreign", "unreachable"]
FILE: Final = "limits.sqlite3"

_REMEDIES: Final[dict[Kind, str]] = {
    "busy": "another process keeps it locked; end what holds it",
    "full": "make room on its disk",
    "read_only": "let this user write it and its folder, or give --state another folder",
    "damaged": f"move {FILE} away, with its -wal and -shm; all limits then begin anew",
    "newer": "use that samplegate, or give --state another folder",
    "foreign": "give --state another folder",
    "unreachable": "see that the state folder is there and is this user's, or give --state another folder",
}
_CODES: Final[dict[str, Kind]] = {
    "SQLITE_BUSY": "busy",
    "SQLITE_LOCKED": "busy",
    "SQLITE_PROTOCOL": "busy",
    "SQLITE_FULL": "full",
    "SQLITE_READONLY": "read_only",
    "SQLITE_PERM": "read_only",
    "SQLITE_AUTH": "read_only",
    "SQLITE_CORRUPT": "damaged",
    "SQLITE_NOTADB": "damaged",
    "SQLITE_ERROR": "damaged",  # no such table or column: whoever made it, it is not the file we know
    "SQLITE_MISMATCH": "damaged",
    "SQLITE_CONSTRAINT": "damaged",
}


class Broken(Exception):
    """The state could not be asked. ``undone``: it is certain that nothing was changed."""

    def __init__(self, kind: Kind, what: str, *, undone: bool = True) -> None:
        super().__init__(f"limits: {FILE} in the state folder {what}; {_REMEDIES[kind]}")
        self.kind: Kind = kind
        self.what = what
        self.undone = undone


def broken(problem: sqlite3.Error | OSError) -> Broken:
    """What SQLite or the system says, in our words."""
    if isinstance(problem, OSError):
        said = problem.strerror or type(problem).__name__
        return Broken("read_only" if isinstance(problem, PermissionError) else "unreachable", f"cannot be opened ({said})")
    name = getattr(problem, "sqlite_errorname", "")  # also extended ones: SQLITE_READONLY_DIRECTORY
    kinds: list[Kind] = [kind for code, kind in _CODES.items() if name == code or name.startswith(f"{code}_")]
    return Broken(kinds[0] if kinds else "unreachable", f"cannot be used ({name or type(problem).__name__})")
