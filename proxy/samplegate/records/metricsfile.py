"""The counters as a file of Prometheus text, for a collector that reads folders: written now and then, and at the end. Not the counters.

The text is made where the counters are counted, for they are not locked; only the writing goes to a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread

from samplegate.ports import Unavailable
from samplegate.records.exposition import text
from samplegate.records.metrics import Metrics


def preload() -> None:
    """Import what writing a file needs: time that a shutdown has not to spare. May run in a thread."""
    import tempfile  # noqa: F401 # with the compressors it imports


def file_path(template: str, server: str, pid: int) -> Path:
    """``--metrics-file`` with ``{server}`` and ``{pid}`` filled in; other braces stay."""
    safe = "".join(character if character.isalnum() or character in "._-" else "_" for character in server)
    return Path(template.replace("{server}", safe).replace("{pid}", str(pid)))


class MetricsFile:
    """One file. A writing that a later one has overtaken changes nothing any more."""

    def __init__(self, metrics: Metrics, path: Path) -> None:
        self._metrics = metrics
        self._path = path
        self._lock = threading.Lock()
        self._made = 0
        self._written = 0

    def write(self) -> None:
        """Write it in one step, so that a collector never reads half of it. Raises Unavailable."""
        self._put(*self._text())

    async def keep(self, seconds: float, failed: Callable[[str], object], sleep: Callable[[float], Awaitable[object]] = anyio.sleep) -> None:
        """Write it every so many seconds, until cancelled. What goes wrong is told once, until it goes right again."""
        await anyio.to_thread.run_sync(preload)
        told = False
        while True:
            await sleep(seconds)
            try:
                await anyio.to_thread.run_sync(self._put, *self._text(), abandon_on_cancel=True)
            except Unavailable as problem:
                if not told:
                    failed(str(problem))
                told = True
            else:
                told = False

    def _text(self) -> tuple[int, bytes]:
        self._made += 1
        return self._made, text(self._metrics)

    def _put(self, number: int, content: bytes) -> None:
        with self._lock:
            if number < self._written:
                return
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                _replace(self._path, content)
            except OSError as problem:
                raise Unavailable(f"metrics file: {self._path} cannot be written: {problem.strerror or problem}") from problem
            self._written = number


def _replace(path: Path, content: bytes) -> None:
    import tempfile

    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")  # a collector reads *.prom: not this one
    temporary = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)  # mkstemp's 0600 would hide it from a node exporter of another user; it holds no secret
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
