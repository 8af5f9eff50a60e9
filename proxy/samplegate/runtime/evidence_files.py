"""Evidence of how a server asks its client, kept in memory and as marker files in the state folder.

A marker is an empty file whose existence is the fact. Its content is never read, so concurrent writers need no lock and
hostile content has no effect. Deleting the files resets the evidence. ``protocol/evidence.py`` (pure) derives the
protocol version from it.
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
    """Evidence about one server, shared by its connections in this process and, with a state folder, in other
    processes."""

    def __init__(self, server: str, key: str, *, state: Path, setting: str, log: Log) -> None:
        """``key`` identifies the server (``key_of``). ``state`` is ``Path()`` for no state folder. ``setting`` is the
        setting that the log suggests to the operator."""
        self._server = server
        self._folder = None if state == Path() else state / FOLDER
        self._key = key
        self._setting = setting
        self._log = log
        self.evidence = Evidence()
        """The evidence as of the last ``refresh`` or ``take``."""
        self.refresh()

    def refresh(self) -> None:
        """Read evidence that other processes have stored."""
        if self._folder is not None:
            self.evidence = self.evidence.union(self._kept(self._folder))

    def take(self, note: Note) -> None:
        """Store the evidence in a session's note, if any. Never raises."""
        before, new = self.evidence, OF_EVENTS.get(note.event)
        if new is None or before.union(new) == before:
            return
        self.evidence = before.union(new)
        self._keep(new)
        self.refresh()
        if self.evidence.prefers_legacy and not before.prefers_legacy:
            self._log.warning(
                "protocol.learned",
                server=self._server,
                method=note.fields.get("method", ""),
                problem="a call failed because 2026-07-28 does not let the server send requests to the client",
                effect="starting with the next connection, the gate uses 2025-11-25 or older with this server",
                setting=self._setting,
            )

    def _kept(self, folder: Path) -> Evidence:
        with suppress(OSError):  # an unreadable folder gives no evidence
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
    """Key of a server: a hash of its name and its command or URL. It is hashed because arguments and URLs may contain
    secrets."""
    return hashlib.sha256(json.dumps([server, list(command), url]).encode()).hexdigest()


def _prune(folder: Path, keep: str) -> None:
    """Delete the markers of the servers seen longest ago if there are too many. A server's markers are deleted
    together."""
    markers = list(folder.iterdir())
    if len(markers) <= MAX_MARKERS:
        return
    seen: dict[str, float] = {}
    for marker in markers:
        with suppress(OSError):  # another process may prune, too
            seen[marker.stem] = max(seen.get(marker.stem, 0.0), marker.stat().st_mtime)
    for stem in sorted(seen, key=seen.__getitem__)[: MAX_MARKERS // 10]:
        if stem != keep:
            for mark in ("pushed", "refused", "asked"):  # the marker that prefers the older version goes first
                (folder / f"{stem}.{mark}").unlink(missing_ok=True)
