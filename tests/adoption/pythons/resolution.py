"""`make resolution`: whether the dependencies resolve to wheels, by platform and Python version. Needs a package index.

Nothing is installed. The lock file is checked as it is, and the ranges of pyproject.toml with the newest releases.
The results must be those in EXPECTED, which the table in README.md repeats.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS: Final = 300

PLATFORMS: Final = {
    "Linux x86-64": "x86_64-unknown-linux-gnu",
    "Linux ARM64": "aarch64-unknown-linux-gnu",
    "Alpine x86-64": "x86_64-unknown-linux-musl",
    "macOS ARM64": "aarch64-apple-darwin",
    "macOS x86-64": "x86_64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
}
"""uv's names of the platforms."""

EXPECTED: Final = {
    ("requirements.lock", "Alpine x86-64"): "google-re2",
    ("requirements-extras.lock", "Alpine x86-64"): "google-re2",
    ("pyproject.toml", "Alpine x86-64"): "google-re2",
    ("requirements.lock", "macOS x86-64"): "cryptography",
    ("requirements-extras.lock", "macOS x86-64"): "cryptography",
}
"""The package without a wheel, where one is known. Everything else resolves."""


def pythons() -> list[str]:
    """The Python versions that pyproject.toml declares."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    words = [
        line.rpartition(" :: ")[2] for line in classifiers if line.startswith("Programming Language :: Python :: ")
    ]
    return [word for word in words if "." in word]


def resolve(requirements: Path, *, python: str, platform: str, index: Sequence[str] = ()) -> str:
    """Resolve to wheels only. Returns an empty text, or uv's reason why that is not possible.

    ``requirements`` is a lock file with hashes or a pyproject.toml. ``index`` are uv's options for another index.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "uv", "--quiet", "--no-progress", "pip"]
        if requirements.suffix == ".lock":
            command += ["install", "--dry-run", "--target", folder, "--require-hashes", "-r", str(requirements)]
        else:
            command += ["compile", str(requirements), "--output-file", str(Path(folder) / "resolved.txt")]
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "--python-version", python, "--python-platform", platform, *index],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    return "" if done.returncode == 0 else done.stderr.strip() or f"uv exited with {done.returncode}"


def agrees(problem: str, package: str | None) -> bool:
    """Whether a result is the expected one: no problem, or the missing wheel of a package."""
    if package is None:
        return not problem
    return re.search(rf"\b{re.escape(package)}==\S+ has no (?:usable )?wheels\b", " ".join(problem.split())) is not None


def main() -> int:
    wrong = 0
    for name in ("requirements.lock", "requirements-extras.lock", "pyproject.toml"):
        for platform, target in PLATFORMS.items():
            package = EXPECTED.get((name, platform))
            for python in pythons():
                problem = resolve(ROOT / name, python=python, platform=target)
                if agrees(problem, package):
                    result = f"no wheel of {package}" if package else "resolves"
                else:
                    result, wrong = f"NOT AS EXPECTED: {problem or 'resolves'}", wrong + 1
                print(f"{name:22} {platform:15} {python}  {result}", flush=True)
    if wrong:
        print("resolution: correct EXPECTED in tests/adoption/pythons/resolution.py and the table in README.md")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
