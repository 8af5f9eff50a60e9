"""fastmcp's proxy over HTTP: the first argument is the port, the others are the server's command. It runs in the peer's
own environment.

As over stdio, this is its fastest form: one connected client whose session all calls share, on uvloop.
"""

import logging
import sys

import uvloop
from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.server import create_proxy  # type: ignore[import-not-found]


async def main() -> None:
    """Serve until a signal."""
    async with Client(StdioTransport(sys.argv[2], sys.argv[3:]), mode="legacy") as client:
        proxy = create_proxy(client, name="peer")
        await proxy.run_http_async(
            show_banner=False, host="127.0.0.1", port=int(sys.argv[1]), path="/mcp", log_level="error"
        )


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(main())
