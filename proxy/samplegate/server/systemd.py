"""systemd notifications: ready, reloading and stopping, each with a status line, and the watchdog. systemd's library is
not used.

The protocol is that of ``sd_notify(3)``: datagrams of ``NAME=value`` lines to the socket in NOTIFY_SOCKET. Nothing here
raises, because the daemon must work without a listening supervisor.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Final

import anyio

MAX_STATUS: Final = 200  # characters of a status line
# seconds that a state change waits for a full socket queue; the watchdog's message does not wait
SEND_TIMEOUT: Final = 0.5
NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notify:
    """Connection to the supervisor; without an address, it sends nothing. Each method returns whether the message was
    sent."""

    def __init__(
        self, address: str | None = None, watchdog: float | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._address = _native(address)
        self._watchdog = watchdog
        self._clock = clock

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str], pid: int) -> Notify:
        """Read the three variables, and remove them so that no child process believes itself to be the service.

        A watchdog for another process (WATCHDOG_PID) is ignored.
        """
        address, period, owner = (environment.pop(name, "") for name in (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID))
        ours = owner in ("", str(pid))
        seconds = int(period) / 1e6 if period.isascii() and period.isdigit() else 0.0
        return cls(address or None, seconds if ours and seconds > 0 else None)

    @property
    def watchdog(self) -> float | None:
        """The watchdog's period in seconds; None without a watchdog."""
        return self._watchdog if self._address is not None else None

    def ready(self, status: str = "") -> bool:
        """Report that the start is complete. It is also sent after every reload, whatever its result."""
        return self._send(["READY=1", *_status(status)])

    def reloading(self, status: str = "") -> bool:
        """Report that a reload has begun. ``Type=notify-reload`` compares the time in it with the time of its own
        signal."""
        return self._send(["RELOADING=1", f"MONOTONIC_USEC={self._clock() // 1000}", *_status(status)])

    def stopping(self, status: str = "", seconds: float | None = None) -> bool:
        """Report that shutdown has begun, and ask for up to ``seconds`` more if given."""
        extended = [] if seconds is None else [f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"]
        return self._send(["STOPPING=1", *extended, *_status(status)])

    async def feed(self, sleep: Callable[[float], Awaitable[object]] = anyio.sleep) -> None:
        """Feed the watchdog twice per period, until cancelled. This runs in the event loop, so a blocked loop sends
        nothing."""
        while self.watchdog is not None:
            self._send(["WATCHDOG=1"], timeout=0.0)
            await sleep(self.watchdog / 2)

    def _send(self, lines: list[str], timeout: float = SEND_TIMEOUT) -> bool:
        if self._address is None:
            return False
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.settimeout(timeout)
            ours.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
            return True
        return False


def _native(address: str | None) -> str | bytes | None:
    """The address for the socket module: a path, or an abstract name of Linux, written with ``@``. Other kinds (vsock)
    are ignored."""
    if not address or not hasattr(socket, "AF_UNIX"):
        return None
    if address.startswith("@"):
        return b"\0" + os.fsencode(address[1:])
    return address if address.startswith("/") else None


def _status(line: str) -> list[str]:
    """The status as one line: a line end in it would begin another variable."""
    return [f"STATUS={''.join(c if c.isprintable() else ' ' for c in line[:MAX_STATUS])}"] if line else []
