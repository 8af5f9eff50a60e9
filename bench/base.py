"""Environments of earlier versions of the gate, to measure them beside the present one: `make bench BASE=v0.1.0`.

Each version has its own environment in bench/.base, with only the packages of its own lock file. Both environments are
built alike, because additional packages and modules that are not compiled slow down a start.
"""

from __future__ import annotations

import compileall
import hashlib
import io
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "bench" / ".base"
LOCK: Final = "requirements.lock"
SOURCE: Final = "proxy"
RELEASE: Final = ROOT / "tests" / "upgrade" / "base"
"""The file with the commit of the newest release, for clones without tags."""
VERSION: Final = f"{SOURCE}/samplegate/__init__.py"


def earlier(ref: str) -> tuple[str, ...]:
    """The interpreter of an earlier version, as the beginning of a command. Builds its environment on first use.

    ``ref`` is a commit, a branch or a tag. Raises RuntimeError if git does not know it, or if it cannot be installed.
    """
    commit = _commit(ref)
    tree = FOLDER / commit
    if not (tree / LOCK).is_file():
        archive = _git("archive", "--format=tar", commit)
        if archive.returncode:
            raise RuntimeError(
                f"BASE={ref}: git cannot read {commit}: {archive.stderr.decode(errors='replace').strip()}"
            )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(tree, filter="data")
    return _interpreter(tree)


def present() -> tuple[str, ...]:
    """The interpreter of this checkout's version. Raises RuntimeError."""
    return _interpreter(ROOT)


def _commit(ref: str) -> str:
    found = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if found.returncode == 0:
        return found.stdout.decode().strip()
    release = RELEASE.read_text(encoding="utf-8").strip()
    version = _git("show", f"{release}:{VERSION}")
    if version.returncode == 0 and f'"{ref.removeprefix("v")}"' in version.stdout.decode():
        return release
    raise RuntimeError(
        f"BASE={ref}: git knows no such commit, and tests/upgrade/base names another version; fetch the tags (git fetch"
        " --tags)"
    )


def _interpreter(tree: Path) -> tuple[str, ...]:
    """Python with the packages of the tree's lock file and with the tree's source."""
    lock, source = tree / LOCK, tree / SOURCE
    folder = FOLDER / hashlib.sha256(lock.read_bytes() + bytes(source)).hexdigest()[:16]
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (folder / "installed").is_file():
        print(
            f"bench: installing the packages of {tree.relative_to(ROOT.parent)} into bench/.base (a minute or two)",
            file=sys.stderr,
        )
        venv.create(folder, clear=True, with_pip=True)
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            str(lock),
        ]
        done = subprocess.run(install, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the packages of {lock} cannot be installed: {done.stderr.strip()[-1000:]}")
        packages = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        )
        Path(packages.stdout.strip(), "samplegate.pth").write_text(f"{source}\n", encoding="utf-8")
        (folder / "installed").touch()
    compileall.compile_dir(source, quiet=2)
    return (str(python), "-I")  # ignores PYTHONPATH, which is set for the measured programs


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True)
