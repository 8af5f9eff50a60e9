"""The watch over the shared database: whether it can be reached, and whether a standby may lose what was confirmed."""

from __future__ import annotations

from typing import Final

import anyio
import anyio.to_thread

from samplegate.runtime.process import ProcessContext

INTERVAL: Final = 30.0
"""Seconds between two looks."""
PATIENCE: Final = 5.0


class DatabaseWatch:
    """The watch of one process. What it finds is logged once, in the metrics, and among the problems of the status."""

    def __init__(self, context: ProcessContext, url: str) -> None:
        from samplegate.postgres.connection import PostgresConnection

        self._context = context
        self._connection = PostgresConnection(url)
        self._limiter = anyio.CapacityLimiter(1)
        self._fault: str | None = None
        self._standby: str | None = None

    async def run(self) -> None:
        """Look at the start and every ``INTERVAL`` seconds, until cancelled."""
        try:
            while True:
                await anyio.to_thread.run_sync(self._look, limiter=self._limiter, abandon_on_cancel=True)
                self._tell()
                await anyio.sleep(INTERVAL)
        finally:
            self._connection.close()

    def _look(self) -> None:
        from samplegate.postgres.faults import PostgresFault
        from samplegate.postgres.maintenance import standby_warning

        try:
            with self._connection.transaction(lambda: PATIENCE, "REPEATABLE READ, READ ONLY") as db:
                self._standby = standby_warning(db)
            self._fault = None
        except PostgresFault as problem:
            self._fault = str(problem)

    def _tell(self) -> None:
        context, place = self._context, self._connection.place
        found = tuple(f"database {place}: {problem}" for problem in (self._fault, self._standby) if problem is not None)
        context.metrics.set("samplegate_database_failing", float(self._fault is not None))
        context.metrics.set("samplegate_database_standby_asynchronous", float(self._standby is not None))
        for problem in found:
            if problem not in context.database_problems:
                (context.log.error if problem.endswith(str(self._fault)) else context.log.warning)(
                    "database.problem", problem=problem
                )
        if context.database_problems and not found:
            context.log.info("database.works", place=place)
        context.database_problems = found
