"""Files of runs: each gate of a run keeps one in the state folder, for `samplegate report --run`.

A client may kill a gate at any moment, without a signal before (Codex does so 6 ms after it closed the input). So the
file is true at each moment, and nothing depends on an end that is written: a gate that was killed while no request was
open has lost nothing, because each outcome is recorded before it is released. The gate locks its file as long as it
runs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from samplegate.audit.record import timestamp
from samplegate.audit.verdict import VERSION, FoundGate, GateState
from samplegate.errors import Unavailable
from samplegate.files import make_folder, try_lock

FOLDER: Final = "runs"
SIZE: Final = 4096
"""The bytes of a file, filled up with spaces, so that a shorter text overwrites a longer one in one write."""
MAX_SIZE: Final = 64 * 1024
MAX_TEXT: Final = 1_000  # characters of a path or a name
MAX_GATES: Final = 1_000
KEPT: Final = 7 * 86_400.0
"""Seconds after which the files of a run are removed."""
MAX_REMOVED: Final = 1_000  # runs examined at a start
PAUSE: Final = 0.1  # seconds between two looks at gates that still run


class GateFile:
    """This gate's own file. ``update`` and ``close`` never raise."""

    def __init__(self, path: Path, fd: int, state: GateState) -> None:
        self.state = state
        self._path = path
        self._fd = fd
        self._size = SIZE
        self._faulty = False

    @classmethod
    def create(cls, folder: Path, state: GateState) -> GateFile:
        """Create the file of a gate below the state folder. Raises Unavailable."""
        path = folder / FOLDER / state.run / f"{state.gate}.json"
        draft = path.with_suffix(".new")
        try:
            make_folder(path.parent)
            fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                try_lock(fd)
                found = cls(path, fd, state)
                found._write()
                draft.rename(path)
            except BaseException:
                os.close(fd)
                raise
        except OSError as problem:
            raise Unavailable(
                f"run: {path.parent} cannot be written: {(problem.strerror or str(problem)).lower()}; make the state"
                " folder writable for this user, or set --state to another folder"
            ) from None
        return found

    def update(self, **changes: object) -> bool:
        """Write these members if they changed. Returns False after a first failure to write."""
        state = msgspec.structs.replace(self.state, **changes)
        if state == self.state or self._fd < 0:
            return True
        self.state = state
        try:
            self._write()
        except OSError:
            told, self._faulty = self._faulty, True
            return told
        return True

    def close(self, now: float, exit_code: int) -> None:
        """Write the end, and unlock the file."""
        self.update(ended=timestamp(now), exit_code=exit_code)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self) -> None:
        text = msgspec.json.encode(self.state)
        self._size = max(self._size, len(text) + 1)
        os.lseek(self._fd, 0, os.SEEK_SET)
        data = text.ljust(self._size - 1) + b"\n"
        if os.write(self._fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def new_state(
    run: str,
    *,
    command: Literal["run", "serve"],
    server: str,
    wrapped: str,
    policy: Path,
    decision_log: str | None,
    now: float,
) -> GateState:
    """The state of a gate that starts. ``wrapped`` is the server's command or URL."""
    return GateState(
        run=run,
        gate=os.urandom(8).hex(),
        command=command,
        server=server[:MAX_TEXT],
        key=hashlib.sha256(f"{command} {server} {wrapped}".encode("utf-8", "surrogateescape")).hexdigest()[:16],
        policy=str(policy.absolute())[:MAX_TEXT],
        decision_log=decision_log,
        started=timestamp(now),
        pid=os.getpid(),
    )


def remove_old_runs(folder: Path, now: float) -> None:
    """Remove the files of runs that began long ago. Never raises."""
    with contextlib.suppress(OSError):
        with os.scandir(folder / FOLDER) as entries:
            old = [Path(entry) for _, entry in zip(range(MAX_REMOVED), entries, strict=False) if _is_old(entry, now)]
        for run in old:
            with contextlib.suppress(OSError):
                for file in run.iterdir():
                    _remove_if_old(file, now)
                run.rmdir()  # fails if a file is left


def _remove_if_old(file: Path, now: float) -> None:
    """Remove the file of a gate that ended long ago. The gate of a locked one still runs."""
    fd = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if os.fstat(fd).st_mtime < now - KEPT and try_lock(fd):
            file.unlink()
    finally:
        os.close(fd)


def _is_old(entry: os.DirEntry[str], now: float) -> bool:
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < now - KEPT


def read_gates(
    folder: Path, run: str, *, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[list[FoundGate], list[str]]:
    """The gates of a run by start, and the problems of reading them. Gates of `run` that still run get ``seconds`` to
    end."""
    until = time.monotonic() + seconds
    while True:
        found, problems = _read_once(folder / FOLDER / run, run)
        if not any(gate.runs and gate.state.command == "run" for gate in found) or time.monotonic() >= until:
            return sorted(found, key=lambda gate: (gate.state.started, gate.state.gate)), problems
        sleep(PAUSE)


def _read_once(folder: Path, run: str) -> tuple[list[FoundGate], list[str]]:
    found: list[FoundGate] = []
    problems: list[str] = []
    try:
        with os.scandir(folder) as entries:
            paths = sorted(Path(entry) for entry in entries if entry.name.endswith(".json"))
    except FileNotFoundError:
        return [], []
    except OSError as problem:
        return [], [f"{folder}: cannot be read: {(problem.strerror or str(problem)).lower()}"]
    if len(paths) > MAX_GATES:
        problems.append(f"{folder}: it has {len(paths)} gates, more than {MAX_GATES}")
    for path in paths[:MAX_GATES]:
        try:
            gate = _read(path)
        except OSError as problem:
            problems.append(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}")
            continue
        if isinstance(gate, str):
            problems.append(f"{path}: {gate}")
        elif gate.state.run != run:
            problems.append(f"{path}: it is the file of another run")
        else:
            found.append(gate)
    return found, problems


def _read(path: Path) -> FoundGate | str:
    """The gate of a file, or what is wrong with the file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return "it is not a file"
        runs = not try_lock(fd)  # before the text is read: a gate that has ended writes no more
        with os.fdopen(os.dup(fd), "rb") as file:
            text = file.read(MAX_SIZE + 1)
    finally:
        os.close(fd)
    if len(text) > MAX_SIZE:
        return f"it is larger than {MAX_SIZE} bytes, so no gate wrote it"
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            return f"it has version {version}, and this samplegate reads version {VERSION}"
        state = msgspec.json.decode(text, type=GateState)
        datetime.fromisoformat(state.started)
        return FoundGate(state, runs)
    except (msgspec.DecodeError, ValueError):
        return "it is damaged"


class _Version(msgspec.Struct):
    version: int
