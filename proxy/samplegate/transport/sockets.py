"""Listening sockets, bound without an HTTP server, whose import takes 0.1 s."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

from samplegate.config.values import Address
from samplegate.transport.stdio import CannotStart

BACKLOG: Final = 2048  # pending connections, enough for a burst of clients after a restart


class AddressInUse(CannotStart):
    """Another socket listens on the address."""


def bind(setting: str, at: Address) -> socket.socket:
    """Bind a listening socket. Raises CannotStart, and AddressInUse if another socket has the address."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = next((one for one in found if one[0] == family), found[0])
        ours = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ours.bind(where)
            ours.listen(BACKLOG)
            ours.setblocking(False)
        except BaseException:
            ours.close()
            raise
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        refusal = AddressInUse if problem.errno == errno.EADDRINUSE else CannotStart
        raise refusal(
            setting, str(at), f"cannot be bound: {why}", "choose another address, or port 0 for any free port"
        ) from None
    return ours


def bound(ours: socket.socket) -> Address:
    """The address of a listening socket."""
    host, port = ours.getsockname()[:2]
    return Address(str(host), int(port))
