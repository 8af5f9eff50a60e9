"""A PostgreSQL server of its own in a folder: Debian's programs, reached by a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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
