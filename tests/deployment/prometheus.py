"""A real Prometheus for tests: it scrapes one target every second with the shipped configuration."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from tests.fakes.system_programs import DEPLOY, program

BOUND: Final = 40.0
SHIPPED: Final = DEPLOY / "prometheus"


def config(target: str) -> str:
    """The shipped configuration with another target and interval."""
    shipped: dict[str, Any] = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))
    shipped["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    shipped["rule_files"] = [str(SHIPPED / name) for name in shipped["rule_files"]]
    (job,) = shipped["scrape_configs"]
    job["static_configs"] = [{"targets": [target]}]
    return yaml.safe_dump(shipped)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def api(self, path: str, **params: str) -> Any:
        """The data of a response. Raises AssertionError with Prometheus's message if it is an error."""
        async with self.http.get(f"{self.url}/api/v1/{path}", params=params) as response:
            said = await response.json()
        assert "success" == said["status"], f"{params}: {said.get('error')}"
        return said["data"]

    async def values(self, query: str, *, now: float | None = None, seconds: int = 0) -> list[float]:
        """The values of a query at a time, or over the seconds before in steps of one second. NaN is omitted."""
        if seconds and now is not None:
            found = (await self.api("query_range", query=query, start=str(now - seconds), end=str(now), step="1"))[
                "result"
            ]
            numbers = [float(value) for series in found for _, value in series["values"]]
        else:
            found = (await self.api("query", query=query))["result"]
            numbers = [float(series["value"][1]) for series in found]
        return [number for number in numbers if not math.isnan(number)]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def scraping(folder: Path, target: str, *flags: str) -> AsyncIterator[Prometheus]:
    """A Prometheus that is ready and scrapes ``target`` (HOST:PORT), with its data in ``folder``."""
    (folder / "prometheus.yml").write_text(config(target), "utf-8")
    at = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={at}", *flags,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    ready = asyncio.Event()
    reading = asyncio.ensure_future(_log(process, folder / "prometheus.log", ready))
    try:
        async with asyncio.timeout(BOUND):
            await ready.wait()
        assert not reading.done(), f"prometheus has ended; {folder}/prometheus.log has why"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=BOUND)) as http:
            yield Prometheus(f"http://{at}", http)
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(BOUND):
            await process.wait()
            await reading


async def _log(process: asyncio.subprocess.Process, file: Path, ready: asyncio.Event) -> None:
    """Keep the log lines. ``ready`` is set once Prometheus is ready, or has closed its log."""
    assert process.stderr is not None
    with file.open("wb") as log:
        async for line in process.stderr:
            log.write(line)
            if b"Server is ready" in line:
                ready.set()
    ready.set()
