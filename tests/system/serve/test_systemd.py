"""Notifications to systemd, received by a real socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from samplegate.server.systemd import Notify

PID = 4711


class Supervisor:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(address.replace("@", "\0", 1))

    def heard(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")

    def nothing(self) -> bool:
        """Whether nothing has arrived. A local datagram arrives as soon as it is sent."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        return False


@pytest.fixture(
    params=[
        "path",
        pytest.param("abstract", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has abstract names")),
    ]
)
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    found = Supervisor(str(tmp_path / "s") if request.param == "path" else f"@samplegate-test-{os.getpid()}")
    yield found
    found.socket.close()


def test_each_state_is_told_in_systemds_words(supervisor: Supervisor) -> None:
    notify = Notify(supervisor.address, clock=lambda: 1_234_567_890)
    told = [
        (notify.ready("2 servers"), ["READY=1", "STATUS=2 servers"]),
        (notify.reloading(), ["RELOADING=1", "MONOTONIC_USEC=1234567"]),
        (notify.ready(), ["READY=1"]),
        (notify.stopping("draining", 30.5), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30500000", "STATUS=draining"]),
        (notify.stopping(), ["STOPPING=1"]),
    ]
    assert [(True, lines) for _, lines in told] == [(sent, supervisor.heard()) for sent, _ in told]


def test_the_time_of_a_reload_is_the_systems_monotonic_clock(supervisor: Supervisor) -> None:
    before = time.monotonic_ns() // 1000
    Notify(supervisor.address).reloading()
    assert before <= int(supervisor.heard()[1].partition("=")[2]) <= time.monotonic_ns() // 1000


def test_a_status_is_one_line_whatever_is_in_it(supervisor: Supervisor) -> None:
    Notify(supervisor.address).stopping("one\nREADY=1\r\0two" + "x" * 1000)
    assert ["STOPPING=1", "STATUS=" + ("one READY=1  two" + "x" * 1000)[:200]] == supervisor.heard()


def test_the_variables_are_read_once_and_no_child_has_them() -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(PID), "PATH": "/bin"}
    assert (3.0, {"PATH": "/bin"}) == (Notify.from_environment(environment, PID).watchdog, environment)


@pytest.mark.parametrize(
    ("period", "owner", "watchdog"),
    [
        ("20000000", str(PID), 20.0),
        ("500000", None, 0.5),
        ("20000000", "1", None),
        ("20000000", "", 20.0),
        ("0", str(PID), None),
        ("-5", str(PID), None),
        ("soon", str(PID), None),
        ("²", str(PID), None),
        (None, str(PID), None),
    ],
)
def test_only_our_own_watchdog_is_fed(period: str | None, owner: str | None, watchdog: float | None) -> None:
    given = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": period, "WATCHDOG_PID": owner}
    assert (
        watchdog
        == Notify.from_environment({name: value for name, value in given.items() if value is not None}, PID).watchdog
    )


@pytest.mark.parametrize(
    "address",
    [None, "", "vsock:2:1234", "relative/path", "/nobody/listens/here", "/" + "x" * 300, "/a\0b", "@" + "x" * 300],
)
def test_where_nobody_listens_nothing_is_said_and_nothing_is_raised(address: str | None) -> None:
    notify = Notify(address)
    assert [False] * 3 == [notify.ready("x"), notify.reloading(), notify.stopping("x", 1.0)]


def test_a_supervisor_that_does_not_read_keeps_nobody_waiting_for_long(supervisor: Supervisor) -> None:
    notify = Notify(supervisor.address)
    for _ in range(100_000):
        if not notify.ready("x"):
            break
    else:
        pytest.fail("the queue was never full")
    started = time.monotonic()
    assert not notify.ready()
    assert time.monotonic() - started < 5


@pytest.mark.anyio
async def test_signs_of_life_come_twice_in_the_time_and_from_the_loop(supervisor: Supervisor) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        await Notify(supervisor.address, watchdog=20.0).feed(sleep)
    assert ([10.0] * 3, [["WATCHDOG=1"]] * 3) == (slept, [supervisor.heard() for _ in slept])
    assert supervisor.nothing()


@pytest.mark.anyio
@pytest.mark.parametrize("notify", [Notify("/run/x"), Notify(None, watchdog=20.0)], ids=["no watchdog", "no socket"])
async def test_without_a_watchdog_nothing_is_fed(notify: Notify) -> None:
    with anyio.fail_after(5):
        await notify.feed()


@pytest.mark.anyio
async def test_a_loop_that_is_stuck_gives_no_sign_of_life(supervisor: Supervisor) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(Notify(supervisor.address, watchdog=0.02).feed)
        await anyio.lowlevel.checkpoint()
        first = supervisor.heard()
        stuck_until = time.monotonic() + 0.1  # the loop is blocked: several notifications would be due
        while time.monotonic() < stuck_until:
            pass
        assert (["WATCHDOG=1"], True) == (first, supervisor.nothing())
        group.cancel_scope.cancel()


@pytest.mark.skipif(not os.access("/usr/bin/systemd-notify", os.X_OK), reason="no systemd-notify here")
def test_systemds_own_program_says_ready_in_the_same_words(tmp_path: Path) -> None:
    supervisor = Supervisor(str(tmp_path / "s"))
    try:
        environment = {**os.environ, "NOTIFY_SOCKET": supervisor.address}
        subprocess.run(
            ["/usr/bin/systemd-notify", "--no-block", "--ready", "--status=2 servers"],
            env=environment,
            timeout=20,
            check=True,
        )
        theirs = set(supervisor.heard())
        Notify(supervisor.address).ready("2 servers")
        assert set(supervisor.heard()) == {line for line in theirs if line.startswith(("READY=", "STATUS="))}
    finally:
        supervisor.socket.close()
