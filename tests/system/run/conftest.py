"""The fixture of tests that start `samplegate run`."""

from tests.fakes.run_command import run

__all__ = ["run"]
