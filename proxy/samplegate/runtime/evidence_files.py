"""What was seen of how one server asks its client, kept for its later connections: in memory, and as marker files in
the state folder.

A marker is an empty file whose existence is the fact. Nothing in it is read back, so concurrent writers need no lock
and hostile content does nothing. Deleting the files makes the gate forget. Which protocol version follows from them is
pure: ``protocol/evidence.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from samplegate.errors import Log
from samplegate.files import make_file, make_folder
from samplegate.protocol.evidence import OF_EVENTS, Evidence
from samplegate.protocol.rounds import Note

FOLDER: Final = "servers"
MAX_MARKERS: Final = 3_000  # files; at most three for each server
_MARKS: Final = ("pushed", "asked", "refused")


class EvidenceStore:
    """One server, for all its connections in this process and, where there is a state folder, in others."""

    def __init__(self, server: str, key: str, *, state: Path, setting: str, log: Log) -> None:
        """``key``: what tells the server apart (``key_of``). ``state``: ``Path()`` for none. ``setting``: what an
        operator would write."""
        self._server = server
        self._folder = None if state == Path() else state / FOLDER
        self._key = key
        self._setting = setting
        self._log = log
        self.evidence = Evidence()
        """All that is known since the last ``refresh``."""
        self.refresh()

    def refresh(self) -> None:
        """Learn what other processes have seen by now."""
        if self._folder is not None:
            self.evidence = self.evidence.or_(self._kept(self._folder))

    def take(self, note: Note) -> None:
        """A session noted something. Never raises."""
        before, new = self.evidence, OF_EVENTS.get(note.event)
        if new is None or before.or_(new) == before:
            return
        self.evidence = before.or_(new)
        self._keep(new)
        self.refresh()
        if self.evidence.prefers_legacy and not before.prefers_legacy:
            self._log.warning(
                "protocol.learned",
                server=self._server,
                method=note.fields.get("method", ""),
                problem="a call failed because 2026-07-28 does not let the server send requests to the client",
                effect="from the next connection the gate speaks 2025-11-25 or older to the server",
                setting=self._setting,
            )

    def _kept(self, folder: Path) -> Evidence:
        with suppress(OSError):  # a folder that cannot be read tells nothing
            return Evidence(**{mark: self._marker(folder, mark).exists() for mark in _MARKS})
        return Evidence()

    def _marker(self, folder: Path, mark: str) -> Path:
        return folder / f"{self._key}.{mark}"

    def _keep(self, new: Evidence) -> None:
        if self._folder is None:
            return
        try:
            make_folder(self._folder)
            for mark in _MARKS:
                if getattr(new, mark):
                    make_file(self._marker(self._folder, mark))
            _prune(self._folder, self._key)
        except OSError as problem:
            self._log.debug(
                "evidence.unwritten", server=self._server, problem=problem.strerror or type(problem).__name__
            )


def key_of(server: str, command: Sequence[str], url: str | None) -> str:
    """What tells a server apart: its name and what is started or asked. A hash, since arguments and URLs may hold
    secrets."""
    return hashlib.sha256(json.dumps([server, list(command), url]).encode()).hexdigest()


def _prune(folder: Path, keep: str) -> None:
    """Forget the servers that were seen longest ago, where there are too many. A server's markers go together."""
    markers = list(folder.iterdir())
    if len(markers) <= MAX_MARKERS:
        return
    seen: dict[str, float] = {}
    for marker in markers:
        with suppress(OSError):  # another process prunes too
            seen[marker.stem] = max(seen.get(marker.stem, 0.0), marker.stat().st_mtime)
    for stem in sorted(seen, key=seen.__getitem__)[: MAX_MARKERS // 10]:
        if stem != keep:
            for mark in ("pushed", "refused", "asked"):  # what prefers the older version goes first
                (folder / f"{stem}.{mark}").unlink(missing_ok=True)
