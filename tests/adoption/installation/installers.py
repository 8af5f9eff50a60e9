"""Installers of the wheel, in an empty home: uvx, uv tool, pipx and pip, with the index and the cache of the user who
runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.paths import ROOT

BIN: Final = Path(sys.executable).parent
PYTHON: Final = sys.executable
INSTALL_SECONDS: Final = 600
COMMAND_SECONDS: Final = 240
FOREIGN: Final = ("VIRTUAL_ENV", "PYTHON", "PIPX_", "UV_TOOL", "UV_PROJECT", "XDG_", "SAMPLEGATE_", "PAGER")
"""Beginnings of variables that lead out of the empty home."""


@dataclass(frozen=True)
class Installed:
    """An installed gate: the command that starts it, and its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def run(self, folder: Path, *arguments: str) -> str:
        """Run `samplegate ARGUMENTS` and return its output. It must succeed."""
        return output([*self.command, *arguments], self.environment, folder, COMMAND_SECONDS)


def output(command: list[str], environment: Mapping[str, str], folder: Path, seconds: float) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert 0 == done.returncode, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def cache_folder(*command: str) -> str:
    return output(list(command), os.environ, ROOT, COMMAND_SECONDS).strip()


def in_home(home: Path) -> dict[str, str]:
    """The environment of a user with this home, who has the index, the certificates and the caches of this one."""
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    paths = [path for path in environment["PATH"].split(os.pathsep) if Path(path) != BIN]
    environment |= {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(home / ".local" / "bin"), *paths]),
        "PIP_NO_COMPILE": "1",  # for speed; Python compiles what the commands import
        "PIP_CACHE_DIR": cache_folder(sys.executable, "-m", "pip", "cache", "dir"),
        "UV_CACHE_DIR": cache_folder(str(BIN / "uv"), "cache", "dir"),
        "UV_PYTHON": PYTHON,
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_DEFAULT_PYTHON": PYTHON,
    }
    for variable, name in (("PIP_CONFIG_FILE", "pip/pip.conf"), ("UV_CONFIG_FILE", "uv/uv.toml")):
        if (config := Path.home() / ".config" / name).exists():
            environment.setdefault(variable, str(config))
    return environment


def by_uvx(wheel: Path, home: Path) -> Installed:
    environment = in_home(home)
    command = (str(BIN / "uvx"), "--from", str(wheel), "samplegate")
    output([*command, "--version"], environment, home, INSTALL_SECONDS)
    return Installed(command, {**environment, "UV_OFFLINE": "1"})


def by_uv_tool(wheel: Path, home: Path) -> Installed:
    environment = in_home(home)
    output([str(BIN / "uv"), "tool", "install", str(wheel)], environment, home, INSTALL_SECONDS)
    return Installed((str(home / ".local" / "bin" / "samplegate"),), environment)


def by_pipx(wheel: Path, home: Path) -> Installed:
    environment = in_home(home)
    output([str(BIN / "pipx"), "install", str(wheel)], environment, home, INSTALL_SECONDS)
    return Installed((str(home / ".local" / "bin" / "samplegate"),), environment)


def by_pip(wheel: Path, home: Path) -> Installed:
    environment = in_home(home)
    output([PYTHON, "-m", "venv", str(home / "env")], environment, home, INSTALL_SECONDS)
    output([str(home / "env/bin/pip"), "install", str(wheel)], environment, home, INSTALL_SECONDS)
    return Installed((str(home / "env" / "bin" / "samplegate"),), environment)


def build_wheel(folder: Path) -> Path:
    """The wheel of the tree, in a folder."""
    build = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    return folder / output([sys.executable, "-c", build, str(folder)], os.environ, ROOT, COMMAND_SECONDS).split()[-1]
