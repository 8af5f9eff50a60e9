"""Rules for every committed file, whatever its content. Reads the files that git tracks or would add; needs git."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

LOCKS: Final = sorted(
    [
        *ROOT.glob("requirements*.lock"),
        *ROOT.glob("tests/acceptance/sdk/*.lock"),
        *ROOT.glob("bench/*.lock"),
        *ROOT.glob("docs/*.lock"),
        *ROOT.glob("tests/deployment/helm/*.lock"),
    ]
)

# Concatenated, so that this file does not break the rule it checks.
HOSTS: Final = [
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"))
]
KEYS: Final = re.compile(r"tests/upgrade/v[0-9.]+/.*\.key")  # random bytes, possibly without a NUL
FOLDERS: Final = ["work", "root", "home/[a-z]", "Users/[a-z]", "tmp/[a-z]"]
FOLDER: Final = re.compile(r"(?<![\w.}~*-])/(?:" + "|".join(FOLDERS) + r")\w*/")


def listed(*options: str) -> list[str]:
    """What git lists, separated by NUL."""
    command = ["git", "ls-files", "-z", *options]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=20).stdout
    return [name for name in said.decode().split("\0") if name]


def committed() -> list[Path]:
    names = listed("--cached", "--others", "--exclude-standard")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def texts() -> dict[str, str]:
    out = {}
    for path in committed():
        data = path.read_bytes()
        name = path.relative_to(ROOT).as_posix()
        if b"\0" not in data[:8192] and not KEYS.fullmatch(name):
            out[name] = data.decode("utf-8")
    return out


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{n}: {line.strip()[:120]}"
        for name, text in texts().items()
        for n, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_tool_makes_the_import_of_jsonschema_slow() -> None:
    """jsonschema imports rfc3987-syntax if it is there, which takes 1.5 s of CPU time in every process that checks a
    form's answer. A tool that needs it gets an environment of its own."""
    locked = (ROOT / "requirements-dev.lock").read_text("utf-8")
    assert [] == re.findall(r"^(?:rfc3987-syntax|lark)==", locked, re.MULTILINE)


@pytest.mark.cpu(2)
def test_no_file_names_a_registry() -> None:
    assert [] == lines_with(re.compile("|".join(map(re.escape, HOSTS)), re.IGNORECASE)), (
        "whoever installs brings their own index"
    )


@pytest.mark.cpu(2)
def test_no_file_names_a_folder_of_one_machine() -> None:
    assert [] == lines_with(FOLDER), "use a path relative to the file, or one the operator gives"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_in_a_lock_is_pinned_and_has_hashes(lock: Path) -> None:
    entries = [
        entry
        for entry in lock.read_text("utf-8").replace("\\\n", " ").splitlines()
        if entry.strip() and not entry.startswith("#")
    ]
    assert entries, f"{lock.name}: it is empty"
    loose = [
        entry[:80]
        for entry in entries
        if not re.match(r"[\w.-]+(\[[\w, -]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)
    ]
    assert [] == loose, f"{lock.name}: run 'make lock'"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_no_lock_names_an_index(lock: Path) -> None:
    assert None is re.search(r"://|--index|-i |--find-links|--trusted", lock.read_text("utf-8"))


def test_locks_agree_on_what_they_share() -> None:
    pins: dict[str, set[str]] = {}
    for lock in ROOT.glob("requirements*.lock"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE):
            pins.setdefault(name, set()).add(version)
    assert {} == {name: versions for name, versions in pins.items() if len(versions) > 1}


@pytest.mark.parametrize(
    "folder",
    ["tests/acceptance/sdk", "tests/adoption/agents", "tests/deployment/grafana", "tests/deployment/helm", "bench"],
)
def test_the_npm_lock_has_hashes_and_no_address(folder: str) -> None:
    lock = json.loads((ROOT / folder / "package-lock.json").read_text("utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert [] == [name for name, entry in packages.items() if "integrity" not in entry]
    assert [] == [name for name, entry in packages.items() if "resolved" in entry], "run 'make lock-npm'"


def test_what_make_installs_is_not_committed() -> None:
    assert [] == [
        name
        for name in listed("--cached")
        if re.search(r"(^|/)(\.venv|\.envs|node_modules|__pycache__|\.cache)(/|$)", name)
    ]


def test_no_symbolic_link_is_committed() -> None:
    # a link to a folder outside the repository replaces the folder in other checkouts
    assert [] == [line for line in listed("--stage") if line.startswith("120000 ")]
