"""Opens the link on its own stdin and stdout and echoes every line, as the relay would. It ends when the input ends."""

from __future__ import annotations

import asyncio
import os
import sys

from samplegate.transport.stdio import CannotStart, LineLink, check_own, open_own


class Echo:
    link: LineLink

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def received(self, line: bytes) -> None:
        print("a stray print")
        os.write(1, b"a stray write\n")
        self.link.send(b"echo " + line)

    def oversized_end(self, head: bytes, tail: bytes) -> None: ...

    def oversized(self, size: int, head: bytes) -> None:
        self.link.send(b"oversized")

    def ended(self) -> None:
        self.over.set()


async def main() -> int:
    echo = Echo()
    echo.link = await open_own(echo, max_line=64 << 20)
    echo.link.pressure = lambda over: echo.link.pause_reading() if over else echo.link.resume_reading()
    await echo.over.wait()
    drained = await echo.link.drained(10)
    echo.link.close_writing()
    echo.link.abort()
    if sys.stderr:
        print("drained" if drained else "not drained", "dropped", echo.link.dropped, file=sys.stderr, flush=True)
    return 0


try:
    check_own()
except CannotStart as error:
    sys.exit(str(error))
if sys.argv[1] == "uvloop":
    import uvloop

    code = uvloop.run(main())
else:
    code = asyncio.run(main())
os._exit(code)  # exits as a command does whose reading thread may still block on a terminal
