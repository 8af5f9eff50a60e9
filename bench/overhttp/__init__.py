"""Benchmarks over HTTP: `samplegate serve` in front of a stdio server and of an HTTP server, beside a bare endpoint and
other proxies."""
