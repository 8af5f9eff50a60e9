"""The decision log: every request and what came of it, on record before the outcome is released. Which log there is, by what was set."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from samplegate.core.record import ContentMode, Record
from samplegate.files import SQLITE
from samplegate.ports import Unavailable
from samplegate.records.kept import KeptLog
from samplegate.records.logfile import LogFile, daily_files, one_file

Durability: TypeAlias = Literal["written", "synced"]


class DecisionLog(Protocol):
    """What the gate's process needs of a decision log."""

    @property
    def last(self) -> Path | str | None:
        """Where the latest record went, for a person; None before the first."""
        ...

    def check_writable(self, now: float) -> None:
        """Raises Unavailable where a record of ``now`` (unix seconds) could not be written; makes nothing."""

    def problem(self) -> str | None:
        """Why the last write failed, None where none has, or where it would do again. Does not block."""
        ...

    def hurry(self, seconds: float) -> None:
        """The end has begun: from now on writing takes ``seconds`` at most, all records together."""

    async def write(self, record: Record) -> None:
        """Returns once the record is kept, as durably as was set. Raises Unavailable."""

    async def aclose(self) -> None:
        """Write what waits, and take nothing any more."""


class NoDecisionLog:
    """``--decision-log none``: the operator wants no record."""

    last: Path | None = None

    def check_writable(self, now: float) -> None:
        """Nothing is ever written."""

    def problem(self) -> str | None:
        """Nothing can fail."""
        return None

    def hurry(self, seconds: float) -> None:
        """There is nothing to hurry."""

    async def write(self, record: Record) -> None:
        """Keep nothing."""

    async def aclose(self) -> None:
        """There is nothing to close."""


def decision_log(
    setting: str | None,
    *,
    state: Path,
    server: str,
    content: ContentMode,
    durability: Durability = "written",
    max_bytes: int = 0,
    keep: int = 0,
) -> DecisionLog:
    """The log that is set: a path, ``sqlite:PATH``, ``none``, or None for the daily file in the state folder, which is named for ``server``.

    ``max_bytes``: the length at which a file is put aside (0: never); ``keep``: how many of those stay (0: all); a database heeds neither.
    Raises Unavailable for a database that cannot be meant.
    """
    if setting == "none":
        return NoDecisionLog()
    synced = durability == "synced"
    if setting is not None and setting.startswith(SQLITE):
        from samplegate.records.table import Table

        return KeptLog(Table(_database(setting), content=content, synced=synced))
    at, key = daily_files(state, server) if setting is None else one_file(Path(setting))
    return KeptLog(LogFile(at, key, content=content, synced=synced, max_bytes=max_bytes, keep=keep))


def _database(setting: str) -> Path:
    name = setting.removeprefix(SQLITE)
    if not name or name.startswith((":", "//")):  # SQLAlchemy's own way to write it reads another path out of it; and memory is no log
        raise Unavailable(f"decision log: {setting} names no file; write sqlite:PATH")
    return Path(name)
