"""Reload triggers: SIGHUP, or a change of a watched file.

watchfiles watches the *folders* of each path and of its link target, because a watch on a file misses its second atomic
replacement. A change is detected from the file itself, so other files in its folder do not matter and no change during
a reload is lost.

Some changes give no notification: on a network file system, or of a link between the two folders. The next periodic
check finds them.
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

QUIET: Final = 100  # milliseconds without another change before a notification: an editor writes, renames and removes
MAX_DEBOUNCE: Final = 2000  # milliseconds for which changes are collected if they do not stop
TICK: Final = 5.0  # seconds between checks of the files without a notification
POLL: Final = 2.0  # the same if folders cannot be watched
CLOCK_LAG: Final = 0.02  # seconds by which a file system's clock may be behind ours

Mark: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime (nanoseconds) of a file. If the mark differs, the file has changed."""


class ReloadTrigger(msgspec.Struct, frozen=True):
    """A reason to reload."""

    files: tuple[Path, ...]
    """Files that changed, appeared or disappeared since the last trigger, in order; may be empty."""
    signal: bool = False
    """Whether a reload was requested, by SIGHUP or ``ask``."""


class Notices(Protocol):
    """Yields when something happened in one of these folders, or every ``TICK``; ends when ``stop`` is set. May
    raise."""

    def __call__(self, folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]: ...


async def notices(folders: Collection[str], stop: asyncio.Event) -> AsyncGenerator[Any, None]:
    """Notifications of watchfiles, which uses inotify where it exists."""
    from watchfiles import awatch

    async for found in awatch(
        *sorted(folders),
        watch_filter=None,
        debounce=MAX_DEBOUNCE,
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
    """Watch files and SIGHUP: ``async with watching(...) as triggers: async for trigger in triggers: ...``.

    Where SIGHUP exists, it is handled from here on. ``files`` is called again after each trigger, because a reload may
    change the set. Without files, only the signal counts.

    ``since`` is the unix time before the files were first read, so that a change since then is a trigger. By default
    only changes from now on count.
    """
    triggers = ReloadTriggers(files, note, notices, clock)
    await triggers.begin(since)
    hangup = getattr(signal, "SIGHUP", None)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(anyio.create_task_group())
        if hangup is not None:
            group.start_soon(triggers.listen, stack.enter_context(anyio.open_signal_receiver(hangup)))
        group.start_soon(triggers.watch)
        try:
            yield triggers
        finally:
            triggers.rearm()  # the watching thread cannot be cancelled, but it checks this event
            group.cancel_scope.cancel()


class ReloadTriggers:
    """Stream of triggers for one consumer task; made by ``watching``."""

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
        self._woken = asyncio.Event()
        self._stop = asyncio.Event()
        self._polling = False

    def __aiter__(self) -> ReloadTriggers:
        return self

    async def __anext__(self) -> ReloadTrigger:
        """The next trigger, which combines all changes since the last one. A cancelled call loses none."""
        if set(self._files()) != self._known.keys():
            self._woken.set()
            self.rearm()
        while True:
            await self._woken.wait()
            self._woken.clear()
            now = self._clock()
            try:
                changed = await self._changed()
            except BaseException:
                self._woken.set()
                raise
            if changed or self._asked:
                trigger, self._asked, self._since = ReloadTrigger(changed, self._asked), False, now
                return trigger

    def ask(self) -> None:
        """Request a reload; SIGHUP calls this."""
        self._asked = True
        self._woken.set()

    def rearm(self) -> None:
        """Restart the watch with the present folders."""
        self._stop.set()

    async def begin(self, since: float | None) -> None:
        """Store the initial marks of the files, unless changes since ``since`` count."""
        if since is None:
            self._known = await self._look()
        else:
            self._since = since

    async def listen(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Turn signals into triggers until cancelled."""
        async for _ in signals:
            self.ask()

    async def watch(self) -> None:
        """Watch the folders until cancelled."""
        while True:
            self._stop = asyncio.Event()
            folders = await self._folders()
            try:
                await self._watch_folders(folders)
            # watchfiles raises any exception; the files are then polled
            except Exception as problem:
                self._complain(problem)
                await anyio.sleep(POLL)
            self._woken.set()

    async def _watch_folders(self, folders: dict[str, tuple[int, int]]) -> None:
        """Pass on notifications from these folders until the set of folders changes."""
        if not folders:
            await self._stop.wait()
            return
        # catches changes from before the watch was active, which it is when this task first waits
        asyncio.get_running_loop().call_soon(self._woken.set)
        async with aclosing(self._notices(folders, self._stop)) as found:
            async for _ in found:
                self._polling = False
                self._woken.set()
                if folders != await self._folders():
                    return

    async def _changed(self) -> tuple[Path, ...]:
        """The files that changed since the last call."""
        seen, before = await self._look(), self._known
        self._known = seen
        return tuple(path for path, mark in seen.items() if self._is_new(before.get(path), mark, path in before))

    def _is_new(self, before: Mark | None, mark: Mark | None, known: bool) -> bool:
        """Whether a file is new or changed. A file that a reload added was read between its trigger and now."""
        return before != mark if known else mark is not None and mark[4] / 1e9 > self._since - CLOCK_LAG

    async def _folders(self) -> dict[str, tuple[int, int]]:
        files = tuple(self._files())
        return await anyio.to_thread.run_sync(lambda: _folders(files))

    async def _look(self) -> dict[Path, Mark | None]:
        files = tuple(self._files())
        return await anyio.to_thread.run_sync(lambda: {path: _mark(path) for path in files})

    def _complain(self, problem: Exception) -> None:
        """Note once that polling is in use, until folders can be watched again. A folder that has vanished is not
        noted."""
        if not self._polling and not isinstance(problem, FileNotFoundError):
            self._polling = True
            self._note(Note("watch.polling", {"problem": str(problem) or type(problem).__name__, "seconds": POLL}))


def _mark(path: str | Path) -> Mark | None:
    """Mark of a file; None if it cannot be reached. May wait for a disk."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _folders(files: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """The folders in which a change of these files would show, or their nearest existing parents, with device and
    inode."""
    found = {}
    for path in files:
        with contextlib.suppress(OSError, ValueError):  # a name that the system rejects
            for location in (path.absolute(), Path(os.path.realpath(path))):  # ``resolve`` raises for a loop of links
                folder, mark = next(
                    (folder, mark) for folder in location.parents if (mark := _mark(folder)) is not None
                )
                found[str(folder)] = mark[:2]
    return found
