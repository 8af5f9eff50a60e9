"""The numbered requirements and their citations: every cited requirement is explained, and every explained one is
cited."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from tests.paths import ROOT

PAGE: Final = ROOT / "proxy" / "REQUIREMENTS.md"
CITING: Final = ("proxy", "tests", "policies", "bench", "deploy", "*.md")

ITEM: Final = re.compile(r"^- \*\*([RTU][0-9]+)\*\* (.+(?:\n  .+)*)$", re.MULTILINE)
BULLET: Final = re.compile(r"^- .*$", re.MULTILINE)
CITED: Final = re.compile(r"(?<![/@])\b[RTU][1-9][0-9]{0,2}\b")  # not part of a URL or a chat id
SPAN: Final = re.compile(r"\b([RTU])([0-9]+)\s+to\s+\1([0-9]+)\b")
LEVEL: Final = re.compile(r"(MUST|SHOULD|MAY|derived)\. ")
SOURCE: Final = re.compile(r"\((20[0-9]{2}-[0-9]{2}-[0-9]{2} [a-z/-]+|SEP-[0-9]+)\)$")


def items() -> dict[str, str]:
    return {number: " ".join(text.split()) for number, text in ITEM.findall(PAGE.read_text("utf-8"))}


def cited() -> set[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CITING]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=20).stdout.decode().split("\0")
    found: set[str] = set()
    for path in (ROOT / name for name in listed if name):
        if path.suffix in {".py", ".md", ".mjs", ".yaml"} and path != PAGE and path.is_file():
            text = path.read_text("utf-8")
            found.update(CITED.findall(text))
            found.update(
                f"{letter}{n}" for letter, first, last in SPAN.findall(text) for n in range(int(first), int(last) + 1)
            )
    return found


def in_order(numbers: list[str]) -> list[str]:
    return sorted(numbers, key=lambda number: (number[0], int(number[1:])))


@pytest.mark.cpu(2)
def test_every_item_that_is_cited_is_explained() -> None:
    assert [] == in_order([*cited() - items().keys()]), "explain it in proxy/REQUIREMENTS.md"


@pytest.mark.cpu(2)
def test_every_item_that_is_explained_is_cited() -> None:
    assert [] == in_order([*items().keys() - cited()]), (
        "nothing cites it any more; take it out of proxy/REQUIREMENTS.md"
    )


def test_the_items_stand_once_each_and_in_order() -> None:
    numbers = [number for number, _ in ITEM.findall(PAGE.read_text("utf-8"))]
    assert in_order(list(set(numbers))) == numbers
    assert len(BULLET.findall(PAGE.read_text("utf-8"))) == len(numbers)


def test_every_item_says_how_binding_it_is_and_where_it_comes_from() -> None:
    assert [] == [number for number, text in items().items() if number.startswith("R") and not LEVEL.match(text)]
    assert [] == [number for number, text in items().items() if not SOURCE.search(text)]
