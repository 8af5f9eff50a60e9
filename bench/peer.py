"""Installs the peer on first use, from its own hash lock into its own git-ignored environment."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = HERE / ".peer"
LOCK: Final = HERE / "requirements-peer.lock"


def python() -> Path | None:
    """The peer's Python, installed if it is not there yet; None, with a word on stderr, where that cannot be done."""
    found = FOLDER / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    stamp = FOLDER / "installed.lock"
    if stamp.is_file() and stamp.read_bytes() == LOCK.read_bytes():
        return found
    print("bench: installing the peer into bench/.peer", file=sys.stderr)
    venv.create(FOLDER, clear=True, with_pip=True)
    install: list[str | Path] = [found, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", LOCK]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"{done.stderr}\nbench: the peer could not be installed; its rows are left out", file=sys.stderr)
        return None
    stamp.write_bytes(LOCK.read_bytes())
    return found
