"""`make install` shows progress on a terminal only, and `make build` gives the same bytes everywhere."""

from __future__ import annotations

import hashlib
import os
import pty
import select
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from samplegate.cli.bundled import CI_FILES, PAGES, POLICIES
from tests.paths import ROOT

SECONDS: Final = 30
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
"""A make that runs the tests is not the parent of those below."""
PIP: Final = """\
#!/bin/sh
# stands for the environment's python: `pip install` writes as pip does, then waits until the file `go` exists
case " $* " in
    *" --quiet "*) exit ;;
esac
echo "Collecting samplegate"
while [ ! -e go ]; do sleep 0.05; done
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile and an environment whose pip is a fake."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-build.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP)
    python.chmod(0o755)
    return tmp_path


@contextmanager
def on_a_terminal(folder: Path, *command: str) -> Iterator[int]:
    """A program whose stdout is a terminal; gives the terminal's other end."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
    finally:
        os.close(theirs)
    try:
        yield ours
        (folder / "go").touch()
        assert 0 == process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    """What a program writes to a terminal, until it contains the text."""
    out, end = b"", time.monotonic() + SECONDS
    while text not in out:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, out
        out += os.read(terminal, 4096)
    return out


@pytest.mark.skipif(sys.platform == "win32", reason="needs make and a pty")
def test_an_installation_shows_pips_progress_on_a_terminal_while_it_runs(project: Path) -> None:
    with on_a_terminal(project, "make", "install") as terminal:
        read_until(terminal, b"Collecting samplegate")
        assert not (project / ".venv" / ".installed").exists()
    assert (project / ".venv" / ".installed").exists()


def test_an_installation_into_a_pipe_prints_only_what_it_does(project: Path) -> None:
    done = subprocess.run(
        ["make", "dev"],
        check=False,
        cwd=project,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert [
        "installing the dependencies (a minute or two the first time)",
        "installing the tools for checks and tests",
    ] == done.stdout.splitlines()


def sources(folder: Path, *, mode: int, seconds: float) -> Path:
    """A copy of the committed files, with other permissions and times."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=20).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(mode | (0o100 if os.access(source, os.X_OK) else 0))
        os.utime(target, (seconds, seconds))
    return folder


def built(folder: Path, *, umask: int, **environment: str) -> Mapping[str, str]:
    """The hashes of what `make build` writes, by file."""
    done = subprocess.run(
        ["make", "-o", "dev", "build", f"BIN={Path(sys.executable).parent}"],
        check=False,
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        umask=umask,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "dist").iterdir()}


def test_the_wheel_has_every_file_of_the_package_and_what_users_without_a_clone_need(tmp_path: Path) -> None:
    folder = sources(tmp_path, mode=0o600, seconds=1e9)
    built(folder, umask=0o077)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {path.relative_to(folder / "proxy") for path in (folder / "proxy" / "samplegate").rglob("*")}
    expected = {path.as_posix() for path in package if (folder / "proxy" / path).is_file()}
    bundled = {f"samplegate/bundled/{path}" for path in (*PAGES.values(), *POLICIES, *CI_FILES)}
    assert expected | bundled == names
    wanted = ("cli/starter/headless.yaml", "reviews/web/openapi.yaml", "demo/demo.yaml", "bundled/policies/ci.yaml")
    assert {f"samplegate/{name}" for name in wanted} <= names
    assert any(name.startswith("samplegate/reviews/migrations/") for name in names)


@pytest.mark.timeout(300)
def test_two_builds_have_equal_hashes(tmp_path: Path) -> None:
    first = built(
        sources(tmp_path / "a", mode=0o600, seconds=1e9),
        umask=0o077,
        PYTHONHASHSEED="1",
        TZ="Asia/Kolkata",
        SOURCE_DATE_EPOCH="1",
    )
    second = built(
        sources(tmp_path / "b" / "deeper", mode=0o664, seconds=1.7e9),
        umask=0o002,
        PYTHONHASHSEED="2",
        TZ="UTC",
        LC_ALL="C",
    )
    assert {".whl", ".gz"} == {Path(name).suffix for name in first}
    assert first == second
    (archive,) = (tmp_path / "a" / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path / "c", filter="data")
    third = built(tmp_path / "c" / archive.name.removesuffix(".tar.gz"), umask=0o022)
    assert first == third, "an archive gives the files that it was built with"
