"""HTTP listeners: uvicorn on sockets that are bound before anything starts, and their shutdown.

uvicorn's signal handlers, lifespan and logs are off, because `serve` and `run` control their own shutdown and write
their own log.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import anyio.abc
import uvicorn

from samplegate.config.values import Address
from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.uvicorn_protocol import Connections
from samplegate.transport.sockets import BACKLOG, bound

# seconds that an idle connection stays open: longer than common load balancers keep theirs, which would otherwise use a
# closed one
KEEP_ALIVE: Final = 75
_SILENT: Final = logging.CRITICAL + 1


class Listener(uvicorn.Server):
    """A uvicorn server that ends when ``should_exit`` is set."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: the process handles signals itself."""
        yield


def listener(connections: Connections, *, keep_alive: int = KEEP_ALIVE) -> Listener:
    """A uvicorn server for these connections. ``keep_alive``: seconds that an idle connection stays open."""
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        # otherwise clients could flood our log with lines in another format
        logging.getLogger(name).setLevel(_SILENT)
    config = uvicorn.Config(
        connections.app,
        http=connections.protocol,  # type: ignore[arg-type]  # called as a class is
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=1,
    )
    return Listener(config)


class Listeners:
    """The bound listeners by name. A name without a socket in ``sockets`` is not served."""

    def __init__(self, sockets: Mapping[str, socket.socket]) -> None:
        self._sockets = sockets
        self._open: dict[str, tuple[Connections, Listener]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sockets

    def at(self, name: str) -> Address:
        """Address of a listener."""
        return bound(self._sockets[name])

    def open(
        self,
        name: str,
        app: Any,
        bounds: HttpBounds,
        group: anyio.abc.TaskGroup,
        *,
        refused: Callable[[], object],
        keep_alive: int = KEEP_ALIVE,
    ) -> None:
        """Serve ``app`` on a listener from now on.

        ``refused`` is called for each connection over ``bounds.connections``. ``keep_alive``: seconds that an idle
        connection stays open.
        """
        connections = Connections(app, bounds, refused=refused)
        server = listener(connections, keep_alive=keep_alive)
        self._open[name] = connections, server
        group.start_soon(server.serve, [self._sockets[name]])

    def connections(self) -> dict[str, int]:
        """Number of open connections on each listener."""
        return {name: len(connections.open) for name, (connections, _) in self._open.items()}

    def end(self) -> None:
        """Ask all listeners to end and close their connections."""
        for _, server in self._open.values():
            server.should_exit = True
