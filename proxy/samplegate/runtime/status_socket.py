"""The status of this process for other processes of the same user: a socket in the state folder.

Each connection gets the status of that moment as JSON, and is closed. So nothing is written while the process works,
and nothing that is left after a kill can be mistaken for a status: nobody answers there. The socket is opened a moment
after the start, and what builds the status is imported by the first request.

Only the owner may connect. There is no such socket on Windows, whose Python has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from samplegate.errors import Log, Unavailable
from samplegate.files import make_folder

if TYPE_CHECKING:
    from samplegate.status.snapshot import GateStatus

FOLDER: Final = "status"
DELAY: Final = 0.5  # seconds after the start: clients wait for its first answer, and many processes end before
BACKLOG: Final = 16
MAX_OPEN: Final = 16  # connections; further ones are closed
TIMEOUT: Final = 5.0  # seconds for one status
PAUSE: Final = 1.0  # seconds until the next connection is accepted if the process has no file descriptor left
MAX_PATH: Final = 100  # bytes that fit into the address of a socket, on every system
MANY: Final = 20  # sockets from which on those of killed processes are removed
MAX_EXAMINED: Final = 1_000

_name: Final = re.compile(r"([0-9]{1,10})-[0-9a-f]{16}\.sock\Z")


class StatusFolder:
    """The folder of the sockets in a state folder, open. Use it as a context manager."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def open(cls, state: Path, *, make: bool) -> StatusFolder:
        """Open the folder. ``make`` creates it, for a socket of ours. Raises OSError, and PermissionError if others may
        write to it. Root may read those of others."""
        path = state / FOLDER
        if make:
            make_folder(path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(fd)
        others = found.st_uid != os.geteuid() and (make or os.geteuid() != 0)
        if others or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            os.close(fd)
            raise PermissionError(
                0,
                "it belongs to another user, or others may write to it; run as its owner, and remove the write"
                " permission of others",
            )
        return cls(path, fd)

    def __enter__(self) -> StatusFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def sockets(self) -> Iterator[tuple[str, int]]:
        """The names of sockets, with the IDs of the processes that made them."""
        with os.scandir(self._fd) as entries:
            names = [entry.name for entry in islice(entries, MAX_EXAMINED)]
        yield from ((name, int(found[1])) for name in sorted(names) if (found := _name.match(name)))

    def address(self, name: str) -> str:
        """The address of a socket. A path that is too long is written relative to this folder's descriptor, which only
        Linux can do. Raises OSError."""
        path = str(self._path / name)
        if len(os.fsencode(path)) > MAX_PATH:
            path = f"/proc/self/fd/{self._fd}/{name}"
            if not Path("/proc/self/fd").is_dir():
                raise OSError(0, "its path is too long for a socket")
        return path

    def listen(self) -> tuple[socket.socket, str]:
        """A new socket that listens, and its name. It gets the name when it is ready. Raises OSError."""
        name = f"{os.getpid()}-{os.urandom(8).hex()}.sock"
        draft = f".{name}"
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.setblocking(False)
            listening.bind(self.address(draft))
            os.chmod(draft, 0o600, dir_fd=self._fd)  # before anybody can connect
            listening.listen(BACKLOG)
            os.rename(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            listening.close()
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=self._fd)
            raise
        return listening, name

    def remove(self, name: str) -> None:
        """Remove a socket. Never raises."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def remove_dead(self) -> None:
        """Remove the sockets of killed processes, if there are many. Never raises."""
        with contextlib.suppress(OSError):
            found = list(self.sockets())
            for name, _ in found if len(found) >= MANY else ():
                with socket.socket(socket.AF_UNIX) as asking:
                    asking.setblocking(False)
                    try:
                        asking.connect(self.address(name))
                    except ConnectionRefusedError:
                        self.remove(name)
                    except OSError:  # it has too many connections, so it is alive
                        pass


async def publish(state: Path, status: Callable[[], Awaitable[GateStatus]], log: Log, *, delay: float = DELAY) -> None:
    """Answer with the status of this process until cancelled. Does nothing without a state folder or such sockets.

    A fault ends the status, never the process."""
    if state == Path() or not hasattr(socket, "AF_UNIX"):
        return
    await anyio.sleep(delay)
    try:
        with StatusFolder.open(state, make=True) as folder:
            folder.remove_dead()
            listening, name = folder.listen()
            try:
                await _Answers(listening, status, log).run()
            finally:
                folder.remove(name)
                listening.close()
    except OSError as problem:
        log.debug("status.unavailable", problem=f"{state / FOLDER}: {(problem.strerror or str(problem)).lower()}")
    except Exception:
        log.error("status.failed", exc_info=True)  # noqa: G201


class _Answers:
    """Answers the connections to one socket."""

    def __init__(self, listening: socket.socket, status: Callable[[], Awaitable[GateStatus]], log: Log) -> None:
        self._listening = listening
        self._status = status
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listening, self._accept)
        try:
            await anyio.sleep_forever()
        finally:
            loop.remove_reader(self._listening)
            for task in self._tasks:
                task.cancel()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left: the loop must not spin meanwhile
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)
            loop.call_later(PAUSE, self._resume)
            return
        connection.setblocking(False)
        if len(self._tasks) >= MAX_OPEN:
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._answer(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def _answer(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                status = await self._status()
                from samplegate.status.snapshot import as_json  # by now it is imported, in a thread

                await asyncio.get_running_loop().sock_sendall(connection, as_json(status))
        except (OSError, TimeoutError):  # the reader has gone, or does not read
            pass
        except Exception:
            self._log.error("status.failed", exc_info=True)
        finally:
            connection.close()


def ask(folder: StatusFolder, name: str, seconds: float, most: int) -> bytes | None:
    """What a process answers, as bytes; None if it has ended. Raises Unavailable if it does not answer in time."""
    found = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(seconds)
            asking.connect(folder.address(name))
            while part := asking.recv(65_536):
                found += part
                if len(found) > most:
                    raise Unavailable(f"its answer is larger than {most} bytes; use the same version of samplegate")
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except TimeoutError:
        raise Unavailable(f"it does not answer within {seconds:g} s; it may be stopped or overloaded") from None
    except OSError as problem:
        raise Unavailable(
            f"{(problem.strerror or str(problem)).lower()}; run this command as the user of that process"
        ) from None
    return bytes(found) or None
