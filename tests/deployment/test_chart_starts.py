"""What the chart starts works with a PostgreSQL server: migrations as the owner of the tables, and a gate with the
rendered settings as the role of gates, whose probes succeed. No container runs."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import anyio.to_thread
import psycopg
import pytest

from tests.deployment.chart import SHAPES, Rendered, installed, render
from tests.fakes import postgresql
from tests.fakes.daemon import serving
from tests.fakes.system_programs import run
from tests.paths import ROOT

pytestmark = pytest.mark.real
ROLES: Final = ("owner", "gates", "reports")
URL: Final = re.compile(r"postgresql://(\w+)@[\w.]+/gates\S*")


def local(text: str, place: str) -> str:
    """Text with the URL of the database replaced by one for the same role at this server."""
    assert URL.search(text), text
    server = psycopg.conninfo.conninfo_to_dict(place)["host"]
    return URL.sub(lambda found: f"postgresql://{found[1]}@/gates?host={server}", text)


def migrate(chart: Rendered, pod: str, place: str) -> str:
    """Run the command of a pod. Returns what it prints."""
    words: list[str] = chart.pods[pod]["containers"][0]["args"]
    words = [local(word, place) if "://" in word else word for word in words]
    code, said = run(sys.executable, "-m", "samplegate", *words, env={"PYTHONPATH": str(ROOT / "proxy")})
    assert 0 == code, said
    return said


@pytest.mark.anyio
@pytest.mark.timeout(180)
async def test_the_migrations_and_then_the_gate_work_with_roles_of_their_own(tmp_path: Path) -> None:
    chart = render({"gateway": SHAPES["gateway"]})["gateway"]
    with postgresql.postgresql() as place:
        with psycopg.connect(place, autocommit=True) as db:
            for role in ROLES:
                db.execute(f"CREATE ROLE {role} LOGIN")
            db.execute("CREATE DATABASE gates OWNER owner")
        assert "tables created" in migrate(chart, "gate-migrate", place)
        assert "tables up to date" in migrate(chart, "gate-partitions", place)

        settings = installed(chart, tmp_path)
        settings.write_text(local(settings.read_text(), place))
        async with serving(tmp_path, "--settings", str(settings)) as gate:
            for name in ("startup", "liveness", "readiness"):
                path = chart.gate[f"{name}Probe"]["httpGet"]["path"]
                assert 200 == await anyio.to_thread.run_sync(status, f"{gate.admin}{path}"), gate.lines
            await anyio.to_thread.run_sync(until_connected, place)
            assert 0 == await gate.end()
        assert [] == [line for line in gate.lines if "database.problem" in line]


def until_connected(place: str) -> None:
    """Wait until there is a connection of the role of gates."""
    until = time.monotonic() + 30
    with psycopg.connect(place, autocommit=True) as db:
        while db.execute("SELECT 1 FROM pg_stat_activity WHERE usename = 'gates'").fetchone() is None:
            assert time.monotonic() < until
            time.sleep(0.05)


def status(url: str) -> int:
    with urlopen(url, timeout=10) as response:
        found: int = response.status
        return found
