"""Benchmarks of limits and reviews that gates share in a database."""
