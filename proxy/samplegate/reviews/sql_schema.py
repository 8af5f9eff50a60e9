"""The SQL schema of reviews, their history and their deliveries; rows to structs and back; the database by its URL.

Columns exist only for values that are searched or change. ``body`` is written once and contains the JSON from servers,
which is read back unchanged. The tables are not specific to SQLite. alembic is imported only to create or migrate them
(``migrations/``).

SQLite is the only database so far. A commit is on the disk when it returns, because a verdict costs a reviewer's time
and its use must not be forgotten. Overwritten and deleted content is erased from the file, because forms may contain
secrets. Failures raise Unavailable with a message for the operator.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
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

from samplegate.errors import Unavailable
from samplegate.reviews.review import Delivery, Review, ReviewEvent, Verdict
from samplegate.sqlite import CoreFile, Schema, SqliteFault

VERSION: Final = "0001"
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
    Column("body", Text, nullable=False),  # the last column, so that SQLite reads the others without it
    Index("reviews_lookup", "lookup", "used_by", "state", "expires"),
    Index("reviews_state_created", "state", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_created", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_state_expires", "state", "expires"),
    Index("reviews_decided", "decided"),
    Index("reviews_waiter", "waiter"),
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

OLDER: Final = frozenset[str]()
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
_CHANGING: Final = ("state", "decided", "who", "door", "waiter", "held_until", "answers_until", "used_by", "used")


def row(review: Review, *, announced: bool) -> dict[str, Any]:
    """All columns of a new review."""
    fixed = {name: _value(getattr(review, name)) for name in _COLUMNS - {"verdict"}}
    body = json_text({name: getattr(review, name) for name in sorted(_BODY)})
    return {**fixed, "verdict": _verdict(review), "announced": announced, "body": body}


def changes(before: Review, after: Review) -> dict[str, Any]:
    """The columns that differ. The request itself never changes."""
    changed = {
        name: _value(getattr(after, name)) for name in _CHANGING if getattr(before, name) != getattr(after, name)
    }
    return changed if after.verdict is before.verdict else {**changed, "verdict": _verdict(after)}


# msgspec collects the fields of a struct at its first use, and crashes if two threads do that at the same time. Reviews
# are read in two threads.
for _struct in (Review, Verdict, ReviewEvent, Delivery):
    msgspec.json.Decoder(_struct)


def review(found: Row[Any]) -> Review:
    """The review in a row."""
    columns = {name: found._mapping[name] for name in _COLUMNS}
    verdict = None if columns["verdict"] is None else msgspec.convert(json_value(columns["verdict"]), Verdict)
    return msgspec.convert({**json_value(found.body), **columns, "verdict": verdict}, Review)


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


def _verdict(of: Review) -> str | None:
    return None if of.verdict is None else json_text(of.verdict)


PATIENCE: Final = 5.0  # seconds that a transaction waits for those of other processes, which take milliseconds


def path_of(url: str) -> Path:
    """The file in ``sqlite:PATH``.

    Raises Unavailable for another scheme. The message contains only the scheme, because the URL may contain a password.
    """
    kind, colon, rest = url.partition(":")
    if kind != "sqlite":
        found = f"unknown kind {kind[:40]!r}" if colon else "it has no kind"
        raise Unavailable(f"store: {found}; write sqlite:PATH")
    if not rest:
        raise Unavailable("store: it has no path; write sqlite:PATH")
    return Path(rest).expanduser()


class OutcomeUnknown(Unavailable):
    """A transaction failed at its commit, so it may have been committed."""


class Database:
    """The database file. Its first transaction opens it, as does the first after a fault or a change of the file.

    For one thread at a time.
    """

    def __init__(self, url: str, *, make: bool = True, clock: Callable[[], float] | None = None) -> None:
        self.path = path_of(url)
        self.clock = clock or time.time
        missing = "" if make else "pass the gate's store with --store"
        self._file = CoreFile(self.path, SCHEMA, pragmas=("synchronous=FULL", "secure_delete=ON"), missing=missing)
        self.scrub = self._file.checkpoint
        self.close = self._file.close
        self.until: float | None = None
        """The deadline for a lock, on ``time.monotonic``; None: ``PATIENCE`` for each transaction.

        The lock is tried at least once.
        """

    def now(self, _db: Connection) -> float:
        """The database's time within a transaction, which has its locks by then if it writes. In Unix seconds. SQLite
        has no clock of its own, so it is this machine's."""
        return self.clock()

    def exists(self) -> bool:
        """Whether the database file exists."""
        return self.path.exists()

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        """A write transaction, alone in the file, committed unless the block raises. Raises Unavailable."""
        return self._transaction("BEGIN IMMEDIATE")

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """A read transaction, which sees one state of the file. Raises Unavailable."""
        return self._transaction("BEGIN")

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        until = time.monotonic() + PATIENCE if self.until is None else self.until
        try:
            with self._file.core(lambda: until - time.monotonic(), begin) as connection:
                yield connection
        except SqliteFault as problem:
            fault = Unavailable if problem.undone else OutcomeUnknown
            raise fault(f"review store {self.path}: {problem}") from problem
