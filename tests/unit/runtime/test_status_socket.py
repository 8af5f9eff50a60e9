"""The socket by which a process tells its status: who may connect, what is left after a kill, and hostile readers."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from samplegate.errors import Unavailable
from samplegate.runtime import status_socket
from samplegate.runtime.status_socket import MANY, MAX_OPEN, StatusFolder, ask, publish
from samplegate.status.snapshot import MAX_BYTES, GateStatus, read_gate
from tests.fakes.admin_app import STATUS, Events

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")]
BOUND: Final = 20.0


async def status() -> GateStatus:
    return STATUS


@asynccontextmanager
async def published(state: Path, tell: object = status, log: Events | None = None) -> AsyncIterator[StatusFolder]:
    """A process that publishes its status, and the open folder."""
    before = sockets(state)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(publish, state, tell, log or Events(), delay=0.0))  # type: ignore[arg-type]
        with anyio.fail_after(BOUND):
            while not set(sockets(state)) - set(before):  # noqa: ASYNC110 - a file gives no event
                await anyio.sleep(0.001)
        with StatusFolder.open(state, make=False) as folder:
            yield folder
        group.cancel_scope.cancel()


def sockets(state: Path) -> list[str]:
    """The names of the sockets that are complete."""
    folder = state / "status"
    return [path.name for path in folder.iterdir() if path.name[0] != "."] if folder.exists() else []


async def asked(folder: StatusFolder, name: str, seconds: float = BOUND) -> bytes | None:
    return await anyio.to_thread.run_sync(ask, folder, name, seconds, MAX_BYTES)


async def test_a_process_tells_its_status_to_its_owner_only(tmp_path: Path) -> None:
    async with published(tmp_path) as folder:
        ((name, pid),) = folder.sockets()
        text = await asked(folder, name)
        assert (STATUS, os.getpid()) == (read_gate(text or b""), pid)
        found = (tmp_path / "status" / name).lstat()
        assert (True, 0o600) == (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode))
        assert 0o700 == stat.S_IMODE((tmp_path / "status").stat().st_mode)
    assert [] == sockets(tmp_path)


async def test_a_path_that_is_too_long_for_a_socket_is_no_hindrance(tmp_path: Path) -> None:
    state = tmp_path / ("x" * 120)
    async with published(state) as folder:
        ((name, _),) = folder.sockets()
        assert STATUS == read_gate(await asked(folder, name) or b"")


async def test_without_a_state_folder_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with anyio.fail_after(BOUND):
        await publish(Path(), status, Events(), delay=0.0)
    assert not (tmp_path / "status").exists()


@pytest.mark.parametrize("case", ["link", "writable", "file"])
async def test_a_folder_that_others_may_control_is_refused(tmp_path: Path, case: str) -> None:
    place = tmp_path / "state" / "status"
    place.parent.mkdir()
    if case == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif case == "writable":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.write_text("")
    log = Events()
    with anyio.fail_after(BOUND):
        await publish(tmp_path / "state", status, log, delay=0.0)
    assert ["status.unavailable"] == [event for event, _ in log.seen]
    with pytest.raises(OSError):
        StatusFolder.open(tmp_path / "state", make=False)
    assert case != "link" or not list((tmp_path / "elsewhere").iterdir())


def dead(folder: StatusFolder) -> str:
    """A socket as a killed process leaves it."""
    listening, name = folder.listen()
    listening.close()
    return name


async def test_the_socket_of_a_killed_process_answers_nobody_and_goes_once_there_are_many(tmp_path: Path) -> None:
    with StatusFolder.open(tmp_path, make=True) as folder:
        name = dead(folder)
        assert await asked(folder, name) is None
        assert [name] == sockets(tmp_path)  # asking removes nothing
    async with published(tmp_path) as folder:
        assert 2 == len(sockets(tmp_path))  # few are left alone
        gone = {name, *(dead(folder) for _ in range(MANY))}
        busy, busy_name = folder.listen()  # it accepts nothing, but it is alive
        folder.remove_dead()
        assert 2 == len(sockets(tmp_path))
        assert busy_name in sockets(tmp_path)
        assert gone.isdisjoint(sockets(tmp_path))
        busy.close()


async def test_a_process_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with StatusFolder.open(tmp_path, make=True) as folder:
        listening, name = folder.listen()
        with listening, pytest.raises(Unavailable, match=r"it does not answer within 0\.05 s"):
            await asked(folder, name, 0.05)


async def test_an_answer_without_end_is_cut_off(tmp_path: Path) -> None:
    with StatusFolder.open(tmp_path, make=True) as folder:
        listening, name = folder.listen()
        listening.setblocking(True)

        def flood() -> None:
            connection, _ = listening.accept()
            with connection:
                try:
                    while True:
                        connection.sendall(b" " * 65_536)
                except OSError:
                    return

        thread = threading.Thread(target=flood)
        with listening:
            thread.start()
            with pytest.raises(Unavailable, match="larger than"):
                await asked(folder, name)
            thread.join(BOUND)


async def test_readers_that_do_not_read_do_not_keep_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_socket, "TIMEOUT", 0.2)
    hang = anyio.Event()
    first = True

    async def slow() -> GateStatus:
        if first:
            await hang.wait()
        return STATUS

    async with published(tmp_path, slow) as folder:
        ((name, _),) = folder.sockets()
        held = [socket.socket(socket.AF_UNIX) for _ in range(MAX_OPEN)]
        for one in held:
            one.connect(folder.address(name))
        first = False
        with anyio.fail_after(BOUND):
            while (text := await asked(folder, name)) is None:  # noqa: ASYNC110 - until the time of the others is over
                await anyio.sleep(0.01)
        assert STATUS == read_gate(text)
        for one in held:
            one.close()


async def test_a_fault_of_the_status_ends_only_its_connection(tmp_path: Path) -> None:
    log, faulty = Events(), True

    async def tell() -> GateStatus:
        if faulty:
            raise KeyError("a secret")
        return STATUS

    async with published(tmp_path, tell, log) as folder:
        ((name, _),) = folder.sockets()
        assert await asked(folder, name) is None
        assert [("status.failed", {"exc_info": True})] == log.seen
        faulty = False
        assert STATUS == read_gate(await asked(folder, name) or b"")


def test_other_names_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    with StatusFolder.open(tmp_path, make=True) as folder:
        for name in ("x.sock", "1-00.sock", "1-0123456789abcdef.sock.bak", "../1-0123456789abcdef.sock"[3:] + "\n"):
            (tmp_path / "status" / name).write_text("")
        assert [] == list(folder.sockets())
