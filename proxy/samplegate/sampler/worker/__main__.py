"""``python -m samplegate.sampler.worker``: the child process that alone imports litellm. It exchanges JSON lines with
``sampler/process.py``.

Input: ``{"id", "name", "target": {model, api_base?, api_key?}, "hidden": [VARIABLE], "messages", "max_tokens",
"timeout", ...}`` and ``{"cancel": ID}``. Output: ``{"ready": true}`` or ``{"died": WHY}`` once, then one answer for
every id. Before an answer comes ``{"id", "heard": PIECES}``: at its first piece, and then at most once in
``PROGRESS_INTERVAL`` seconds. The end of the input ends the process at once, whatever it is doing.

litellm prints to stdout and logs message content. So the pipes are moved before it is imported, and descriptor 1 is
redirected to 2, which the gate opens on the null device. None of its output can reach the protocol, a log or the
wrapped server.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, Final

import msgspec

from samplegate.sampler.worker.call import Answer, ask, patch_httpx
from samplegate.sampler.worker.errors import sentence

# Set before the import: litellm must not fetch a price map or header list, read a .env file of the working folder, or
# log anything.
BEFORE_IMPORT: Final[Mapping[str, str]] = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "CRITICAL",
    "OPENAI_LOG": "",
}
MIN_SECRET_LENGTH: Final = 8  # characters; shorter values occur in ordinary text by chance
# bytes; an idle worker uses a tenth, and all our bounds reached at once would exceed the memory of many machines
MAX_MEMORY: Final = 4 * 1024**3
PROGRESS_INTERVAL: Final = 0.25  # seconds; progress is for humans, and must not crowd out answers in the pipe

Send = Callable[[Mapping[str, Any]], None]


class Worker:
    """The calls in flight, each an asyncio task on the event loop."""

    def __init__(self, litellm: Any, send: Send) -> None:
        self._litellm = litellm
        self._send = send
        self._tasks: dict[int, asyncio.Task[Answer]] = {}

    def handle(self, line: bytes) -> None:
        """Handle a line from the gate: start a call, or cancel one."""
        frame = msgspec.json.decode(line)
        if "cancel" in frame:
            task = self._tasks.get(frame["cancel"])
            if task is not None:
                task.cancel()
            return
        on_progress = throttled(
            lambda pieces: self._send({"id": frame["id"], "heard": pieces}), asyncio.get_running_loop().time
        )
        asked = ask(self._litellm, frame, _secrets(frame), on_progress)
        task = self._tasks[frame["id"]] = asyncio.get_running_loop().create_task(asked)
        task.add_done_callback(partial(self._done, frame["id"], frame["name"]))

    def _done(self, id: int, name: str, task: asyncio.Task[Answer]) -> None:
        """Answer the call. Every id gets one answer, even if its task was cancelled before its first step or raised an
        exception."""
        del self._tasks[id]
        if task.cancelled():
            self._send({"id": id, "cancelled": True})
        elif task.exception() is not None:
            self._send({"id": id, "failed": {"failure": "error", "message": sentence(name, "error")}})
        else:
            self._send({"id": id, **task.result()})


def throttled(report: Callable[[int], None], clock: Callable[[], float]) -> Callable[[int], None]:
    """Throttle ``report``: it gets the first number, then at most one in PROGRESS_INTERVAL seconds."""
    last: float | None = None

    def throttled_report(pieces: int) -> None:
        nonlocal last
        now = clock()
        if last is None or now - last >= PROGRESS_INTERVAL:
            last = now
            report(pieces)

    return throttled_report


def main() -> None:
    """Run until the input ends, which ends the process."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the gate reacts to it
    _limit_memory()
    source, sink = _private_pipes()
    outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_write, args=(sink, outbox), daemon=True).start()

    def send(frame: Mapping[str, Any]) -> None:
        outbox.put(msgspec.json.encode(frame) + b"\n")

    with asyncio.Runner() as runner:
        inbox: asyncio.Queue[bytes] = asyncio.Queue()
        threading.Thread(target=_read, args=(source, runner.get_loop(), inbox), daemon=True).start()
        runner.run(_serve(inbox, send))


async def _serve(inbox: asyncio.Queue[bytes], send: Send) -> None:
    try:
        worker = Worker(_import_litellm(), send)
    except Exception as error:
        missing = f" {error.name}" if isinstance(error, ImportError) else ""
        send({"died": f"litellm cannot be imported ({type(error).__name__}{missing}); reinstall samplegate"})
        await asyncio.Event().wait()  # until the gate has read the reason and closes our input
        raise
    send({"ready": True})
    while True:
        worker.handle(await inbox.get())


def _import_litellm() -> Any:
    os.environ.update(BEFORE_IMPORT)
    logging.disable(logging.CRITICAL)  # litellm logs whole requests, with keys masked at best
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    patch_httpx(importlib.import_module("httpx").Response)
    return litellm


def _limit_memory() -> None:
    """Limit the process's memory, as a second safeguard behind the bounds on answers: a call that exceeds it fails with
    a MemoryError. Only Linux enforces it reliably."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        known = [limit for limit in (soft, hard, MAX_MEMORY) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))


def _secrets(frame: Mapping[str, Any]) -> list[str]:
    """The secrets that must not occur in an answer."""
    values = [frame["target"].get("api_key", ""), *(os.environ.get(name, "") for name in frame["hidden"])]
    return [value for value in values if len(value) >= MIN_SECRET_LENGTH]


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our two pipes under new descriptors, out of reach of prints and child processes."""
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb", buffering=0)


def _read(source: BinaryIO, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[bytes]) -> None:
    """Read lines in a thread, which works for pipes on every platform, and notices their end even during the import of
    litellm."""
    for line in source:
        loop.call_soon_threadsafe(inbox.put_nowait, line)
    os._exit(0)  # the gate is gone or has closed the pipe: open connections end with the process


def _write(sink: BinaryIO, outbox: queue.SimpleQueue[bytes]) -> None:
    """Write lines in a thread, so that a large answer does not delay other calls."""
    try:
        while True:
            rest = memoryview(outbox.get())
            while rest:
                rest = rest[sink.write(rest) :]
    except OSError:
        os._exit(1)


if __name__ == "__main__":
    main()
