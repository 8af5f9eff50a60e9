"""Kills `samplegate wrap --write` and `unwrap --write` at each step on the disk. Writes a line of JSON for each kill.

Arguments: a folder with ``home/.claude.json``, ``policy.yaml`` and ``state``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from samplegate.cli.main import main
from samplegate.clients import store

FOLDER = Path(sys.argv[1])
FILE = FOLDER / "home" / ".claude.json"
EVENTS = frozenset({"open", "os.rename", "os.remove", "os.chmod", "os.chown", "os.utime", "os.mkdir", "os.setxattr"})
COMMON = ("--client", "claude-code", "--write", "--state", str(FOLDER / "state"))
COMMANDS = {"wrap": ("wrap", "--policy", str(FOLDER / "policy.yaml"), *COMMON), "unwrap": ("unwrap", *COMMON)}


def run(command: str) -> int:
    with Path(os.devnull).open("w") as null, redirect_stdout(null):
        return main(COMMANDS[command])


def killed(command: str, number: int) -> bool:
    """Whether a child was killed at this step of the command. It has ended before otherwise."""
    child = os.fork()
    if child == 0:
        _kill_at(number)
        os._exit(run(command))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert 0 == os.waitstatus_to_exitcode(status), command
    return False


def _kill_at(number: int) -> None:
    """Kill this process at a step: an operation on files, before and within a write, and before a sync."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, found: tuple[Any, ...]) -> None:
        if event in EVENTS and str(FOLDER) in str(found[:2]):
            step()

    def write(fd: int, data: Any) -> int:
        step()
        half = true_write(fd, data[: len(data) // 2])
        step()
        return half + true_write(fd, data[half:])

    def sync(fd: Any) -> None:
        step()
        true_sync(fd)

    def swap(disk: store.Disk, draft: Path, path: Path) -> bool:
        step()
        done = true_swap(disk, draft, path)
        step()
        return done

    true_write, true_sync, true_swap = os.write, os.fsync, store.Disk.swap
    vars(store)["Disk"].swap = swap
    os.write, os.fsync = write, sync
    sys.addaudithook(heard)


def left() -> list[Path]:
    return [path for path in FOLDER.rglob(".samplegate-*") if path.is_file()]


original = FILE.read_bytes()
run("wrap")
wrapped = FILE.read_bytes()
run("unwrap")
for command, old, new in (("wrap", original, wrapped), ("unwrap", wrapped, original)):
    step = 0
    while True:
        step += 1
        if command == "wrap":
            FILE.write_bytes(old)
        else:
            assert 0 == run("wrap")
        assert old == FILE.read_bytes()
        if not killed(command, step):
            break
        found = FILE.read_bytes()
        modes = {path.stat().st_mode & 0o077 for path in (FOLDER / "state").rglob("*")}
        for path in left():
            os.utime(path, (time.time() - 3600,) * 2)
        assert 0 == run(command)
        print(
            json.dumps(
                {
                    "command": command,
                    "file": "old" if found == old else "new" if found == new else "another",
                    "again": FILE.read_bytes() == new,
                    "others": sorted(modes),
                }
            )
        )
    FILE.write_bytes(old)
run("unwrap")
print(json.dumps({"restored": FILE.read_bytes() == original, "left": [path.name for path in left()]}))
