"""Installation of the wheel alone, in an empty home, with uvx, uv tool, pipx and pip. Afterwards, the first commands of
a user work.

The installers use the package index and the cache of the user who runs the tests. The commands need no network.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from samplegate import __version__
from tests.adoption.installation.installers import (
    INSTALL_SECONDS,
    Installed,
    build_wheel,
    by_pip,
    by_pipx,
    by_uv_tool,
    by_uvx,
)
from tests.paths import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(2 * INSTALL_SECONDS)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=[by_uvx, by_uv_tool, by_pipx, by_pip], ids=["uvx", "uv tool", "pipx", "pip"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    install: Callable[[Path, Path], Installed] = request.param
    return install(wheel, tmp_path_factory.mktemp("user") / "home")


def test_the_version_is_that_of_the_wheel(installed: Installed, tmp_path: Path) -> None:
    assert f"samplegate {__version__}\n" == installed.run(tmp_path, "--version")


def test_the_demo_runs_from_the_installation(installed: Installed, tmp_path: Path) -> None:
    assert str(ROOT) not in installed.run(tmp_path, "demo")


@pytest.mark.parametrize("options", [[], ["--headless"], ["--template", "ci"], ["--template", "people"]])
def test_a_first_policy_is_valid_and_passes_its_tests(installed: Installed, tmp_path: Path, options: list[str]) -> None:
    installed.run(tmp_path, "init", *options)
    assert "samplegate.yaml: ok, " in installed.run(tmp_path, "check", "samplegate.yaml")
    assert ", 0 failed" in installed.run(tmp_path, "test", "--require-tests", "samplegate.yaml")


def test_the_documentation_is_there(installed: Installed, tmp_path: Path) -> None:
    assert installed.run(tmp_path, "docs", "limits").startswith("# Limits\n")
    assert (ROOT / "policies" / "ci.yaml").read_text("utf-8") == installed.run(tmp_path, "docs", "ci.yaml")
