"""Pure. The changes of a file as a unified diff of its changed lines, without secrets.

A diff stays in the log of a terminal or a CI job. So it shows only the entries that change, and of these only values
that are no secrets: commands, arguments, URLs and types.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from samplegate.clients.document import Document, Edit, Entry, Member, Span, applied
from samplegate.clients.plan import Plan, Source, servers
from samplegate.secret_names import REMOVED, looks_secret

SHOWN: Final = frozenset({"command", "args", "url", "serverUrl", "httpUrl", "type", "cwd", "disabled", "enabled"})
"""Members whose values are shown."""
_assigned: Final = re.compile(r"-{0,2}([^=\s]+)=.")
_credentials: Final = re.compile(r"://[^/@\s]+@")


def diff_lines(file: str, plan: Plan, source: Source) -> Iterator[str]:
    """The lines of the diff. Empty without changes."""
    new = {entry.pointer: entry for entry in servers(plan.after, source)}
    if plan.changes:
        yield from (f"--- {file}", f"+++ {file}")
    for change in plan.changes:
        old_lines, old_at = _lines(plan.before, change.entry)
        new_lines, new_at = _lines(plan.after, new[change.entry.pointer])
        for line in difflib.unified_diff(old_lines, new_lines, n=0, lineterm=""):
            if line.startswith("@@"):
                yield f"{_moved(line, old_at, new_at)} {change.entry.pointer}"
            elif not line.startswith(("---", "+++")) or line[3:4] not in ("", " "):
                yield line


_range: Final = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def _moved(line: str, old: int, new: int) -> str:
    """The head of a hunk, with line numbers of the file."""
    found = _range.match(line)
    assert found is not None
    return f"@@ -{int(found[1]) + old}{found[2]} +{int(found[3]) + new}{found[4]} @@"


def _lines(document: Document, entry: Entry) -> tuple[list[str], int]:
    """The lines of an entry without secrets, and the number of lines before them."""
    text, span = document.text, entry.span
    start = span.start - (len(text[: span.start]) - len(text[: span.start].rstrip(" \t")))
    hidden = [
        Edit(place.start - start, place.end - start, document.quote(REMOVED))
        for place in _secrets(entry.members)
        if start <= place.start and place.end <= span.end
    ]
    rest = text[span.end :].partition("\n")[0].rstrip("\r")
    end = span.end + (len(rest) if rest.strip(" \t,")[:1] in ("#", "/", "") else 0)
    return applied(text[start:end], hidden).splitlines(), text.count("\n", 0, start)


def _secrets(members: Mapping[str, Member]) -> Iterator[Span]:
    for name, member in members.items():
        if name == "args" or (name == "command" and member.items):
            yield from _secret_words(member)
        elif name not in SHOWN:
            yield from _leaves(member)


def _leaves(member: Member) -> Iterator[Span]:
    if member.members:
        for inner in member.members.values():
            yield from _leaves(inner)
    elif isinstance(member.plain, str) or member.items:
        yield member.value


def _secret_words(member: Member) -> Iterator[Span]:
    """Arguments that seem to be secrets: after an option with such a name, or assigned to such a name."""
    words: Sequence[object] = member.plain if isinstance(member.plain, list) else []
    before = ""
    for word, place in zip(words, member.items, strict=False):
        if not isinstance(word, str):
            continue
        assigned = None if before == "--header-env" else _assigned.match(word)
        if (
            (before.startswith("-") and "=" not in before and not word.startswith("-") and looks_secret(before))
            or (assigned is not None and looks_secret(assigned[1]))
            or _credentials.search(word)
        ):
            yield place
        before = word
