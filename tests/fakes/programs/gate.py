"""Starts a command as the gate would, prints the pids of the child and its watcher, and waits to be killed or for a
line."""

from __future__ import annotations

import asyncio
import os
import sys

from samplegate.transport.stdio import LineLink, check_own, open_own
from samplegate.transport.subprocess import start_child


class Passing:
    """Sends what one side writes to the other."""

    def __init__(self) -> None:
        self.to: LineLink | None = None
        self.over = asyncio.Event()

    def received(self, line: bytes) -> None:
        assert self.to is not None
        self.to.send(line)

    def oversized_end(self, head: bytes, tail: bytes) -> None: ...
    def oversized(self, size: int, head: bytes) -> None: ...

    def ended(self) -> None:
        self.over.set()


async def main() -> None:
    client, server = Passing(), Passing()
    own = await open_own(client)
    child = await start_child(sys.argv[1:], server, env=os.environ)
    client.to, server.to = child.link, own
    await client.over.wait()
    code = await child.stop()
    await own.drained(1)
    own.abort()
    print("stopped", code, file=sys.stderr, flush=True)


check_own()
asyncio.run(main())
