"""A server behind HTTP: Streamable HTTP in both eras, as raw frames. ``remote.Remote`` is the link, ``pool`` makes what it sends with."""
