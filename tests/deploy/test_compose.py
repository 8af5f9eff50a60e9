"""The compose file: it fits its schema, what it mounts is there, nothing of it is open to other machines, and its
settings start a daemon."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from samplegate.config.serve_settings import ServeSettings
from tests.daemon.gate import Client, client, serving
from tests.deploy.programs import DEPLOY, ROOT, locked, run

FILE: Final = DEPLOY / "compose.yaml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
TOKEN: Final = "t" * 40


def test_it_fits_the_schema_of_compose_files() -> None:
    code, said = run(locked("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE)
    assert 0 == code, said


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_watched_confined_and_reached_from_this_machine_only(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"(?:[a-z]+/)?[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["read_only"]
    assert ["ALL"] == service["cap_drop"]
    assert [] == [port for port in service["ports"] if not port.startswith("127.0.0.1:")]


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_mounts_is_there_or_is_a_secret_or_a_volume(name: str) -> None:
    sources = [volume.partition(":")[0] for volume in SERVICES[name]["volumes"]]
    assert [] == [source for source in sources if source not in COMPOSE["volumes"] and not (DEPLOY / source).exists()]
    assert set(SERVICES[name].get("secrets", ())) <= COMPOSE["secrets"].keys()


def test_secrets_are_files_that_are_not_committed() -> None:
    files = [secret["file"] for secret in COMPOSE["secrets"].values()]
    assert {"./secrets"} == {os.path.dirname(file) for file in files}  # noqa: PTH120
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text("utf-8").split()
    assert [] == [
        line
        for line in FILE.read_text("utf-8").splitlines()
        if re.search(r"(?i)(password|token|key)\w*: *[\"']?\w{8}", line)
    ]


def test_a_stop_leaves_the_drain_its_time() -> None:
    assert (
        int(SERVICES["gate"]["stop_grace_period"].removesuffix("s"))
        > ServeSettings().drain_delay + ServeSettings().drain_timeout + 10
    )


def test_prometheus_scrapes_the_gate_where_the_image_listens_and_grafana_asks_prometheus() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text("utf-8"))["scrape_configs"]
    (at,) = re.findall(r"SAMPLEGATE_ADMIN_LISTEN=0\.0\.0\.0:(\d+)", (DEPLOY / "Dockerfile").read_text("utf-8"))
    assert [f"gate:{at}"] == job["static_configs"][0]["targets"]
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text("utf-8"))[
        "datasources"
    ]
    assert ("prometheus", "http://prometheus:9090") == (source["type"], source["url"])
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/samplegate.yaml").read_text("utf-8"))[
        "providers"
    ]
    assert (
        f"./grafana/samplegate.json:{provider['options']['path']}/samplegate.json:ro" in SERVICES["grafana"]["volumes"]
    )


def mounted(folder: Path) -> Path:
    """The settings of the gate, with what it sees in its container where it is on this machine."""
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
    """What a health check says of the listener at an address, in place of the image's own."""
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
