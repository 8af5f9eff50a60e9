"""samplegate with waits of fractions of a second in place of seconds: leases, locked review stores, and the drain's
wait for last requests. Tests can then see what it does after these waits."""

from __future__ import annotations

import runpy

from samplegate.reviews import service, sql_database
from samplegate.server import daemon

service.LEASE = 0.5  # type: ignore[misc]
sql_database.PATIENCE = 0.5  # type: ignore[misc]
daemon.LINGER = 0.1  # type: ignore[misc]
runpy.run_module("samplegate", run_name="__main__", alter_sys=True)
