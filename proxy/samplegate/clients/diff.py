"""Pure. The changes of a file as a unified diff of its changed lines, without secrets.

A diff stays in the log of a terminal or a CI job. So it shows only the entries that change, and of these only values
that are no secrets: commands, arguments, URLs and types.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from samplegate.clients.document import Document, Edit, Entry, Member, Span, applied
from samplegate.clients.plan import Plan, Source, servers
from samplegate.secret_names import REMOVED, looks_secret

SHOWN: Final = frozenset({"command", "args", "url", "serverUrl", "httpUrl", "type", "cwd", "disabled", "enabled"})
"""Members whose values are shown."""
TAB: Final = 4
"""Columns of a tab, which the output of commands would escape."""
MAX_INDENT: Final = 200
"""Characters before an entry on its line that are shown."""
MAX_ARGUMENT: Final = 2_000
"""Characters of an argument that is shown."""
_assigned: Final = re.compile(r"(?<![^=:\s&?;,])([^=:\s&?;,]++)(?=\s*[=:]\s*\S)")
_SECRET_OPTIONS: Final = frozenset({"-H", "--header", "--headers", "--key", "--auth", "--cred", "--creds", "--dsn"})
_key_like: Final = re.compile(r"(?<![\w.~+-])(?=[\w.~+-]*[0-9])(?=[\w.~+-]*[A-Za-z])[\w.~+-]{20,}", re.ASCII)
_OURS: Final = frozenset({"--policy", "--server"})
"""Our options whose values are names and paths."""
_credentials: Final = re.compile(r"://[^/@\s]+@")


def diff_lines(file: str, plan: Plan, source: Source) -> Iterator[str]:
    """The lines of the diff. Empty without changes."""
    new = {entry.pointer: entry for entry in servers(plan.after, source)}
    if plan.changes:
        yield from (f"--- {file}", f"+++ {file}")
    for change in plan.changes:
        old_lines, old_at = _lines(plan.before, change.entry)
        new_lines, new_at = _lines(plan.after, new[change.entry.pointer])
        for line in islice(difflib.unified_diff(old_lines, new_lines, n=0, lineterm=""), 2, None):
            if line.startswith("@@"):
                yield f"{_moved(line, old_at, new_at)} {change.entry.pointer}"
            else:
                yield line[0] + line[1:].expandtabs(TAB)


_range: Final = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def _moved(line: str, old: int, new: int) -> str:
    """The head of a hunk, with line numbers of the file."""
    found = _range.match(line)
    assert found is not None
    return f"@@ -{int(found[1]) + old}{found[2]} +{int(found[3]) + new}{found[4]} @@"


def _lines(document: Document, entry: Entry) -> tuple[list[str], int]:
    """The lines of an entry without secrets, and the number of lines before them."""
    text, span = document.text, entry.span
    start = max(text.rfind("\n", 0, span.start) + 1, span.start - MAX_INDENT)
    start = span.start if text[start : span.start].strip(" \t") else start
    hidden = [
        Edit(place.start - start, place.end - start, document.quote(REMOVED))
        for place in _secrets(entry.members)
        if start <= place.start and place.end <= span.end
    ]
    line_end = text.find("\n", span.end, span.end + MAX_ARGUMENT)
    rest = text[span.end : line_end if line_end >= 0 else span.end + MAX_ARGUMENT].rstrip("\r")
    end = span.end + (len(rest) if rest.strip(" \t,")[:1] in ("#", "/", "") else 0)
    lines = applied(text[start:end], hidden).split("\n")
    return [line.removesuffix("\r") for line in lines], text.count("\n", 0, start)


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
    """Arguments that seem to be secrets or to contain one: by the option before, by a name within, or because they look
    like a key."""
    words: Sequence[object] = member.plain if isinstance(member.plain, list) else []
    before = ""
    for word, place in zip(words, member.items, strict=False):
        if not isinstance(word, str):
            continue
        if before not in _OURS and before != "--header-env" and (_follows_secret(before) or _has_secret(word)):
            yield place
        before = word


def _follows_secret(option: str) -> bool:
    return option in _SECRET_OPTIONS or (option.startswith("-") and "=" not in option and looks_secret(option))


def _has_secret(word: str) -> bool:
    return (
        len(word) > MAX_ARGUMENT
        or any(name in _SECRET_OPTIONS or looks_secret(name) for name in _assigned.findall(word))
        or _credentials.search(word) is not None
        or _key_like.search(word) is not None
    )
