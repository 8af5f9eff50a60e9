"""A process that has imported what a program needs, and forks for each run of it. A start takes milliseconds, and each
run is a process that can be killed. ``tests.fakes.forked`` is its client.

``forking.py FD MODULE``: MODULE has ``program()``, which finds its arguments in ``sys.argv``. A request on the socket
FD is a line of JSON (``arguments, cwd, env``, and ``imports``: modules that earlier runs imported) with four
descriptors: stdin, stdout, stderr, and one for lines of JSON about the process: ``pid``, ``imported`` and ``code``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def main() -> None:
    """Serve requests until the client closes the socket."""
    program = importlib.import_module(sys.argv[2]).program
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the keeper processes are not waited for
    with socket.socket(fileno=int(sys.argv[1])) as control:
        while True:
            line, streams, _, _ = socket.recv_fds(control, 2**16, 4)
            if not line:
                return
            while not line.endswith(b"\n"):
                line += control.recv(2**16)
            request = json.loads(line)
            for name in request["imports"]:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            if os.fork() == 0:
                control.close()
                _keep(program, request, *streams)
            for stream in streams:
                os.close(stream)


def _keep(program: Callable[[], int | None], request: dict[str, Any], *streams: int) -> NoReturn:
    """Start the process, and report how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *own, news = streams
    os.set_inheritable(news, False)
    pid = os.fork()
    if pid == 0:
        _run(program, request, own, news)
    for stream in own:
        os.close(stream)
    os.write(news, json.dumps({"pid": pid}).encode() + b"\n")
    _, status = os.waitpid(pid, 0)
    os.write(news, json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    os._exit(0)


def _run(program: Callable[[], int | None], request: dict[str, Any], own: list[int], news: int) -> NoReturn:
    for number, stream in enumerate(own):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[1:] = request["arguments"]
    before, code = set(sys.modules), 1
    try:
        code = program() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            output.flush()
    imported = [name for name in sys.modules if name not in before]  # in the order that works
    os.write(news, json.dumps({"imported": imported}).encode() + b"\n")
    sys.exit(code)  # not os._exit: what the program registered for its end runs


if __name__ == "__main__":
    main()
