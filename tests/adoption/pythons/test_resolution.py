"""The resolution by Python version and platform, against an index of two small wheels, and the table in README.md."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.adoption.pythons import resolution
from tests.paths import ROOT

LINUX: Final = resolution.PLATFORMS["Linux x86-64"]
WINDOWS: Final = resolution.PLATFORMS["Windows x86-64"]


def wheel(folder: Path, name: str, tag: str) -> str:
    """Write an empty wheel. Returns its line of a lock file."""
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def index(tmp_path: Path) -> list[str]:
    """uv's options for an index with `pure`, and `binary` for Python 3.12 on Linux only, and a lock file of both."""
    lines = [wheel(tmp_path, "pure", "py3-none-any"), wheel(tmp_path, "binary", "cp312-cp312-manylinux_2_17_x86_64")]
    (tmp_path / "all.lock").write_text("".join(lines), "utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["pure", "binary"]\n'
    )
    return ["--no-config", "--no-index", "--find-links", str(tmp_path), "--cache-dir", str(tmp_path / "cache")]


@pytest.mark.parametrize("name", ["all.lock", "pyproject.toml"])
def test_a_missing_wheel_is_reported_with_its_package(tmp_path: Path, index: list[str], name: str) -> None:
    path = tmp_path / name
    assert "" == resolution.resolve(path, python="3.12", platform=LINUX, index=index)
    for python, platform in (("3.14", LINUX), ("3.12", WINDOWS)):
        problem = resolution.resolve(path, python=python, platform=platform, index=index)
        assert resolution.agrees(problem, "binary"), problem
        assert not resolution.agrees(problem, None)
        assert not resolution.agrees(problem, "pure-and-simple")


def test_an_expected_failure_that_no_longer_occurs_is_noticed() -> None:
    assert not resolution.agrees("", "google-re2")
    assert resolution.agrees("", None)


def test_the_declared_versions_are_those_of_the_table() -> None:
    assert ["3.11", "3.12", "3.13", "3.14"] == resolution.pythons()
    text = (ROOT / "README.md").read_text("utf-8").partition("## Try it")[0]
    assert [] == [version for version in resolution.pythons() if version not in text]
    assert [] == [package for package in resolution.EXPECTED.values() if package not in text]
