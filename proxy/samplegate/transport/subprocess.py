"""A server as a child process: its start, its link, its stderr, its exit, and the end of its whole process group (R90).

This module never restarts a server. asyncio's subprocess is not used, because its child watchers differ by loop and
version, and it would wrap the pipes in transports. On Windows, which is untested, only the child ends and not its
group.

If this process is killed, even with SIGKILL, a small watcher process kills the child's group. The watcher waits on a
pipe that only this process holds. A word on the pipe disarms it; the end of the pipe without that word means that this
process is gone. It does not cover descendants that leave the group, or our death in the millisecond before it starts.
It runs on Linux and macOS only, and needs /bin/sh.
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

from samplegate.errors import Log
from samplegate.files import missing_hint
from samplegate.transport.fd_streams import PIPE_SIZE
from samplegate.transport.lines import MAX_LINE, Receiver
from samplegate.transport.stdio import CannotStart, LineLink, connect

MAX_STDERR_CHARS: Final = 1000  # characters of a stderr line; longer lines are cut
MAX_LINES_PER_READ: Final = 50  # an even number; further lines of one read are only counted
PAUSE: Final = 0.05  # seconds between two reads
# seconds to read the last output of a process; a descendant that is still running may keep its stderr open
STDERR_GRACE: Final = 0.2

Tell = Callable[[str, int], None]
"""Receives a line, and the number of lines omitted before it."""


class Stderr(asyncio.Protocol):
    """Reader of a server's stderr, line by line. Create it with ``reading`` and close it with ``aclose``.

    The size of each read and the rate of reads are bounded, so that a flood slows the server and not the gate.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rest = b""
        self._cut = False
        self._transport: asyncio.ReadTransport | None = None
        self._over = asyncio.Event()
        self._opening: asyncio.Future[Any] | None = None

    @classmethod
    def reading(cls, pipe: IO[bytes], tell: Tell) -> Stderr:
        """Start reading a pipe, and take ownership of it."""
        made = cls(tell)
        made._opening = asyncio.ensure_future(asyncio.get_running_loop().connect_read_pipe(lambda: made, pipe))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)  # uvloop's class is not a subclass of ReadTransport

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._cut:  # the start of this line was already passed on
            self._cut, lines, rest = not lines, lines[1:], rest if lines else b""
        if len(rest) > 4 * MAX_STDERR_CHARS:
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
        """Read the rest, for STDERR_GRACE seconds at most, and close the pipe."""
        try:
            async with asyncio.timeout(STDERR_GRACE):
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
        """Pass on the lines that are not blank. If there are too many, pass on the first and the last, where errors
        usually are."""
        full = [line for line in lines if line.strip()]
        left_out = max(0, len(full) - MAX_LINES_PER_READ)
        for line in full[: MAX_LINES_PER_READ // 2] if left_out else full:
            self._tell(_text(line), 0)
        if left_out:
            first, *others = full[-(MAX_LINES_PER_READ // 2) :]
            self._tell(_text(first), left_out)
            for line in others:
                self._tell(_text(line), 0)


def stderr_log(log: Log, server: str) -> Tell:
    """A function that logs lines of a server's stderr. They are free text, never frames."""

    def tell(line: str, left_out: int) -> None:
        log.info("server.logged", server=server, line=line, **({"left_out": left_out} if left_out else {}))

    return tell


def _text(line: bytes) -> str:
    text = line[: 4 * MAX_STDERR_CHARS].decode("utf-8", "replace").strip()
    return text if len(text) <= MAX_STDERR_CHARS else f"{text[: MAX_STDERR_CHARS - 1]}…"


PLACE: Final = "command"


def start(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start ``command`` as the leader of its own session and group, with pipes as stdin and stdout. Raises CannotStart.

    ``stderr`` is the same as for ``subprocess``; None inherits ours. The start takes at most two milliseconds on Linux
    (vfork), and uses no shell.
    """
    if not command or not command[0]:
        raise CannotStart(PLACE, "", "missing", "give the server's command after --")
    arguments = list(command)
    flags = 0
    if sys.platform == "win32":  # untested; start_new_session and pipesize have no effect there
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
    """Why a command cannot be started, as far as a search for its program can show without starting it. None if it
    can."""
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
        return CannotStart(
            PLACE, name, "or its environment has a NUL character, or a variable name has an '='", "remove it"
        )
    if cwd is not None and not cwd.is_dir():
        return CannotStart("working folder", str(cwd), "is not a folder", "create it, or choose another one")
    found = name if os.sep in name else shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        return CannotStart(PLACE, name, "was not found in PATH", "install it, or give its full path")
    path = Path(found) if cwd is None else cwd / found
    if not path.exists():
        return CannotStart(PLACE, name, "does not exist", missing_hint(name, cwd or Path()))
    if path.is_dir():
        return CannotStart(PLACE, name, "is a folder", "give the path of the program in it")
    if isinstance(error, FileNotFoundError):
        return CannotStart(
            PLACE, name, "has a shebang with a missing interpreter", "install the interpreter, or correct the shebang"
        )
    if isinstance(error, PermissionError):
        return CannotStart(PLACE, name, "is not executable", "make it executable, or run it with its interpreter")
    return CannotStart(PLACE, name, f"could not be started ({error.strerror})", "run it by hand to see why")


def exit_of(process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
    """A future of the return code, as ``subprocess`` gives it. A daemon thread reaps the process, with any event
    loop."""
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
"""The watcher's script.

It ignores signals that a terminal or a service manager sends to all processes, because it may have to outlive us. The
end of the pipe ends it. It sends SIGKILL at once, because after a delay the group's number could belong to another
group. The end of its input has already asked the child to exit.
"""
NAME: Final = "samplegate-watcher"


class Watcher:
    """An armed watcher. Call ``disarm`` before you drop it."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.exit: asyncio.Future[int] | None = None
        """Done when the watcher has exited; None while it is armed."""

    def disarm(self) -> None:
        """Report that the group has ended, so that the watcher exits. May be called again."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # the watcher was killed, so nothing is armed
            os.write(self._pipe, b"done\n")
        os.close(self._pipe)
        self._pipe = -1
        self.exit = exit_of(self._process)


def watch(group: int) -> Watcher | None:
    """Start a watcher for a process group; None if that is not possible. It inherits no descriptors and no
    environment."""
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


# SDK clients kill us about 2 s after they close our stdin. The waits below add up to 1.5 s of the 1.8 s allowed; our
# own work gets the rest.
END_OF_INPUT_GRACE: Final = 0.8
"""Seconds after the end of its input, the regular way to end. A Python server with many imports needs 0.3 s to
unload."""
TERMINATE_GRACE: Final = 0.4
"""Seconds after SIGTERM. Servers that ignored the end of their input mostly exit at once."""
KILL_GRACE: Final = 0.2
"""Seconds after SIGKILL for the system to reap the processes. A longer wait would not help: the rest hangs in the
kernel."""
TAIL_GRACE: Final = 0.1
"""Seconds after the exit to read the rest of the pipe. This needs one or two turns of the loop unless reading is
paused."""
GROUP_POLL: Final = 0.01
"""Seconds between two checks whether the group is empty. No event reports this; the check runs only during a stop."""
KILLED: Final = -9
"""Return code of a child that survives SIGKILL for its whole grace."""


class ServerProcess:
    """A running server process. Its owner must call ``stop`` even if the server has exited, because descendants may
    remain."""

    def __init__(self, process: subprocess.Popen[bytes], link: LineLink, stderr: Stderr | None = None) -> None:
        self.link = link
        self._stderr = stderr
        self.pid = process.pid
        self._process = process
        self._exit = exit_of(process)
        self._exit.add_done_callback(self._released)
        self._stopping: asyncio.Task[int] | None = None
        self._watcher: Watcher | None = None
        # one turn later: the child starts meanwhile, and frames that already wait for it are sent first
        asyncio.get_running_loop().call_soon(self._arm)

    async def exited(self) -> int:
        """Wait for the exit. Returns the exit code, or minus the signal's number (``exit_code`` converts it).

        The last lines may arrive later, until the receiver's ``ended``. A descendant that keeps its stdout open can
        delay ``ended`` indefinitely.
        """
        return await asyncio.shield(self._exit)

    async def stop(self) -> int:
        """End the server and its group within 1.8 s: close its stdin, wait, SIGTERM, wait, SIGKILL. Returns as
        ``exited``.

        The receiver gets no calls after this returns. It has had ``ended``, unless reading was paused or a process
        outside the group holds the child's stdout. May be called again and from several tasks; it continues if one of
        them is cancelled.
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
        """Kill the group at once if the loop cancels the stop at shutdown, possibly before its first step."""
        if task.cancelled():
            if self._is_alive():
                self._signal("SIGKILL")
            self._disarm()
            self.link.abort()

    async def _end(self) -> None:
        self.link.close_writing()
        await asyncio.wait([self._exit], timeout=END_OF_INPUT_GRACE)
        for name, grace in (("SIGTERM", TERMINATE_GRACE), ("SIGKILL", KILL_GRACE)):
            if self._is_alive():
                self._signal(name)
                await self._wait_until_gone(grace)

    async def _wait_until_gone(self, grace: float) -> None:
        """Wait until the child is reaped and its group is empty, at most ``grace`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await asyncio.shield(self._exit)
                while self._is_alive():  # noqa: ASYNC110 - no event reports that a group is empty
                    await asyncio.sleep(GROUP_POLL)

    def _is_alive(self) -> bool:
        """True while the child is not reaped or its group has members. The system does not reuse the group's number
        before."""
        if not self._exit.done():
            return True
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # for macOS, a group of zombies; elsewhere, another user's group
            return sys.platform != "darwin"
        return True

    def _signal(self, name: str) -> None:
        if sys.platform == "win32":
            self._process.terminate()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, getattr(signal, name))

    def _arm(self) -> None:
        if self._is_alive():
            self._watcher = watch(self.pid)

    def _released(self, _: asyncio.Future[int]) -> None:
        if not self._is_alive():
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
    on_stderr: Tell | None = None,
    together: bool = False,
) -> ServerProcess:
    """Start a server. Raises CannotStart.

    ``env`` is its whole environment. ``on_stderr`` gets the lines of its stderr; without it the server inherits ours.
    ``together`` is for ``PolledWriter``. No frame is delivered before the caller next awaits, so the caller may set the
    link's ``pressure`` first.
    """
    process = start(command, env=env, cwd=cwd, stderr=None if on_stderr is None else subprocess.PIPE)
    reading, writing = _detach(process.stdout), _detach(process.stdin)
    pipe, process.stderr = process.stderr, None
    process.stdin = process.stdout = None
    stderr = None if on_stderr is None or pipe is None else Stderr.reading(pipe, on_stderr)
    return ServerProcess(process, connect(reading, writing, receiver, max_line=max_line, together=together), stderr)


def exit_code(code: int) -> int:
    """The exit code as a shell reports it: 128 + n for a child that was ended by signal n."""
    return 128 - code if code < 0 else code


def _detach(file: IO[bytes] | None) -> int:
    """A duplicate of a pipe's descriptor. The file object is closed, because its finalizer would close the original
    later."""
    assert file is not None, "both are pipes"
    fd = os.dup(file.fileno())
    file.close()
    return fd
