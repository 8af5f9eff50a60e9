"""The watch over the shared database: whether it can be reached, whether a standby may lose what was confirmed, and
which tokens were withdrawn at another gate."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import anyio
import anyio.to_thread

from samplegate.runtime.process import ProcessContext

INTERVAL: Final = 5.0
"""Seconds between two looks."""
PATIENCE: Final = 5.0
WITHDRAWN: Final = "withdrawn token "
"""The beginning of a fact's name; the rest is the SHA-256 hash of the token in hex."""
MAX_WITHDRAWN: Final = 100_000

_WITHDRAWN: Final = "SELECT substr(name, %s) FROM review_facts WHERE name >= %s AND name < %s LIMIT %s"
_WITHDRAW: Final = (
    "INSERT INTO review_facts(name, number) SELECT name, extract(epoch FROM clock_timestamp())::bigint"
    " FROM unnest(%s::text[]) name ON CONFLICT DO NOTHING"
)
_ALLOW: Final = "DELETE FROM review_facts WHERE name = ANY(%s::text[])"


class DatabaseWatch:
    """The watch of one process. What it finds is logged once, in the metrics, and among the problems of the status.

    ``changed`` is called when tokens were withdrawn or allowed again at another gate.
    """

    def __init__(
        self, context: ProcessContext, url: str, changed: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        from samplegate.postgres.connection import PostgresConnection

        self._context = context
        self._changed = changed
        self._connection = PostgresConnection(url)
        self._one_at_a_time = threading.Lock()
        self._over = False
        self._fault: str | None = None
        self._failed = False
        self._standby: str | None = None
        self._withdrawn: frozenset[bytes] = frozenset()
        self._owed: dict[str, bool] = {}
        """Tokens (hashes in hex) that are to be withdrawn, or else allowed again, at all gates."""

    async def run(self) -> None:
        """Look at the start and every ``INTERVAL`` seconds, until cancelled."""
        try:
            while True:
                try:
                    await self._look_once()
                except Exception:  # a fault of the watch must not end the gate
                    self._context.log.error("database.watch_failed", exc_info=True)  # noqa: G201
                await anyio.sleep(INTERVAL)
        finally:
            self._over = True
            self._connection.close()

    async def _look_once(self) -> None:
        await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
        self._tell()
        if self._withdrawn != self._context.withdrawn:
            self._context.withdrawn = self._withdrawn
            if self._changed is not None:
                await self._changed()

    async def withdraw(self, gone: Collection[str], allowed: Collection[str]) -> None:
        """Withdraw tokens (hashes in hex) at all gates, and allow others again. Never raises: a failure is logged, and
        made up for as soon as the database works again."""
        from samplegate.postgres.faults import PostgresFault

        self._owed |= {**dict.fromkeys(gone, True), **dict.fromkeys(allowed, False)}
        try:
            await anyio.to_thread.run_sync(self._write_owed)
        except PostgresFault as problem:
            remedy = "other gates accept these tokens until the database works again; remove them there, too"
            self._context.log.error(
                "database.tokens_not_withdrawn", problem=str(problem), tokens=len(gone), remedy=remedy
            )

    def _write_owed(self) -> None:
        """Write which tokens are withdrawn. Raises PostgresFault."""
        with self._one_at_a_time:
            owed = dict(self._owed)
            if not owed:
                return
            names = {digest: f"{WITHDRAWN}{digest}" for digest in sorted(owed)}
            with self._connection.transaction(lambda: PATIENCE) as db:
                db.execute(_WITHDRAW, ([name for digest, name in names.items() if owed[digest]],))
                db.execute(_ALLOW, ([name for digest, name in names.items() if not owed[digest]],))
            for digest, is_gone in owed.items():
                if self._owed.get(digest) is is_gone:
                    del self._owed[digest]

    def _look(self) -> None:
        from samplegate.postgres.faults import PostgresFault
        from samplegate.postgres.maintenance import standby_warning

        reading = self._connection.transaction(lambda: PATIENCE, "REPEATABLE READ, READ ONLY")
        try:
            self._write_owed()
            with self._one_at_a_time, reading as db:
                self._standby = standby_warning(db)
                where = (len(WITHDRAWN) + 1, WITHDRAWN, f"{WITHDRAWN}~", MAX_WITHDRAWN)
                self._withdrawn = frozenset(
                    bytes.fromhex(digest) for (digest,) in db.execute(_WITHDRAWN, where).fetchall()
                )
            self._fault = None
        except PostgresFault as problem:
            self._fault = str(problem)
        finally:
            if self._over:  # the process does not wait for a look that goes on
                self._connection.close()

    def _tell(self) -> None:
        context, place = self._context, self._connection.place
        told = [(context.log.error, self._fault), (context.log.warning, self._standby)]
        found = [(say, f"database {place}: {problem}") for say, problem in told if problem is not None]
        context.metrics.set("samplegate_database_failing", float(self._fault is not None))
        context.metrics.set("samplegate_database_standby_asynchronous", float(self._standby is not None))
        for say, problem in found:
            if problem not in context.database_problems:
                say("database.problem", problem=problem)
        if self._failed and self._fault is None:
            context.log.info("database.works", place=place)
        self._failed = self._fault is not None
        context.database_problems = tuple(problem for _, problem in found)
