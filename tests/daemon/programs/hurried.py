"""samplegate that waits for leases and for locked stores of reviews in fractions of a second, where others wait for
seconds: tests see it give up without waiting as long."""

from __future__ import annotations

import runpy

from samplegate.reviews import service, sql_schema

vars(service).update(LEASE=0.5)
vars(sql_schema).update(PATIENCE=0.5)
runpy.run_module("samplegate", run_name="__main__", alter_sys=True)
