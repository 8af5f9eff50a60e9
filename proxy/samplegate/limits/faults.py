"""The ledger's file cannot be asked: the exception, with a remedy for the operator. The words name no path: a server may be shown them."""

from __future__ import annotations

from typing import Final

from samplegate.sqlite import Fault, Kind

FILE: Final = "limits.sqlite3"

_REMEDIES: Final[dict[Kind, str]] = {
    "busy": "end what holds it",
    "full": "make room",
    "read_only": "let this user write it and its folder, or give --state another folder",
    "damaged": f"move {FILE} away, with its -wal and -shm; all limits then begin anew",
    "newer": "use that samplegate, or give --state another folder",
    "foreign": "give --state another folder",
    "unreachable": "see that the state folder is there and is this user's, or give --state another folder",
}


class Broken(Exception):
    """The ledger could not be asked. ``undone``: it is certain that nothing was changed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"limits: {FILE} in the state folder: {fault.problem}; {_REMEDIES[fault.kind]}")
        self.kind: Kind = fault.kind
        self.undone = fault.undone


def late() -> Broken:
    """There was no answer in time."""
    return Broken(Fault("busy", "it did not answer in time; another process keeps it locked"))
