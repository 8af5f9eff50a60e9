"""GitHub's runner as a reader of output: which lines of a step it takes for workflow commands.

After ``ActionCommand.TryParseV2`` and ``TryParse`` of actions/runner. It compares by the rules of a language, which
ignore some characters, so this reader ignores more of them than the runner does.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final

COMMANDS: Final = frozenset(
    "add-mask add-matcher add-path debug echo endgroup error group notice remove-matcher save-state set-env set-output"
    " stop-commands warning".split()
)
_DATA: Final = (("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
_PROPERTY: Final = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
_LEGACY: Final = (("%3B", ";"), ("%0D", "\r"), ("%0A", "\n"), ("%5D", "]"), ("%25", "%"))
_IGNORED: Final = frozenset({"Cc", "Cf", "Mn", "Me"})


@dataclass(frozen=True)
class Command:
    """A workflow command, with its values unescaped."""

    name: str
    data: str
    properties: dict[str, str] = field(default_factory=dict[str, str])


def commands(output: str) -> list[Command]:
    """The commands in the output of a step."""
    return [found for line in re.split("\r\n|\r|\n", output) if (found := _command(line)) is not None]


def _command(line: str) -> Command | None:
    compared = "".join(c for c in line if unicodedata.category(c) not in _IGNORED)
    return _parse_v2(line) or _parse_v2(compared) or _parse(line) or _parse(compared)


def _parse_v2(line: str) -> Command | None:
    line = line.lstrip()
    if not line.startswith("::") or (end := line.find("::", 2)) < 0:
        return None
    name, _, rest = line[2:end].partition(" ")
    return _found(name, rest.strip().split(","), _PROPERTY, _unescaped(line[end + 2 :], _DATA))


def _parse(line: str) -> Command | None:
    start = line.find("##[")
    if start < 0 or (end := line.find("]", start)) < 0:
        return None
    name, _, rest = line[start + 3 : end].partition(" ")
    return _found(name, rest.split(";"), _LEGACY, _unescaped(line[end + 1 :], _LEGACY))


def _found(name: str, pairs: list[str], escapes: tuple[tuple[str, str], ...], data: str) -> Command | None:
    if name.lower() not in COMMANDS:
        return None
    properties = {key: _unescaped(value, escapes) for key, _, value in (pair.partition("=") for pair in pairs) if value}
    return Command(name.lower(), data, properties)


def _unescaped(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for escape, character in escapes:
        text = text.replace(escape, character)
    return text
