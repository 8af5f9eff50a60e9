"""Pure. What `wrap` or `unwrap` does to one file: the state of every server, the changes and the new text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from samplegate.clients.document import Document, Entry, Format, Key
from samplegate.clients.faults import FileFault
from samplegate.clients.formats import read
from samplegate.clients.gate_call import Gate
from samplegate.clients.wrapper import (
    Change,
    Open,
    Rules,
    Skipped,
    State,
    Wrapped,
    changed,
    selected,
    slice_of,
    state_of,
    unwrap_change,
    wrap_change,
    written,
)


class Record(msgspec.Struct, frozen=True):
    """What the journal keeps of a wrapped server."""

    pointer: str
    original: str
    """The text that was replaced. May contain secrets."""
    original_sha256: str
    written_sha256: str
    """Hash of the text that replaced it."""


@dataclass(frozen=True)
class Row:
    """A server in a file and its state. ``state`` is the one before the change."""

    entry: Entry
    state: State
    change: Change | None = None
    refused: str = ""
    """Why a wrapped server cannot be unwrapped."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a file is read."""

    format: Format
    keys: tuple[Key, ...]
    """Where servers are. The last key with servers is used only if no earlier one exists, if it is empty."""
    rules: Rules


@dataclass(frozen=True)
class Plan:
    """The servers of a file, and its text before and after the changes."""

    before: Document
    after: Document
    rows: tuple[Row, ...] = ()
    records: tuple[Record, ...] = field(default=(), repr=False)
    """For `unwrap`, the records that are used up."""

    @property
    def changes(self) -> list[Change]:
        """The changes, in the order of the rows."""
        return [row.change for row in self.rows if row.change is not None]


def sha256(text: str) -> str:
    """Hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def servers(document: Document, source: Source) -> list[Entry]:
    """The servers of a file. Raises FileFault."""
    found: list[Entry] = []
    for key in source.keys:
        if key or not found:
            entries = document.entries(key) or ()
            if not key and not all(isinstance(one.plain, dict) and _is_server(one) for one in entries):
                continue  # some other file, not a flat mapping of servers
            found += entries
    return found


def _is_server(entry: Entry) -> bool:
    return "command" in entry.plain or "url" in entry.plain


def survey(data: bytes, source: Source) -> list[Row]:
    """The servers of a file and their states. Raises FileFault."""
    document = read(data, source.format)
    return [Row(entry, state_of(entry, source.rules)) for entry in servers(document, source)]


def wrap(data: bytes, source: Source, gate: Gate, only: Sequence[str] = ()) -> Plan:
    """Put the gate before the servers of a file. Raises FileFault."""
    document = read(data, source.format)
    rows: list[Row] = []
    for entry in servers(document, source):
        state = state_of(entry, source.rules)
        if not selected(entry.name, only):
            continue
        change = wrap_change(document, entry, state, gate, source.rules) if isinstance(state, Open) else None
        rows.append(Row(entry, change) if isinstance(change, Skipped) else Row(entry, state, change))
    after = _after(document, source, rows)
    new_entries = {entry.pointer: entry for entry in servers(after, source)}
    records = []
    for change in (row.change for row in rows):
        if change is not None:
            original = document.text[slice_of(change.span)]
            new = written(after, change, new_entries.get(change.entry.pointer), source.rules)
            records.append(Record(change.entry.pointer, original, sha256(original), sha256(new)))
    return Plan(document, after, tuple(rows), tuple(records))


def unwrap(data: bytes, source: Source, journal: Sequence[Record], only: Sequence[str] = ()) -> Plan:
    """Remove the gate from the servers of a file: with the journal's original text, else by the structure of the entry.
    Raises FileFault."""
    document = read(data, source.format)
    rows: list[Row] = []
    used: list[Record] = []
    for entry in servers(document, source):
        state = state_of(entry, source.rules)
        if not selected(entry.name, only):
            continue
        change: Change | Skipped | None = None
        if isinstance(state, Wrapped):
            change = unwrap_change(document, entry, state.call, source.rules, _finder(journal, entry, used))
        if isinstance(change, Skipped):
            rows.append(Row(entry, state, refused=change.reason))
        else:
            rows.append(Row(entry, state, change))
    after = _after(document, source, rows)
    new_entries = {entry.pointer: entry for entry in servers(after, source)}
    for row in rows:
        if row.change is not None:
            found = new_entries.get(row.entry.pointer)
            if found is None or isinstance(state_of(found, source.rules), Wrapped):
                raise FileFault(f"server {row.entry.pointer} cannot be unwrapped; restore it by hand")
            if not row.change.exact and found.plain != row.change.plain:
                raise FileFault(
                    f"server {row.entry.pointer} is written in a way that cannot be edited; restore it by hand"
                )
    return Plan(document, after, tuple(rows), tuple(used))


def _finder(journal: Sequence[Record], entry: Entry, used: list[Record]) -> Callable[[str], str | None]:
    def original(text: str) -> str | None:
        hashed = sha256(text)
        for record in reversed(journal):
            if (record.pointer, record.written_sha256) == (entry.pointer, hashed) and record.original_sha256 == sha256(
                record.original
            ):
                used.append(record)
                return record.original
        return None

    return original


def _after(document: Document, source: Source, rows: Sequence[Row]) -> Document:
    """The file after the changes. Raises FileFault if anything else would change, too."""
    changes = [row.change for row in rows if row.change is not None]
    if not changes:
        return document
    after = read(changed(document, changes).encode("utf-8", "surrogatepass"), source.format)
    pointers = {change.entry.pointer for change in changes}
    old, new = servers(document, source), servers(after, source)
    mine = [[one for one in entries if one.pointer in pointers] for entries in (old, new)]
    theirs = [{one.pointer: one.plain for one in entries if one.pointer not in pointers} for entries in (old, new)]
    if theirs[0] != theirs[1] or document.others(mine[0]) != after.others(mine[1]):
        raise FileFault("its servers are written in a way that cannot be edited; edit it by hand")
    return after
