"""The SQL schema of reviews, their history and their deliveries; rows to structs and back.

Columns exist only for values that are searched or change. ``body`` is written once and contains the JSON from servers,
which is read back unchanged. alembic is imported only to create or migrate the tables in SQLite (``migrations/``); in
PostgreSQL, ``postgres/migrations`` does so for the whole database.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
)

from samplegate.reviews.review import Delivery, Review, ReviewEvent, ReviewUi, Verdict, Vote
from samplegate.sqlite import Schema

VERSION: Final = "0003"
"""The newest revision in ``migrations/versions``."""
VERSION_TABLE: Final = "review_version"

METADATA: Final = MetaData()
NAME: Final = String().with_variant(String(collation="C"), "postgresql")
"""Text that is compared and sorted by its bytes in UTF-8, as SQLite does, whatever collation a database has."""
NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
"""A counter of 64 bits. SQLite has no other."""

REVIEWS: Final = Table(
    "reviews",
    METADATA,
    Column("id", NAME, primary_key=True),
    Column("lookup", NAME, nullable=False),
    Column("digest", NAME, nullable=False),
    Column("stage", NAME, nullable=False),
    Column("reviewer", NAME, nullable=False),
    Column("server", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("late", Double, nullable=False),
    Column("announced", Boolean, nullable=False),
    Column("state", NAME, nullable=False),
    Column("decided", Double),
    Column("who", NAME, nullable=False),
    Column("door", NAME),
    Column("waiter", NAME),
    Column("held_until", Double, nullable=False),
    Column("answers_until", Double),
    Column("used_by", NAME),
    Column("used", Double),
    Column("verdict", Text),
    Column("body", Text, nullable=False),  # after the others, so that SQLite reads them without it
    Column("votes", Text),
    Column("proposal", Text),
    Column("also_from", Double),
    Column("also_names", Text),
    Column("ui", Text),
    Index("reviews_lookup", "lookup", "used_by", "state", "expires"),
    Index("reviews_state_created", "state", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_created", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_state_expires", "state", "expires"),
    Index("reviews_decided", "decided"),
    Index("reviews_waiter", "waiter"),
    Index("reviews_also_from", "also_from"),
)

EVENTS: Final = Table(
    "review_events",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=False),
    Column("review", NAME, nullable=False),
    Column("at", Double, nullable=False),
    Column("what", NAME, nullable=False),
    Column("who", NAME, nullable=False),
    Column("door", NAME, nullable=False),
    Column("detail", NAME, nullable=False),
    Index("review_events_review", "review", "number"),
)

DELIVERIES: Final = Table(
    "review_deliveries",
    METADATA,
    Column("id", NAME, primary_key=True),
    Column("review", NAME, nullable=False),
    Column("reviewer", NAME, nullable=False),
    Column("event", NAME, nullable=False),
    Column("created", Double, nullable=False),
    Column("due", Double, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("state", NAME, nullable=False),
    Column("taker", NAME),
    Column("held_until", Double, nullable=False),
    Column("said", NAME, nullable=False),
    Index("review_deliveries_due", "state", "due"),
    Index("review_deliveries_review", "review"),
)

UIS: Final = Table(
    "review_uis",
    METADATA,
    Column("review", NAME, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
"""The bytes of servers' UIs, which no query of reviews reads."""

FACTS: Final = Table(
    "review_facts",
    METADATA,
    Column("name", NAME, primary_key=True),
    Column("number", NUMBER),
    Column("value", LargeBinary),
)
"""Facts about the store.

``events``: the number of the newest event. Numbers follow the order of commits, which a sequence would not guarantee.

``key``: 32 random bytes.
"""

OLDER: Final = frozenset({"0001", "0002"})
"""Versions that the migrations can upgrade."""
_one_at_a_time: Final = threading.Lock()  # alembic's env.py finds its connection in a global


def _make(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, VERSION)


SCHEMA: Final = Schema(
    version=VERSION,
    select=f"SELECT version_num FROM {VERSION_TABLE}",
    table=VERSION_TABLE,
    make=_make,
    contents="reviews",
    another="use another store",
    older=OLDER,
)

