"""Copies between stdio and a Unix socket, so that a test can be the server. ``socket_bridge.py SOCKET``"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress


def copy(source: int, target: int) -> None:
    with suppress(OSError):
        while chunk := os.read(source, 1 << 16):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(target, rest) :]
    os._exit(0)  # the other direction may be blocked in a read


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as test:
        test.connect(path)
        threading.Thread(target=copy, args=(0, test.fileno()), daemon=True).start()
        copy(test.fileno(), 1)


if __name__ == "__main__":
    main(sys.argv[1])
