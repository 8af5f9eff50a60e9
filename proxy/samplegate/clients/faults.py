"""Pure. Problems of clients' files."""

from __future__ import annotations

from samplegate.protocol.strictjson import quoted_name


class FileFault(Exception):
    """A file that cannot be edited safely. ``what`` has the reason and the remedy, ``place`` is LINE:COLUMN or empty.
    It contains no values of the file."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(f"{place}: {what}" if place else what)
        self.what = what
        self.place = place


def quoted(name: str) -> str:
    """A name from a file for messages: quoted, shortened, on one line."""
    return quoted_name(name)
