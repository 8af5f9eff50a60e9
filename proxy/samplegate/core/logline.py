"""A line of the decision log, read back: what `replay` and `report` want of it. Written by ``record.py``; not the file."""

from __future__ import annotations

import json
import re
from typing import Final, Literal

import msgspec

from samplegate.core.eras import Era
from samplegate.core.parsing.strictjson import Fault, decode

FULL: Final = 250  # characters: a name this long may have been shortened (``record.MAX_NAME``)
_time: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z\Z")


class During(msgspec.Struct, frozen=True):
    """A call of the client's during which it was asked."""

    method: str
    tool: str | None = None


class Try(msgspec.Struct, frozen=True):
    """One call of one model."""

    model: str
    result: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    """As settled; None where its price is unknown."""


class Line(msgspec.Struct, frozen=True):
    """One record. What it does not say is None or empty; members that are not known here are left aside."""

    decision_id: str
    time: str
    """RFC 3339 in UTC; two of them compare as text."""
    server: str
    caller: str
    era: Era
    revision: str
    door: str
    kind: Literal["sampling", "elicitation"]
    effect: str
    reason: str
    outcome: str
    mode: Literal["form", "url"] | None = None
    calls: tuple[During, ...] = ()
    rule: str | None = None
    tried: tuple[str, ...] = ()
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_ms: float | None = None
    action: str | None = None
    decided_by: str | None = None
    attempts: tuple[Try, ...] = ()
    cost_usd: float | None = None
    limits: tuple[str, ...] = ()
    refused_by: str | None = None
    redacted: dict[str, int] = {}
    review: str | None = None
    reviewer: str | None = None
    review_door: str | None = None
    """By what way a person decided; None where nobody has."""
    reviewed_ms: float | None = None
    revokes: bool = False
    """It revokes the record before of the same ``decision_id``."""
    request: msgspec.Raw = msgspec.Raw(b"")
    """The params as JSON, empty where the log was not to keep contents."""
    result: msgspec.Raw = msgspec.Raw(b"")


_DECODER: Final = msgspec.json.Decoder(Line)


def read(line: bytes) -> Line | str:
    """The record in a line, or why it holds none; the sentence names members, never values."""
    try:
        found = _decoded(line)
    except msgspec.ValidationError as problem:
        return f"is no record of a decision log: {str(problem)[:200]}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Fault):
        return "is not JSON"
    return found if _time.match(found.time) else "is no record of a decision log: its time is not in UTC"


def _decoded(line: bytes) -> Line:
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _DECODER.decode(json.dumps(decode(line)).encode())  # halves of characters, which a log keeps as escapes