MAX_TEXT: Final = 1_000  # characters of a name or a reason in a column of its own
_FIELDS: Final = frozenset(Review.__struct_fields__)
_COLUMNS: Final = frozenset(name for name in _FIELDS if name in REVIEWS.columns)
_BODY: Final = _FIELDS - _COLUMNS
_AS_JSON: Final = ("verdict", "votes", "proposal", "ui")
"""Changing columns with JSON. NULL: the field's default."""
_DEFAULTS: Final[dict[str, Any]] = {"verdict": None, "votes": (), "proposal": None, "ui": None}
_TYPES: Final[dict[str, Any]] = {
    "verdict": Verdict,
    "votes": tuple[Vote, ...],
    "proposal": Verdict,
    "ui": ReviewUi,
}
_CHANGING: Final = (
    "lookup",
    "state",
    "decided",
    "who",
    "door",
    "waiter",
    "held_until",
    "answers_until",
    "used_by",
    "used",
)


def row(review: Review, *, announced: bool) -> dict[str, Any]:
    """All columns of a new review."""
    fixed = {name: _value(getattr(review, name)) for name in _COLUMNS - {*_AS_JSON}}
    body = json_text({name: getattr(review, name) for name in sorted(_BODY)})
    also = also_text(one.reviewer for one in review.also) if review.also else None
    changing = {name: _json_column(review, name) for name in _AS_JSON}
    return {**fixed, **changing, "announced": announced, "also_names": also, "body": body}


def also_text(names: Iterable[str]) -> str:
    """The names of reviewers as ``also_names`` has them, each as JSON and between line breaks, so that it is found."""
    return "\n".join(["", *map(json.dumps, names), ""])


def changes(before: Review, after: Review) -> dict[str, Any]:
    """The columns that differ. The request itself never changes."""
    changed = {
        name: _value(getattr(after, name)) for name in _CHANGING if getattr(before, name) != getattr(after, name)
    }
    return changed | {
        name: _json_column(after, name) for name in _AS_JSON if getattr(after, name) is not getattr(before, name)
    }


# msgspec collects the fields of a struct at its first use, and crashes if two threads do that at the same time. Reviews
# are read in two threads.
for _struct in (Review, ReviewUi, Verdict, Vote, ReviewEvent, Delivery):
    msgspec.json.Decoder(_struct)


def review(found: Row[Any]) -> Review:
    """The review in a row."""
    columns = {name: found._mapping[name] for name in _COLUMNS}
    for name, type_ in _TYPES.items():
        text = columns[name]
        columns[name] = _DEFAULTS[name] if text is None else msgspec.convert(json_value(text), type_)
    return msgspec.convert({**json_value(found.body), **columns}, Review)


def event(found: Row[Any]) -> ReviewEvent:
    """The event in a row."""
    return msgspec.convert({name: found._mapping[name] for name in ReviewEvent.__struct_fields__}, ReviewEvent)


def delivery(found: Row[Any]) -> Delivery:
    """The delivery in a row."""
    return msgspec.convert({name: found._mapping[name] for name in Delivery.__struct_fields__}, Delivery)


def json_text(value: Any) -> str:
    """JSON that decodes to the same value. Lone surrogates and NaN or infinity need the tolerant ``json`` module."""
    try:
        text = msgspec.json.encode(value).decode()
        if msgspec.json.decode(text) == msgspec.to_builtins(value):
            return text
    except (UnicodeError, msgspec.DecodeError):
        pass
    return json.dumps(msgspec.to_builtins(value))


def json_value(text: str) -> Any:
    """The value that ``json_text`` encoded, as dicts and lists."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def storable_text(text: str) -> str:
    """The text as columns and indexes can store it: at most ``MAX_TEXT`` characters, no lone surrogates, no NUL."""
    return text[:MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def storable_texts(texts: Iterable[str]) -> list[str]:
    """``storable_text`` of each text."""
    return [storable_text(text) for text in texts]


def _value(value: Any) -> Any:
    return storable_text(value) if isinstance(value, str) else value


def _json_column(of: Review, name: str) -> str | None:
    value = getattr(of, name)
    return json_text(value) if value else None
