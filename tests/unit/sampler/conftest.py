"""Fixtures for the sampler's tests."""

from tests.fakes.sampler_fixtures import anyio_backend, endpoint, environment

__all__ = ["anyio_backend", "endpoint", "environment"]
