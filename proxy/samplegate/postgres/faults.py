"""Faults of a PostgreSQL database, worded for operators: no statement, value, host or password is in them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import psycopg

Kind: TypeAlias = Literal["busy", "full", "read_only", "refused", "damaged", "newer", "unreachable"]

_UNREACHABLE: Final[tuple[Kind, str, str]] = (
    "unreachable",
    "it cannot be reached",
    "check that it runs, and its address in the setting database",
)
LATE: Final[tuple[Kind, str, str]] = ("busy", "it did not respond in time", "check its load, and long transactions")
_LOST: Final[tuple[Kind, str, str]] = (
    "damaged",
    "a table is not as samplegate made it",
    "restore the database from a backup",
)
_RIGHTS: Final[tuple[Kind, str, str]] = (
    "read_only",
    "this role lacks a right",
    "as the owner, grant it with: samplegate database migrate --gates ROLE (of reports: --readers ROLE)",
)
_HIDDEN: Final[tuple[Kind, str, str]] = (
    "damaged",
    "a table is missing, or this role may not use the schema samplegate",
    _RIGHTS[2],
)
_REFUSED: Final[tuple[Kind, str, str]] = (
    "refused",
    "it refuses this user or password",
    "check the user in the setting database, and its password",
)
_TLS: Final[tuple[Kind, str, str]] = (
    "refused",
    "a connection with TLS is not possible",
    "check sslmode and sslrootcert in the setting database, and the server's certificate",
)
_STATES: Final[dict[str, tuple[Kind, str, str]]] = {
    "08": _UNREACHABLE,
    "25006": ("read_only", "it is read-only", "connect to the primary, not to a standby"),
    "25P03": LATE,
    "28": _REFUSED,
    "3D000": ("refused", "it has no such database", "create it: createdb -E UTF8 NAME"),
    "40": ("busy", "another transaction was in the way", "try again"),
    "42501": _RIGHTS,
    "42P01": _HIDDEN,
    "42703": _LOST,
    "3F": _HIDDEN,
    "22": _LOST,
    "23": _LOST,
    "42883": _LOST,
    "42704": ("refused", "a role does not exist", "create it: createuser NAME"),
    "53100": ("full", "its disk is full", "free disk space"),
    "53300": ("busy", "it has no free connection", "raise max_connections, or use PgBouncer"),
    "53200": ("full", "it lacks memory", "raise its memory, or lower its load"),
    "53": ("full", "it lacks memory or another resource", "check its log"),
    "55P03": ("busy", "another process holds a lock", "check for long transactions: select * from pg_stat_activity"),
    "57014": LATE,
    "57P": _UNREACHABLE,
    "XX": ("damaged", "it reports damaged data", "check its log"),
}
"""SQLSTATE, or its beginning, to the kind, the problem and the remedy. The longest that matches counts."""
_TEXTS: Final[tuple[tuple[str, tuple[Kind, str, str]], ...]] = (
    ("too many", _STATES["53300"]),
    ("connection slots are reserved", _STATES["53300"]),
    ("no more connections allowed", _STATES["53300"]),
    ("permission denied for database", ("read_only", "this role may not connect to it", "GRANT CONNECT to it")),
    ("authentication", _REFUSED),
    ("no password supplied", _REFUSED),
    ("no pg_hba.conf entry", _REFUSED),
    ("no such user", _REFUSED),
    ('role "', _REFUSED),
    ("session is read-only", _STATES["25006"]),
    ("hot standby mode", _STATES["25006"]),
    ("does not exist", _STATES["3D000"]),
    ("no such database", _STATES["3D000"]),
    ("certificate", _TLS),
    ("SSL", _TLS),
)
"""Words in the error of a refused connection, which has no SQLSTATE, of a server or of PgBouncer. The first row counts.
A server with messages in another language counts as unreachable."""


class PostgresFault(Exception):
    """A database that cannot be used. The message has no statement, value or password. ``undone``: it is certain that
    nothing was changed."""

    def __init__(self, kind: Kind, problem: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (problem, remedy))))
        self.kind: Kind = kind
        self.problem = problem
        """The message without the remedy."""
        self.remedy = remedy
        self.undone = True


def fault_of(problem: psycopg.Error | PostgresFault | OSError) -> PostgresFault:
    """An error as a PostgresFault."""
    if isinstance(problem, PostgresFault):
        return problem
    state = getattr(problem, "sqlstate", None) or ""
    if not state:
        text = str(problem)
        kind, said, remedy = next((row for words, row in _TEXTS if words in text), _UNREACHABLE)
        return PostgresFault(kind, said, remedy)
    for length in (5, 3, 2):
        if (row := _STATES.get(state[:length])) is not None:
            return PostgresFault(row[0], f"{row[1]} ({state})", row[2])
    return PostgresFault("unreachable", f"it reports SQLSTATE {state}", "check its log")
