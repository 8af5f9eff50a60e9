"""What calls over HTTP cost: the daemon in front of a stdio server and of one over HTTP, beside a bare endpoint and
other proxies."""
