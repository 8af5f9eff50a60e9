"""The decision log: one line of JSON a request, appended before the outcome is released. Not what a line says: ``core/record.py`` does.

Durability is ``written``: the line is the kernel's when ``write`` returns, so a crash of the gate loses nothing and a crash of the machine may.
"""

from __future__ import annotations

import math
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from samplegate.core.record import ContentMode, Record, timestamp, to_json
from samplegate.ports import Unavailable
from samplegate.records.appending import PATIENCE, append, secret

KEY_BYTES: Final = 32
QUEUE: Final = 10.0  # seconds that a record waits for the earlier ones of this process


class DecisionLog:
    """Where records go. Several processes may share a place; each append is under the file's lock."""

    def __init__(
        self, place: Callable[[float], Path], key: Path, *, content: ContentMode = "hash", patience: float = PATIENCE, queue: float = QUEUE
    ) -> None:
        self._place = place
        self._key_file = key
        self._content: ContentMode = content
        self._patience = patience
        self._queue = queue
        self._key = b""
        self._allowed = math.inf
        self._hurried = math.inf
        self._spent = 0.0  # by the one thread that writes, which alone changes it
        self._turn: anyio.CapacityLimiter | None = None
        self.last: Path | None = None
        """The file of the latest record, for the summary at the end."""

    @classmethod
    def daily(cls, state: Path, server: str, *, content: ContentMode = "hash") -> DecisionLog:
        """``<state>/decisions/<server>-<date>.jsonl``; the date is the record's own, in UTC."""
        folder, name = state / "decisions", file_name(server)
        return cls(lambda at: folder / f"{name}-{timestamp(at)[:10]}.jsonl", folder / ".key", content=content)

    @classmethod
    def open(cls, path: Path, *, content: ContentMode = "hash", patience: float = PATIENCE, queue: float = QUEUE) -> DecisionLog:
        """One file for everything."""
        return cls(lambda _: path, path.with_name(path.name + ".key"), content=content, patience=patience, queue=queue)

    def check_writable(self, now: float) -> None:
        """Raises Unavailable where a record of ``now`` (unix seconds) could not be written; makes nothing."""
        path = self._place(now)
        try:
            problem = _problem(path)
        except OSError as failed:
            problem = f"cannot be reached: {failed.strerror}"
        if problem is not None:
            raise Unavailable(f"decision log: {path} {problem}; give --decision-log a place that can be written, or none")

    def hurry(self, seconds: float) -> None:
        """The end has begun: from now on writing takes ``seconds`` at most, all records together; a lock that is waited for is given up then."""
        self._allowed, self._hurried = min(self._allowed, seconds), min(self._hurried, time.monotonic())

    async def write(self, record: Record) -> None:
        """Append the record. Raises Unavailable; a cancellation waits until the line is whole."""
        self._turn = self._turn or anyio.CapacityLimiter(1)  # one thread: the lock is between processes
        try:
            with anyio.fail_after(min(self._queue, self._left())):
                await anyio.to_thread.run_sync(self._append, record, limiter=self._turn)
        except TimeoutError as problem:
            raise Unavailable(
                f"decision log: {self._place(record.time)} was not free in time ({str(problem) or 'earlier records wait'})"
            ) from problem
        except OSError as problem:
            raise Unavailable(f"decision log: {self._place(record.time)} cannot be written: {problem.strerror or problem}") from problem

    def _append(self, record: Record) -> None:
        if self._left() <= 0:
            raise TimeoutError("the time for the last records is over")
        begun = time.monotonic()
        try:
            path = self._place(record.time)
            if self._content != "none" and not self._key:
                self._key = self._read_key(path)
            append(path, to_json(record, content=self._content, key=self._key), patience=self._still)
            self.last = path
        finally:
            self._spent += max(0.0, time.monotonic() - max(begun, self._hurried))

    def _left(self) -> float:
        return self._allowed - self._spent

    def _still(self) -> float:
        return min(self._patience, self._left())

    def _read_key(self, path: Path) -> bytes:
        if path.exists() and not path.is_file():  # a pipe or device: there is no place beside it
            return os.urandom(KEY_BYTES)
        return secret(self._key_file, KEY_BYTES, patience=self._still)


class NoDecisionLog:
    """``--decision-log none``: the operator wants no record."""

    last: Path | None = None

    def check_writable(self, now: float) -> None:
        """Nothing is ever written."""

    def hurry(self, seconds: float) -> None:
        """There is nothing to hurry."""

    async def write(self, record: Record) -> None:
        """Keep nothing."""


def decision_log(setting: str | None, *, state: Path, server: str, content: ContentMode) -> DecisionLog | NoDecisionLog:
    """The log that ``--decision-log`` asks for: a path, ``none``, or None for the daily file in the state folder."""
    if setting == "none":
        return NoDecisionLog()
    return DecisionLog.daily(state, server, content=content) if setting is None else DecisionLog.open(Path(setting), content=content)


def file_name(server: str) -> str:
    """A server's name as part of a file's name: nothing in it leaves the folder or hides the file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", server)[:100].lstrip(".") or "_"


def _problem(path: Path) -> str | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return _folder_problem(path.parent)
    if stat.S_ISDIR(found.st_mode):
        return "is a folder"
    if _is_stdout(found):
        return "is stdout, which belongs to the protocol"
    return None if os.access(path, os.R_OK | os.W_OK) else "cannot be written"


def _folder_problem(folder: Path) -> str | None:
    while not folder.exists():
        if folder == folder.parent:
            return "has no folder that exists"
        folder = folder.parent
    if not folder.is_dir():
        return f"cannot be made: {folder} is no folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"cannot be made: folder {folder} cannot be written"


def _is_stdout(found: os.stat_result) -> bool:
    try:
        ours = os.fstat(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except (OSError, ValueError):
        return False
    return not stat.S_ISCHR(found.st_mode) and os.path.samestat(found, ours)
