"""samplegate with a wall clock that is ``SHIFT`` seconds ahead, so that reviews and windows of the files are as old as
a test needs.

As ``clocked.py each`` it runs many commands in one process: on stdin their arguments as JSON, on stdout the exit code,
stdout and stderr of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import time

_real, _shift = time.time, [float(os.environ.get("SHIFT", "0"))]
time.time = lambda: _real() + _shift[0]


def samplegate() -> None:
    """Run the command line of ``sys.argv``."""
    runpy.run_module("samplegate", run_name="__main__", alter_sys=True)


def each(commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Run these command lines, and return their results."""
    ended = []
    for command in commands:
        out, err, code = io.StringIO(), io.StringIO(), 0
        sys.argv = ["samplegate", *command]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                samplegate()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        ended.append((code, out.getvalue(), err.getvalue()))
    return ended


def program() -> None:
    """Run with the arguments of the command line, under the clock of the environment."""
    _shift[0] = float(os.environ["SHIFT"])
    if sys.argv[1:] == ["each"]:
        print(json.dumps(each(json.load(sys.stdin))))
    else:
        samplegate()


if __name__ == "__main__":
    program()
