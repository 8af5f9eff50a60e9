"""A PostgreSQL server and a PgBouncer of its own in a folder: Debian's programs, reached by Unix sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
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


@contextmanager
def postgresql(*settings: str) -> Iterator[str]:
    """A running server with an empty database, and the connection string (libpq) of its superuser. ``settings`` are
    lines of its configuration.

    The server refuses to run as root, so root starts it as the user ``postgres``, which Debian's package creates."""
    bin, root = programs(), os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder, user = Path(name), USER if root else None
        if root:
            shutil.chown(folder, USER)
        else:
            folder.chmod(0o700)
        data = folder / "data"
        subprocess.run(
            [bin / "initdb", "-D", data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8", "-N"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd="/",
        )
        lines = ["listen_addresses = ''", f"unix_socket_directories = '{folder}'", f"max_connections = {CONNECTIONS}"]
        with (data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*lines, *settings, ""]))
        control = [str(bin / "pg_ctl"), "-D", str(data), "-s", "-w"]
        subprocess.run([*control, "-l", str(folder / "log"), "start"], check=True, user=user, cwd="/")
        try:
            yield f"host={folder} user={USER} dbname=postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, user=user, cwd="/")


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


def empty(place: str) -> None:
    """Empty the tables of samplegate, if there are any."""
    tables = "reviews, review_events, review_deliveries, review_facts, accounts, slots, holders, decisions"
    with psycopg.connect(place) as db:
        if db.execute("SELECT to_regnamespace('samplegate')").fetchone() != (None,):
            db.execute("SET LOCAL search_path = samplegate")
            db.execute(f"TRUNCATE {tables}")
            db.execute("INSERT INTO review_facts VALUES('events', 0, NULL)")
