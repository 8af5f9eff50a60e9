"""Requests for a reload: a watched file changed, or SIGHUP came. It reads and reloads nothing.

watchfiles watches the *folders* of each path and of the file that it leads to: watching a file misses its second atomic
replacement. A change is detected from the file itself, so nothing else in its folder matters and no change during a
reload is lost. A change without a notification (on a network file system, or of a link between the two folders) is
found at the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from samplegate.protocol.rounds import Note

QUIET: Final = 100  # milliseconds without another change before one is told: an editor writes, renames and removes
MOST: Final = 2000  # milliseconds that changes are collected where there is no quiet
TICK: Final = 5.0  # seconds between looks at the files where nothing is told
POLL: Final = 2.0  # the same where folders cannot be watched
COARSE: Final = 0.02  # seconds by which the clock of a file system may be behind ours

Mark: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size and both times of a file, in nanoseconds; if they differ, the file has changed."""


class ReloadTrigger(msgspec.Struct, frozen=True):
    """A reason to read the files again."""

    files: tuple[Path, ...]
    """Those that changed, came or went since the last wish, in their order; may be empty."""
    signal: bool = False
    """Somebody asked for it."""


class Notices(Protocol):
    """Tells that something happened in one of these folders, or that ``TICK`` went by; ends when ``stop`` is set. May
    raise."""

    def __call__(self, folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]: ...


async def notices(folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]:
    """What watchfiles tells, which is inotify where there is one."""
    from watchfiles import awatch

    async for found in awatch(
        *sorted(folders),
        watch_filter=None,
        debounce=MOST,
        step=QUIET,
        stop_event=stop,
        rust_timeout=int(TICK * 1000),
        yield_on_timeout=True,
        recursive=False,
        ignore_permission_denied=True,
    ):
        yield found


@asynccontextmanager
async def watching(
    files: Callable[[], Iterable[Path]],
    *,
    note: Callable[[Note], object],
    since: float | None = None,
    notices: Notices = notices,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[ReloadTriggers]:
    """``async with watching(...) as wishes: async for wish in wishes: ...``; SIGHUP is taken from here on, where there
    is such a signal.

    ``files`` is asked again after each wish, for a reload may change which they are; none: only the signal counts.
    ``since``: unix seconds before they were first read, so that what changed in between is a wish; by default as they
    are now.
    """
    wishes = ReloadTriggers(files, note, notices, clock)
    await wishes.begin(since)
    hangup = getattr(signal, "SIGHUP", None)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(anyio.create_task_group())
        if hangup is not None:
            group.start_soon(wishes.listen, stack.enter_context(anyio.open_signal_receiver(hangup)))
        group.start_soon(wishes.watch)
        try:
            yield wishes
        finally:
            wishes.rearm()  # the thread that watches cannot be cancelled: it is told
            group.cancel_scope.cancel()


class ReloadTriggers:
    """The stream. One task takes wishes from it; made by ``watching``."""

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        note: Callable[[Note], object],
        notices: Notices,
        clock: Callable[[], float],
    ) -> None:
        self._files = files
        self._note = note
        self._notices = notices
        self._clock = clock
        self._known: dict[Path, Mark | None] = {}
        self._since = 0.0
        self._asked = False
        self._stirred = asyncio.Event()
        self._stop = asyncio.Event()
        self._polling = False

    def __aiter__(self) -> ReloadTriggers:
        return self

    async def __anext__(self) -> ReloadTrigger:
        """The next wish; several that came up meanwhile are one. Cancelled, it loses none."""
        if set(self._files()) != self._known.keys():
            self._stirred.set()
            self.rearm()
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            now = self._clock()
            try:
                changed = await self._changed()
            except BaseException:
                self._stirred.set()
                raise
            if changed or self._asked:
                wish, self._asked, self._since = ReloadTrigger(changed, self._asked), False, now
                return wish

    def ask(self) -> None:
        """Wish for a reload, as SIGHUP does."""
        self._asked = True
        self._stirred.set()

    def rearm(self) -> None:
        """Have the folders found out again."""
        self._stop.set()

    async def begin(self, since: float | None) -> None:
        """Look at the files for the first time, unless something may have changed before."""
        if since is None:
            self._known = await self._look()
        else:
            self._since = since

    async def listen(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Take signals for wishes, until cancelled."""
        async for _ in signals:
            self.ask()

    async def watch(self) -> None:
        """Watch the folders, until cancelled."""
        while True:
            self._stop = asyncio.Event()
            folders = await self._folders()
            try:
                await self._told(folders)
            # watchfiles raises what it likes; without it the files are looked at now and then
            except Exception as problem:
                self._complain(problem)
                await anyio.sleep(POLL)
            self._stirred.set()

    async def _told(self, folders: dict[str, tuple[int, int]]) -> None:
        """Pass on what is told of some folders, until they are others."""
        if not folders:
            await self._stop.wait()
            return
        # what changed before the watch stood: it stands when this task first waits
        asyncio.get_running_loop().call_soon(self._stirred.set)
        async with aclosing(self._notices(folders, self._stop)) as found:
            async for _ in found:
                self._polling = False
                self._stirred.set()
                if folders != await self._folders():
                    return

    async def _changed(self) -> tuple[Path, ...]:
        """Which files are not what they were; from now on they are what they are."""
        seen, before = await self._look(), self._known
        self._known = seen
        return tuple(path for path, mark in seen.items() if self._is_new(before.get(path), mark, path in before))

    def _is_new(self, before: Mark | None, mark: Mark | None, known: bool) -> bool:
        """A file that came into the set by a reload was read between the wish for it and now."""
        return before != mark if known else mark is not None and mark[4] / 1e9 > self._since - COARSE

    async def _folders(self) -> dict[str, tuple[int, int]]:
        files = tuple(self._files())
        return await anyio.to_thread.run_sync(lambda: _folders(files))

    async def _look(self) -> dict[Path, Mark | None]:
        files = tuple(self._files())
        return await anyio.to_thread.run_sync(lambda: {path: _mark(path) for path in files})

    def _complain(self, problem: Exception) -> None:
        """Once, until folders can be watched again. One that is gone again is nothing to tell."""
        if not self._polling and not isinstance(problem, FileNotFoundError):
            self._polling = True
            self._note(Note("watch.polling", {"problem": str(problem) or type(problem).__name__, "seconds": POLL}))


def _mark(path: str | Path) -> Mark | None:
    """None where no file can be reached. May wait for a disk."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _folders(files: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """The folders in which a change of these files would show, or the nearest that exist, each with device and
    inode."""
    found = {}
    for path in files:
        with contextlib.suppress(OSError, ValueError):  # a name that no system takes
            for way in (path.absolute(), Path(os.path.realpath(path))):  # ``resolve`` raises for links in a ring
                folder, mark = next((folder, mark) for folder in way.parents if (mark := _mark(folder)) is not None)
                found[str(folder)] = mark[:2]
    return found
