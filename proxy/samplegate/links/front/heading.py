"""A request's headers, gathered once: what it sends, what it takes, which session and revision it names. Nothing of
2026-07-28's mirrors (core)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from samplegate.transport.http_server.http import Reply, refusal

Found: TypeAlias = dict[bytes, bytes]

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
LAST_EVENT: Final = b"last-event-id"
_SINGLE: Final = frozenset({SESSION, LAST_EVENT, b"content-type", b"content-length"})
"""Two of these, and another reader would see another request."""
_trace: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[ -~]{0,200})?"
)


def gathered(headers: Sequence[tuple[bytes, bytes]]) -> tuple[Found, frozenset[bytes]]:
    """Headers by name (ASGI gives names in lower case), and the names that stand more than once; of those the last
    value counts."""
    found = dict(headers)
    if len(found) == len(headers):
        return found, frozenset()
    names = [name for name, _ in headers]
    twice = frozenset(name for name in found if names.count(name) > 1)
    if b"accept" in twice:
        found[b"accept"] = b",".join(value for name, value in headers if name == b"accept")
    return found, twice


@lru_cache(maxsize=256)
def accepted(accept: bytes) -> tuple[bool, bool]:
    """Whether an Accept header takes JSON and event streams, with its wildcards; ``q=0`` says no."""
    types = set()
    for entry in accept.lower().split(b","):
        kind, *parameters = (part.strip() for part in entry.split(b";"))
        if not any(re.fullmatch(rb"q=0(?:\.0*)?", parameter) for parameter in parameters):
            types.add(kind)
    every = b"*/*" in types
    return every or bool(types & {b"application/json", b"application/*"}), every or bool(
        types & {b"text/event-stream", b"text/*"}
    )


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether a Content-Type is JSON, in UTF-8 if it says in what."""
    kind, *parameters = (part.strip() for part in content_type.lower().split(b";"))
    charsets = [
        value.strip(b'"')
        for name, _, value in (parameter.partition(b"=") for parameter in parameters)
        if name.strip() == b"charset"
    ]
    return kind == b"application/json" and all(charset in (b"utf-8", b"utf8", b"us-ascii") for charset in charsets)


def post_fault(found: Found, twice: frozenset[bytes]) -> Reply | None:
    """Why a POST with these headers is not read, if so (R93: both forms of an answer must be taken)."""
    fault = _single(twice)
    if fault is not None:
        return fault
    if not is_json(found.get(b"content-type", b"")):
        return refusal(415, "content_type", "the Content-Type is not application/json")
    json, stream = accepted(found.get(b"accept", b"*/*"))
    if not (json and stream):
        return refusal(406, "accept", "the Accept header must list application/json and text/event-stream")
    return None


def get_fault(found: Found, twice: frozenset[bytes]) -> Reply | None:
    """The same for a GET, which is answered by a stream."""
    fault = _single(twice)
    if fault is not None or accepted(found.get(b"accept", b"*/*"))[1]:
        return fault
    return refusal(406, "accept", "the Accept header must list text/event-stream")


def _single(twice: frozenset[bytes]) -> Reply | None:
    double = sorted(twice & _SINGLE)
    return refusal(400, "header", f"the header {double[0].decode()} stands more than once") if double else None


def text(value: bytes | None) -> str | None:
    """A header's value as text."""
    return None if value is None else value.decode("latin-1").strip(" \t")


def traceparent(value: str | None) -> str:
    """A trace context that is one by its form (W3C), else empty: whatever stands in logs is bounded and plain."""
    return value if value is not None and _trace.fullmatch(value) else ""
