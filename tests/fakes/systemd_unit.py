"""The systemd unit as data, and what systemd provides for a service of Type=notify: socket, variables, signals."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.fakes.system_programs import DEPLOY

UNIT: Final = DEPLOY / "systemd" / "samplegate.service"
BOUND: Final = 60.0


def directives(text: str) -> dict[str, list[str]]:
    """Every directive of a unit file, with its values in order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def started_as(replaced: Mapping[str, str]) -> list[str]:
    """The words of ExecStart, with paths replaced by some that exist on this machine."""
    (line,) = directives(UNIT.read_text("utf-8"))["ExecStart"]
    for old, new in replaced.items():
        assert old in line, line
        line = line.replace(old, new)
    return shlex.split(line)


class NotifySocket:
    """The other end of NOTIFY_SOCKET: every state that was sent, in order, as its variables."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.states: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(at))

    async def next(self, name: str) -> dict[str, str]:
        """The next state with this variable. Earlier ones are kept in ``states``."""
        async with asyncio.timeout(BOUND):
            while True:
                said = (await asyncio.get_running_loop().sock_recv(self._socket, 4096)).decode()
                self.states.append(dict(line.split("=", 1) for line in said.split("\n")))
                if name in self.states[-1]:
                    return self.states[-1]

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def supervised(
    folder: Path, command: list[str], watchdog: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, NotifySocket]]:
    """Run a command as systemd would: with the socket, and with WATCHDOG_PID set to the process itself."""
    notified = NotifySocket(folder / "notify")
    (folder / "log").touch()
    env = {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": str(notified.at),
        "WATCHDOG_USEC": str(int(watchdog * 1e6)),
        "PYTHONPATH": os.pathsep.join(PYTHONPATH),
    }
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", *command,
            env=env, cwd="/", stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield process, notified
    finally:
        notified.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


PYTHONPATH: Final = [str(DEPLOY.parent / "proxy")]
