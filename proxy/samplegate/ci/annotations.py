"""Pure. GitHub's workflow commands: annotations of files and lines, and lines that the runner takes for no command.

The runner reads a command from each line that starts with ``::`` after white space, and from ``##[`` anywhere in a
line, on stdout and stderr.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from samplegate.printable import printable, without_hashes

Level: TypeAlias = Literal["error", "warning", "notice"]

MOST: Final = 10
"""Annotations of a level that GitHub shows for a step."""
MAX_MESSAGE: Final = 4_000  # characters; the runner cuts at 4,096
MAX_TITLE: Final = 255  # GitHub's limit

RUNNERS: Final = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
"""Variables of CI systems that read commands from output: GitHub Actions (and Gitea, Forgejo), Azure Pipelines and
TeamCity."""

_START: Final = re.compile(r"\A([^!-~]*):(?=[^!-~]*:)")
"""The first colon of ``::``, with nothing visible before it. The runner ignores some characters outside of ASCII, so
all count as invisible."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A message that GitHub shows in the summary of a run, and at a line if it knows the file."""

    level: Level
    message: str
    title: str = ""
    file: str | None = None
    """Path below the workspace, with ``/``. None for a file outside of it."""
    line: int | None = None
    column: int | None = None


def annotation_lines(annotations: Iterable[Annotation]) -> list[str]:
    """A workflow command for each annotation, in order, but at most ``MOST`` of each level: of more, the last one tells
    how many are left out."""
    found = list(annotations)
    total: Counter[Level] = Counter(one.level for one in found)
    seen: Counter[Level] = Counter()
    lines: list[str] = []
    for one in found:
        seen[one.level] += 1
        if seen[one.level] < MOST or total[one.level] == MOST == seen[one.level]:
            lines.append(_command(one))
    lines += [
        _command(Annotation(level, f"{number - MOST + 1} more annotations of this level; the log has all of them"))
        for level, number in total.items()
        if number > MOST
    ]
    return lines


def reads_commands(environ: Mapping[str, str]) -> bool:
    """Whether this is a job of a CI system that takes some lines of its output for commands."""
    return any(environ.get(name) for name in RUNNERS)


def inert(line: str) -> str:
    """One line of output that a CI runner takes for no command: unprintable characters, ``##`` and ``::`` at its start
    are escaped."""
    return without_hashes(_START.sub(r"\1\\x3a", printable(line)))


def _command(one: Annotation) -> str:
    properties = ",".join(f"{name}={_property(value)}" for name, value in _properties(one))
    message = _escaped(_cut(one.message, MAX_MESSAGE, keep="\n"))
    return f"::{one.level}{' ' if properties else ''}{properties}::{message}"


def _properties(one: Annotation) -> Iterator[tuple[str, str]]:
    if one.file and one.file.isprintable():  # otherwise escaping would name another file
        yield "file", one.file
        if one.line is not None:
            yield "line", str(one.line)
            if one.column is not None:
                yield "col", str(one.column)
    if title := _cut(one.title, MAX_TITLE).strip():
        yield "title", title


def _cut(text: str, most: int, keep: str = "") -> str:
    shown = without_hashes(printable(text[: most + 1], keep=keep))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
