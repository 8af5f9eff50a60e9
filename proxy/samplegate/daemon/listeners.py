"""The daemon's listeners by name: each a bound socket, what is served on it, and its end. Not how one is bound or what uvicorn is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from socket import socket
from typing import Any

import anyio.abc

from samplegate.daemon.listening import KEEP_ALIVE, Listener, bound, listener
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.connection import Connections
from samplegate.settings.values import Address


class Listeners:
    """``sockets``: those that are bound, by the name of their listener; what has no socket is not served."""

    def __init__(self, sockets: Mapping[str, socket]) -> None:
        self._sockets = sockets
        self._open: dict[str, tuple[Connections, Listener]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sockets

    def at(self, name: str) -> Address:
        """Where one of them listens."""
        return bound(self._sockets[name])

    def open(
        self,
        name: str,
        app: Any,
        bounds: Bounds,
        group: anyio.abc.TaskGroup,
        *,
        refused: Callable[[], object],
        keep_alive: int = KEEP_ALIVE,
    ) -> None:
        """Serve ``app`` on a listener from now on.

        ``refused`` is called for each connection over ``bounds.connections``; ``keep_alive``: seconds that one waits for another request.
        """
        connections = Connections(app, bounds, refused=refused)
        server = listener(connections, keep_alive=keep_alive)
        self._open[name] = connections, server
        group.start_soon(_listen, server, self._sockets[name])

    def connections(self) -> dict[str, int]:
        """How many are open on each."""
        return {name: len(connections.open) for name, (connections, _) in self._open.items()}

    def end(self) -> None:
        """Ask all of them to end, with their connections."""
        for _, server in self._open.values():
            server.should_exit = True


async def _listen(server: Listener, ours: socket) -> None:
    await server.serve(sockets=[ours])
