"""What systemd is told: ready, reloading, stopping, each with a line of status, and that the event loop still turns.
Not systemd's library.

The protocol of ``sd_notify(3)``: datagrams of ``NAME=value`` lines to the socket that NOTIFY_SOCKET names. Nothing here
raises: a daemon whose supervisor does not listen works on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Final

import anyio

LONGEST: Final = 200  # characters of a status line
# seconds that a change of state waits for a socket whose queue is full; a sign of life does not wait
PATIENCE: Final = 0.5
NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notify:
    """The way to the supervisor; without an address it says nothing. Every call tells whether the word got out."""

    def __init__(
        self, address: str | None = None, watchdog: float | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._address = _native(address)
        self._watchdog = watchdog
        self._clock = clock

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str], pid: int) -> Notify:
        """Read and remove the three variables, so that no server that is started believes itself to be the service.

        A watchdog that is another process's (WATCHDOG_PID) is not fed.
        """
        address, period, owner = (environment.pop(name, "") for name in (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID))
        ours = owner in ("", str(pid))
        seconds = int(period) / 1e6 if period.isascii() and period.isdigit() else 0.0
        return cls(address or None, seconds if ours and seconds > 0 else None)

    @property
    def watchdog(self) -> float | None:
        """Seconds within which a sign of life is expected; None where nobody waits for one."""
        return self._watchdog if self._address is not None else None

    def ready(self, status: str = "") -> bool:
        """The start is done; also said after every reload, whatever came of it."""
        return self._say(["READY=1", *_status(status)])

    def reloading(self, status: str = "") -> bool:
        """A reload has begun. The time in it is what ``Type=notify-reload`` compares with its own signal's."""
        return self._say(["RELOADING=1", f"MONOTONIC_USEC={self._clock() // 1000}", *_status(status)])

    def stopping(self, status: str = "", seconds: float | None = None) -> bool:
        """The end has begun, and takes up to ``seconds`` more, where given."""
        extended = [] if seconds is None else [f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"]
        return self._say(["STOPPING=1", *extended, *_status(status)])

    async def feed(self, sleep: Callable[[float], Awaitable[object]] = anyio.sleep) -> None:
        """Give signs of life, twice in the time in which one is expected, until cancelled. It runs in the event loop,
        so a stuck one gives none."""
        while self.watchdog is not None:
            self._say(["WATCHDOG=1"], patience=0.0)
            await sleep(self.watchdog / 2)

    def _say(self, lines: list[str], patience: float = PATIENCE) -> bool:
        if self._address is None:
            return False
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.settimeout(patience)
            ours.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
            return True
        return False


def _native(address: str | None) -> str | bytes | None:
    """A path, or a name of Linux's abstract space, written with ``@``. Other kinds (vsock) are not served."""
    if not address or not hasattr(socket, "AF_UNIX"):
        return None
    if address.startswith("@"):
        return b"\0" + os.fsencode(address[1:])
    return address if address.startswith("/") else None


def _status(line: str) -> list[str]:
    """One line, whatever is in it: a line end would begin another variable."""
    return [f"STATUS={''.join(c if c.isprintable() else ' ' for c in line[:LONGEST])}"] if line else []
