"""Several `samplegate serve` as on machines of their own: each has a loopback address, a state folder and settings."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.paths import ROOT

BOUND: Final = 60.0
"""Seconds for the start or the end of a gate. It ends a hang and measures nothing."""
PORTS: Final = range(20_000, 30_000)
"""Below the ports that the system gives to clients, so that a gate finds its port free after a restart."""
FORWARDS: Final = {"version": 1, "rules": [{"name": "the client", "effect": "forward"}]}


def address(number: int) -> str:
    """The address of a gate. The recipes in deploy/ have 10.0.0.11, 10.0.0.12 and so on."""
    return f"127.0.0.{10 + number}"


def free_port(*hosts: str) -> int:
    """A port that is free at all these addresses."""
    for port in random.sample(PORTS, len(PORTS)):
        try:
            for host in hosts:
                socket.create_server((host, port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(BOUND):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.05)


class FleetGate:
    """One gate. ``settings`` may be changed between two starts, and so may the files in ``folder``."""

    def __init__(self, number: int, folder: Path, port: int, admin_port: int, settings: Mapping[str, Any]) -> None:
        self.name = f"gate{number}"
        self.folder = folder
        self.url = f"http://{address(number)}:{port}"
        self.admin = f"http://{address(number)}:{admin_port}"
        own = {"listen": f"{address(number)}:{port}", "admin_listen": f"{address(number)}:{admin_port}"}
        self.settings: dict[str, Any] = {**own, "state": "state", "policy": "policy.yaml", **settings}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> str:
        """What the gate wrote to stderr since its first start."""
        return (self.folder / "stderr").read_text("utf-8", "replace")

    async def start(self) -> None:
        """Start the gate and wait until it is ready."""
        (self.folder / "settings.yaml").write_text(json.dumps(self.settings))
        with (self.folder / "stderr").open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "samplegate", "serve", "--settings", "settings.yaml",
                stdin=asyncio.subprocess.DEVNULL, stderr=stderr, cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT / "proxy")},
            )  # fmt: skip
        async with aiohttp.ClientSession() as http:
            await until(partial(self._is_ready, http))

    async def _is_ready(self, http: aiohttp.ClientSession) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log
        try:
            async with http.get(f"{self.admin}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end. Returns the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        try:
            async with asyncio.timeout(BOUND):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"{self.name} did not end; it wrote:\n{self.log[-4000:]}") from None


@asynccontextmanager
async def fleet(
    folder: Path, count: int = 3, *, policy: Mapping[str, Any] = FORWARDS, files: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[list[FleetGate]]:  # fmt: skip
    """Running gates with the same settings, policy and other ``files``, each in its own folder. They have the same
    ports, each at its own address. At the end they are killed, because a test that wants a drain waits for it."""
    hosts = [address(number) for number in range(1, count + 1)]
    port, admin_port = free_port(*hosts), free_port(*hosts)
    gates = []
    for number in range(1, count + 1):
        own = folder / f"gate{number}"
        own.mkdir()
        for name, text in {"policy.yaml": json.dumps(policy), **(files or {})}.items():
            (own / name).write_text(text)
        gates.append(FleetGate(number, own, port, admin_port, settings))
    try:
        await asyncio.gather(*(gate.start() for gate in gates))
        yield gates
    finally:
        await asyncio.gather(*(gate.end(signal.SIGKILL) for gate in gates), return_exceptions=True)
