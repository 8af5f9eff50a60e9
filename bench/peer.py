"""Installation of the peers on first use, from their own lock files into their own git-ignored folders."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = HERE / ".peer"
NODE: Final = HERE.parent / "tests" / "acceptance" / "sdk" / "node.py"
"""The script that starts the Node.js of the acceptance tests; `make bench` installs it before."""
Environment: TypeAlias = Literal["fastmcp", "mcp-proxy"]
LOCKS: Final[dict[Environment, Path]] = {
    "fastmcp": HERE / "requirements-peer.lock",
    "mcp-proxy": HERE / "requirements-mcp-proxy.lock",
}
"""Two environments, because one peer needs a newer SDK than the other accepts."""


def python(name: Environment = "fastmcp") -> Path | None:
    """The Python of an environment, which is installed if necessary. If that fails: None, and the reason on stderr."""
    folder, lock = FOLDER / name, LOCKS[name]
    found = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if _is_installed(folder, lock):
        return found
    print(f"bench: installing the peer {name} into bench/.peer", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    install = [str(found), "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", str(lock)]
    return found if _installed(install, folder, lock) else None


def npm() -> Path | None:
    """The folder of the peers from npm, installed if necessary. If that fails: None, and the reason on stderr."""
    folder, lock = HERE / "node_modules", HERE / "package-lock.json"
    if _is_installed(folder, lock):
        return folder
    print("bench: installing the peers from npm into bench/node_modules", file=sys.stderr)
    install = [sys.executable, str(NODE), "npm", "--prefix", str(HERE), "ci", "--ignore-scripts"]
    return folder if _installed(install, folder, lock) else None


def _is_installed(folder: Path, lock: Path) -> bool:
    stamp = folder / "installed.lock"
    return stamp.is_file() and stamp.read_bytes() == lock.read_bytes()


def _installed(install: Sequence[str], folder: Path, lock: Path) -> bool:
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"{done.stderr}\nbench: a peer could not be installed; its rows are left out", file=sys.stderr)
        return False
    (folder / "installed.lock").write_bytes(lock.read_bytes())
    return True
