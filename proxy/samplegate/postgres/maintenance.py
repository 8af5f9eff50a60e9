"""Maintenance of the shared database by the role that owns its tables: migrations, rights, and the decision log's
partitions; and the check for standbys that may lose what was confirmed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

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
    standby: str | None


def maintain(url: str, *, gates: str | None, readers: str | None, keep_days: int | None) -> Maintained:
    """Create or migrate the tables, grant rights to two roles, make the partitions of the next days, and drop those of
    days before the last ``keep_days``. Raises Unavailable."""
    with _connected(url) as db:
        before, after = schema.migrate(db, gates=gates, readers=readers)
        (today,) = db.execute("SELECT (now() AT TIME ZONE 'UTC')::date").fetchone() or (datetime.now(UTC).date(),)
        made, dropped = _partition(db, today, keep_days)
        return Maintained(before, after, made, dropped, standby_warning(db))


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


def _partition(db: psycopg.Connection, today: date, keep_days: int | None) -> tuple[int, int]:
    """Make and drop partitions. Returns how many."""
    found = {name for (name,) in db.execute(_PARTITIONS).fetchall()}
    wanted = {today + timedelta(days=number) for number in range(DAYS_AHEAD + 1)}
    wanted |= {date.fromisoformat(day) for (day,) in db.execute(_LATE_DAYS).fetchall()}
    made = [day for day in sorted(wanted) if _name(day) not in found]
    for day in made:
        _make_partition(db, day)
    oldest = None if keep_days is None else _name(today - timedelta(days=keep_days))
    old = sorted(name for name in found if oldest is not None and name != OTHER and name < oldest)
    for name in old:
        db.execute(sql.SQL("DROP TABLE samplegate.{}").format(sql.Identifier(name)))
    return len(made), len(old)


def _make_partition(db: psycopg.Connection, day: date) -> None:
    """Make the partition of a day, with the records of that day that have arrived before it."""
    name, begin, end = sql.Identifier(schema.SCHEMA, _name(day)), day.isoformat(), (day + timedelta(days=1)).isoformat()
    with db.transaction():
        db.execute("SET LOCAL lock_timeout = '10s'")
        db.execute("LOCK TABLE samplegate.decisions IN SHARE ROW EXCLUSIVE MODE")
        db.execute(
            sql.SQL("CREATE TABLE {} (LIKE samplegate.decisions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)").format(name)
        )
        moved = "WITH moved AS (DELETE FROM samplegate.decisions_other WHERE time >= %s AND time < %s RETURNING *)"
        db.execute(sql.SQL(moved + " INSERT INTO {} SELECT * FROM moved").format(name), (begin, end))
        db.execute(
            sql.SQL("ALTER TABLE samplegate.decisions ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                name, begin, end
            )
        )


def _name(day: date) -> str:
    return f"decisions_{day:%Y%m%d}"
