"""The messages of docs/troubleshooting.md are those of the code, and every refusal is among them."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Final

import pytest

from samplegate.protocol import results
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
MESSAGES: Final = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
GAP: Final = "\N{HORIZONTAL ELLIPSIS}"


@cache
def templates() -> tuple[str, ...]:
    """The texts of the code, with a gap for each value."""
    found = []
    for path in sorted((ROOT / "proxy" / "samplegate").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(v.value if isinstance(v, ast.Constant) else GAP for v in node.values))  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def is_of_the_code(message: str) -> bool:
    """Whether the parts of a message are in one text of the code, in order."""
    parts = [re.escape(part) for part in message.split(GAP)]
    expression = re.compile(f"(?:[^{GAP}]*{GAP})+?.*?".join(parts), re.DOTALL)
    return any(expression.search(text) for text in templates())


@pytest.mark.cpu(4)
def test_every_message_of_the_page_is_one_of_the_code() -> None:
    assert 35 <= len(MESSAGES) == len(set(MESSAGES))
    assert [] == [message for message in MESSAGES if not is_of_the_code(message)]
    assert not is_of_the_code("no such message")
    assert not is_of_the_code("denied by…policy")


def test_every_refusal_that_a_peer_gets_is_explained() -> None:
    assert [] == [text for text in results._SENTENCES.values() if text not in MESSAGES]


def test_every_message_has_a_cause_and_a_remedy() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(MESSAGES) == len(rows)
    assert [] == [row for row in rows if not re.fullmatch(r"\| `[^`]+` \| .{8,} \| .{4,} \|", row)]
