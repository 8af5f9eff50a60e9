"""Pure. JSON and JSONC files of clients: their servers with positions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from samplegate.clients import jsonc
from samplegate.clients.document import MAX_SERVERS, Edit, Entry, Key, Member, Span, applied, pointer
from samplegate.clients.faults import FileFault, quoted

_CONTROL: Final = {0x7F: "\\u007f"}


class JsonDocument:
    """A JSON or JSONC file."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = jsonc.parse(text)

    def entries(self, key: Key) -> Sequence[Entry] | None:
        """As in ``Document``."""
        found = list(self._mappings(self.root, key, ()))
        if not found:
            return None
        entries = [self._entry(place, name, member) for place, node in found for name, member in node.members.items()]
        if len(entries) > MAX_SERVERS:
            raise FileFault(f"the file has {len(entries)} servers; the most is {MAX_SERVERS}")
        return entries

    def _mappings(self, node: jsonc.Node, key: Key, place: Key) -> Iterator[tuple[Key, jsonc.Object]]:
        if not isinstance(node, jsonc.Object):
            if place and not key and isinstance(node, jsonc.Scalar) and self.text[node.start : node.end] == "null":
                return
            name = f"key {quoted(pointer(place)[1:])}" if place else "the file"
            raise FileFault(f"{name} is not an object", jsonc.place(self.text, node.start))
        if not key:
            yield place, node
            return
        for name in node.members if key[0] == "*" else key[:1]:
            if name in node.members:
                yield from self._mappings(node.members[name].value, key[1:], (*place, name))

    def _entry(self, key: Key, name: str, member: jsonc.Member) -> Entry:
        members = member.value.members if isinstance(member.value, jsonc.Object) else {}
        return Entry(
            key,
            name,
            jsonc.plain(self.text, member.value),
            {name: self._member(name, inner) for name, inner in members.items()},
            Span(member.key_start, member.value.end),
        )

    def _member(self, name: str, member: jsonc.Member) -> Member:
        value = member.value
        return Member(
            name,
            Span(member.key_start, member.key_end),
            Span(value.start, value.end),
            jsonc.plain(self.text, value),
            tuple(Span(item.start, item.end) for item in value.items) if isinstance(value, jsonc.Array) else (),
            {name: self._member(name, inner) for name, inner in value.members.items()}
            if isinstance(value, jsonc.Object)
            else {},
        )

    def others(self, entries: Sequence[Entry]) -> Any:
        """As in ``Document``: the text around the entries."""
        return applied(self.text, [Edit(entry.span.start, entry.span.end, "") for entry in entries])

    def quote(self, text: str) -> str:
        """As in ``Document``."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return json.dumps(text)
        return json.dumps(text, ensure_ascii=False).translate(_CONTROL)

    def key(self, name: str) -> str:
        """As in ``Document``."""
        return self.quote(name)

    def pair(self, like: Member, name: str, value: str) -> Edit:
        """As in ``Document``: on a line of its own if the other member is."""
        before = self.text[: like.key.start]
        line = before[len(before.rstrip(" \t")) :]
        rest = before.rstrip(" \t")
        gap = " "
        if rest.endswith("\n"):
            gap = ("\r\n" if rest.endswith("\r\n") else "\n") + line
        colon = self.text[like.key.end : like.value.start]
        colon = colon if not colon.strip(" :") else ": "
        if gap == " " and not colon.endswith(" "):
            gap = ""
        return Edit(like.value.end, like.value.end, f",{gap}{self.quote(name)}{colon}{value}")

    def without(self, entry: Entry, member: Member) -> Edit:
        """As in ``Document``: with the comma before it, or else the one after it."""
        order = sorted(entry.members.values(), key=lambda one: one.key.start)
        at = order.index(member)
        before = order[at - 1] if at else None
        after = order[at + 1] if at + 1 < len(order) else None
        if before is not None and (
            after is None or not self.text[before.value.end : member.key.start].strip(", \t\r\n")
        ):
            return Edit(before.value.end, member.value.end, "")
        return Edit(member.key.start, member.value.end if after is None else after.key.start, "")
