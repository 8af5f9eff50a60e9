"""The floor: two blocking threads that copy bytes between a client and the command in the arguments.

This is the minimum cost of a relay in Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Final

CHUNK: Final = 1 << 18  # more than a pipe holds, so one read takes all that is there


def _copy(source: int, target: int) -> None:
    while data := os.read(source, CHUNK):
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
    os.close(target)


def main() -> int:
    """Copy in both directions until the command ends."""
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        inward = threading.Thread(target=_copy, args=(0, os.dup(child.stdin.fileno())), daemon=True)
        child.stdin.close()
        inward.start()
        _copy(child.stdout.fileno(), 1)
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
