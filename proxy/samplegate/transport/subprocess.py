"""A server as our child process: its start, its link, its exit, and its termination (R90) with everything it has
started.

It is never started again here. asyncio's subprocess is not used: its child watchers differ by loop and version, and it
would wrap the pipes in transports. On Windows the group is not ended, only the child, and nothing of it is tested.

A tiny watcher process kills the child's group when this process is killed, so that SIGKILL leaves no server behind. It
waits on a pipe that only this process holds: a word on it disarms, its end without the word means that we are gone. It
does not cover descendants that leave the group, or our own end in the millisecond before it starts. Linux and macOS
only; where there is no /bin/sh, there is no watcher.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from samplegate.transport.fd_streams import PIPE_SIZE
from samplegate.transport.lines import MAX_LINE, Receiver
from samplegate.transport.stdio import CannotStart, LineLink, connect

# The stderr of a server's process, line by line and as fast as we want to read it. Not what becomes of the lines.
#
# A server may write as much as it likes: what is read in one turn is bounded, and so is how often, so that a flood
# slows the server and not the gate.

LONGEST: Final = 1000  # characters of a line; a longer one is cut
MOST: Final = 50  # lines told of one read; the others are counted. Even
PAUSE: Final = 0.05  # seconds between two reads
# seconds for what a process wrote right before its end; one that it left behind may hold its stderr open
LAST: Final = 0.2

Tell = Callable[[str, int], None]
"""Takes a line, and how many before it were left out."""


class Stderr(asyncio.Protocol):
    """Reads one pipe. Made by ``reading``; ``aclose`` ends it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rest = b""
        self._cut = False
        self._transport: asyncio.ReadTransport | None = None
        self._over = asyncio.Event()
        self._opening: asyncio.Future[Any] | None = None

    @classmethod
    def reading(cls, pipe: IO[bytes], tell: Tell) -> Stderr:
        """Begin to read a pipe, which is ours from here on."""
        made = cls(tell)
        made._opening = asyncio.ensure_future(asyncio.get_running_loop().connect_read_pipe(lambda: made, pipe))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._cut:  # the beginning of this line was told
            self._cut, lines, rest = not lines, lines[1:], rest if lines else b""
        if len(rest) > 4 * LONGEST:
            lines, rest, self._cut = [*lines, rest], b"", True
        self._rest = rest
        self._take(lines)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE, self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take([self._rest])
        self._rest = b""
        self._over.set()

    async def aclose(self) -> None:
        """Read what is there, for a moment, and close the pipe."""
        try:
            async with asyncio.timeout(LAST):
                if self._opening is not None:
                    await self._opening
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            if self._transport is not None:
                self._transport.close()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take(self, lines: list[bytes]) -> None:
        """Tell the lines that say something; of too many, the first and the last, in which a fault most likely is."""
        full = [line for line in lines if line.strip()]
        left_out = max(0, len(full) - MOST)
        for line in full[: MOST // 2] if left_out else full:
            self._tell(_text(line), 0)
        if left_out:
            first, *others = full[-(MOST // 2) :]
            self._tell(_text(first), left_out)
            for line in others:
                self._tell(_text(line), 0)


def _text(line: bytes) -> str:
    text = line[: 4 * LONGEST].decode("utf-8", "replace").strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


PLACE: Final = "command"


def start(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start ``command`` as the leader of a session and group of its own, stdin and stdout on pipes. Raises CannotStart.

    ``stderr``: as for ``subprocess``; None is ours.

    Two milliseconds at most on Linux (vfork). No shell reads the command.
    """
    if not command or not command[0]:
        raise CannotStart(PLACE, "", "it is empty", "give the server's command after --")
    arguments = list(command)
    flags = 0
    if sys.platform == "win32":  # untested; start_new_session and pipesize do nothing there
        import shutil

        flags = subprocess.CREATE_NEW_PROCESS_GROUP
        arguments[0] = shutil.which(command[0], path=env.get("PATH")) or command[0]  # npx is npx.cmd there
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pipesize=PIPE_SIZE,
            creationflags=flags,
        )
    except (OSError, ValueError) as error:
        raise _explain(error, command[0], env, cwd) from error


def unresolved(command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None) -> CannotStart | None:
    """Why a command cannot be started, as far as that is known without starting it: its program is looked for as
    ``start`` would."""
    import shutil

    name = command[0] if command else ""
    if not name or (cwd is not None and not cwd.is_dir()):
        found = False
    elif os.sep in name:
        path = Path(name) if cwd is None else cwd / name
        found = path.is_file() and os.access(path, os.X_OK)
    else:
        found = shutil.which(name, path=env.get("PATH", os.defpath)) is not None
    return None if found else _explain(PermissionError(), name, env, cwd)


def _explain(error: OSError | ValueError, name: str, env: Mapping[str, str], cwd: Path | None) -> CannotStart:
    import shutil

    if isinstance(error, ValueError):
        return CannotStart(PLACE, name, "or its environment has a NUL character or an '=' in a name", "take it out")
    if cwd is not None and not cwd.is_dir():
        return CannotStart("working folder", str(cwd), "is not a folder", "make it or name another")
    found = name if os.sep in name else shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        return CannotStart(PLACE, name, "is in no folder of PATH", "give its full path, or install it")
    path = Path(found) if cwd is None else cwd / found
    if not path.exists():
        return CannotStart(PLACE, name, "does not exist", "correct the path")
    if path.is_dir():
        return CannotStart(PLACE, name, "is a folder", "name the program in it")
    if isinstance(error, FileNotFoundError):
        return CannotStart(
            PLACE, name, "names a missing interpreter in its first line", "install that, or correct the line"
        )
    if isinstance(error, PermissionError):
        return CannotStart(
            PLACE, name, "may not be executed", "make it executable, or start it through its interpreter"
        )
    return CannotStart(PLACE, name, f"could not be started ({error.strerror})", "start it by hand to see why")


def exit_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """A future with the return code, as ``subprocess`` gives it. The process is reaped by a daemon thread, whichever
    loop runs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not done.done():
            done.set_result(code)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, code)

    threading.Thread(target=wait, name=f"samplegate-wait-{process.pid}", daemon=True).start()
    return done


SHELL: Final = "/bin/sh"
SCRIPT: Final = 'trap "" HUP INT TERM; read -r word; [ "$word" = done ] || kill -s KILL -- "-$1"'
"""Ignores what a terminal or a service manager sends to everybody, because it may have to outlive us; the end of the
pipe ends it. KILL at once: only so the group's number cannot have passed to another group in between. The child's hint
to end was the end of its input."""
NAME: Final = "samplegate-watcher"


class Watcher:
    """One armed watcher. Forget it only after ``disarm``."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.exit: asyncio.Future[int] | None = None
        """Done when it has ended; None while it is armed."""

    def disarm(self) -> None:
        """Tell it that the group has ended or has been ended; it then exits by itself. May be called again."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # somebody killed it: then nothing is armed
            os.write(self._pipe, b"done\n")
        os.close(self._pipe)
        self._pipe = -1
        self.exit = exit_of(self._process)


def watch(group: int) -> Watcher | None:
    """Start a watcher for a process group; None where there cannot be one. It holds none of our descriptors and none of
    our environment."""
    if sys.platform == "win32":
        return None
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [SHELL, "-c", SCRIPT, NAME, str(group)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        os.close(writing)
        return None
    finally:
        os.close(reading)
    return Watcher(process, writing)


# SDK clients kill us about 2 s after they close our stdin. What follows must fit in 1.8 s and sums up to 1.5, so the
# rest is ours.
END_OF_INPUT_GRACE: Final = 0.8
"""Seconds from the end of its input: the regular way to end, and a Python server with many imports takes 0.3 s to
unload."""
TERMINATE_GRACE: Final = 0.4
"""Seconds from SIGTERM: whoever missed the end of its input (some servers do) mostly dies of this at once."""
KILL_GRACE: Final = 0.2
"""Seconds from SIGKILL until the system has let go of it. More would not help: what is left hangs in the kernel."""
TAIL_GRACE: Final = 0.1
"""Seconds after its end for what stands in the pipe, which is read in one or two turns of the loop unless reading is
paused."""
GROUP_POLL: Final = 0.01
"""Seconds between two looks whether the group is empty; no event tells it, and it is looked for only while stopping."""
KILLED: Final = -9
"""The code of a child that even SIGKILL has not ended within its grace."""


class ServerProcess:
    """A started server. Whoever started it calls ``stop`` in the end, also if it ended by itself: it may have left
    children."""

    def __init__(self, process: subprocess.Popen[bytes], link: LineLink, stderr: Stderr | None = None) -> None:
        self.link = link
        self._stderr = stderr
        self.pid = process.pid
        self._process = process
        self._exit = exit_of(process)
        self._exit.add_done_callback(self._released)
        self._stopping: asyncio.Task[int] | None = None
        self._watcher: Watcher | None = None
        # one turn later: the child boots meanwhile, and frames that already wait for it go first
        asyncio.get_running_loop().call_soon(self._arm)

    async def exited(self) -> int:
        """Wait for its end: the exit code, or minus the signal's number (``exit_code`` makes a shell's number of it).

        Its last lines may still come after that, until the receiver's ``ended``; and ``ended`` may stay away for as
        long as a process it has left behind holds its stdout.
        """
        return await asyncio.shield(self._exit)

    async def stop(self) -> int:
        """End it and its group within 1.8 s: close its stdin, wait, SIGTERM, wait, SIGKILL. The code as from
        ``exited``.

        The receiver hears nothing after this returns; it has heard ``ended``, but for sure only where reading was not
        paused and nobody outside the group holds the child's stdout. May be called again and from several tasks, and
        goes on if one of them is cancelled.
        """
        if self._stopping is None or self._stopping.cancelled():
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
            self._stopping.add_done_callback(self._stopped)
        return await asyncio.shield(self._stopping)

    async def _stop(self) -> int:
        await self._end()
        self._disarm()
        await self.link.read_out(TAIL_GRACE)
        self.link.abort()
        if self._stderr is not None:
            await self._stderr.aclose()
        if self._watcher is not None and self._watcher.exit is not None:
            await asyncio.wait([self._watcher.exit], timeout=TAIL_GRACE)
        return self._exit.result() if self._exit.done() else KILLED

    def _stopped(self, task: asyncio.Task[int]) -> None:
        """The loop is being shut down under us, maybe before the first step: there is no time left for manners."""
        if task.cancelled():
            if self._lives():
                self._signal("SIGKILL")
            self._disarm()
            self.link.abort()

    async def _end(self) -> None:
        self.link.close_writing()
        await asyncio.wait([self._exit], timeout=END_OF_INPUT_GRACE)
        for name, grace in (("SIGTERM", TERMINATE_GRACE), ("SIGKILL", KILL_GRACE)):
            if self._lives():
                self._signal(name)
                await self._gone(grace)

    async def _gone(self, grace: float) -> None:
        """Wait until the child has been reaped and its group is empty, at most ``grace`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await asyncio.shield(self._exit)
                while self._lives():  # noqa: ASYNC110 - no event tells when a group is empty
                    await asyncio.sleep(GROUP_POLL)

    def _lives(self) -> bool:
        """True if the child is not reaped or its group has members, which keep the group's number from being given to
        others."""
        if not self._exit.done():
            return True
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of a group of zombies; elsewhere it has become another user's
            return sys.platform != "darwin"
        return True

    def _signal(self, name: str) -> None:
        if sys.platform == "win32":
            self._process.terminate()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, getattr(signal, name))

    def _arm(self) -> None:
        if self._lives():
            self._watcher = watch(self.pid)

    def _released(self, _: asyncio.Future[int]) -> None:
        if not self._lives():
            self._disarm()

    def _disarm(self) -> None:
        if self._watcher is not None:
            self._watcher.disarm()


async def start_child(
    command: Sequence[str],
    receiver: Receiver,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    max_line: int = MAX_LINE,
    said: Tell | None = None,
    together: bool = False,
) -> ServerProcess:
    """Start a server. ``env`` is its whole environment; ``said`` gets the lines of its stderr, which is ours without;
    ``together`` is for ``PolledWriter``. Raises CannotStart.

    Frames are not delivered before the caller next awaits, so it may set the link's ``pressure`` first.
    """
    process = start(command, env=env, cwd=cwd, stderr=None if said is None else subprocess.PIPE)
    reading, writing = _take(process.stdout), _take(process.stdin)
    complaints, process.stderr = process.stderr, None
    process.stdin = process.stdout = None
    stderr = None if said is None or complaints is None else Stderr.reading(complaints, said)
    return ServerProcess(process, connect(reading, writing, receiver, max_line=max_line, together=together), stderr)


def exit_code(code: int) -> int:
    """What a shell would report: 128 + n for a child that signal n ended."""
    return 128 - code if code < 0 else code


def _take(file: IO[bytes] | None) -> int:
    """The descriptor of a pipe, taken from the file object that would close it."""
    assert file is not None, "both are pipes"
    fd = os.dup(file.fileno())
    file.close()
    return fd
