"""The demo's server with a database of its own, to have something behind the gate. Put yours in its place."""

from __future__ import annotations

import tempfile
from pathlib import Path

from samplegate.demo import server
from samplegate.demo.server import build

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "users.sqlite3"
    server.create(path)
    build(path).run("stdio")
