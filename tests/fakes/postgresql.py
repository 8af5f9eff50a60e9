"""A PostgreSQL server and a PgBouncer of its own in a folder: Debian's programs, reached by Unix sockets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg

USER: Final = "postgres"
CONNECTIONS: Final = 120


def programs() -> Path:
    """The folder of `initdb` and `pg_ctl`, those of the newest version. Raises FileNotFoundError."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for folder in folders:
        if (folder / "pg_ctl").exists():
            return folder
    raise FileNotFoundError("no PostgreSQL server; Debian: apt-get install postgresql")


class Server:
    """A server in a folder, reached by a Unix socket there.

    The server refuses to run as root, so root starts it as the user ``postgres``, which Debian's package creates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.place = f"host={folder} user={USER} dbname=postgres"
        """The connection string (libpq) of the superuser."""
        self.socket = folder / ".s.PGSQL.5432"
        self._user = USER if os.geteuid() == 0 else None

    def own(self, folder: Path) -> None:
        """Give a folder to the server's user."""
        folder.chmod(0o700)
        if self._user is not None:
            shutil.chown(folder, self._user)

    def run(self, program: str, *arguments: str | Path) -> None:
        """Run one of PostgreSQL's programs as the server's user. Raises CalledProcessError."""
        subprocess.run(
            [programs() / program, *arguments], check=True, stdout=subprocess.DEVNULL, user=self._user, cwd="/"
        )

    def make(self, *settings: str) -> None:
        """Create an empty cluster."""
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self.configure(
            "listen_addresses = ''",
            f"unix_socket_directories = '{self.folder}'",
            f"max_connections = {CONNECTIONS}",
            *settings,
        )

    def configure(self, *settings: str) -> None:
        """Append lines to the configuration, for the next start or reload."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*settings, ""]))

    def start(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-s", "-w", "-l", self.folder / "log", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-s", "-w", "-m", "immediate", "stop")

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """The server's processes, the postmaster first."""
        return [self.pid, *(int(pid) for pid in _children(self.pid))]

    def kill(self) -> None:
        """Kill all of its processes at once, as a crash of the machine would."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 20
        while any(_runs(pid) for pid in [self.pid]):
            assert time.monotonic() < until
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink()
        for path in self.folder.glob(".s.PGSQL.*"):
            path.unlink()


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def _started(made: Server) -> Iterator[None]:
    """Start the server, and stop it at the end, unless a test has stopped it."""
    made.start()
    try:
        yield
    finally:
        if (made.data / "postmaster.pid").exists():
            made.stop()


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """A running server with an empty database. ``settings`` are lines of its configuration. Raises FileNotFoundError
    without PostgreSQL."""
    programs()  # its error has the remedy; the next one would be that its user is missing
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        made = Server(Path(name))
        made.own(made.folder)
        made.make(*settings)
        with _started(made):
            yield made


@contextmanager
def standby(primary: Server, *settings: str) -> Iterator[Server]:
    """A running standby of a server, by streaming replication, with the name ``standby``."""
    with tempfile.TemporaryDirectory(prefix="ps") as name:
        made = Server(Path(name))
        made.own(made.folder)
        source = f"host={primary.folder} user={USER} application_name=standby"
        made.run("pg_basebackup", "-D", made.data, "-d", source, "-R", "-c", "fast", "-X", "stream")
        made.configure(f"unix_socket_directories = '{made.folder}'", *settings)
        with _started(made):
            yield made


@contextmanager
def postgresql(*settings: str) -> Iterator[str]:
    """A running server with an empty database, and the connection string (libpq) of its superuser."""
    with server(*settings) as running:
        yield running.place


@contextmanager
def pgbouncer(place: str, *settings: str) -> Iterator[str]:
    """A pooler in transaction mode in front of a server, and the connection string of its superuser."""
    server, root = psycopg.conninfo.conninfo_to_dict(place), os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="pb") as name:
        folder = Path(name)
        config = folder / "pgbouncer.ini"
        config.write_text(
            "\n".join(
                [
                    "[databases]",
                    f"* = host={server['host']} user={USER}",
                    "[pgbouncer]",
                    "listen_addr =",
                    f"unix_socket_dir = {folder}",
                    "auth_type = any",
                    f"admin_users = {USER}",
                    "pool_mode = transaction",
                    "default_pool_size = 4",
                    f"logfile = {folder / 'log'}",
                    *settings,
                    "",
                ]
            )
        )
        if root:
            shutil.chown(folder, USER)
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        with subprocess.Popen(
            [program, "-q", config], user=USER if root else None, cwd="/", stderr=subprocess.DEVNULL
        ) as process:
            try:
                reached = f"host={folder} port=6432 user={USER} dbname={server['dbname']}"
                until_reached(reached)
                yield reached
            finally:
                process.kill()


def until_reached(place: str, seconds: float = 20.0) -> None:
    """Wait until a server accepts connections."""
    until = time.monotonic() + seconds
    while True:
        try:
            return psycopg.connect(place, connect_timeout=3).close()
        except psycopg.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def url(place: str) -> str:
    """The connection string as a URL."""
    parts = psycopg.conninfo.conninfo_to_dict(place)
    port = f"&port={parts['port']}" if "port" in parts else ""
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(parts['host']), safe='')}{port}"


class Database:
    """A database by its connection string."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.url = url(place)

    def as_role(self, role: str) -> str:
        """The URL for another role."""
        return self.url.replace(f"{USER}@", f"{role}@")

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """The rows of a statement, with the tables of samplegate in the path."""
        with psycopg.connect(self.place, autocommit=True) as db:
            db.execute("SET search_path = samplegate, public")
            found = db.execute(statement.encode(), values or None)
            return found.fetchall() if found.description else []

    def value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""
        return self.rows(statement, *values)[0][0]


def tcp_url(port: int, *, user: str = USER, name: str = "postgres") -> str:
    """The URL of a database at a port of this machine."""
    return f"postgresql://{user}@127.0.0.1:{port}/{name}"


def empty(place: str) -> None:
    """Empty the tables of samplegate, if there are any."""
    tables = "reviews, review_events, review_deliveries, review_facts, review_uis, accounts, slots, holders, decisions"
    with psycopg.connect(place) as db:
        if db.execute("SELECT to_regnamespace('samplegate')").fetchone() != (None,):
            db.execute("SET LOCAL search_path = samplegate")
            db.execute(f"TRUNCATE {tables}")
            db.execute("INSERT INTO review_facts VALUES('events', 0, NULL)")
