"""Maintenance of the shared database by the role that owns its tables: migrations, rights, and the decision log's
partitions; and the check for standbys that may lose what was confirmed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from samplegate.errors import Unavailable
from samplegate.postgres import schema
from samplegate.postgres.connection import options
from samplegate.postgres.faults import PostgresFault, fault_of
from samplegate.postgres.url import shown

DAYS_AHEAD: Final = 14
"""Days for which partitions are made, so that some missed runs lose nothing. Records of other days have a partition of
their own, from which the next run moves them."""
OTHER: Final = "decisions_other"
LOCK_TIMEOUT: Final = 1.0  # seconds; gates wait three for their locks
TRIES: Final = 5
PAUSE: Final = 2.0  # seconds between two tries, in which gates write
ASYNCHRONOUS: Final = (
    "a standby is connected, but synchronous_standby_names is empty: after a failover, decisions, charges and used"
    " verdicts of the last moments may be lost, and a verdict may be released twice"
)

_STANDBYS: Final = (
    "SELECT count(*) FROM pg_stat_replication WHERE application_name NOT IN ('pg_basebackup', 'pg_receivewal')"
)
_PARTITIONS: Final = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = 'samplegate.decisions'::regclass"
)
_LATE_DAYS: Final = "SELECT DISTINCT left(time, 10) FROM samplegate.decisions_other"


class Maintained(NamedTuple):
    """What was done: the tables' versions before and after it, the numbers of partitions, and a warning about
    standbys."""

    before: str | None
    after: str
    made: int
    dropped: int
    left: int
    """Partitions that were to be made or dropped, and were not."""
    standby: str | None


def maintain(url: str, *, gates: str | None, readers: str | None, keep_days: int | None) -> Maintained:
    """Create or migrate the tables, grant rights to two roles, make the partitions of the next days, and drop those of
    days before the last ``keep_days``. Raises Unavailable."""
    with _connected(url) as db:
        schema.check_encoding(db)
        before, after = schema.migrate(db, gates=gates, readers=readers)
        (today,) = db.execute("SELECT (now() AT TIME ZONE 'UTC')::date").fetchone() or (datetime.now(UTC).date(),)
        return Maintained(before, after, *_partition(db, today, keep_days), standby_warning(db))


def standby_warning(db: psycopg.Connection) -> str | None:
    """A warning if a standby is connected that need not confirm commits. Raises psycopg.Error."""
    (names,) = db.execute("SHOW synchronous_standby_names").fetchone() or ("",)
    (standbys,) = db.execute(_STANDBYS).fetchone() or (0,)
    return ASYNCHRONOUS if standbys and not names.strip() else None


@contextlib.contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection]:
    try:
        with contextlib.closing(
            psycopg.connect(**options(url), autocommit=True, prepare_threshold=None)  # type: ignore[arg-type]
        ) as db:
            yield db
    except (psycopg.Error, OSError, PostgresFault) as problem:
        raise Unavailable(f"database {shown(url)}: {fault_of(problem)}") from problem


def _partition(db: psycopg.Connection, today: date, keep_days: int | None) -> tuple[int, int, int]:
    """Make and drop partitions. Returns how many, and how many are left."""
    found = {name for (name,) in db.execute(_PARTITIONS).fetchall()}
    wanted = {today + timedelta(days=number) for number in range(DAYS_AHEAD + 1)}
    wanted |= {date.fromisoformat(day) for (day,) in db.execute(_LATE_DAYS).fetchall()}
    missing = [day for day in sorted(wanted) if _name(day) not in found]
    oldest = None if keep_days is None else _name(today - timedelta(days=keep_days))
    old = sorted(name for name in found if oldest is not None and name != OTHER and name < oldest)
    made = _as_far_as_possible(db, missing, _make_partition)
    dropped = _as_far_as_possible(db, old, _drop_partition)
    return made, dropped, len(missing) + len(old) - made - dropped


T = TypeVar("T")


def _as_far_as_possible(
    db: psycopg.Connection, items: Sequence[T], act: Callable[[psycopg.Connection, T], None]
) -> int:
    """Act on each item in a transaction of its own, until one has to wait for another transaction too often. Returns
    how many were done.

    Whoever waits for such a lock makes all gates wait behind it, so a wait is shorter than theirs.
    """
    for done, item in enumerate(items):
        for attempt in range(TRIES):
            time.sleep(PAUSE if attempt else 0.0)
            try:
                with db.transaction():
                    db.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT * 1e3:.0f}".encode())
                    act(db, item)
            except psycopg.errors.LockNotAvailable:
                continue
            break
        else:
            return done
    return len(items)


def _drop_partition(db: psycopg.Connection, name: str) -> None:
    db.execute(sql.SQL("DROP TABLE samplegate.{}").format(sql.Identifier(name)))


def _make_partition(db: psycopg.Connection, day: date) -> None:
    """Make the partition of a day, with the records of that day that have arrived before it. Most are moved before the
    table is locked."""
    name, begin, end = sql.Identifier(schema.SCHEMA, _name(day)), day.isoformat(), (day + timedelta(days=1)).isoformat()
    moved = sql.SQL(
        "WITH moved AS (DELETE FROM samplegate.decisions_other WHERE time >= %s AND time < %s RETURNING *)"
        " INSERT INTO {} SELECT * FROM moved"
    ).format(name)
    db.execute(
        sql.SQL("CREATE TABLE {} (LIKE samplegate.decisions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)").format(name)
    )
    db.execute(moved, (begin, end))
    db.execute("LOCK TABLE samplegate.decisions IN SHARE ROW EXCLUSIVE MODE")
    db.execute(moved, (begin, end))
    db.execute(
        sql.SQL("ALTER TABLE samplegate.decisions ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
            name, begin, end
        )
    )


def _name(day: date) -> str:
    return f"decisions_{day:%Y%m%d}"
