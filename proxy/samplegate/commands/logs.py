"""The records of decision logs, one at a time, however large a log is. Not where they stand: ``sources.py``; not what a record says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from samplegate.commands import sources
from samplegate.core.logline import Line
from samplegate.core.logline import read as read_line

MAX_LISTED: Final = 20


class Logs:
    """The records of several logs, in the order of the names. ``bad`` counts the lines that are none; the first of them are in ``listed``."""

    def __init__(self, given: Sequence[str]) -> None:
        """Raises Unreadable for a name that there is no log of."""
        self._sources = sources.sources(given)
        self.files = list(dict.fromkeys(name for source in self._sources for name in sources.names(source)))
        """The files that there are at the start, and databases; by name, each once."""
        self.lines = 0
        self.bad = 0
        self.listed: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        """Every record. Raises Unreadable for a log that cannot be read on."""
        for source in self._sources:
            for place, text in sources.read(source):
                if text is not None and not text.strip():
                    continue
                self.lines += 1
                found = f"is longer than {sources.MAX_LINE} bytes" if text is None else read_line(text)
                if isinstance(found, Line):
                    yield found
                else:
                    self._tell(f"{place}: {found}")

    def _tell(self, what: str) -> None:
        self.bad += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(what)

    def complaints(self) -> Iterator[str]:
        """One line for each of the first that are no records, and how many there are."""
        yield from self.listed
        if self.bad > len(self.listed):
            yield f"and {self.bad - len(self.listed)} more lines that are no records"
