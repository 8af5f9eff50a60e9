"""The tutorial: its commands run in order, in an empty home with the installed wheel, and print what the page shows.

Names of folders, times and IDs differ from run to run: the page's IDs stand for those of this run. A line of `...`
stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.adoption.installation.installers import BIN, INSTALL_SECONDS, build_wheel, in_home, output
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "tutorial.md"
SECONDS: Final = 240
BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n\n)?^```(?P<kind>\w+)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+"), "TIME"),
    (re.compile(r"\bafter [\d.]+(?:ms|s)\b"), "after TIME"),
    (re.compile(r"\b(session|hash) [0-9a-f]{8,16}\b"), r"\1 HEX"),
    (re.compile(r"(?<=[ '\"])/\S+/"), "FOLDER/"),
)
DECISION: Final = re.compile(r"\b[0-9a-f]{24}\b")

pytestmark = [pytest.mark.real, pytest.mark.timeout(2 * INSTALL_SECONDS)]


@dataclass(frozen=True)
class Step:
    """A block of the page: a file to save, or commands with the output that the page shows."""

    mark: str
    kind: str
    text: str


def steps(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer(page):
        yield Step(block["mark"] or "", block["kind"], block["text"])


def constant(text: str) -> str:
    """Output without what differs from run to run."""
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return text


def fits(shown: str, printed: str) -> bool:
    """Whether output is as the page shows it."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", constant(shown), flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*?".join(parts), constant(printed)) is not None


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An empty home with an environment that has only the wheel and its dependencies. uv is faster than the pip of the
    page, whose installation `tests/adoption/installation` tests."""
    folder = tmp_path_factory.mktemp("tutorial")
    variables = in_home(folder / "home")
    wheel = build_wheel(folder)
    env = folder / "home" / "env"
    output([str(BIN / "uv"), "venv", "--quiet", str(env)], variables, folder, SECONDS)
    install = [str(BIN / "uv"), "pip", "install", "--quiet", "--python", str(env / "bin" / "python"), str(wheel)]
    output(install, variables, folder, INSTALL_SECONDS)
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "VIRTUAL_ENV": str(env)}
    return variables | offline | {"PATH": f"{env / 'bin'}{os.pathsep}{variables['PATH']}"}


def test_every_command_of_the_tutorial_prints_what_the_page_shows(environment: dict[str, str]) -> None:
    home = Path(environment["HOME"])
    ids: dict[str, str] = {}
    printed = errors = ""
    ran = compared = 0
    for step in steps(PAGE.read_text("utf-8")):
        if step.mark.startswith("file: "):
            (home / step.mark.removeprefix("file: ")).write_text(step.text, "utf-8")
        elif step.mark == "install":
            assert "pip install ./samplegate-*.whl" in step.text
        elif step.mark == "stderr":
            (shown,), found = DECISION.findall(step.text), DECISION.findall(errors)
            ids |= {shown: found[-1], shown[:6]: found[-1][:6]}
        elif step.kind == "sh":
            command = step.text
            for shown, real in ids.items():
                command = command.replace(shown, real)
            done = subprocess.run(
                ["/bin/sh", "-e", "-c", command],
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            printed, errors = done.stdout, done.stderr
            assert 0 == done.returncode, f"{command}\n{printed}\n{errors}"
            ran += 1
        elif step.kind == "text":
            shown = step.text
            for written, real in ids.items():
                shown = re.sub(rf"\b{written}\b", real, shown)
            assert fits(shown, printed), f"the page shows:\n{shown}\nprinted:\n{printed}"
            compared += 1
    assert ran == compared >= 7
    assert sys.executable not in printed


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\nc\n", "a\nb\n", False),
        ("after 0.001s hash 0123456789ab\n", "after 2s hash ba9876543210\n", True),
        ("policy /path/to/gate.yaml\n", "policy /srv/x/gate.yaml\n", True),
        ("policy /path/to/gate.yaml\n", "policy /srv/x/other.yaml\n", False),
    ],
)
def test_output_is_compared_except_for_what_differs_from_run_to_run(shown: str, printed: str, same: bool) -> None:
    assert same == fits(shown, printed)
