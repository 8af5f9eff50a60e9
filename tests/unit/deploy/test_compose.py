"""The compose file: everything it mounts exists, and nothing is open to other machines. `test_compose_starts.py` starts
a daemon with its settings."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import pytest
import yaml

from samplegate.config.serve_settings import ServeSettings
from tests.fakes.system_programs import DEPLOY
from tests.paths import ROOT

FILE: Final = DEPLOY / "compose.yaml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
TOKEN: Final = "t" * 40


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
