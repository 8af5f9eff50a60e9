"""`make sbom`: the document is valid CycloneDX, describes every locked package, and is the same each time."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from docs import sbom
from tests.paths import ROOT

REF: Final = "root-component"
HASHES: Final = [{"alg": "SHA-256", "content": "0" * 64}]
LICENSE: Final = [{"license": {"id": "MIT"}}]


def package(ref: str, name: str, version: str = "1", **more: Any) -> dict[str, Any]:
    return {"type": "library", "bom-ref": ref, "name": name, "version": version, **more}


LOCKED: Final[dict[str, Any]] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "version": 1,
    "metadata": {"component": {"type": "application", "bom-ref": REF, "name": "samplegate", "licenses": LICENSE}},
    "components": [
        package(f"line-{n}", name, externalReferences=[{"type": "distribution", "url": "x", "hashes": HASHES}])
        for n, name in enumerate(("some-name", "base", "windows-only"))
    ],
}
INSTALLED: Final[dict[str, Any]] = {
    "components": [
        package("Some_Name==1", "Some_Name", licenses=LICENSE),
        package("base==1", "base", licenses=LICENSE),
        package("pytest==9", "pytest"),
    ],
    "dependencies": [
        {"ref": REF, "dependsOn": ["Some_Name==1"]},
        {"ref": "Some_Name==1", "dependsOn": ["base==1", "pytest==9"]},
    ],
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "samplegate-1.2.3-py3-none-any.whl"
    path.write_bytes(b"wheel")
    return path


def test_a_package_has_its_hashes_from_the_lock_and_its_license_from_the_environment(wheel: Path) -> None:
    found = sbom.join(LOCKED, INSTALLED, wheel)
    assert "" == sbom.schema_problem(json.dumps(found))
    assert {"base@1": LICENSE, "some-name@1": LICENSE, "windows-only@1": None} == {
        each["bom-ref"]: each.get("licenses") for each in found["components"]
    }
    assert [HASHES] * 3 == [each["externalReferences"][0]["hashes"] for each in found["components"]]
    needs = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    assert {REF: ["some-name@1"], "some-name@1": ["base@1"], "base@1": [], "windows-only@1": []} == needs
    root = found["metadata"]["component"]
    assert ("1.2.3", hashlib.sha256(b"wheel").hexdigest()) == (root["version"], root["hashes"][0]["content"])


def test_another_version_than_the_locked_one_is_refused(wheel: Path) -> None:
    installed = copy.deepcopy(INSTALLED)
    installed["components"][1]["version"] = "2"
    with pytest.raises(sbom.SbomError, match="base: 2 is installed, 1 is locked; run 'make dev'"):
        sbom.join(LOCKED, installed, wheel)
    with pytest.raises(sbom.SbomError, match="not a wheel of samplegate"):
        sbom.join(LOCKED, INSTALLED, wheel.with_name("other-1-py3-none-any.whl"))


@pytest.mark.timeout(600)
def test_the_document_of_the_lock_is_complete_valid_and_the_same_twice(wheel: Path) -> None:
    text = sbom.document(wheel)
    assert text == sbom.document(wheel)
    assert "" == sbom.schema_problem(text)
    assert "" != sbom.schema_problem(text.replace('"CycloneDX"', '"Other"'))
    found = json.loads(text)
    assert {"serialNumber"}.isdisjoint(found)
    assert "timestamp" not in found["metadata"]
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert {(sbom.normal(name), version) for name, version in locked} == {
        (sbom.normal(each["name"]), each["version"]) for each in found["components"]
    }
    assert [] == [each["name"] for each in found["components"] if not each["externalReferences"][0]["hashes"]]
