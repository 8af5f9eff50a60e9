"""samplegate that waits fractions of a second where others wait for seconds: for leases and locked stores of reviews,
and for what clients ask right after the last answer of a drain. Tests see what it does then without waiting as long."""

from __future__ import annotations

import runpy

from samplegate.reviews import service, sql_schema
from samplegate.server import daemon

service.LEASE = 0.5  # type: ignore[misc]
sql_schema.PATIENCE = 0.5  # type: ignore[misc]
daemon.LINGER = 0.1  # type: ignore[misc]
runpy.run_module("samplegate", run_name="__main__", alter_sys=True)
