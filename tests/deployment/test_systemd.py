"""The systemd unit: systemd's own tools find no problem, and its command uses systemd's protocol."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from samplegate.server.systemd import NOTIFY_SOCKET, WATCHDOG_PID, WATCHDOG_USEC
from tests.fakes.daemon import asking, client, serving
from tests.fakes.system_programs import DEPLOY, program, run
from tests.fakes.systemd_unit import UNIT, directives, started_as, supervised
from tests.paths import ROOT

TEXT: Final = UNIT.read_text("utf-8")
SAID: Final = directives(TEXT)
SETTINGS: Final = DEPLOY / "systemd" / "samplegate.yaml"
MOST_EXPOSED: Final = 20  # of 100, by systemd's own count; 14 by systemd 252
CREDENTIALS: Final = "/run/credentials/samplegate.service"


def installed(folder: Path) -> Path:
    """The unit with programs of this machine, because systemd checks that they exist."""
    at = folder / UNIT.name
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", TEXT, flags=re.MULTILINE)
    at.write_text(re.sub(r"^ExecReload=/bin/kill", f"ExecReload={program('kill')}", text, flags=re.MULTILINE))
    return at


@pytest.mark.real
def test_systemd_takes_every_line_of_the_unit(tmp_path: Path) -> None:
    assert (0, "") == run(
        program("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", installed(tmp_path)
    )


@pytest.mark.real
def test_systemd_finds_the_unit_little_exposed(tmp_path: Path) -> None:
    code, said = run(
        program("systemd-analyze"),
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={MOST_EXPOSED}",
        installed(tmp_path),
    )
    assert 0 == code, said


def configured(folder: Path) -> Path:
    """The shipped settings, with a server and secrets that exist."""
    said: dict[str, Any] = yaml.safe_load(SETTINGS.read_text("utf-8"))
    (folder / "callers").write_text(f"ci {hashlib.sha256(b't' * 40).hexdigest()}\n")
    (folder / "admin-token").write_text("a" * 40)
    (folder / "policy.yaml").write_text((ROOT / "policies" / "service.yaml").read_text("utf-8"))
    said |= {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "servers": {"docs": {"command": sys.executable}}}
    (folder / "samplegate.yaml").write_text(json.dumps(said).replace(CREDENTIALS, str(folder)))
    return folder / "samplegate.yaml"


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_what_the_unit_starts_tells_systemd_how_it_is_from_start_to_end(tmp_path: Path) -> None:
    paths = {
        "/opt/samplegate/bin/samplegate": f"{sys.executable} -m samplegate",
        "/etc/samplegate/samplegate.yaml": str(configured(tmp_path)),
        "%S/samplegate": str(tmp_path / "state"),
    }
    async with supervised(tmp_path, started_as(paths), watchdog=0.4) as (process, notified):
        assert "1" == (await notified.next("READY"))["READY"]
        assert ["1", "1"] == [(await notified.next("WATCHDOG"))["WATCHDOG"] for _ in range(2)]
        process.send_signal(signal.SIGHUP)
        assert (await notified.next("RELOADING"))["MONOTONIC_USEC"].isdigit()
        assert "reload" in (await notified.next("READY"))["STATUS"]
        process.send_signal(signal.SIGTERM)
        assert int((await notified.next("STOPPING"))["EXTEND_TIMEOUT_USEC"]) < int(SAID["TimeoutStopSec"][0]) * 1e6
        async with asyncio.timeout(60):
            assert 0 == await process.wait(), (tmp_path / "log").read_text()


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_no_server_is_told_where_systemd_listens(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text((ROOT / "policies" / "service.yaml").read_text("utf-8"))
    server = ["/bin/sh", "-c", f'env > {tmp_path}/env; exec "$@"', "sh", *asking("legacy")]
    variables = {NOTIFY_SOCKET: str(tmp_path / "nobody"), WATCHDOG_USEC: "60000000", WATCHDOG_PID: "1"}
    async with serving(tmp_path, "--policy", "policy.yaml", "--", *server, env=variables) as gate, client(gate) as c:
        await c.begin()
        assert set() == variables.keys() & {
            line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()
        }
