"""`make pythons`: the unit tests on every other Python version that this machine has.

Interpreters are searched on the PATH and among pyenv's versions; PYTHONS='PATH ...' names more. Each gets an
environment with the locked packages. Versions without an interpreter are listed as not run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.adoption.pythons.resolution import ROOT, pythons

ENVIRONMENTS: Final = Path(__file__).resolve().parent / ".envs"
LOCKS: Final = [ROOT / name for name in ("requirements.lock", "requirements-dev.lock")]
QUIET: Final = ["--quiet", "--quiet", "--no-input", "--disable-pip-version-check"]
SUITABLE: Final = "import ensurepip, sqlite3, ssl, sys, venv; print(*sys.version_info[:3], sep='.')"


def candidates(version: str, environment: Mapping[str, str]) -> Iterable[Path]:
    """Where an interpreter of a version may be: PYTHONS, the PATH, pyenv's versions (the newest first)."""
    yield from map(Path, environment.get("PYTHONS", "").split())
    if found := shutil.which(f"python{version}", path=environment.get("PATH", "")):
        yield Path(found)
    home = environment.get("PYENV_ROOT") or str(Path(environment.get("HOME", ".")) / ".pyenv")
    numbers = sorted(
        (
            int(path.name.rpartition(".")[2])
            for path in Path(home, "versions").glob(f"{version}.[0-9]*")
            if path.name.rpartition(".")[2].isdigit()
        ),
        reverse=True,
    )
    yield from (Path(home, "versions", f"{version}.{number}", "bin", "python") for number in numbers)


def full_version(python: Path) -> str:
    """The version of an interpreter that can make environments, such as 3.12.1, or an empty text."""
    try:
        done = subprocess.run(
            [python, "-c", SUITABLE], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def interpreter(version: str, environment: Mapping[str, str]) -> tuple[Path, str] | None:
    """The first suitable interpreter of a version, such as 3.12, and its full version."""
    for python in candidates(version, environment):
        found = full_version(python)
        if found.startswith(f"{version}."):
            return python, found
    return None


def installed(python: Path, version: str) -> Path:
    """The interpreter of an environment with the locked packages, which is made if it is missing or stale."""
    folder = ENVIRONMENTS / version
    stamp, digest = folder / ".installed", hashlib.sha256(b"".join(lock.read_bytes() for lock in LOCKS)).hexdigest()
    if not stamp.exists() or stamp.read_text("utf-8") != digest:
        print(f"pythons: installing the locked packages for Python {version}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", *QUIET]
        locked = ["--require-hashes", "--only-binary", ":all:"]
        subprocess.run([*pip, *locked, *(word for lock in LOCKS for word in ("-r", lock))], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)], check=True)
        stamp.write_text(digest, "utf-8")
    return folder / "bin" / "python"


def main(arguments: Sequence[str]) -> int:
    own = ".".join(map(str, sys.version_info[:2]))
    results = {own: "not run here: the version of the environment (make unit)"}
    for version in pythons():
        if version == own:
            continue
        found = interpreter(version, os.environ)
        if found is None:
            results[version] = "not run: no interpreter with venv found"
            continue
        python, full = found
        tests = [str(installed(python, full)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        print(f"pythons: {full}", flush=True)
        code = subprocess.run(tests, cwd=ROOT, check=False).returncode
        results[version] = f"passed ({full})" if code == 0 else f"FAILED ({full}, exit code {code})"
    print(*(f"pythons: {version}: {result}" for version, result in sorted(results.items())), sep="\n")
    return 1 if any("FAILED" in result for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
