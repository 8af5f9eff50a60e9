"""HAProxy and nginx with the recipes of deploy/balancers, in front of gates of this machine. Only the addresses and
ports are replaced."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.fakes.system_programs import program, run
from tests.fleet.gates import BOUND, FleetGate, free_port, until
from tests.paths import ROOT

RECIPES: Final = ROOT / "deploy" / "balancers"
NAMES: Final = ("haproxy", "nginx")
HERE: Final = "127.0.0.1"


def recipe(name: str, gates: Sequence[FleetGate], port: int) -> str:
    """The text of a recipe for these gates. A recipe that has not all of the replaced words is an error."""
    text = (RECIPES / name).read_text("utf-8")
    ports = {str(urlsplit(gate.url).port) for gate in gates}
    admin_ports = {str(urlsplit(gate.admin).port) for gate in gates}
    assert (1, 1) == (len(ports), len(admin_ports))
    words = {"10.0.0.1": "127.0.0.1", ":8080": f":{ports.pop()}"}
    words |= (
        {"bind :8000": f"bind {HERE}:{port}", "9464": admin_ports.pop()}
        if name == "haproxy.cfg"
        else {"listen 8000": f"listen {HERE}:{port}"}
    )
    for written, used in words.items():
        assert written in text, written
        text = text.replace(written, used)
    return text


class Balancer(ABC):
    """A running load balancer."""

    def __init__(self, folder: Path, gates: Sequence[FleetGate]) -> None:
        self.folder = folder
        self.gates = list(gates)
        self.port = free_port(HERE)
        self.url = f"http://{HERE}:{self.port}"

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration, and return the command that starts the program."""

    @abstractmethod
    async def take_out(self, gate: FleetGate) -> None:
        """What an operator does before a gate is stopped."""

    @abstractmethod
    async def uses(self, gate: FleetGate) -> None:
        """Wait until a gate gets requests, after all have started."""

    @abstractmethod
    async def put_back(self, gate: FleetGate) -> None:
        """What an operator does after a gate was started again. Waits until it gets requests."""

    async def listens(self, process: asyncio.subprocess.Process, log: Path) -> bool:
        """Whether it accepts connections. Fails if it has ended."""
        assert process.returncode is None, await asyncio.to_thread(log.read_text)
        try:
            _, writer = await asyncio.open_connection(HERE, self.port)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True


class HAProxy(Balancer):
    """HAProxy, whose health checks take gates out by themselves."""

    def command(self) -> list[str]:
        (self.folder / "haproxy.cfg").write_text(recipe("haproxy.cfg", self.gates, self.port))
        # a file of its own for what only the test needs
        (self.folder / "stats.cfg").write_text(f"global\n    stats socket {self.folder / 'stats'} level admin\n")
        return [program("haproxy"), "-f", str(self.folder / "haproxy.cfg"), "-f", str(self.folder / "stats.cfg")]

    async def take_out(self, gate: FleetGate) -> None:
        return

    async def put_back(self, gate: FleetGate) -> None:
        await self.uses(gate)

    async def uses(self, gate: FleetGate) -> None:
        await until(partial(self._is_up, gate))

    async def _is_up(self, gate: FleetGate) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.folder / "stats"))
        except (FileNotFoundError, ConnectionRefusedError):  # made after the port
            return False
        writer.write(b"show stat\n")
        rows = [line.split(",") for line in (await reader.read()).decode().splitlines()]
        writer.close()
        column = rows[0].index("status")
        return next(row[column] for row in rows if row[:2] == ["gates", gate.name]).startswith("UP")


class Nginx(Balancer):
    """nginx, which has no health checks: its configuration says which gate is out."""

    def __init__(self, folder: Path, gates: Sequence[FleetGate]) -> None:
        super().__init__(folder, gates)
        self._out: set[str] = set()

    def command(self) -> list[str]:
        server = recipe("nginx.conf", self.gates, self.port)
        for at in self._out:
            assert f"server {at} " in server
            server = server.replace(f"server {at} ", f"server {at} down ")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.folder / kind};\n" for kind in kinds)
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\npid {self.folder / 'pid'};\nerror_log {self.folder / 'error.log'} notice;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temporary}{server}}}\n"
        )
        return [program("nginx"), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]

    async def take_out(self, gate: FleetGate) -> None:
        self._out.add(urlsplit(gate.url).netloc)
        await self._reload()

    async def uses(self, gate: FleetGate) -> None:
        return

    async def put_back(self, gate: FleetGate) -> None:
        self._out.discard(urlsplit(gate.url).netloc)
        await self._reload()

    async def _reload(self) -> None:
        """Reload, and wait until no worker of the earlier configuration accepts connections."""
        log, command = self.folder / "error.log", self.command()
        before = log.read_text().count("gracefully shutting down")
        assert 0 == (await asyncio.to_thread(run, *command, "-s", "reload"))[0]

        async def reloaded() -> bool:
            return (await asyncio.to_thread(log.read_text)).count("gracefully shutting down") > before

        await until(reloaded)


@asynccontextmanager
async def balancing(name: str, folder: Path, gates: Sequence[FleetGate]) -> AsyncIterator[Balancer]:
    """A load balancer (one of ``NAMES``) in front of the gates."""
    balancer: Balancer = HAProxy(folder, gates) if name == "haproxy" else Nginx(folder, gates)
    command = balancer.command()
    code, said = await asyncio.to_thread(run, *command, "-c" if name == "haproxy" else "-t")
    assert 0 == code, said
    written = folder / f"{name}.log"
    with written.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        await until(partial(balancer.listens, process, written))
        for gate in gates:
            await balancer.uses(gate)
        yield balancer
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), BOUND)


class Door:
    """A place where servers wait in the middle of a call, until the test opens it."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HERE, 0), backlog=128)
        self._listening.setblocking(False)
        self.address = list(self._listening.getsockname())
        self.waiting: list[socket.socket] = []

    async def wait_for(self, count: int) -> None:
        """Wait until this many calls are at the door."""
        async with asyncio.timeout(BOUND):
            while len(self.waiting) < count:
                self.waiting.append((await asyncio.get_running_loop().sock_accept(self._listening))[0])

    def open(self) -> None:
        """Let all go, and all that come later."""
        self._listening.close()
        for one in self.waiting:
            one.close()
