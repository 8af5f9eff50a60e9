"""The claims of the pages of deploy/ about operating the daemon, as far as a test can check them."""

from __future__ import annotations

import re
from typing import Final

from samplegate.server.reload import LIVE
from tests.fakes.system_programs import DEPLOY
from tests.paths import ROOT

PAGE: Final = "".join(page.read_text("utf-8") for page in sorted(DEPLOY.glob("*.md")))


def section(title: str) -> str:
    """The text under a second-level heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n#")[0]


def test_every_setting_that_a_reload_takes_stands_there_and_no_other() -> None:
    rows = [line.partition(":")[0] for line in section("Reload").splitlines() if line.startswith("- ")]
    first = [name for row in rows for name in re.findall(r"`(\w+)`", row.partition(", with")[0])]
    assert sorted(LIVE) == sorted(first)


def test_every_file_that_the_page_names_is_there() -> None:
    links = {link for link in re.findall(r"\]\(([\w./-]+)\)", PAGE) if not link.startswith("#")}
    typed = set(re.findall(r"\b((?:deploy|policies)/[\w./-]+\.(?:yaml|yml|env|service))", PAGE)) - {"policies/new.yaml"}
    assert links
    assert [] == [name for name in links if not (DEPLOY / name).exists()]
    assert [] == [name for name in typed if not (ROOT / name).exists()]


def test_the_page_names_every_thing_in_the_folder() -> None:
    shipped = [
        path.name for path in DEPLOY.iterdir() if path.name not in ("README.md", "secrets", "compose", "__pycache__")
    ]
    assert [] == [name for name in shipped if f"]({name}" not in PAGE]


def test_the_page_says_that_no_image_was_built() -> None:
    assert "No image was built here" in section("In containers")
