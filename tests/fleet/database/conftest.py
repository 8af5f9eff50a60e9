"""A server, a database for each test, and processes that use it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest

from tests.fakes import postgresql
from tests.fakes.forked import Forked, Forks, forks
from tests.fakes.postgresql import Database, Server
from tests.paths import ROOT

BOUND = 60.0
_numbers = count()


class Client:
    """A process (``programs/database_client.py``), and what it has said so far."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def all(self, what: str) -> list[dict[str, Any]]:
        """What it has said of one kind."""
        return [each for each in self.said if each["what"] == what]

    def until(self, what: str, number: int = 1) -> dict[str, Any]:
        """Wait until it has said something so often, and return that."""
        until(lambda: len(self.all(what)) >= number, lambda: self.said)
        return self.all(what)[number - 1]

    def send(self, signal: int) -> None:
        os.kill(self.process.pid, signal)

    def go(self) -> None:
        """Send a line to its stdin."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Wait for its end, and return the exit code."""
        code: int = self.process.wait(BOUND)
        self._reader.join(BOUND)
        return code


def until(holds: Callable[[], object], about: Callable[[], object] = str, seconds: float = BOUND) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, about()
        time.sleep(0.02)


Start = Callable[..., Client]


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    with postgresql.server("fsync = off") as server:
        yield server


def new_database(server: Server) -> Database:
    """A new database."""
    name = f"d{next(_numbers)}"
    with psycopg.connect(server.place, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    return Database(server.place.replace("dbname=postgres", f"dbname={name}"))


@pytest.fixture
def database(server: Server) -> Database:
    return new_database(server)


@pytest.fixture(scope="package")
def forked() -> Iterator[Forks]:
    with forks("tests.fakes.programs.database_client") as found:
        yield found


@pytest.fixture
def start(forked: Forks) -> Iterator[Start]:
    """Starts a process with these arguments. Processes that still run at the end are killed."""
    started: list[Forked] = []

    def start(*arguments: object, **environment: str) -> Client:
        started.append(forked.start(*map(str, arguments), cwd=ROOT, env={**os.environ, **environment}))
        return Client(started[-1])

    yield start
    for process in started:
        process.close()
