"""MCP over HTTP in front: one ASGI endpoint a server, in both eras, that relays raw frames. Not who may call
(``callers``), not what is decided."""
