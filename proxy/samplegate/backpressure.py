"""Who is not read, and until when: a side is read only as fast as the other takes it, and only while it takes what it is answered itself.

Not the queues: the links hold the bytes and say when a peer falls behind. What the other side sent is paid for by not reading that one, so it
never holds the side that it is for: a server that writes before it reads on would wait for us, and we for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

MOST_ANSWERS: Final = 8 * 1024 * 1024
"""Bytes of the gate's own answers that may wait for a side: a thousand open requests with answers of 8 KiB, and far from filling a machine."""


class Link(Protocol):
    """One side's connection, as ``links`` makes them."""

    @property
    def send(self) -> Callable[[bytes], None]: ...
    @property
    def pressure(self) -> Callable[[bool], None]: ...
    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Reading:
    """Whether a side is read: while nothing holds it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: set[str] = set()

    def hold(self, why: str) -> None:
        """Read it no more, until ``release`` of the same."""
        if not self._held:
            self._link.pause_reading()
        self._held.add(why)

    def release(self, why: str) -> None:
        """One reason less; without any it is read again."""
        if why in self._held:
            self._held.discard(why)
            if not self._held:
                self._link.resume_reading()


class Outlet(msgspec.Struct, eq=False):
    """What goes to one side."""

    carry: Callable[[bytes], None]
    """Send a line that came from the other side."""
    own: Reading | None = None
    other: Reading | None = None
    _behind: bool = False
    _answers: int = 0

    def answer(self, line: bytes) -> None:
        """Send a line of the gate's own, which nobody else is held up for."""
        self.carry(line)
        if self._behind and self.own is not None:
            self._answers += len(line) + 1
            if self._answers > MOST_ANSWERS:
                self.own.hold("it takes no answers")

    def pressed(self, over: bool) -> None:
        """The link's word that the peer has fallen behind, or that it has caught up or gone."""
        self._behind = over
        if over:
            if self.other is not None:
                self.other.hold("the other side is behind")
            return
        self._answers = 0
        if self.other is not None:
            self.other.release("the other side is behind")
        if self.own is not None:
            self.own.release("it takes no answers")


def outlets(client: Link, server: Link) -> tuple[Outlet, Outlet]:
    """What goes to the client and what to the server, each with its marks."""
    clients, servers = Reading(client), Reading(server)
    to_client, to_server = Outlet(client.send, clients, servers), Outlet(server.send, servers, clients)
    client.pressure, server.pressure = to_client.pressed, to_server.pressed
    return to_client, to_server
