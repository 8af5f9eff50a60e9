"""Members cut out of one JSON object, or put in, in one go; the rest stays byte for byte. Not a decoder: ``jsontext.py`` finds the members."""

from __future__ import annotations

from collections.abc import Set

from samplegate.core.jsontext import members


def cut(text: bytes, names: Set[str]) -> bytes:
    """``text`` without the members of these names. Raises jsontext.Malformed for no object, or one of two readings."""
    at = members(text)
    if names.isdisjoint(at):
        return text
    start = end = text.index(b"{") + 1
    view, kept = memoryview(text), list[bytes | memoryview]()  # a large result is copied once
    for name, member in at.items():
        begin = end if end == start else text.index(b",", end) + 1
        end = member.end
        if name not in names:
            kept += (view[begin:end], b",")
    return b"".join((view[:start], *kept[:-1], view[end:]))


def inserted(text: bytes, more: bytes) -> bytes:
    """An object with more members (raw, at least one, without braces) behind its own, of which it must have none."""
    close = text.rindex(b"}")
    head = text[:close].rstrip(b" \t\r\n")
    return head + (b"" if head.endswith(b"{") else b",") + more + text[close:]
