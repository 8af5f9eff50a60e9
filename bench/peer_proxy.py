"""fastmcp's proxy over stdio, around the command in the arguments. It runs in the peer's own environment, never in the
gate's.

This is its fastest form: one connected client whose session all calls share, on uvloop. Its default form opens a
session for every call.
"""

import logging
import sys

import uvloop
from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.server import create_proxy  # type: ignore[import-not-found]


async def main() -> None:
    """Serve on stdio until the end of the input."""
    async with Client(StdioTransport(sys.argv[1], sys.argv[2:]), mode="legacy") as client:
        await create_proxy(client, name="peer").run_stdio_async(show_banner=False)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(main())
