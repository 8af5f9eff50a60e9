"""The compose file matches its schema, and a daemon starts with its settings and health checks. No container runs."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.fakes.daemon import Client, client, serving
from tests.fakes.system_programs import DEPLOY, locked, run
from tests.paths import ROOT

FILE: Final = DEPLOY / "compose.yaml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
TOKEN: Final = "t" * 40


def test_it_fits_the_schema_of_compose_files() -> None:
    code, said = run(locked("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE)
    assert 0 == code, said


def mounted(folder: Path) -> Path:
    """The gate's settings, with the paths of its container replaced by those of this machine."""
    text = (DEPLOY / "compose/samplegate.yaml").read_text("utf-8")
    places = {
        "/policies": ROOT / "policies",
        "/etc/samplegate": DEPLOY / "compose",
        "/run/secrets": folder,
        "command: python": f"command: {sys.executable}",
    }
    for inside, here in places.items():
        assert inside in text
        text = text.replace(inside, str(here))
    (folder / "callers").write_text(f"ci {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    (folder / "admin-token").write_text("a" * 40)
    (folder / "samplegate.yaml").write_text(text)
    return folder / "samplegate.yaml"


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_what_compose_starts_is_healthy_and_answers_what_the_server_asks_by_the_shipped_policy(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, "--settings", str(mounted(tmp_path))) as gate:
        at = gate.admin.removeprefix("http://")
        assert [(0, ""), (0, "")] == [healthy(check, at) for check in (of_compose(), of_image())]
        for era in ("legacy", "modern"):
            async with client(gate, token=TOKEN) as c:
                assert "Purge T1: 4 inactive accounts were deleted" in json.dumps(await purged(c, era))
    assert [1, 1] == [healthy(check, at)[0] for check in (of_compose(), of_image())]


def of_compose() -> list[str]:
    command: list[str] = SERVICES["gate"]["healthcheck"]["test"]
    return command[1:]


def of_image() -> list[str]:
    (check,) = re.findall(
        r"HEALTHCHECK .*\n? *CMD (\[.*\])", (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    )
    command: list[str] = json.loads(check)
    return command


def healthy(check: list[str], at: str) -> tuple[int, str]:
    """The result of a health check at an address, in place of the image's own."""
    assert "python" == check[0]
    code, said = run(
        sys.executable, *[word.replace("127.0.0.1:9464", at) for word in check[1:]], env={"SAMPLEGATE_ADMIN_LISTEN": at}
    )
    return code, "" if code else said


async def purged(c: Client, era: str) -> dict[str, Any]:
    if era == "legacy":
        await c.begin()
    return await (c.legacy if era == "legacy" else c.modern)(
        "tools/call", 1, name="purge_inactive_users", arguments={"ticket": "T1"}
    )
