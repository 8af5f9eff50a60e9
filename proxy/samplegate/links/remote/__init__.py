"""A server behind HTTP: Streamable HTTP in both eras, as raw frames. ``connection.Remote`` is the link."""
