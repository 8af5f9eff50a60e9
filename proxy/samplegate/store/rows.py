"""A review as a row and back. Bodies hold whatever JSON servers send: all of it comes back as it went in. Not the tables: ``schema.py``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import Row

from samplegate.core.review.review import Delivery, Event, Review, Verdict
from samplegate.store.schema import REVIEWS

MOST_TEXT: Final = 1_000  # characters of a name or a reason in a column of its own
_FIELDS: Final = frozenset(Review.__struct_fields__)
_COLUMNS: Final = frozenset(name for name in _FIELDS if name in REVIEWS.columns)
_BODY: Final = _FIELDS - _COLUMNS
_CHANGING: Final = ("state", "decided", "who", "door", "waiter", "held_until", "answers_until", "used_by", "used")


def row(review: Review, *, announced: bool) -> dict[str, Any]:
    """All columns of a new review."""
    fixed = {name: _value(getattr(review, name)) for name in _COLUMNS - {"verdict"}}
    body = json_text({name: getattr(review, name) for name in sorted(_BODY)})
    return {**fixed, "verdict": _verdict(review), "announced": announced, "body": body}


def changes(before: Review, after: Review) -> dict[str, Any]:
    """The columns that differ. What was asked never does."""
    changed = {name: _value(getattr(after, name)) for name in _CHANGING if getattr(before, name) != getattr(after, name)}
    return changed if after.verdict is before.verdict else {**changed, "verdict": _verdict(after)}


def review(found: Row[Any]) -> Review:
    """The review that a row says."""
    columns = {name: found._mapping[name] for name in _COLUMNS}
    verdict = None if columns["verdict"] is None else msgspec.convert(json_value(columns["verdict"]), Verdict)
    return msgspec.convert({**json_value(found.body), **columns, "verdict": verdict}, Review)


def event(found: Row[Any]) -> Event:
    """The event that a row says."""
    return msgspec.convert({name: found._mapping[name] for name in Event.__struct_fields__}, Event)


def delivery(found: Row[Any]) -> Delivery:
    """The delivery that a row says."""
    return msgspec.convert({name: found._mapping[name] for name in Delivery.__struct_fields__}, Delivery)


def json_text(value: Any) -> str:
    """JSON that reads as the same value again. Half characters and numbers that are none go the way of a tolerant writer."""
    try:
        text = msgspec.json.encode(value).decode()
        if msgspec.json.decode(text) == msgspec.to_builtins(value):
            return text
    except (UnicodeError, msgspec.DecodeError):
        pass
    return json.dumps(msgspec.to_builtins(value))


def json_value(text: str) -> Any:
    """What ``json_text`` was given, as dicts and lists."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def plain(text: str) -> str:
    """As a column may hold it and an index look for it: bounded, no halves of characters, no NUL, which no database takes."""
    return text[:MOST_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def plains(texts: Iterable[str]) -> list[str]:
    """The same for several."""
    return [plain(text) for text in texts]


def _value(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _verdict(of: Review) -> str | None:
    return None if of.verdict is None else json_text(of.verdict)
