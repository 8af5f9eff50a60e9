"""Fixtures for the commands."""

from tests.fakes.command_fixtures import empty_store, run, write

__all__ = ["empty_store", "run", "write"]
