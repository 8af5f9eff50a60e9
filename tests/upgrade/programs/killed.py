"""Kills samplegate at each step of a command, one process a step. A step is a statement that SQLite runs, or a file of
the folder opened or changed.

    killed.py COPIES COMMAND...      # in the folder of which COPIES/1, COPIES/2, ... are made; {here} in COMMAND is
    such a copy

stdin is the command's. The process of copy N is killed with SIGKILL at its N-th step; the last copy is that of a
process that ended by itself. The processes are forked from this one, which has imported what they need: hundreds of
starts would take minutes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import shutil
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any, Final

MOST: Final = 2_000
FILES: Final = {"open", "os.link", "os.remove", "os.rename", "os.truncate", "os.mkdir", "os.rmdir", "os.chmod"}
_connect: Any = sqlite3.connect
_samplegate: Any = runpy.run_path(str(Path(__file__).with_name("clocked.py")))["samplegate"]


class Steps:
    """Counts the steps of this process in a folder, and kills it at the last."""

    def __init__(self, folder: Path, last: int) -> None:
        self._folder, self._left = str(folder), last
        self._lock = threading.Lock()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        if (
            event in FILES
            and isinstance(arguments[0], str | bytes | os.PathLike)
            and os.fsdecode(arguments[0]).startswith(self._folder)
        ):
            self.step()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Replaces ``sqlite3.connect``."""
        db: sqlite3.Connection = _connect(*arguments, **options)
        db.set_trace_callback(lambda _: self.step())
        return db

    def step(self) -> None:
        """Count one step."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def run(here: Path, command: list[str], frames: bytes, last: int) -> int:
    """The wait status of a process that runs this command in the copy and is killed at its last step."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.dup2(read, 0)
        with (here.parent / f"{here.name}.said").open("wb") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.chdir(here)
        sys.argv = ["samplegate", *(word.replace("{here}", str(here)) for word in command)]
        code: object = 1
        steps = Steps(here, last)
        sys.addaudithook(steps.hear)
        for module in (sqlite3, sqlite3.dbapi2):
            vars(module)["connect"] = steps.connect
        try:
            _samplegate()
        except SystemExit as end:
            code = end.code
        (here.parent / "modules").write_text("\n".join(sys.modules))
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    os.close(read)
    with os.fdopen(write, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(frames)
    return os.waitpid(child, 0)[1]


def main() -> None:
    """Run with more and more steps until a process ends by itself."""
    copies, command, frames = Path(sys.argv[1]).absolute(), sys.argv[2:], sys.stdin.buffer.read()
    copies.mkdir()
    trial = shutil.copytree(Path(), copies / "0", ignore=shutil.ignore_patterns(copies.name))
    run(trial, command, frames, 0)
    for name in (copies / "modules").read_text().split("\n"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for number in range(1, MOST):
        here = shutil.copytree(Path(), copies / str(number), ignore=shutil.ignore_patterns(copies.name))
        status = run(here, command, frames, number)
        if not os.WIFSIGNALED(status):
            assert 0 == os.waitstatus_to_exitcode(status), (copies / f"{number}.said").read_text()
            print(number)
            return
        assert signal.SIGKILL == os.WTERMSIG(status)
    raise AssertionError("it has no end")


if __name__ == "__main__":
    main()
