"""The Helm chart as rendered: objects by kind and name, for the values of `ci/` and others."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from tests.fakes.system_programs import DEPLOY
from tests.paths import TESTS

CHART: Final = DEPLOY / "helm" / "samplegate"
TOOLS: Final = TESTS / "deployment" / "helm"
SECRETS: Final = "/run/secrets/samplegate"
CONTENTS: Final = {
    "admin-token": "a" * 40,
    "seal-key": "b" * 64,
    "database-key": "c" * 64,
    "callers": f"ci {'0' * 64}\n",
    "people": f"ann reviewer {'1' * 64}\n",
    "webhook": "whsec_" + "MDEy" * 8,
}
"""The files of the Secret, where they have a form."""
SHAPES: Final[dict[str, dict[str, Any]]] = {
    path.stem.removesuffix("-values"): yaml.safe_load(path.read_text("utf-8"))
    for path in sorted((CHART / "ci").glob("*-values.yaml"))
}
"""The values of `ci/`, by the names of the files."""


class Rendered(msgspec.Struct, frozen=True):
    """What Helm and the schemas say to one set of values."""

    objects: tuple[dict[str, Any], ...] = ()
    lint: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    refused: str = ""

    def one(self, kind: str, name: str = "gate") -> dict[str, Any]:
        """The object of this kind and name."""
        (found,) = (each for each in self.objects if (kind, name) == (each["kind"], each["metadata"]["name"]))
        return found

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """The specs of pods, by the name of the object that makes them."""
        found = {}
        for each in self.objects:
            spec = each.get("spec", {})
            spec = spec.get("jobTemplate", {}).get("spec", spec)
            if each["kind"] in ("Deployment", "Job", "CronJob"):
                found[each["metadata"]["name"]] = spec["template"]["spec"]
        return found

    @property
    def pod(self) -> dict[str, Any]:
        """The spec of the gate's pod."""
        return self.pods["gate"]

    @property
    def gate(self) -> dict[str, Any]:
        """The gate's container."""
        found: dict[str, Any]
        (found,) = self.pod["containers"]
        assert "gate" == found["name"]
        return found

    @property
    def files(self) -> dict[str, str]:
        """The files of /etc/samplegate."""
        found: dict[str, str] = self.one("ConfigMap")["data"]
        return found


def tool(environment: str, name: str) -> Path:
    """A program in one of the chart's environments."""
    found = TOOLS / ".envs" / environment / "bin" / name
    if not found.exists():
        pytest.fail(f"{found}: does not exist; run 'make deployment', which installs it")
    return found


def render(values: Mapping[str, Any]) -> dict[str, Rendered]:
    """Render the chart for each of these values."""
    done = subprocess.run(
        [tool("helm", "python"), TOOLS / "render.py"],
        input=json.dumps({"chart": str(CHART), "values": values}).encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert 0 == done.returncode, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=dict[str, Rendered])


def installed(chart: Rendered, folder: Path) -> Path:
    """The files of /etc/samplegate and of the Secret in a folder. Returns the settings file, with paths of this
    machine."""
    secrets = folder / "secrets"
    secrets.mkdir()
    for name in set(re.findall(rf"{SECRETS}/([\w.-]+)", " ".join(chart.files.values()))):
        (secrets / name).write_text(CONTENTS.get(name, "NAME=value\n"))
    for name, text in chart.files.items():
        (folder / name).write_text(text.replace(SECRETS, str(secrets)))
    return folder / "samplegate.yaml"
